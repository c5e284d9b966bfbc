// Owners learned from tombstones before the directory has said so. A cache of one snapshot version:
// a newer snapshot forgets all of it. Pure, one thread.
#pragma once

#include <boost/unordered/unordered_flat_map.hpp>
#include <cstdint>
#include <optional>
#include <string_view>

#include "routing/snapshot.h"

namespace collegedb::session {

class LearnedOwners {
 public:
  void learn(std::uint64_t snapshot_version, std::string_view group, std::string_view key,
             routing::ShardId shard);
  [[nodiscard]] std::optional<routing::ShardId> find(std::uint64_t snapshot_version,
                                                     std::string_view group, std::string_view key);

 private:
  void follow(std::uint64_t snapshot_version);

  std::uint64_t version_ = 0;
  boost::unordered_flat_map<routing::GroupKey, routing::ShardId, routing::GroupKeyHash> owners_;
};

}  // namespace collegedb::session
