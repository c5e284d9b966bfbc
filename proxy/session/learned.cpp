#include "proxy/session/learned.h"

#include <string>

namespace collegedb::session {
namespace {
constexpr std::size_t kMaxLearned = 100000;
}

void LearnedOwners::learn(std::string_view group, std::string_view key, routing::ShardId owner,
                          const Context& known) {
  routing::GroupKey name{std::string(group), std::string(key)};
  if (owners_.size() >= kMaxLearned) {
    owners_.clear();
  }
  owners_[std::move(name)] = Entry{owner, known};
}

void LearnedOwners::forget(std::string_view group, std::string_view key) {
  if (const auto found = owners_.find(routing::GroupKeyView{group, key}); found != owners_.end()) {
    owners_.erase(found);
  }
}

std::optional<routing::ShardId> LearnedOwners::find(std::string_view group, std::string_view key,
                                                    const Context& known) {
  const auto found = owners_.find(routing::GroupKeyView{group, key});
  if (found == owners_.end()) {
    return std::nullopt;
  }
  const Context& against = found->second.against;
  if (against.directory != known.directory || against.generation != known.generation ||
      known.now_ns - against.now_ns > kLearnedLifeNs) {
    owners_.erase(found);
    return std::nullopt;
  }
  return found->second.owner;
}

}  // namespace collegedb::session
