#include "proxy/admin/broadcast.h"

#include <spdlog/spdlog.h>

#include <optional>

#include "migration/cluster.h"
#include "migration/manifest.h"
#include "migration/registry.h"
#include "migration/schema_change.h"
#include "migration/sequences.h"
#include "proxy/admin/two_phase.h"

namespace collegedb::admin {
namespace {

using namespace std::chrono_literals;
using migration::Cluster;
using migration::ControlSession;
using migration::SqlFailure;
using session::BroadcastDone;

using Done = Result<BroadcastDone>;

// How long a statement runs is the client's business.
migration::SessionOptions patient() {
  migration::SessionOptions options;
  options.statement_timeout = 0ms;
  options.lock_timeout = 30s;
  options.idle_in_transaction_timeout = 0ms;
  return options;
}

// The server's defaults, then what the client has set. Locks are waited for with a bound, since a
// wait that goes around over two shards is a deadlock no server sees.
void apply_settings(ControlSession& session, const session::SessionContext& context) {
  session.run("RESET ALL");
  session.run(
      "SELECT pg_catalog.set_config('lock_timeout', '30s', false)"
      " WHERE pg_catalog.current_setting('lock_timeout') = '0'");
  for (const auto& [name, value] : context.settings) {
    session.run("SELECT pg_catalog.set_config($1, $2, false)", {name, value});
  }
  session.run("SELECT pg_catalog.set_config('synchronous_commit', 'on', false)");
}

// Within the client's transaction, once its statement has run: our own statements mean what they
// say, whatever the client has set.
void own_settings(ControlSession& session) {
  session.run("SET LOCAL ROLE NONE");
  session.run("SET LOCAL search_path = pg_catalog");
  session.run("SET LOCAL statement_timeout = '60s'");
  session.run("SET LOCAL standard_conforming_strings = on");
  session.run("SET LOCAL row_security = off");
}

std::string listed(const Config& config, std::size_t from, std::size_t to) {
  std::string out;
  for (std::size_t i = from; i < to; ++i) {
    out += (i > from ? ", " : "") + ("\"" + config.shards[i].name + "\"");
  }
  return out;
}

// The shard's own error, with its name added.
SqlError on_shard(const SqlFailure& failure, std::string_view outcome) {
  SqlError error = failure.error();
  if (!error.detail.empty()) {
    error.detail += "\n";
  }
  error.detail += "On shard \"" + failure.shard() + "\". " + std::string(outcome);
  return error;
}

constexpr std::string_view kNothingDone = "Nothing has been changed on any shard.";

// Runs the statement in the open transaction of every shard, in order. Tag and notices are the
// first one's.
BroadcastDone execute(Cluster& shards, const std::string& sql) {
  BroadcastDone done;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    static_cast<void>(shards[i].take_notices());
    const std::string tag = shards[i].run(sql).tag();
    if (i == 0) {
      done.tag = tag;
      done.notices = shards[i].take_notices();
    }
  }
  return done;
}

Result<void> require_two_phase(Cluster& shards) {
  for (std::size_t i = 0; i < shards.size(); ++i) {
    if (shards[i].run("SHOW max_prepared_transactions").view(0, 0) == "0") {
      return make_error(ErrorCode::kMigrationNoAtomicBatch,
                        "shard \"" + shards[i].shard() + "\" has max_prepared_transactions = 0",
                        "Set max_prepared_transactions to at least 16 on every shard and restart "
                        "it.");
    }
  }
  return {};
}

// The registry as it was before, and the session that keeps other changes of it out.
struct Registry {
  Registry(const Config& config, ControlSession& journal) {
    journal.run(
        "SELECT pg_catalog.pg_advisory_lock("
        "pg_catalog.hashtextextended('collegedb:registry', 0))");
    cluster = migration::member_config(journal, config);
    slots = migration::read_slots(journal, cluster);
    before =
        migration::tables_before(journal, migration::read_registry(journal, config.journal.scope));
  }

  Config cluster;  // stays so while the registry is locked
  std::vector<int> slots;
  std::vector<migration::KnownTable> before;
};

migration::RegistryChange follow(const Config& config, Cluster& shards, const Registry& registry) {
  for (std::size_t i = 0; i < shards.size(); ++i) {
    own_settings(shards[i]);
  }
  return migration::follow_schema_change(config, shards, registry.slots, registry.before);
}

void open_on_all(Cluster& shards, const session::SessionContext& context) {
  for (std::size_t i = 0; i < shards.size(); ++i) {
    apply_settings(shards[i], context);
  }
  shards.begin();
}

// Prepares all or reports the one that would not.
std::optional<SqlFailure> prepare_all(Cluster& shards, const std::string& gid) {
  for (std::size_t i = 0; i < shards.size(); ++i) {
    try {
      shards.prepare(i, gid);
    } catch (const SqlFailure& failure) {
      return failure;
    }
  }
  return std::nullopt;
}

// The change is committed: whatever goes wrong here does not undo it. Plans depend on names of
// relations, operators, types and functions too, so every change is waited for.
void await_registry(const Config& config, ControlSession& journal) {
  try {
    const auto version = journal.run(
        "SELECT registry_version FROM collegedb.manifest WHERE scope = $1", {config.journal.scope});
    migration::await_proxies(journal, config.journal.scope, version.int8(0, 0));
  } catch (const SqlFailure& failure) {
    spdlog::warn("schema change: {}", failure.what());
  }
}

void add_notices(const migration::RegistryChange& change, BroadcastDone& done) {
  for (const migration::TableName& table : change.dropped) {
    SqlError notice =
        make_error("00000", "table " + table.qualified + " is not registered any more");
    notice.severity = "NOTICE";
    done.notices.push_back(std::move(notice));
  }
}

// An error of COMMIT itself: nothing happened, unless the answer was lost.
SqlError commit_failed(const SqlFailure& failure, std::string_view outcome) {
  if (!failure.connection_lost()) {
    return on_shard(failure, outcome);
  }
  SqlError error = make_error("08007", "it is unknown whether shard \"" + failure.shard() +
                                           "\" has committed the statement");
  error.detail = failure.error().message;
  return error;
}

void count(TwoPhase::Outcome outcome, metrics::ProcessStats* stats) {
  if (!stats) return;
  switch (outcome) {
    case TwoPhase::Outcome::kCommitted:
      return stats->two_phase[metrics::TwoPhaseOutcome::kCommitted].add();
    case TwoPhase::Outcome::kAborted:
      return stats->two_phase[metrics::TwoPhaseOutcome::kRolledBack].add();
    case TwoPhase::Outcome::kUnknown:
      return stats->two_phase[metrics::TwoPhaseOutcome::kInDoubt].add();
  }
}

Done two_phase(const Config& config, const session::Broadcast& statement,
               const session::SessionContext& context, metrics::ProcessStats* stats) {
  ControlSession journal(config.shards[config.journal_index()], patient());
  const Registry registry(config, journal);
  const Config& cluster = registry.cluster;
  Cluster shards(cluster, patient());
  if (auto able = require_two_phase(shards); able.has_error()) {
    return able.error();
  }
  open_on_all(shards, context);
  BroadcastDone done = execute(shards, statement.sql);
  const migration::RegistryChange change = follow(cluster, shards, registry);
  add_notices(change, done);

  TwoPhase commit(cluster, journal);
  auto failed = prepare_all(shards, commit.gid());
  const auto outcome = failed ? commit.abort() : commit.commit(change);
  count(outcome, stats);
  if (outcome == TwoPhase::Outcome::kUnknown) {
    return make_error("08007", "it is unknown whether the statement has been committed",
                      "Recovery will finish it on all shards alike as soon as the journal shard "
                      "answers.");
  }
  const auto left = commit.finish(outcome);
  if (failed) {
    return on_shard(*failed, kNothingDone);
  }
  if (outcome == TwoPhase::Outcome::kAborted) {
    return make_error("40001", "the statement was rolled back on all shards by recovery",
                      "Try again.");
  }
  for (const std::string& shard : left) {
    SqlError warning =
        make_error("01000", "shard \"" + shard + "\" will follow as soon as it can be reached");
    warning.severity = "WARNING";
    done.notices.push_back(std::move(warning));
  }
  await_registry(config, journal);
  return done;
}

// One shard: its own transaction is enough, registry included.
Done plain(const Config& config, const session::Broadcast& statement,
           const session::SessionContext& context) {
  ControlSession journal(config.shards[0], patient());
  const Registry registry(config, journal);
  const Config& cluster = registry.cluster;
  Cluster shards(cluster, patient());
  open_on_all(shards, context);
  BroadcastDone done = execute(shards, statement.sql);
  const migration::RegistryChange change = follow(cluster, shards, registry);
  add_notices(change, done);
  migration::apply_registry_change(shards[0], config.journal.scope, change);
  try {
    shards.commit();
  } catch (const SqlFailure& failure) {
    return commit_failed(failure, kNothingDone);
  }
  await_registry(config, journal);
  return done;
}

// Several shards and no journal: nobody could record a decision, so the window between the first
// and the last COMMIT remains, and an error in it says so.
Done without_journal(const Config& config, const session::Broadcast& statement,
                     const session::SessionContext& context) {
  Cluster shards(config, patient());
  open_on_all(shards, context);
  BroadcastDone done = execute(shards, statement.sql);
  for (std::size_t i = 0; i < shards.size(); ++i) {
    try {
      shards.commit(i);
    } catch (const SqlFailure& failure) {
      return commit_failed(failure, i == 0 ? std::string(kNothingDone)
                                           : "It has been done on " + listed(config, 0, i) +
                                                 " and not on the others.");
    }
  }
  return done;
}

Done shard_by_shard(const Config& config, const session::Broadcast& statement,
                    const session::SessionContext& context) {
  BroadcastDone done;
  for (std::size_t i = 0; i < config.shards.size(); ++i) {
    try {
      ControlSession session(config.shards[i], patient());
      apply_settings(session, context);
      static_cast<void>(session.take_notices());
      const std::string tag = session.run(statement.sql).tag();
      if (i == 0) {
        done.tag = tag;
        done.notices = session.take_notices();
      }
    } catch (const SqlFailure& failure) {
      std::string outcome = i == 0 ? "It has been done on no other shard."
                                   : "It has been done on " + listed(config, 0, i) + ".";
      if (i > 0 && i + 1 < config.shards.size()) {
        outcome += " It has not been tried on " + listed(config, i + 1, config.shards.size()) + ".";
      }
      return on_shard(failure, outcome);
    }
  }
  if (config.has_journal()) {
    ControlSession journal(config.shards[config.journal_index()]);
    migration::apply_registry_change(journal, config.journal.scope, {});
  }
  return done;
}

}  // namespace

Done broadcast(const Config& config, const session::Broadcast& statement,
               const session::SessionContext& context, metrics::ProcessStats* stats) {
  try {
    if (!statement.transactional) {
      if (!config.has_journal()) {
        return shard_by_shard(config, statement, context);
      }
      ControlSession journal(config.shards[config.journal_index()], patient());
      const migration::MembersLock members(journal, migration::MembersLock::Mode::kShared);
      return shard_by_shard(migration::member_config(journal, config), statement, context);
    }
    if (config.shards.size() == 1) {
      return plain(config, statement, context);
    }
    return config.has_journal() ? two_phase(config, statement, context, stats)
                                : without_journal(config, statement, context);
  } catch (const SqlFailure& failure) {
    return on_shard(failure, kNothingDone);
  }
}

}  // namespace collegedb::admin
