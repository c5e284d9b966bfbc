// Owners that the shards or the directory have told: by a tombstone before the directory says so,
// because they were asked for a key that the active epochs place differently, or as mappings. An
// entry stands against one word of the snapshot about its key: it ends when the snapshot says
// another thing, with a new generation, and after its life. A wrong one costs a hop: the shard it
// names has a tombstone. Pure, one thread.
#pragma once

#include <boost/unordered/unordered_flat_map.hpp>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "routing/snapshot.h"

namespace collegedb::session {

// Life of an entry under computed placement. Tombstones are kept for ever, or until nobody can know
// the way past them any more.
inline constexpr std::uint64_t kLearnedLifeNs = 60'000'000'000;
inline constexpr std::size_t kMostLearned = 200'000;

class LearnedOwners {
 public:
  // `most`: entries; of more the older ones go, half of them at a time.
  explicit LearnedOwners(std::size_t most = kMostLearned) : most_(most) {}

  // What is known beside a key when its owner is asked for.
  struct Context {
    routing::ShardId directory;  // the owner by the snapshot
    std::int64_t generation;     // of the snapshot
    std::uint64_t now_ns;        // any steady clock
  };

  // The key is on `owner` now; `life_ns` of 0: not to be remembered.
  void learn(std::string_view group, std::string_view key, routing::ShardId owner,
             const Context& known, std::uint64_t life_ns = kLearnedLifeNs);
  // nullopt: nothing better than the snapshot's word is known.
  [[nodiscard]] std::optional<routing::ShardId> find(std::string_view group, std::string_view key,
                                                     const Context& known);
  void forget(std::string_view group, std::string_view key);
  [[nodiscard]] bool empty() const noexcept { return young_.empty() && old_.empty(); }
  [[nodiscard]] std::size_t size() const noexcept { return young_.size() + old_.size(); }

 private:
  struct Entry {
    routing::ShardId owner;
    routing::ShardId directory;
    std::int64_t generation;
    std::uint64_t until_ns;
  };
  using Owners = boost::unordered_flat_map<routing::GroupKey, Entry, routing::GroupKeyHash,
                                           routing::GroupKeyEqual>;
  void keep(routing::GroupKey name, const Entry& entry);

  std::size_t most_;
  // A key is in one of them. What is used while old goes back among the young.
  Owners young_;
  Owners old_;
};

}  // namespace collegedb::session
