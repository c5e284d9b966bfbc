#include "migration/finder.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <string_view>
#include <thread>
#include <utility>

#include "migration/operation.h"
#include "proxy/session/guard.h"
#include "routing/key.h"

namespace collegedb::migration {
namespace {

using namespace std::chrono_literals;
using routing::ShardId;

constexpr int kMaxHops = 4;
constexpr auto kPause = 10ms;  // between tries for a fence that somebody holds

// What a shard has of a key.
struct Probe {
  bool rows = false;
  std::optional<std::string> moved_to;
};

// $1 scope, $2 group, $3 key. One statement, so one snapshot: a move that commits meanwhile is seen
// whole or not at all.
std::string probe_sql(const routing::Snapshot& snapshot, const std::string& group) {
  std::string any;
  for (const routing::TableInfo& table : snapshot.tables) {
    if (table.kind != routing::TableKind::kSharded || table.group != group) continue;
    any += (any.empty() ? "" : " OR ") +
           ("EXISTS (SELECT 1 FROM " + quote_identifier(table.name.schema) + "." +
            quote_identifier(table.name.name) + " WHERE " +
            routing::sql_key_condition(table.key_type, quote_identifier(table.key_column),
                                       "$3::pg_catalog.text") +
            ")");
  }
  return "SELECT " + (any.empty() ? "false" : any) +
         ", (SELECT moved_to FROM collegedb.retired WHERE scope = $1::pg_catalog.text"
         " AND grp = $2::pg_catalog.text AND key = $3::pg_catalog.text)";
}

bool passes(const SqlError& error) {
  constexpr std::array<std::string_view, 3> kPassing = {"55P03", "40001", "40P01"};
  return std::find(kPassing.begin(), kPassing.end(), error.sqlstate) != kPassing.end();
}

}  // namespace

// One try for one key.
class Finder::Search {
 public:
  Search(const RunnerOptions& options, const routing::Snapshot& snapshot,
         const routing::RoutedKey& key)
      : options_(options),
        snapshot_(snapshot),
        key_(key),
        probe_sql_(probe_sql(snapshot, key.group)),
        owners_(routing::candidates(snapshot, key.key)) {}

  // Throws SqlFailure.
  KeyPlace run(bool for_write) {
    if (owners_.empty()) {
      throw SqlFailure(make_error(ErrorCode::kPlacementUnverified, "no epoch is active"), "");
    }
    std::vector<std::string> next;
    std::optional<std::string> newest_moved_to;
    for (const ShardId owner : owners_) {
      Probe found = probe(owner);
      if (found.rows) return {owner, true};
      if (owner == owners_.front()) newest_moved_to = found.moved_to;
      if (found.moved_to) next.push_back(std::move(*found.moved_to));
    }
    for (std::string& name : next) {
      if (const auto there = follow(std::move(name))) return {*there, true};
    }
    if (!for_write) return {owners_.front(), false};
    for (std::size_t i = owners_.size() - 1; i > 0; --i) {
      if (const auto elsewhere = close(i)) return {*elsewhere, true};
    }
    if (newest_moved_to) {
      if (const auto elsewhere = reopen_newest()) return {*elsewhere, true};
    }
    return {owners_.front(), true};
  }

 private:
  // A session that goes back to the pool when it is idle, and is closed otherwise.
  class Lease {
   public:
    Lease(SessionPool& pool, std::unique_ptr<ControlSession> session)
        : pool_(pool), session_(std::move(session)) {}
    ~Lease() { pool_.give_back(std::move(session_)); }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    ControlSession& operator*() { return *session_; }
    ControlSession* operator->() { return session_.get(); }

   private:
    SessionPool& pool_;
    std::unique_ptr<ControlSession> session_;
  };

  Lease session(ShardId shard) {
    SessionOptions options;
    options.application_name = "collegedb find";
    options.statement_timeout = 5s;
    options.lock_timeout = options_.limits.cutover_lock_timeout;
    options.dies_with_client = true;
    return {*options_.sessions, options_.sessions->take(options_.shards.at(shard), options)};
  }

  Probe probe(ControlSession& session) {
    const Rows rows = session.run_prepared(probe_sql_, {snapshot_.scope, key_.group, key_.key});
    Probe out;
    out.rows = rows.boolean(0, 0);
    out.moved_to = rows.value(0, 1);
    return out;
  }
  Probe probe(ShardId shard) { return probe(*session(shard)); }

  ShardId shard_named(const std::string& name) {
    if (const auto shard = snapshot_.find_shard(name)) return *shard;
    throw SqlFailure(make_error(ErrorCode::kMigrationLookupUnavailable,
                                "the key moved to shard " + name + ", which is not configured here",
                                "Add the shard to this proxy's configuration."),
                     name);
  }

  // The shard with rows at the end of a chain of tombstones.
  std::optional<ShardId> follow(std::string name) {
    for (int hops = 0; hops < kMaxHops; ++hops) {
      const ShardId shard = shard_named(name);
      Probe found = probe(shard);
      if (found.rows) return shard;
      if (!found.moved_to) return std::nullopt;
      name = std::move(*found.moved_to);
    }
    return std::nullopt;
  }

  // Opens a transaction that no guarded statement of the key's bucket can pass. Refused under an
  // older topology than the shard accepts, as any other write is: what this snapshot calls the
  // newest owner may have none of the key any more.
  void fence(ControlSession& session) {
    const std::string bucket = std::to_string(key_.bucket);
    session.script("BEGIN; SELECT pg_catalog.pg_advisory_xact_lock(" +
                   std::to_string(session::guard::kLockClass) + ", " + bucket + ")");
    const Rows gate = session.run(
        "UPDATE collegedb.gate SET cutovers = cutovers + 1 WHERE bucket = $1::pg_catalog.int4"
        " RETURNING min_generation",
        {bucket});
    if (gate.empty()) {
      throw SqlFailure(
          make_error(ErrorCode::kMigrationLookupUnavailable,
                     "collegedb.gate of shard \"" + session.shard() + "\" lacks bucket " + bucket,
                     "Run collegedb init to repair it."),
          session.shard());
    }
    if (gate.int8(0, 0) > snapshot_.generation) {
      throw SqlFailure(make_error(session::guard::kStale, "the topology has changed meanwhile"),
                       session.shard());
    }
  }

  // Leaves a tombstone on owners_[i]; or tells where the key is instead.
  std::optional<ShardId> close(std::size_t i) {
    const std::string& newer = snapshot_.shards[owners_[i - 1]].name;
    Lease older = session(owners_[i]);
    fence(*older);
    const Probe now = probe(*older);
    if (now.rows || now.moved_to) {
      older->run("ROLLBACK");
      if (now.rows) return owners_[i];
      const ShardId to = shard_named(*now.moved_to);
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
    Lease newest = session(owners_.front());
    fence(*newest);
    if (probe(*newest).rows) {
      newest->run("ROLLBACK");
      return owners_.front();
    }
    newest->run("DELETE FROM collegedb.retired WHERE scope = $1 AND grp = $2 AND key = $3",
                {snapshot_.scope, key_.group, key_.key});
    newest->script("SELECT pg_catalog.nextval('collegedb.cutover_counter'); COMMIT");
    return std::nullopt;
  }

  const RunnerOptions& options_;
  const routing::Snapshot& snapshot_;
  const routing::RoutedKey& key_;
  std::string probe_sql_;
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
      if (passes(failure.error()) && std::chrono::steady_clock::now() < deadline) {
        std::this_thread::sleep_for(kPause);
        continue;
      }
      if (!for_write || failure.error().sqlstate == session::guard::kStale) return failure.error();
      return make_error(ErrorCode::kWriteUnresolved,
                        "the shard of key \"" + key.key + "\" of group " + key.group +
                            " could not be found out; the write was not applied",
                        "Try again.", failure.error().message);
    }
  }
}

}  // namespace collegedb::migration
