#include "migration/newcomer.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <thread>

#include "migration/group_catalog.h"
#include "migration/plan.h"
#include "migration/reference_rows.h"
#include "migration/schema_change.h"
#include "migration/schema_copy.h"
#include "migration/sequences.h"

namespace collegedb::migration {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kFirstLockWait{50};
constexpr milliseconds kLastLockWait{500};
constexpr int kLockAttempts = 30;

SessionOptions copy_options() {
  SessionOptions options;
  options.application_name = "collegedb newcomer";
  options.statement_timeout = milliseconds{0};
  options.idle_in_transaction_timeout = milliseconds{0};
  options.dies_with_client = true;
  return options;
}

[[noreturn]] void refuse(const std::string& shard, SqlError error) {
  throw SqlFailure(std::move(error), shard);
}

int free_slot(const Manifest& manifest, const std::string& shard) {
  if (const MemberRow* row = manifest.find(shard)) return row->slot;
  int slot = 0;
  for (const MemberRow& each : manifest.members) slot = std::max(slot, each.slot + 1);
  if (slot >= kSequenceStride) {
    refuse(shard,
           make_error("54000", "a cluster can have at most " + std::to_string(kSequenceStride) +
                                   " shards over its life"));
  }
  return slot;
}

// One unit per colocation group, for comparing its tables.
std::vector<Unit> groups(const std::vector<RegisteredTable>& tables, const std::string& scope) {
  std::map<std::string, Unit> found;
  for (const RegisteredTable& table : tables) {
    if (table.kind != "sharded" || table.key_type.empty()) continue;
    Unit& unit = found[table.group];
    unit.scope = scope;
    unit.group = table.group;
    unit.tables.push_back({table.name.schema, table.name.name, table.key_column});
  }
  std::vector<Unit> out;
  for (auto& [name, unit] : found) out.push_back(std::move(unit));
  return out;
}

void check_server(ControlSession& session) {
  if (session.server_version() < 130000) {
    refuse(session.shard(),
           make_error(ErrorCode::kMigrationUnsupportedDialect,
                      "shard \"" + session.shard() + "\" is older than PostgreSQL 13"));
  }
  const Rows rows = session.run(
      "SELECT pg_catalog.current_setting('max_prepared_transactions')::pg_catalog.int4,"
      " pg_catalog.current_setting('server_encoding')");
  if (rows.int8(0, 0) == 0) {
    refuse(session.shard(),
           make_error(ErrorCode::kMigrationNoAtomicBatch,
                      "shard \"" + session.shard() + "\" has max_prepared_transactions = 0",
                      "Set it to at least 16 there and restart that server."));
  }
  if (rows.view(0, 1) != "UTF8") {
    refuse(session.shard(), make_error("55000",
                                       "the database of shard \"" + session.shard() +
                                           "\" has encoding " + rows.text(0, 1),
                                       "Keys are compared as UTF-8: use databases with encoding "
                                       "UTF8."));
  }
}

}  // namespace

Newcomer::Newcomer(ControlSession& journal, const Config& config, std::size_t index,
                   const Manifest& manifest)
    : journal_(journal),
      config_(config),
      shard_(config.shards[index]),
      index_(index),
      members_(member_config(journal, config)),
      tables_(read_registry(journal, config.journal.scope)),
      slot_(free_slot(manifest, shard_.name)) {}

std::vector<std::string> Newcomer::check() {
  check_proxies();
  check_servers();
  ControlSession session(shard_);
  check_privileges(session);
  if (!session.run("SELECT pg_catalog.to_regclass('collegedb.topology') IS NULL").boolean(0, 0)) {
    check_identity(session, config_.journal.scope);
  }
  empty_ = is_empty_database(session);
  if (!empty_) check_tables(session);
  std::vector<std::string> out = {"install schema collegedb on shard \"" + shard_.name + "\""};
  if (empty_) {
    out.push_back("copy the schema of shard \"" + journal_.shard() + "\" to it");
  } else {
    out.push_back("its tables are like those of shard \"" + journal_.shard() + "\"");
  }
  for (const RegisteredTable& table : tables_) {
    if (table.kind == "reference") out.push_back("copy the rows of " + table.name.qualified);
  }
  out.push_back("give its sequences the numbers of slot " + std::to_string(slot_));
  return out;
}

// Each names the shards of its configuration with every heartbeat.
void Newcomer::check_proxies() {
  const Rows rows = journal_.run(
      "SELECT address FROM collegedb.proxies WHERE scope = $1 AND NOT $2 = ANY (shards)"
      " AND heartbeat_at > pg_catalog.clock_timestamp() - interval '10 seconds' ORDER BY address",
      {config_.journal.scope, shard_.name});
  if (rows.empty()) return;
  std::string names;
  for (int i = 0; i < rows.size(); ++i) names += (i > 0 ? ", " : "") + rows.text(i, 0);
  refuse(shard_.name, make_error("55000",
                                 "shard \"" + shard_.name +
                                     "\" is not in the configuration of every running proxy",
                                 "Add it to their configuration files and restart them first.",
                                 "Proxies without it: " + names + "."));
}

// A cluster of one shard has never needed two-phase commit before.
void Newcomer::check_servers() {
  for (const ShardConfig& each : members_.shards) {
    ControlSession session(each);
    check_server(session);
  }
  ControlSession session(shard_);
  check_server(session);
}

void Newcomer::check_privileges(ControlSession& session) {
  const Rows rows = session.run(
      "SELECT pg_catalog.has_database_privilege(pg_catalog.current_database(), 'CREATE'),"
      " pg_catalog.to_regnamespace('collegedb') IS NULL, current_user,"
      " pg_catalog.current_database()");
  if (rows.boolean(0, 0) || !rows.boolean(0, 1)) return;
  refuse(shard_.name, make_error(ErrorCode::kMigrationNoBatch,
                                 "role " + rows.text(0, 2) + " may not create schemas on shard \"" +
                                     shard_.name + "\"",
                                 "GRANT CREATE ON DATABASE " + quote_identifier(rows.view(0, 3)) +
                                     " TO " + quote_identifier(rows.view(0, 2)) + " there."));
}

Config Newcomer::pair() const {
  Config out = config_;
  out.shards = {config_.shards[config_.journal_index()], shard_};
  out.journal.shard = journal_.shard();
  return out;
}

void Newcomer::check_tables(ControlSession& session) {
  std::vector<TableName> names;
  for (const RegisteredTable& table : tables_) {
    if (table.kind != "local") names.push_back(table.name);
  }
  Cluster two(pair());
  if (auto equal = same_shape(two, names); equal.has_error()) {
    SqlError error = equal.error();
    error.hint =
        "Its schema is copied when its database is empty; else its tables must be like those of "
        "the other shards.";
    refuse(shard_.name, std::move(error));
  }
  for (const RegisteredTable& table : tables_) {
    if (table.kind != "sharded" || !find_table(session, table.name, {})) continue;
    if (session.run("SELECT 1 FROM " + table.name.qualified + " LIMIT 1").empty()) continue;
    refuse(shard_.name,
           make_error("55000",
                      "table " + table.name.qualified + " has rows on shard \"" + shard_.name +
                          "\", which is not part of the cluster yet",
                      "Empty it there; insert rows that are wanted through the proxy."));
  }
  refuse_other_rows(journal_, session, tables_);
  // What a move needs of schema collegedb can be asked once it is there: prepare() does.
  if (!session.run("SELECT pg_catalog.to_regnamespace('collegedb') IS NULL").boolean(0, 0)) {
    check_groups(session, false);
  }
}

// `sequences`: they must already give out different numbers.
void Newcomer::check_groups(ControlSession& session, bool sequences) {
  for (const Unit& unit : groups(tables_, config_.journal.scope)) {
    GroupCatalog here = read_catalog(journal_, unit);
    GroupCatalog there = read_catalog(session, unit);
    if (!sequences) {
      here.sequences.clear();
      there.sequences.clear();
    }
    const Preflight found = preflight(unit, here, there);
    if (found.problems.empty()) continue;
    std::string all;
    for (const Problem& problem : found.problems) {
      all += (all.empty() ? "" : "; ") + problem.text;
    }
    refuse(shard_.name,
           make_error(found.problems.front().code,
                      "keys of group " + unit.group + " could not move between shards \"" +
                          journal_.shard() + "\" and \"" + shard_.name + "\"",
                      {}, all + "."));
  }
}

void Newcomer::prepare(std::span<const FunctionStub> stubs) {
  tables_ = read_registry(journal_, config_.journal.scope);
  install_schema_on(config_, index_, stubs);
  if (empty_) {
    copy_schema();
    install_schema_on(config_, index_, stubs);
  }
  install_tables();
  stride();
  ControlSession session(shard_);
  check_groups(session, true);
}

void Newcomer::copy_schema() {
  const std::string dump = dump_schema(config_.shards[config_.journal_index()]);
  ControlSession session(shard_, copy_options());
  Transaction transaction(session);
  try {
    restore_schema(session, dump);
  } catch (const SqlFailure& failure) {
    SqlError error = failure.error();
    error.detail = "Copying the schema to shard \"" + shard_.name + "\"." +
                   (error.detail.empty() ? "" : " " + error.detail);
    if (error.hint.empty()) {
      error.hint = "Roles and extensions that the schema names must exist on that server.";
    }
    throw SqlFailure(std::move(error), shard_.name, failure.connection_lost());
  }
  transaction.commit();
}

void Newcomer::install_tables() {
  ControlSession source(config_.shards[config_.journal_index()], copy_options());
  ControlSession session(shard_, copy_options());
  Transaction reading(source);
  Transaction writing(session);
  // Of an earlier membership: no key is here, and none has moved away from here.
  session.run("DELETE FROM collegedb.retired WHERE scope = $1", {config_.journal.scope});
  session.run("DELETE FROM collegedb.incoming WHERE scope = $1", {config_.journal.scope});
  ensure_fences(session, config_.journal.scope, tables_);
  copy_reference_rows(source, session, tables_, false);
  writing.commit();
  reading.commit();
}

// Sequences of a cluster that has had one shard are strided now: that needs its tables for a
// moment, without letting writers queue up behind a long transaction.
void Newcomer::stride() {
  Config all = members_;
  all.shards.push_back(shard_);
  std::vector<int> slots = read_slots(journal_, members_);
  slots.push_back(slot_);
  milliseconds wait = kFirstLockWait;
  for (int attempt = 1;; ++attempt) {
    SessionOptions options = copy_options();
    options.lock_timeout = wait;
    try {
      Cluster shards(all, options);
      shards.begin();
      stride_sequences(shards, slots, tables_);
      stride_newcomer(shards, slots, shards.size() - 1, tables_);
      shards.commit();
      return;
    } catch (const SqlFailure& failure) {
      if (failure.error().sqlstate != "55P03" || attempt == kLockAttempts) throw;
    }
    std::this_thread::sleep_for(wait * 2);
    wait = std::min(wait * 2, kLastLockWait);
  }
}

}  // namespace collegedb::migration
