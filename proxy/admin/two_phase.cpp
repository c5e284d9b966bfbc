#include "proxy/admin/two_phase.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>

namespace collegedb::admin {
namespace {

using namespace std::chrono_literals;
using migration::ControlSession;
using migration::Rows;
using migration::SqlFailure;
using migration::Transaction;

std::string prefix_of(const Config& config) {
  return "collegedb:" + config.journal.scope + ":ddl:";
}

const ShardConfig& journal_of(const Config& config) {
  return config.shards[config.journal_index()];
}

void raise_registry_version(ControlSession& journal, const std::string& scope) {
  journal.run(
      "UPDATE collegedb.manifest SET registry_version = registry_version + 1"
      " WHERE scope = $1",
      {scope});
}

// True when the shard has no half of this transaction any more.
bool end_half(const Config& config, const std::string& shard, const std::string& gid, bool commit) {
  const auto found = std::find_if(config.shards.begin(), config.shards.end(),
                                  [&](const ShardConfig& each) { return each.name == shard; });
  if (found == config.shards.end()) {
    spdlog::warn("two-phase {}: shard {} is not configured here", gid, shard);
    return false;
  }
  try {
    ControlSession session(*found);
    const Rows there = session.run(
        "SELECT 1 FROM pg_catalog.pg_prepared_xacts WHERE gid = $1"
        " AND database = pg_catalog.current_database()",
        {gid});
    if (!there.empty()) {
      session.run((commit ? "COMMIT PREPARED " : "ROLLBACK PREPARED ") +
                  migration::quote_literal(gid));
    }
    return true;
  } catch (const SqlFailure& failure) {
    if (failure.error().sqlstate == "42704") {
      return true;  // somebody else has just ended it
    }
    spdlog::warn("two-phase {}: {}", gid, failure.what());
    return false;
  }
}

std::vector<std::string> end_halves(const Config& config, const std::vector<std::string>& shards,
                                    const std::string& gid, bool commit) {
  std::vector<std::string> left;
  for (const std::string& shard : shards) {
    if (!end_half(config, shard, gid, commit)) {
      left.push_back(shard);
    }
  }
  return left;
}

// The row goes, and everybody looks at the tables again: what they read when the decision was
// published was still the old state where a half had not been ended.
void forget(ControlSession& journal, const std::string& scope, const std::string& gid) {
  Transaction transaction(journal);
  journal.run("DELETE FROM collegedb.two_phase WHERE gid = $1", {gid});
  raise_registry_version(journal, scope);
  transaction.commit();
}

// Presumed abort is the same compare-and-swap as commit: whoever comes second learns the outcome.
// Waits for a decision that is being written.
bool is_committed_after_abort(ControlSession& journal, const std::string& gid) {
  journal.run(
      "UPDATE collegedb.two_phase SET state = 'aborted',"
      " decided_at = pg_catalog.clock_timestamp()"
      " WHERE gid = $1 AND state = 'preparing'",
      {gid});
  const Rows rows = journal.run("SELECT state FROM collegedb.two_phase WHERE gid = $1", {gid});
  return !rows.empty() && rows.view(0, 0) == "committed";
}

constexpr std::string_view kTryLock =
    "SELECT pg_catalog.pg_try_advisory_lock(pg_catalog.hashtextextended($1, 0))";
constexpr std::string_view kUnlock =
    "SELECT pg_catalog.pg_advisory_unlock(pg_catalog.hashtextextended($1, 0))";

int finish_rows(const Config& config, ControlSession& journal) {
  int finished = 0;
  const Rows rows = journal.run(
      "SELECT gid, shards FROM collegedb.two_phase WHERE scope = $1 AND kind = 'ddl'"
      " ORDER BY created_at",
      {config.journal.scope});
  for (int i = 0; i < rows.size(); ++i) {
    const std::string gid = rows.text(i, 0);
    if (!journal.run(kTryLock, {gid}).boolean(0, 0)) {
      continue;  // its coordinator lives
    }
    const bool commit = is_committed_after_abort(journal, gid);
    if (end_halves(config, rows.array(i, 1), gid, commit).empty()) {
      forget(journal, config.journal.scope, gid);
      spdlog::info("two-phase {}: {} after its coordinator died", gid,
                   commit ? "committed" : "rolled back");
      ++finished;
    }
    journal.run(kUnlock, {gid});
  }
  return finished;
}

// Halves whose PREPARE arrived after the transaction had been given up and forgotten: a commit is
// forgotten only when no half is left, so these may go.
int roll_back_orphans(const Config& config, ControlSession& journal) {
  int finished = 0;
  for (const ShardConfig& shard : config.shards) {
    std::vector<std::string> gids;
    try {
      ControlSession session(shard);
      const Rows rows = session.run(
          "SELECT gid FROM pg_catalog.pg_prepared_xacts"
          " WHERE database = pg_catalog.current_database()"
          " AND pg_catalog.starts_with(gid, $1) AND pg_catalog.substr(gid, $2::pg_catalog.int4) ~"
          " '^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$'",
          {prefix_of(config), std::to_string(prefix_of(config).size() + 1)});
      for (int i = 0; i < rows.size(); ++i) {
        gids.push_back(rows.text(i, 0));
      }
    } catch (const SqlFailure& failure) {
      spdlog::warn("two-phase: {}", failure.what());
      continue;
    }
    for (const std::string& gid : gids) {
      if (!journal.run(kTryLock, {gid}).boolean(0, 0)) {
        continue;
      }
      if (journal.run("SELECT 1 FROM collegedb.two_phase WHERE gid = $1", {gid}).empty() &&
          end_half(config, shard.name, gid, false)) {
        spdlog::info("two-phase {}: rolled back a late half on shard {}", gid, shard.name);
        ++finished;
      }
      journal.run(kUnlock, {gid});
    }
  }
  return finished;
}

}  // namespace

TwoPhase::TwoPhase(const Config& config, ControlSession& coordinator)
    : config_(config), coordinator_(coordinator) {
  gid_ = prefix_of(config) + coordinator.run("SELECT pg_catalog.gen_random_uuid()").text(0, 0);
  coordinator.run("SELECT pg_catalog.pg_advisory_lock(pg_catalog.hashtextextended($1, 0))", {gid_});
  std::vector<std::string> names;
  for (const ShardConfig& shard : config.shards) {
    names.push_back(shard.name);
  }
  coordinator.run(
      "INSERT INTO collegedb.two_phase (gid, scope, kind, shards)"
      " VALUES ($1, $2, 'ddl', $3::pg_catalog.text[])",
      {gid_, config.journal.scope, migration::array_text(names)});
}

TwoPhase::Outcome TwoPhase::commit(const migration::RegistryChange& change) {
  try {
    Transaction transaction(coordinator_);
    const Rows won = coordinator_.run(
        "UPDATE collegedb.two_phase SET state = 'committed',"
        " decided_at = pg_catalog.clock_timestamp()"
        " WHERE gid = $1 AND state = 'preparing' RETURNING 1",
        {gid_});
    if (won.empty()) {
      return Outcome::kAborted;
    }
    migration::apply_registry_change(coordinator_, config_.journal.scope, change);
    transaction.commit();
    return Outcome::kCommitted;
  } catch (const SqlFailure& failure) {
    spdlog::warn("two-phase {}: {}", gid_, failure.what());
    return settle();
  }
}

TwoPhase::Outcome TwoPhase::abort() {
  try {
    is_committed_after_abort(coordinator_, gid_);
    return Outcome::kAborted;
  } catch (const SqlFailure&) {
    return settle();
  }
}

// The answer to a decision was lost: it is read again, never guessed.
TwoPhase::Outcome TwoPhase::settle() {
  const auto deadline = std::chrono::steady_clock::now() + 5s;
  do {
    try {
      ControlSession journal(journal_of(config_));
      return is_committed_after_abort(journal, gid_) ? Outcome::kCommitted : Outcome::kAborted;
    } catch (const SqlFailure&) {
      std::this_thread::sleep_for(200ms);
    }
  } while (std::chrono::steady_clock::now() < deadline);
  return Outcome::kUnknown;
}

std::vector<std::string> TwoPhase::finish(Outcome outcome) {
  std::vector<std::string> names;
  for (const ShardConfig& shard : config_.shards) {
    names.push_back(shard.name);
  }
  auto left = end_halves(config_, names, gid_, outcome == Outcome::kCommitted);
  if (left.empty()) {
    try {
      if (coordinator_.alive()) {
        forget(coordinator_, config_.journal.scope, gid_);
      } else {
        ControlSession journal(journal_of(config_));
        forget(journal, config_.journal.scope, gid_);
      }
    } catch (const SqlFailure& failure) {
      spdlog::warn("two-phase {}: {}; recovery will remove its row", gid_, failure.what());
    }
  }
  return left;
}

int finish_two_phase(const Config& config) {
  if (!config.has_journal() || config.shards.size() < 2) {
    return 0;
  }
  ControlSession journal(journal_of(config));
  return finish_rows(config, journal) + roll_back_orphans(config, journal);
}

}  // namespace collegedb::admin
