// What the shards themselves say of one key: rows of any table of its group, and its tombstone.
// Background threads only; one thread at a time.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "migration/runner.h"
#include "routing/route.h"
#include "routing/snapshot.h"

namespace collegedb::migration {

// A session that goes back to the pool when it is idle, and is closed otherwise.
class LeasedSession {
 public:
  // Throws SqlFailure. `pool` outlives it.
  LeasedSession(SessionPool& pool, const ShardConfig& shard, const SessionOptions& options)
      : pool_(pool), session_(pool.take(shard, options)) {}
  ~LeasedSession() { pool_.give_back(std::move(session_)); }
  LeasedSession(const LeasedSession&) = delete;
  LeasedSession& operator=(const LeasedSession&) = delete;
  ControlSession& operator*() { return *session_; }
  ControlSession* operator->() { return session_.get(); }

 private:
  SessionPool& pool_;
  std::unique_ptr<ControlSession> session_;
};

// True for what is over a moment later: a lock that was not to be had, a lost race.
[[nodiscard]] bool passes(const SqlFailure& failure);
// What a client is told when a look for its key's shard has ended with this: CDB01 and what a read
// met as they are, for a write WRITE_UNRESOLVED.
[[nodiscard]] SqlError not_found_out(const SqlFailure& failure, const routing::RoutedKey& key,
                                     bool for_write);

class KeyProbe {
 public:
  struct Found {
    bool rows = false;
    std::optional<std::string> moved_to;  // of the tombstone
  };

  // All outlive it. REQUIRES: `options` is completed().
  KeyProbe(const RunnerOptions& options, const routing::Snapshot& snapshot,
           const routing::RoutedKey& key);

  // One statement, so one snapshot: a move that commits meanwhile is seen whole or not at all.
  // Throw SqlFailure.
  [[nodiscard]] Found ask(ControlSession& session) const;
  [[nodiscard]] Found ask(routing::ShardId shard) const;
  // Locks on it are waited for no longer than for a cutover's.
  [[nodiscard]] LeasedSession session(routing::ShardId shard) const;

  // Throws SqlFailure, MIGRATION_LOOKUP_UNAVAILABLE, when none of that name is configured.
  [[nodiscard]] routing::ShardId shard_named(const std::string& name) const;

  struct Trail {
    routing::ShardId end = routing::kNoShard;  // without a tombstone of its own
    bool rows = false;                         // there
  };
  // Along the tombstones, beginning on the shard named. nullopt when there are too many.
  [[nodiscard]] std::optional<Trail> follow(std::string name) const;

 private:
  const RunnerOptions& options_;
  const routing::Snapshot& snapshot_;
  const routing::RoutedKey& key_;
  std::string sql_;
};

}  // namespace collegedb::migration
