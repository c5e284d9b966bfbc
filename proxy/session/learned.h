// Owners learned from tombstones before the directory has said so. An entry stands against one
// word of the directory about its key: it ends when the directory says another thing, with a new
// generation, and after kLearnedLifeNs. Pure, one thread.
#pragma once

#include <boost/unordered/unordered_flat_map.hpp>
#include <cstdint>
#include <optional>
#include <string_view>

#include "routing/snapshot.h"

namespace collegedb::session {

// Far below the age at which tombstones are purged.
inline constexpr std::uint64_t kLearnedLifeNs = 10'000'000'000;

class LearnedOwners {
 public:
  // What is known beside a key when its owner is asked for.
  struct Context {
    routing::ShardId directory;  // the owner by the snapshot
    std::int64_t generation;     // of the snapshot
    std::uint64_t now_ns;        // any steady clock
  };

  // A tombstone leads from `known.directory`, or from a shard it led to, to `owner`.
  void learn(std::string_view group, std::string_view key, routing::ShardId owner,
             const Context& known);
  // Where the tombstones led; nullopt: the directory's word stands.
  [[nodiscard]] std::optional<routing::ShardId> find(std::string_view group, std::string_view key,
                                                     const Context& known);
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
