// Owners that shards have told: by a tombstone, before the directory says so, or because they were
// asked for a key that the active epochs place differently. An entry stands against one word of the
// directory about its key: it ends when the directory says another thing, with a new generation,
// and after kLearnedLifeNs. A wrong one costs a hop: the shard it names has a tombstone. Pure, one
// thread.
#pragma once

#include <boost/unordered/unordered_flat_map.hpp>
#include <cstdint>
#include <optional>
#include <string_view>

#include "routing/snapshot.h"

namespace collegedb::session {

// Far below the age at which tombstones are purged.
inline constexpr std::uint64_t kLearnedLifeNs = 60'000'000'000;

class LearnedOwners {
 public:
  // What is known beside a key when its owner is asked for.
  struct Context {
    routing::ShardId directory;  // the owner by the snapshot
    std::int64_t generation;     // of the snapshot
    std::uint64_t now_ns;        // any steady clock
  };

  // The key is on `owner` now.
  void learn(std::string_view group, std::string_view key, routing::ShardId owner,
             const Context& known);
  // nullopt: nothing better than the directory's word is known.
  [[nodiscard]] std::optional<routing::ShardId> find(std::string_view group, std::string_view key,
                                                     const Context& known);
  void forget(std::string_view group, std::string_view key);
  [[nodiscard]] bool empty() const noexcept { return owners_.empty(); }

 private:
  struct Entry {
    routing::ShardId owner;
    Context against;
  };
  boost::unordered_flat_map<routing::GroupKey, Entry, routing::GroupKeyHash, routing::GroupKeyEqual>
      owners_;
};

}  // namespace collegedb::session
