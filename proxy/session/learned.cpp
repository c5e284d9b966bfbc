#include "proxy/session/learned.h"

#include <string>

namespace collegedb::session {
namespace {
constexpr std::size_t kMaxLearned = 10000;
}

void LearnedOwners::follow(std::uint64_t snapshot_version) {
  if (snapshot_version != version_) {
    owners_.clear();
    version_ = snapshot_version;
  }
}

void LearnedOwners::learn(std::uint64_t snapshot_version, std::string_view group,
                          std::string_view key, routing::ShardId shard) {
  follow(snapshot_version);
  if (owners_.size() >= kMaxLearned) {
    owners_.clear();
  }
  owners_[routing::GroupKey{std::string(group), std::string(key)}] = shard;
}

std::optional<routing::ShardId> LearnedOwners::find(std::uint64_t snapshot_version,
                                                    std::string_view group, std::string_view key) {
  follow(snapshot_version);
  if (owners_.empty()) {
    return std::nullopt;
  }
  const auto found = owners_.find(routing::GroupKey{std::string(group), std::string(key)});
  return found == owners_.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace collegedb::session
