#include "proxy/session/learned.h"

#include <string>
#include <utility>

namespace collegedb::session {

void LearnedOwners::keep(routing::GroupKey name, const Entry& entry) {
  if (young_.size() >= most_ / 2) {
    old_ = std::exchange(young_, {});
  }
  young_[std::move(name)] = entry;
}

void LearnedOwners::learn(std::string_view group, std::string_view key, routing::ShardId owner,
                          const Context& known, std::uint64_t life_ns) {
  forget(group, key);
  if (life_ns > 0) {
    keep({std::string(group), std::string(key)},
         {owner, known.directory, known.generation, known.now_ns + life_ns});
  }
}

void LearnedOwners::forget(std::string_view group, std::string_view key) {
  const routing::GroupKeyView name{group, key};
  for (Owners* owners : {&young_, &old_}) {
    if (const auto found = owners->find(name); found != owners->end()) {
      owners->erase(found);
    }
  }
}

std::optional<routing::ShardId> LearnedOwners::find(std::string_view group, std::string_view key,
                                                    const Context& known) {
  const routing::GroupKeyView name{group, key};
  Owners* owners = &young_;
  auto found = owners->find(name);
  if (found == owners->end()) {
    owners = &old_;
    found = owners->find(name);
    if (found == owners->end()) {
      return std::nullopt;
    }
  }
  const Entry entry = found->second;
  if (entry.directory != known.directory || entry.generation != known.generation ||
      known.now_ns > entry.until_ns) {
    owners->erase(found);
    return std::nullopt;
  }
  if (owners == &old_) {
    routing::GroupKey used = found->first;
    owners->erase(found);
    keep(std::move(used), entry);
  }
  return entry.owner;
}

}  // namespace collegedb::session
