#include "migration/prune.h"

#include <algorithm>
#include <utility>

#include "migration/cluster.h"
#include "migration/epoch_census.h"
#include "migration/mappings.h"
#include "migration/table_catalog.h"
#include "migration/topology.h"
#include "routing/key.h"

namespace collegedb::migration {
namespace {

using std::chrono::milliseconds;

[[noreturn]] void refuse(const ControlSession& session, SqlError error) {
  throw SqlFailure(std::move(error), session.shard());
}

std::string joined(const std::vector<std::string>& items, std::string_view between) {
  std::string out;
  for (const std::string& item : items) out.append(out.empty() ? "" : between).append(item);
  return out;
}

// The authoritative part of the directory.
struct MovedKeys {
  std::vector<std::string> groups;  // parallel
  std::vector<std::string> keys;
  std::map<std::string, KeysByGroup> by_shard;
};

MovedKeys read_moved_keys(ControlSession& journal, const std::string& scope) {
  MovedKeys out;
  try {
    const Rows rows = journal.run(
        "SELECT shard, grp, key FROM collegedb.exceptions WHERE scope = $1 AND kind = 'move'",
        {scope});
    for (int i = 0; i < rows.size(); ++i) {
      out.groups.push_back(rows.text(i, 1));
      out.keys.push_back(rows.text(i, 2));
      out.by_shard[rows.text(i, 0)][rows.text(i, 1)].push_back(rows.text(i, 2));
    }
  } catch (const SqlFailure& failure) {
    refuse(journal, make_error(ErrorCode::kPruneRefused,
                               "the exceptions of the directory cannot be read, so nobody can "
                               "tell which rows need an older epoch",
                               {}, failure.error().message));
  }
  return out;
}

// No move is claimed until the end of the session's transaction.
class NoMoves {
 public:
  NoMoves(const Config& config, const std::string& scope)
      : session_(config.shards[config.journal_index()], topology_session()),
        transaction_(session_) {
    session_.run("LOCK TABLE collegedb.claims IN SHARE MODE");
    const Rows rows =
        session_.run("SELECT op FROM collegedb.claims WHERE scope = $1 LIMIT 1", {scope});
    if (rows.empty()) return;
    refuse(session_, make_error("55006", "keys are being moved",
                                "Wait until they have arrived; collegedb.moves lists them.",
                                "Operation " + rows.text(0, 0) + "."));
  }

 private:
  ControlSession session_;
  Transaction transaction_;
};

class Prune {
 public:
  Prune(const Config& config, const PruneRequest& request)
      : config_(config),
        request_(request),
        journal_(config.shards[config.journal_index()], topology_session()),
        lock_(journal_, config.journal.scope) {}

  PruneResult run() {
    if (!request_.dry_run) finish_interrupted();
    manifest_ = read_manifest(journal_, scope());
    cluster_ = member_config(journal_, config_);
    read_tables();
    read_epochs();
    if (has_mapped_placement(journal_, scope())) return drop_unused();
    if (request_.dry_run || epochs_.size() < 2) {
      const MovedKeys moved = read_moved_keys(journal_, scope());
      if (epochs_.size() > 1) count(moved);
      decide();
      return std::move(out_);
    }
    const RegistryLock registry(journal_);
    const NoMoves no_moves(config_, scope());
    read_tables();
    const MovedKeys moved = read_moved_keys(journal_, scope());
    hold(moved);
    count(moved);
    did("counted");
    decide();
    if (!out_.removed.empty()) drop(moved);
    // What is still open now is waited for by recovery: the epochs are gone already.
    if (finish_prune(journal_, config_, request_.patience).empty()) did("finished");
    return std::move(out_);
  }

 private:
  [[nodiscard]] const std::string& scope() const { return config_.journal.scope; }

  void did(std::string_view step) const {
    if (request_.step) request_.step(step);
  }

  // Under mapped placement an epoch says who takes new keys, and only the newest one does.
  PruneResult drop_unused() {
    decide();
    if (request_.dry_run || out_.removed.empty()) return std::move(out_);
    change_manifest(
        journal_, scope(), Bump::kRevision,
        [&](ControlSession& journal, const Manifest& before, std::int64_t) {
          refuse_other_epochs(before);
          delete_removed(journal);
        },
        request_.step);
    did("dropped");
    return std::move(out_);
  }

  void delete_removed(ControlSession& journal) const {
    std::vector<std::string> ids;
    for (const int id : out_.removed) ids.push_back(std::to_string(id));
    journal.run(
        "DELETE FROM collegedb.epochs WHERE scope = $1 AND id = ANY ($2::pg_catalog.int4[])",
        {scope(), array_text(ids)});
  }

  void finish_interrupted() {
    auto held = finish_publication(journal_, config_, request_.patience, request_.step);
    if (held.empty()) held = finish_prune(journal_, config_, request_.patience);
    if (held.empty()) return;
    refuse(journal_, make_error("55006", "the last change of the topology is not complete yet",
                                "End the transactions that hold it up; recovery finishes it then.",
                                joined(held, " ")));
  }

  void read_tables() {
    tables_.clear();
    for (RegisteredTable& table : read_registry(journal_, scope())) {
      if (table.kind == "sharded" && !table.key_type.empty()) tables_.push_back(std::move(table));
    }
    check_named_tables();
    check_named_keys();
  }

  const RegisteredTable& named(const std::string& text) {
    TableName name = parse_table_name(journal_, text);
    name = find_table(journal_, name, {}).value_or(name);
    const auto found =
        std::find_if(tables_.begin(), tables_.end(), [&](const RegisteredTable& table) {
          return table.name.schema == name.schema && table.name.name == name.name;
        });
    if (found != tables_.end()) return *found;
    refuse(journal_,
           make_error(ErrorCode::kUnknownTable, "\"" + text + "\" is not a sharded table"));
  }

  void check_named_tables() {
    if (!request_.tables) return;
    std::vector<std::string> wanted;
    const Rows rows =
        journal_.run("SELECT u FROM pg_catalog.unnest($1::pg_catalog.text[]) u WHERE u IS NOT NULL",
                     {*request_.tables});
    for (int i = 0; i < rows.size(); ++i) wanted.push_back(named(rows.text(i, 0)).name.qualified);
    std::vector<std::string> missing;
    for (const RegisteredTable& table : tables_) {
      if (std::find(wanted.begin(), wanted.end(), table.name.qualified) == wanted.end()) {
        missing.push_back(table.name.qualified);
      }
    }
    if (missing.empty()) return;
    refuse(journal_,
           make_error("22023", "not all sharded tables are named: " + joined(missing, ", "),
                      "An epoch is dropped only when no row of any table needs it; NULL "
                      "means all tables."));
  }

  void check_named_keys() {
    if (!request_.key_columns) return;
    const Rows rows =
        journal_.run("SELECT key, value FROM pg_catalog.jsonb_each_text($1::pg_catalog.jsonb)",
                     {*request_.key_columns});
    for (int i = 0; i < rows.size(); ++i) {
      const RegisteredTable& table = named(rows.text(i, 0));
      if (table.key_column == rows.view(i, 1)) continue;
      refuse(journal_,
             make_error("22023", "the key column of table " + table.name.qualified + " is \"" +
                                     table.key_column + "\", not \"" + rows.text(i, 1) + "\""));
    }
  }

  // The active ones: a publishing epoch places nothing yet, and stays.
  void read_epochs() {
    for (const EpochRow& epoch : manifest_.epochs) {
      if (epoch.state == "active") epochs_.push_back(epoch);
      if (std::any_of(epoch.weights.begin(), epoch.weights.end(),
                      [&](const std::string& weight) { return weight != epoch.weights.front(); })) {
        refuse(journal_, make_error("0A000", "epoch " + std::to_string(epoch.id) +
                                                 " has weights, which shards cannot evaluate"));
      }
    }
    if (epochs_.empty()) {
      refuse(journal_,
             make_error(ErrorCode::kPlacementUnverified, "the manifest has no active epoch"));
    }
  }

  // From its return on a key's first row is made only where the newest epoch has it.
  void hold(const MovedKeys& moved) {
    const std::int64_t generation = change_manifest(
        journal_, scope(), Bump::kGeneration,
        [&](ControlSession& journal, const Manifest& before, std::int64_t now) {
          refuse_other_epochs(before);
          journal.run(
              "INSERT INTO collegedb.prunes (scope, generation) VALUES ($1, $2::pg_catalog.int8)",
              {scope(), std::to_string(now)});
        },
        request_.step);
    did("announced");
    for (const ShardConfig& shard : cluster_.shards) install_hold(shard, moved, generation);
    const auto held =
        raise_members(journal_, config_, generation, request_.patience, KeyChecks::kEveryKey);
    if (!held.empty()) {
      refuse(journal_,
             make_error("55006",
                        "transactions that began before are still open; no epoch was "
                        "dropped",
                        "End them and call collegedb_prune_epochs again.", joined(held, " ")));
    }
    did("raised");
  }

  void install_hold(const ShardConfig& shard, const MovedKeys& moved, std::int64_t generation) {
    ControlSession session(shard);
    Transaction transaction(session);
    for (const char* table : {"pruning_exempt", "pruning_probes", "pruning"}) {
      session.run("DELETE FROM collegedb." + std::string(table) + " WHERE scope = $1", {scope()});
    }
    if (const auto keys = moved.by_shard.find(shard.name); keys != moved.by_shard.end()) {
      for (const auto& [group, names] : keys->second) {
        session.run(
            "INSERT INTO collegedb.pruning_exempt (scope, grp, key)"
            " SELECT $1, $2, u FROM pg_catalog.unnest($3::pg_catalog.text[]) u",
            {scope(), group, array_text(names)});
      }
    }
    for (const RegisteredTable& table : tables_) {
      const auto key = describe_key(session, table.name, table.key_column);
      if (key.has_error()) refuse(session, key.error());
      session.run(
          "INSERT INTO collegedb.pruning_probes (scope, grp, table_name, condition)"
          " VALUES ($1, $2, $3, $4)",
          {scope(), table.group, table.name.qualified,
           routing::sql_key_condition(key->type, quote_identifier(table.key_column),
                                      "$1::pg_catalog.text")});
    }
    const EpochRow& newest = epochs_.front();
    session.run(
        "INSERT INTO collegedb.pruning (scope, shard, algorithm, shards, generation)"
        " VALUES ($1, $2, $3, $4::pg_catalog.text[], $5::pg_catalog.int8)",
        {scope(), shard.name, newest.algorithm, array_text(newest.shards),
         std::to_string(generation)});
    transaction.commit();
  }

  void refuse_other_epochs(const Manifest& now) const {
    const bool same = std::equal(
        now.epochs.begin(), now.epochs.end(), manifest_.epochs.begin(), manifest_.epochs.end(),
        [](const EpochRow& a, const EpochRow& b) { return a.id == b.id && a.state == b.state; });
    if (same) return;
    refuse(journal_, make_error(ErrorCode::kPlacementConflict, "the epochs have changed meanwhile",
                                "Try again."));
  }

  void count(const MovedKeys& moved) {
    const EpochCensus found =
        take_epoch_census(cluster_, epochs_, tables_, moved.by_shard,
                          {.page_size = request_.page_size, .concurrency = request_.concurrency});
    out_.dependents = found.dependents;
    out_.scanned = found.scanned;
  }

  void decide() {
    const int newest = epochs_.front().id;
    for (const EpochRow& epoch : manifest_.epochs) {
      const bool needed =
          epoch.state != "active" || epoch.id == newest || out_.dependents.contains(epoch.id);
      (needed ? out_.retained : out_.removed).push_back(epoch.id);
    }
  }

  void drop(const MovedKeys& moved) {
    std::vector<EpochRow> rest;
    for (const EpochRow& epoch : epochs_) {
      if (std::find(out_.removed.begin(), out_.removed.end(), epoch.id) == out_.removed.end()) {
        rest.push_back(epoch);
      }
    }
    for (const ShardConfig& shard : cluster_.shards) forget_tombstones(shard, rest, moved);
    change_manifest(
        journal_, scope(), Bump::kGeneration,
        [&](ControlSession& journal, const Manifest& before, std::int64_t) {
          refuse_other_epochs(before);
          delete_removed(journal);
          forget_hits(journal, rest);
        },
        request_.step);
    did("dropped");
  }

  // Of keys that will have this owner alone: nobody looks for them elsewhere any more, and a
  // tombstone would lead away from where they are to be. Those without rows may have one from a
  // time when another epoch was newer; those with rows have none. What an import has planted leads
  // to rows, whether or not it came to write the exception.
  void forget_tombstones(const ShardConfig& shard, const std::vector<EpochRow>& rest,
                         const MovedKeys& moved) {
    ControlSession session(shard, topology_session());
    session.set_statement_timeout(milliseconds{0});
    std::string sql =
        "DELETE FROM collegedb.retired r WHERE r.scope = $1"
        " AND NOT pg_catalog.starts_with(r.op, 'epoch:import:') AND NOT EXISTS (SELECT 1"
        " FROM ROWS FROM (pg_catalog.unnest($2::pg_catalog.text[]),"
        " pg_catalog.unnest($3::pg_catalog.text[])) e (grp, key)"
        " WHERE e.grp = r.grp AND e.key = r.key)";
    for (const EpochRow& epoch : rest) {
      sql += " AND " + epoch_owner_sql(epoch, "r.key") + " = $4";
    }
    session.run(sql, {scope(), array_text(moved.groups), array_text(moved.keys), shard.name});
  }

  // What was found through epochs that are gone.
  void forget_hits(ControlSession& journal, const std::vector<EpochRow>& rest) {
    std::vector<std::string> shards;
    if (rest.size() > 1) {
      for (const EpochRow& epoch : rest) {
        shards.insert(shards.end(), epoch.shards.begin(), epoch.shards.end());
      }
    }
    journal.run(
        "DELETE FROM collegedb.exceptions WHERE scope = $1 AND kind = 'epoch-hit'"
        " AND NOT shard = ANY ($2::pg_catalog.text[])",
        {scope(), array_text(shards)});
  }

  const Config& config_;
  const PruneRequest& request_;
  ControlSession journal_;
  TopologyLock lock_;
  Manifest manifest_;
  Config cluster_;
  std::vector<RegisteredTable> tables_;
  std::vector<EpochRow> epochs_;  // active, newest first
  PruneResult out_;
};

}  // namespace

Result<PruneResult> prune_epochs(const Config& config, const PruneRequest& request) {
  if (!config.has_journal()) {
    return make_error(ErrorCode::kJournalNotConfigured, "epochs need a journal shard",
                      "Name one as journal.shard in the configuration of every proxy.");
  }
  if (request.page_size < 1 || request.concurrency < 1) {
    return make_error("22023", "page_size and concurrency must be at least 1");
  }
  try {
    return Prune(config, request).run();
  } catch (const SqlFailure& failure) {
    return failure.error();
  }
}

std::vector<std::string> finish_prune(ControlSession& journal, const Config& config,
                                      milliseconds patience) {
  const std::string& scope = config.journal.scope;
  if (journal.run("SELECT 1 FROM collegedb.prunes WHERE scope = $1", {scope}).empty()) return {};
  // Whoever knows epochs that are gone has ended before the shards let a key's first row be made
  // anywhere else again.
  auto held = raise_members(journal, config, read_manifest(journal, scope).generation, patience);
  if (!held.empty()) return held;
  for (const ShardConfig& shard : member_config(journal, config).shards) {
    ControlSession session(shard);
    Transaction transaction(session);
    for (const char* table : {"pruning", "pruning_probes", "pruning_exempt"}) {
      session.run("DELETE FROM collegedb." + std::string(table) + " WHERE scope = $1", {scope});
    }
    transaction.commit();
  }
  journal.run("DELETE FROM collegedb.prunes WHERE scope = $1", {scope});
  return {};
}

}  // namespace collegedb::migration
