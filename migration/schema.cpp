#include "migration/schema.h"

#include <spdlog/spdlog.h>

#include <array>
#include <string_view>

#include "migration/registry.h"
#include "migration/sql/embedded.h"

namespace collegedb::migration {
namespace {

// Upgrade steps of one part of the schema, in order. A step that has been released never changes:
// what a new version needs is a new step. Step 1 is idempotent.
struct Step {
  int version;
  std::string_view sql;
};
struct Component {
  std::string_view name;
  std::span<const Step> steps;

  [[nodiscard]] int newest() const { return steps.back().version; }
};
constexpr std::array kShardSteps{Step{1, sql::kShard}, Step{2, sql::kShard2}, Step{3, sql::kShard3},
                                 Step{4, sql::kShard4}};
constexpr std::array kJournalSteps{Step{1, sql::kJournal}, Step{2, sql::kJournal2},
                                   Step{3, sql::kJournal3}};
constexpr std::array kMovesSteps{Step{1, sql::kMoves}, Step{2, sql::kMoves2},
                                 Step{3, sql::kMoves3}};
constexpr Component kShard{"shard", kShardSteps};
constexpr Component kJournal{"journal", kJournalSteps};
constexpr Component kMoves{"moves", kMovesSteps};

SessionOptions install_options() {
  SessionOptions options;
  options.lock_timeout = std::chrono::seconds{30};
  options.idle_in_transaction_timeout = std::chrono::milliseconds{0};
  return options;
}

int installed_version(ControlSession& session, std::string_view component) {
  if (!session.run("SELECT pg_catalog.to_regclass('collegedb.schema_version') IS NOT NULL")
           .boolean(0, 0)) {
    return 0;
  }
  const Rows rows = session.run("SELECT version FROM collegedb.schema_version WHERE component = $1",
                                {std::string(component)});
  return rows.empty() ? 0 : static_cast<int>(rows.int8(0, 0));
}

void refuse_newer(ControlSession& session, const Component& component, int version) {
  if (version <= component.newest()) {
    return;
  }
  throw SqlFailure(
      make_error("55000",
                 "schema collegedb on shard \"" + session.shard() + "\" has version " +
                     std::to_string(version) + " of part \"" + std::string(component.name) +
                     "\", this program knows " + std::to_string(component.newest()),
                 "Start a collegedb that is at least as new as the one that upgraded it."),
      session.shard());
}

// REQUIRES: the schema lock is held in the session's transaction.
void upgrade(ControlSession& session, const Component& component) {
  const int version = installed_version(session, component.name);
  refuse_newer(session, component, version);
  for (const Step& step : component.steps) {
    if (step.version <= version) {
      continue;
    }
    session.script(step.sql);
    session.run(
        "INSERT INTO collegedb.schema_version (component, version) VALUES ($1, $2)"
        " ON CONFLICT (component) DO UPDATE SET version = excluded.version,"
        " updated_at = pg_catalog.clock_timestamp()",
        {std::string(component.name), std::to_string(step.version)});
    spdlog::info("shard {}: schema collegedb, part {}, is now version {}", session.shard(),
                 component.name, step.version);
  }
}

void create_schema(ControlSession& session) {
  if (session.run("SELECT pg_catalog.to_regnamespace('collegedb') IS NULL").boolean(0, 0)) {
    session.run("CREATE SCHEMA collegedb");
  }
  if (session.run("SELECT pg_catalog.to_regclass('collegedb.schema_version') IS NULL")
          .boolean(0, 0)) {
    session.script(
        "CREATE TABLE collegedb.schema_version (component text PRIMARY KEY, version int NOT NULL,"
        " fingerprint text, updated_at timestamptz NOT NULL DEFAULT clock_timestamp());"
        "GRANT SELECT ON collegedb.schema_version TO PUBLIC");
  }
}

void claim_identity(ControlSession& session, const std::string& scope) {
  check_identity(session, scope);
  session.run(
      "INSERT INTO collegedb.topology (scope, shard) VALUES ($1, $2)"
      " ON CONFLICT DO NOTHING",
      {scope, session.shard()});
}

std::string stub_sql(const FunctionStub& stub) {
  return "CREATE FUNCTION public." + quote_identifier(stub.name) + "(" + stub.arguments +
         ") RETURNS " + stub.result + " LANGUAGE plpgsql VOLATILE AS " +
         quote_literal("BEGIN RAISE EXCEPTION '" + stub.name +
                       " is a function of the proxy: call it through the proxy' USING ERRCODE = "
                       "'0A000'; END -- " +
                       std::string(kStubMarker));
}

// Makes the stubs anew when they differ from those that are there.
void install_stubs(ControlSession& session, std::span<const FunctionStub> stubs) {
  std::string script;
  for (const FunctionStub& stub : stubs) {
    script += stub_sql(stub) + ";\n";
  }
  const Rows same = session.run(
      "SELECT fingerprint IS NOT DISTINCT FROM pg_catalog.md5($1) FROM collegedb.schema_version"
      " WHERE component = 'functions'",
      {script});
  if (!same.empty() && same.boolean(0, 0)) {
    return;
  }
  const Rows writable = session.run(
      "SELECT COALESCE(pg_catalog.has_schema_privilege(pg_catalog.to_regnamespace('public'),"
      " 'CREATE'), false)");
  if (!writable.boolean(0, 0)) {
    spdlog::info("shard {}: schema public is not writable, so \\df will not list collegedb_*",
                 session.shard());
    return;
  }
  drop_stubs(session);
  session.script(script);
  session.run(
      "INSERT INTO collegedb.schema_version (component, version, fingerprint)"
      " VALUES ('functions', 1, pg_catalog.md5($1)) ON CONFLICT (component)"
      " DO UPDATE SET fingerprint = excluded.fingerprint,"
      " updated_at = pg_catalog.clock_timestamp()",
      {script});
}

void install_on_shard(const Config& config, std::size_t index,
                      std::span<const FunctionStub> stubs) {
  ControlSession session(config.shards[index], install_options());
  if (session.server_version() < 130000) {
    throw SqlFailure(make_error(ErrorCode::kMigrationUnsupportedDialect,
                                "shard \"" + session.shard() + "\" is older than PostgreSQL 13"),
                     session.shard());
  }
  Transaction transaction(session);
  session.run(
      "SELECT pg_catalog.pg_advisory_xact_lock("
      "pg_catalog.hashtextextended('collegedb:schema', 0))");
  create_schema(session);
  upgrade(session, kShard);
  claim_identity(session, config.journal.scope);
  if (config.has_journal() && index == config.journal_index()) {
    upgrade(session, kJournal);
    upgrade(session, kMoves);
  }
  install_stubs(session, stubs);
  transaction.commit();
}

std::vector<std::string> shard_names(const Config& config) {
  std::vector<std::string> names;
  for (const ShardConfig& shard : config.shards) {
    names.push_back(shard.name);
  }
  return names;
}

void seed_topology(ControlSession& journal, const Config& config) {
  const std::string& scope = config.journal.scope;
  const Rows made = journal.run(
      "INSERT INTO collegedb.manifest (scope, placement) VALUES ($1, $2)"
      " ON CONFLICT DO NOTHING RETURNING 1",
      {scope, config.routing.placement});
  if (made.empty()) {
    return;
  }
  journal.run(
      "INSERT INTO collegedb.epochs (scope, id, algorithm, state, shards, generation)"
      " VALUES ($1, 1, 'hrw', 'active', $2::pg_catalog.text[], 1)",
      {scope, array_text(shard_names(config))});
  for (std::size_t i = 0; i < config.shards.size(); ++i) {
    const ShardConfig& shard = config.shards[i];
    journal.run(
        "INSERT INTO collegedb.shards (scope, shard, region, max_size, slot)"
        " VALUES ($1, $2, $3, $4::pg_catalog.int8, $5::pg_catalog.int4)",
        {scope, shard.name, shard.region, std::to_string(shard.max_size), std::to_string(i)});
  }
}

// Whoever starts last says where new keys may go.
void describe_shards(ControlSession& journal, const Config& config) {
  for (const ShardConfig& shard : config.shards) {
    journal.run(
        "UPDATE collegedb.shards SET region = $3, max_size = $4::pg_catalog.int8"
        " WHERE scope = $1 AND shard = $2 AND (region, max_size) IS DISTINCT FROM"
        " ($3, $4::pg_catalog.int8)",
        {config.journal.scope, shard.name, shard.region, std::to_string(shard.max_size)});
  }
}

template <class T>
void value_or_throw(const Result<T>& result, const std::string& shard) {
  if (result.has_error()) {
    throw SqlFailure(result.error(), shard);
  }
}

void seed_tables(const Config& config) {
  const std::string& journal = config.shards[config.journal_index()].name;
  for (const TableConfig& table : config.tables) {
    value_or_throw(shard_table(config, {.table = table.name,
                                        .key = table.key,
                                        .colocate_with = table.colocate_with,
                                        .may_be_missing = true}),
                   journal);
  }
  for (const std::string& table : config.reference_tables) {
    value_or_throw(reference_table(config, {.table = table, .may_be_missing = true}), journal);
  }
}

// The whole seed is done again until it has succeeded once: each part is idempotent.
void seed(const Config& config) {
  ControlSession journal(config.shards[config.journal_index()], install_options());
  journal.run(
      "SELECT pg_catalog.pg_advisory_lock("
      "pg_catalog.hashtextextended('collegedb:seed', 0))");
  {
    Transaction transaction(journal);
    seed_topology(journal, config);
    transaction.commit();
  }
  check_placement(journal, config);
  describe_shards(journal, config);
  if (journal.run("SELECT seeded FROM collegedb.manifest WHERE scope = $1", {config.journal.scope})
          .boolean(0, 0)) {
    return;
  }
  seed_tables(config);
  journal.run("UPDATE collegedb.manifest SET seeded = true WHERE scope = $1",
              {config.journal.scope});
}

}  // namespace

void check_identity(ControlSession& session, const std::string& scope) {
  const Rows rows = session.run(
      "SELECT scope, shard FROM collegedb.topology WHERE scope <> $1 OR shard <> $2 LIMIT 1",
      {scope, session.shard()});
  if (rows.empty()) {
    return;
  }
  throw SqlFailure(
      make_error("55000",
                 "the database configured as shard \"" + session.shard() + "\" of scope \"" +
                     scope + "\" is shard \"" + rows.text(0, 1) + "\" of scope \"" +
                     rows.text(0, 0) + "\"",
                 "It is another shard or a copy of one. Correct its conninfo; if it is a copy "
                 "that shall become a new shard, drop its schema collegedb first."),
      session.shard());
}

void check_placement(ControlSession& journal, const Config& config) {
  const Rows rows = journal.run("SELECT placement FROM collegedb.manifest WHERE scope = $1",
                                {config.journal.scope});
  if (rows.empty() || rows.view(0, 0) == config.routing.placement) {
    return;
  }
  throw SqlFailure(
      make_error(
          "55000",
          "the keys of scope \"" + config.journal.scope + "\" have " + rows.text(0, 0) +
              " placement, the configuration says routing.placement = \"" +
              config.routing.placement + "\"",
          "Set routing.placement = \"" + rows.text(0, 0) +
              "\": it was chosen when the cluster was made and is the same for every proxy."),
      journal.shard());
}

void drop_stubs(ControlSession& session) {
  const Rows old = session.run(
      "SELECT p.oid::pg_catalog.regprocedure::pg_catalog.text FROM pg_catalog.pg_proc p"
      " WHERE p.pronamespace = pg_catalog.to_regnamespace('public')"
      " AND p.proname LIKE 'collegedb\\_%' AND p.prosrc LIKE '%' || $1",
      {std::string(kStubMarker)});
  for (int i = 0; i < old.size(); ++i) {
    session.run("DROP FUNCTION " + old.text(i, 0));
  }
}

void install_schema_on(const Config& config, std::size_t index,
                       std::span<const FunctionStub> stubs) {
  install_on_shard(config, index, stubs);
}

void install_schema(const Config& config, std::span<const FunctionStub> stubs) {
  for (std::size_t i = 0; i < config.shards.size(); ++i) {
    install_on_shard(config, i, stubs);
  }
  if (config.has_journal()) {
    seed(config);
    resolve_tables(config);
  }
}

void check_shard_schema(ControlSession& session, const std::string& scope, bool journal) {
  const auto require = [&](const Component& component) {
    const int version = installed_version(session, component.name);
    refuse_newer(session, component, version);
    if (version < component.newest()) {
      throw SqlFailure(make_error("55000",
                                  "schema collegedb on shard \"" + session.shard() +
                                      "\" is missing or older than this program",
                                  "Run collegedb init."),
                       session.shard());
    }
  };
  require(kShard);
  check_identity(session, scope);
  if (journal) {
    require(kJournal);
    require(kMoves);
  }
}

void check_schema(const Config& config) {
  for (std::size_t i = 0; i < config.shards.size(); ++i) {
    ControlSession session(config.shards[i]);
    const bool journal = config.has_journal() && i == config.journal_index();
    check_shard_schema(session, config.journal.scope, journal);
    if (journal) {
      check_placement(session, config);
    }
  }
}

}  // namespace collegedb::migration
