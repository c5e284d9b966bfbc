#include "store/snapshot_reader.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "migration/schema.h"
#include "migration/table_catalog.h"
#include "store/hidden_reader.h"

namespace collegedb::store {
namespace {

using migration::ControlSession;
using migration::RegisteredTable;
using migration::Rows;
using migration::SqlFailure;
using routing::Algorithm;
using routing::ColumnInfo;
using routing::Epoch;
using routing::EpochState;
using routing::ExceptionMap;
using routing::GroupKey;
using routing::KeyType;
using routing::name_of;
using routing::Placement;
using routing::Shard;
using routing::ShardId;
using routing::Snapshot;
using routing::TableInfo;
using routing::TableKind;

[[noreturn]] void unverified(const ControlSession& journal, std::string_view text,
                             std::string_view hint) {
  throw SqlFailure(make_error(ErrorCode::kPlacementUnverified, text, hint), journal.shard());
}

ShardId shard_id(const ControlSession& journal, const Snapshot& snapshot, std::string_view name,
                 std::string_view what) {
  if (const auto id = snapshot.find_shard(name)) {
    return *id;
  }
  unverified(
      journal,
      std::string(what) + " names shard \"" + std::string(name) + "\", which is not configured",
      "Add the shard to the configuration of this proxy.");
}

void add_shards(Snapshot& snapshot, const Config& config) {
  snapshot.scope = config.journal.scope;
  for (const ShardConfig& shard : config.shards) {
    snapshot.shards.push_back({shard.name});
  }
}

void read_members(ControlSession& journal, Snapshot& snapshot) {
  for (Shard& shard : snapshot.shards) {
    shard.member = false;
  }
  const Rows rows =
      journal.run("SELECT shard FROM collegedb.shards WHERE scope = $1 AND state <> 'removed'",
                  {snapshot.scope});
  for (int i = 0; i < rows.size(); ++i) {
    snapshot.shards[shard_id(journal, snapshot, rows.view(i, 0), "the cluster")].member = true;
  }
}

void read_epochs(ControlSession& journal, Snapshot& snapshot) {
  const Rows rows = journal.run(
      "SELECT id, algorithm, state, shards, weights FROM collegedb.epochs WHERE scope = $1"
      " ORDER BY id DESC",
      {snapshot.scope});
  for (int i = 0; i < rows.size(); ++i) {
    Epoch epoch;
    epoch.id = static_cast<std::int32_t>(rows.int8(i, 0));
    epoch.algorithm = rows.view(i, 1) == "modulo" ? Algorithm::kModulo : Algorithm::kHrw;
    epoch.state = rows.view(i, 2) == "active" ? EpochState::kActive : EpochState::kPublishing;
    for (const std::string& name : rows.array(i, 3)) {
      epoch.shards.push_back(
          shard_id(journal, snapshot, name, "epoch " + std::to_string(epoch.id)));
    }
    for (const std::string& text : rows.array(i, 4)) {
      double weight = 1;
      std::from_chars(text.data(), text.data() + text.size(), weight);
      epoch.weights.push_back(weight);
    }
    snapshot.epochs.push_back(std::move(epoch));
  }
  if (snapshot.epochs.empty()) {
    unverified(journal, "the manifest has no epoch", "Restore schema collegedb from a backup.");
  }
}

std::shared_ptr<const ExceptionMap> read_exceptions(ControlSession& journal,
                                                    const Snapshot& snapshot) {
  auto map = std::make_shared<ExceptionMap>();
  // Through a cursor: the text of a large directory is never in memory as a whole.
  journal.run(
      "DECLARE directory NO SCROLL CURSOR FOR SELECT grp, key, shard"
      " FROM collegedb.exceptions WHERE kind = 'move' AND scope = " +
      migration::quote_literal(snapshot.scope));
  for (;;) {
    const Rows rows = journal.run("FETCH 20000 FROM directory");
    if (rows.empty()) {
      return map;
    }
    for (int i = 0; i < rows.size(); ++i) {
      map->emplace(GroupKey{rows.text(i, 0), rows.text(i, 1)},
                   shard_id(journal, snapshot, rows.view(i, 2), "the directory"));
    }
  }
}

// Columns and triggers of all registered tables: three statements, however many tables.
struct Catalog {
  std::vector<std::vector<ColumnInfo>> columns;  // parallel to the tables
  std::vector<bool> user_triggers;
};

Catalog read_catalog(ControlSession& session, const std::vector<RegisteredTable>& tables) {
  std::vector<std::string> names;
  for (const RegisteredTable& table : tables) {
    names.push_back(table.name.qualified);
  }
  Catalog catalog;
  catalog.columns.resize(tables.size());
  catalog.user_triggers.resize(tables.size());
  const Rows columns = session.run(
      "SELECT u.i, a.attname, a.atttypid,"
      " COALESCE(pg_catalog.pg_get_expr(d.adbin, d.adrelid), ''), a.attgenerated <> '',"
      " a.attidentity <> '' FROM pg_catalog.unnest($1::pg_catalog.text[])"
      " WITH ORDINALITY u (name, i) JOIN pg_catalog.pg_attribute a"
      " ON a.attrelid = pg_catalog.to_regclass(u.name) AND a.attnum > 0 AND NOT a.attisdropped"
      " LEFT JOIN pg_catalog.pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum"
      " ORDER BY u.i, a.attnum",
      {migration::array_text(names)});
  for (int i = 0; i < columns.size(); ++i) {
    ColumnInfo column;
    column.name = columns.text(i, 1);
    column.type_oid = static_cast<std::uint32_t>(columns.int8(i, 2));
    column.generated = columns.boolean(i, 4);
    column.default_expression = column.generated ? std::string{} : columns.text(i, 3);
    column.identity = columns.boolean(i, 5);
    catalog.columns[static_cast<std::size_t>(columns.int8(i, 0)) - 1].push_back(std::move(column));
  }
  // A rule rewrites statements as freely as a trigger runs them.
  const Rows triggers = session.run(
      "WITH RECURSIVE tree (i, oid) AS (SELECT u.i, pg_catalog.to_regclass(u.name)::pg_catalog.oid"
      " FROM pg_catalog.unnest($1::pg_catalog.text[]) WITH ORDINALITY u (name, i)"
      " UNION SELECT t.i, h.inhrelid FROM tree t"
      " JOIN pg_catalog.pg_inherits h ON h.inhparent = t.oid)"
      " SELECT DISTINCT t.i FROM tree t"
      " WHERE EXISTS (SELECT 1 FROM pg_catalog.pg_trigger g WHERE g.tgrelid = t.oid"
      " AND NOT g.tgisinternal"
      " AND g.tgname NOT IN ('collegedb_fence_insert', 'collegedb_fence_update'))"
      " OR EXISTS (SELECT 1 FROM pg_catalog.pg_rewrite w WHERE w.ev_class = t.oid)",
      {migration::array_text(names)});
  for (int i = 0; i < triggers.size(); ++i) {
    catalog.user_triggers[static_cast<std::size_t>(triggers.int8(i, 0)) - 1] = true;
  }
  return catalog;
}

std::optional<KeyType> key_type_named(std::string_view name) {
  for (int i = 0; i <= static_cast<int>(KeyType::kNumeric0); ++i) {
    if (const auto type = static_cast<KeyType>(i); name_of(type) == name) {
      return type;
    }
  }
  return std::nullopt;
}

// The registered key type of a table, checked against the column as it is. A table that is not what
// it was registered as is noted as broken.
KeyType checked_key_type(ControlSession& session, const RegisteredTable& table,
                         Snapshot& snapshot) {
  const auto key = migration::describe_key(session, table.name, table.key_column);
  std::string reason;
  if (key.has_error()) {
    reason = "table " + table.name.qualified + ": " + key.error().message;
  } else if (!table.key_type.empty() && name_of(key->type) != table.key_type) {
    reason = "key column " + table.name.qualified + "." + table.key_column + " is of type " +
             std::string(name_of(key->type)) + " but was registered as " + table.key_type;
  } else {
    return key->type;
  }
  const parser::QualifiedName name{table.name.schema, table.name.name};
  snapshot.dependent_relations.push_back(name);
  snapshot.broken_tables.push_back({name, std::move(reason)});
  return key_type_named(table.key_type).value_or(KeyType::kText);
}

// Views over registered tables, through any number of views, and relatives by inheritance or
// partitioning: each shard shows only its part of their rows.
void read_dependents(ControlSession& session, const std::vector<RegisteredTable>& tables,
                     Snapshot& snapshot) {
  std::vector<std::string> names;
  for (const RegisteredTable& table : tables) {
    if (table.kind != "local") {
      names.push_back(table.name.qualified);
    }
  }
  const Rows rows = session.run(
      "WITH RECURSIVE registered (oid) AS ("
      " SELECT pg_catalog.to_regclass(u.name)::pg_catalog.oid"
      " FROM pg_catalog.unnest($1::pg_catalog.text[]) u (name)),"
      " related (oid) AS (SELECT oid FROM registered UNION SELECT x.oid FROM related r, LATERAL ("
      " SELECT w.ev_class FROM pg_catalog.pg_depend d"
      " JOIN pg_catalog.pg_rewrite w ON w.oid = d.objid"
      " WHERE d.classid = 'pg_catalog.pg_rewrite'::pg_catalog.regclass"
      " AND d.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass AND d.refobjid = r.oid"
      " UNION ALL SELECT h.inhrelid FROM pg_catalog.pg_inherits h WHERE h.inhparent = r.oid"
      " UNION ALL SELECT h.inhparent FROM pg_catalog.pg_inherits h WHERE h.inhrelid = r.oid)"
      " x (oid))"
      " SELECT n.nspname, c.relname FROM related r JOIN pg_catalog.pg_class c ON c.oid = r.oid"
      " JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace"
      " WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f')"
      " AND NOT EXISTS (SELECT 1 FROM registered g WHERE g.oid = c.oid)",
      {migration::array_text(names)});
  for (int i = 0; i < rows.size(); ++i) {
    snapshot.dependent_relations.push_back({rows.text(i, 0), rows.text(i, 1)});
  }
}

void add_tables(ControlSession& session, const std::vector<RegisteredTable>& tables,
                Snapshot& snapshot) {
  Catalog catalog = read_catalog(session, tables);
  for (std::size_t i = 0; i < tables.size(); ++i) {
    const RegisteredTable& table = tables[i];
    TableInfo info;
    info.name = {table.name.schema, table.name.name};
    info.kind = table.kind == "sharded"     ? TableKind::kSharded
                : table.kind == "reference" ? TableKind::kReference
                                            : TableKind::kLocal;
    info.group = table.group;
    info.key_column = table.key_column;
    info.columns = std::move(catalog.columns[i]);
    info.user_triggers = catalog.user_triggers[i];
    if (info.kind == TableKind::kSharded) {
      if (info.columns.empty()) {
        // Not there yet, so its key has no type: nothing can be taken for a key of it.
        info.key_column.clear();
      } else {
        info.key_type = checked_key_type(session, table, snapshot);
      }
    }
    snapshot.tables.push_back(std::move(info));
  }
  read_dependents(session, tables, snapshot);
}

// Only what came with the server: a function an extension or a superuser put into pg_catalog is as
// opaque as any other, and so is a name that another schema overloads, unless in C or by an
// aggregate made of C and built-in functions (those of citext).
void read_builtin_functions(ControlSession& session, Snapshot& snapshot) {
  const Rows rows = session.run(
      "SELECT DISTINCT proname FROM pg_catalog.pg_proc"
      " WHERE pronamespace = 'pg_catalog'::pg_catalog.regnamespace AND oid < 16384"
      " EXCEPT SELECT p.proname FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n"
      " ON n.oid = p.pronamespace JOIN pg_catalog.pg_language l ON l.oid = p.prolang"
      " WHERE p.oid >= 16384 AND n.nspname <> 'collegedb' AND l.lanname <> 'c'"
      " AND (p.prokind <> 'a' OR EXISTS (SELECT 1 FROM pg_catalog.pg_aggregate g"
      " JOIN pg_catalog.pg_proc f ON f.oid IN (g.aggtransfn, g.aggfinalfn, g.aggcombinefn,"
      " g.aggserialfn, g.aggdeserialfn, g.aggmtransfn, g.aggminvtransfn, g.aggmfinalfn)"
      " AND f.oid >= 16384 JOIN pg_catalog.pg_language fl ON fl.oid = f.prolang"
      " WHERE g.aggfnoid = p.oid AND fl.lanname <> 'c'))");
  snapshot.builtin_functions.reserve(static_cast<std::size_t>(rows.size()));
  for (int i = 0; i < rows.size(); ++i) {
    snapshot.builtin_functions.insert(rows.text(i, 0));
  }
}

void mark_hidden_writes(Snapshot& snapshot) {
  for (TableInfo& table : snapshot.tables) {
    table.user_triggers = table.user_triggers || snapshot.hidden.written.contains(table.name);
  }
}

RegisteredTable named_table(ControlSession& session, const std::string& text,
                            std::string_view kind) {
  migration::TableName name = migration::parse_table_name(session, text);
  if (name.schema.empty()) {
    name = migration::parse_table_name(session, "public." + text);
  }
  return {name, std::string(kind), {}, {}, {}, {}};
}

}  // namespace

Versions read_versions(ControlSession& journal, const std::string& scope) {
  const Rows rows = journal.run(
      "SELECT revision, generation, exception_version, registry_version FROM collegedb.manifest"
      " WHERE scope = $1",
      {scope});
  if (rows.empty()) {
    throw SqlFailure(make_error("55000",
                                "scope \"" + scope +
                                    "\" has no manifest on the journal "
                                    "shard",
                                "Run collegedb init."),
                     journal.shard());
  }
  return {rows.int8(0, 0), rows.int8(0, 1), rows.int8(0, 2), rows.int8(0, 3)};
}

LoadedSnapshot read_snapshot(ControlSession& journal, const Config& config,
                             const LoadedSnapshot* previous) {
  LoadedSnapshot loaded;
  Snapshot& snapshot = loaded.snapshot;
  add_shards(snapshot, config);
  snapshot.journal_shard = static_cast<ShardId>(config.journal_index());
  migration::Transaction transaction(journal, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY");
  loaded.versions = read_versions(journal, snapshot.scope);
  migration::check_placement(journal, config);
  snapshot.placement =
      config.routing.placement == "mapped" ? Placement::kMapped : Placement::kComputed;
  snapshot.revision = loaded.versions.revision;
  snapshot.generation = loaded.versions.generation;
  snapshot.registry_version = loaded.versions.registry_version;
  read_members(journal, snapshot);
  read_epochs(journal, snapshot);
  add_tables(journal, migration::read_registry(journal, snapshot.scope), snapshot);
  if (previous != nullptr &&
      previous->versions.exception_version == loaded.versions.exception_version) {
    snapshot.exceptions = previous->snapshot.exceptions;
  } else {
    snapshot.exceptions = read_exceptions(journal, snapshot);
  }
  if (previous != nullptr &&
      previous->versions.registry_version == loaded.versions.registry_version) {
    snapshot.builtin_functions = previous->snapshot.builtin_functions;
    snapshot.hidden = previous->snapshot.hidden;
    snapshot.homonyms = previous->snapshot.homonyms;
  } else {
    read_builtin_functions(journal, snapshot);
    read_hidden_code(journal, snapshot);
  }
  mark_hidden_writes(snapshot);
  transaction.commit();
  return loaded;
}

LoadedSnapshot static_snapshot(ControlSession& first_shard, const Config& config) {
  LoadedSnapshot loaded;
  Snapshot& snapshot = loaded.snapshot;
  add_shards(snapshot, config);
  Epoch epoch;
  epoch.id = 1;
  for (std::size_t i = 0; i < config.shards.size(); ++i) {
    epoch.shards.push_back(static_cast<ShardId>(i));
  }
  snapshot.epochs.push_back(std::move(epoch));
  std::vector<RegisteredTable> tables;
  for (const TableConfig& each : config.tables) {
    RegisteredTable table = named_table(first_shard, each.name, "sharded");
    table.key_column = each.key;
    table.group = table.name.qualified;
    if (!each.colocate_with.empty()) {
      const RegisteredTable root = named_table(first_shard, each.colocate_with, "sharded");
      const auto found = std::find_if(tables.begin(), tables.end(), [&](const RegisteredTable& t) {
        return t.name == root.name;
      });
      table.group = found != tables.end() ? found->group : root.name.qualified;
    }
    tables.push_back(std::move(table));
  }
  for (const std::string& name : config.reference_tables) {
    tables.push_back(named_table(first_shard, name, "reference"));
  }
  add_tables(first_shard, tables, snapshot);
  snapshot.exceptions = std::make_shared<const ExceptionMap>();
  read_builtin_functions(first_shard, snapshot);
  read_hidden_code(first_shard, snapshot);
  mark_hidden_writes(snapshot);
  loaded.versions = {0, 0, 0, 0};
  return loaded;
}

}  // namespace collegedb::store
