#include "migration/finder.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "migration/bucket_fence.h"
#include "migration/key_probe.h"
#include "migration/operation.h"

namespace collegedb::migration {
namespace {

using namespace std::chrono_literals;
using routing::ShardId;

constexpr auto kPause = 10ms;  // between tries for a fence that somebody holds

}  // namespace

// One try for one key.
class Finder::Search {
 public:
  Search(const RunnerOptions& options, const routing::Snapshot& snapshot,
         const routing::RoutedKey& key)
      : snapshot_(snapshot),
        key_(key),
        probe_(options, snapshot, key),
        owners_(routing::candidates(snapshot, key.key)) {}

  // Throws SqlFailure.
  KeyPlace run(bool for_write) {
    if (owners_.empty()) {
      throw SqlFailure(make_error(ErrorCode::kPlacementUnverified, "no epoch is active"), "");
    }
    std::vector<std::string> next;
    std::optional<std::string> newest_moved_to;
    for (const ShardId owner : owners_) {
      KeyProbe::Found found = probe_.ask(owner);
      if (found.rows) return {owner, true};
      if (owner == owners_.front()) newest_moved_to = found.moved_to;
      if (found.moved_to) next.push_back(std::move(*found.moved_to));
    }
    for (std::string& name : next) {
      const auto trail = probe_.follow(std::move(name));
      if (trail && trail->rows) return {trail->end, true};
    }
    if (!for_write) return {.shard = owners_.front(), .settled = false, .nobody = true};
    for (std::size_t i = owners_.size() - 1; i > 0; --i) {
      if (const auto elsewhere = close(i)) return {*elsewhere, true};
    }
    if (newest_moved_to) {
      if (const auto elsewhere = reopen_newest()) return {*elsewhere, true};
    }
    return {owners_.front(), true};
  }

 private:
  // Leaves a tombstone on owners_[i]; or tells where the key is instead.
  std::optional<ShardId> close(std::size_t i) {
    const std::string& newer = snapshot_.shards[owners_[i - 1]].name;
    LeasedSession older = probe_.session(owners_[i]);
    open_bucket_fence(*older, key_.bucket, snapshot_.generation);
    const KeyProbe::Found now = probe_.ask(*older);
    if (now.rows || now.moved_to) {
      older->run("ROLLBACK");
      if (now.rows) return owners_[i];
      const ShardId to = probe_.shard_named(*now.moved_to);
      const auto newer_owners = owners_.begin() + static_cast<std::ptrdiff_t>(i);
      return std::find(owners_.begin(), newer_owners, to) != newer_owners ? std::nullopt
                                                                          : std::optional(to);
    }
    const auto lit = [](const std::string& text) { return quote_literal(text); };
    older->script("INSERT INTO collegedb.retired (scope, grp, key, op, moved_to) VALUES (" +
                  lit(snapshot_.scope) + ", " + lit(key_.group) + ", " + lit(key_.key) +
                  ", 'epoch:" + std::to_string(snapshot_.generation) +
                  ":' || pg_catalog.gen_random_uuid(), " + lit(newer) +
                  "); SELECT pg_catalog.nextval('collegedb.cutover_counter'); COMMIT");
    return std::nullopt;
  }

  // The newest owner was an older one once and has a tombstone from then. All others lead to it by
  // now.
  std::optional<ShardId> reopen_newest() {
    LeasedSession newest = probe_.session(owners_.front());
    open_bucket_fence(*newest, key_.bucket, snapshot_.generation);
    if (probe_.ask(*newest).rows) {
      newest->run("ROLLBACK");
      return owners_.front();
    }
    newest->run("DELETE FROM collegedb.retired WHERE scope = $1 AND grp = $2 AND key = $3",
                {snapshot_.scope, key_.group, key_.key});
    newest->script("SELECT pg_catalog.nextval('collegedb.cutover_counter'); COMMIT");
    return std::nullopt;
  }

  const routing::Snapshot& snapshot_;
  const routing::RoutedKey& key_;
  KeyProbe probe_;
  routing::Candidates owners_;
};

Finder::Finder(RunnerOptions options) : options_(completed(std::move(options))) {}

Result<KeyPlace> Finder::find(const routing::Snapshot& snapshot, const routing::RoutedKey& key,
                              bool for_write) {
  const auto deadline = std::chrono::steady_clock::now() + options_.limits.write_hold;
  for (;;) {
    try {
      return Search(options_, snapshot, key).run(for_write);
    } catch (const SqlFailure& failure) {
      if (passes(failure) && std::chrono::steady_clock::now() < deadline) {
        std::this_thread::sleep_for(kPause);
        continue;
      }
      return not_found_out(failure, key, for_write);
    }
  }
}

}  // namespace collegedb::migration
