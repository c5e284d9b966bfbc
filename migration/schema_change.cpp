#include "migration/schema_change.h"

#include <map>

#include "migration/sequences.h"

namespace collegedb::migration {
namespace {

template <class F>
std::vector<std::string> column_of(const std::vector<KnownTable>& tables, F text) {
  std::vector<std::string> out;
  out.reserve(tables.size());
  for (const KnownTable& each : tables) {
    out.push_back(text(each));
  }
  return out;
}

[[noreturn]] void refuse(Cluster& shards, const Config& config, SqlError error) {
  throw SqlFailure(std::move(error), shards[config.journal_index()].shard());
}

KeyColumn described(Cluster& shards, const Config& config, const RegisteredTable& table) {
  ControlSession& session = shards[config.journal_index()];
  const auto key = describe_new_key(session, table.name, table.key_column);
  if (key.has_error()) {
    refuse(shards, config, key.error());
  }
  return *key;
}

// A registered table that has just been created. Its rows, if it was created with some, are the
// same on every shard: nobody could tell whose they are.
RegisteredTable complete(Cluster& shards, const Config& config, RegisteredTable table,
                         const std::vector<KnownTable>& all) {
  const KeyColumn key = described(shards, config, table);
  table.key_type = routing::name_of(key.type);
  table.key_expression = key.expression;
  for (const KnownTable& other : all) {
    const RegisteredTable& sibling = other.table;
    if (sibling.group == table.group && !sibling.key_type.empty() &&
        !compatible_keys(sibling.key_type, table.key_type)) {
      refuse(shards, config,
             make_error("42804", "the keys of " + table.name.qualified + " (" + table.key_type +
                                     ") and " + sibling.name.qualified + " (" + sibling.key_type +
                                     ") are of different types"));
    }
  }
  for (std::size_t i = 0; i < shards.size(); ++i) {
    if (!shards[i].run("SELECT 1 FROM " + table.name.qualified + " LIMIT 1").empty()) {
      refuse(shards, config,
             make_error("0A000", "sharded table " + table.name.qualified + " must be created empty",
                        "Create it first, then insert through the proxy."));
    }
  }
  return table;
}

// What the journal shard now knows of one table that existed before.
struct After {
  bool exists = false;
  TableName name;
  std::string key_column;  // empty = dropped
  std::string key_shape;
};

std::vector<After> tables_after(ControlSession& session, const std::vector<KnownTable>& before) {
  const Rows rows = session.run(
      "SELECT c.oid IS NOT NULL, n.nspname, c.relname, CASE WHEN c.oid IS NOT NULL"
      " THEN pg_catalog.format('%I.%I', n.nspname, c.relname) END,"
      " CASE WHEN NOT a.attisdropped THEN a.attname END,"
      " pg_catalog.format('%s %s %s', a.atttypid, a.atttypmod, a.attcollation)"
      " FROM unnest($1::pg_catalog.text[], $2::pg_catalog.text[])"
      " WITH ORDINALITY u (oid, attnum, i)"
      " LEFT JOIN pg_catalog.pg_class c"
      " ON c.oid = NULLIF(u.oid, '')::pg_catalog.oid"
      " LEFT JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace"
      " LEFT JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid"
      " AND a.attnum = NULLIF(u.attnum, '')::pg_catalog.int2 ORDER BY u.i",
      {array_text(column_of(before, [](const KnownTable& each) { return each.oid; })),
       array_text(column_of(before, [](const KnownTable& each) { return each.key_attnum; }))});
  std::vector<After> out;
  for (int i = 0; i < rows.size(); ++i) {
    out.push_back({rows.boolean(i, 0),
                   {rows.text(i, 1), rows.text(i, 2), rows.text(i, 3)},
                   rows.text(i, 4),
                   rows.text(i, 5)});
  }
  return out;
}

// A table that existed before the change: follows its name and key column, checks its key type.
void follow(Cluster& shards, const Config& config, const KnownTable& known, const After& after,
            RegistryChange& change) {
  RegisteredTable table = known.table;
  if (!after.exists) {
    change.removals.push_back(table.name);
    change.dropped.push_back(table.name);
    return;
  }
  const bool renamed = !(after.name == table.name);
  if (renamed) {
    change.removals.push_back(table.name);
    table.name = after.name;
  }
  bool rekeyed = false;
  // One that had no such column before was broken already: it may be on its way back.
  if (table.kind == "sharded" && !known.key_attnum.empty()) {
    if (after.key_column.empty()) {
      refuse(shards, config,
             make_error("0A000", "cannot drop column " + table.key_column + " of table " +
                                     table.name.qualified + " because it is its key column"));
    }
    rekeyed = after.key_column != table.key_column || after.key_shape != known.key_shape;
    if (rekeyed) {
      table.key_column = after.key_column;
      const KeyColumn key = described(shards, config, table);
      if (routing::name_of(key.type) != table.key_type) {
        refuse(shards, config,
               make_error("0A000", "cannot change the type of key column " + table.name.qualified +
                                       "." + table.key_column));
      }
      table.key_expression = key.expression;
    }
  }
  if (renamed || rekeyed) {
    change.upserts.push_back(std::move(table));
  }
}

// The registry with the change applied, as far as tables are there to be looked at.
std::vector<RegisteredTable> present_after(const std::vector<KnownTable>& before,
                                           const RegistryChange& change) {
  std::map<std::string, RegisteredTable> tables;
  for (const KnownTable& each : before) {
    tables.emplace(each.table.name.qualified, each.table);
  }
  for (const TableName& name : change.removals) {
    tables.erase(name.qualified);
  }
  for (const RegisteredTable& table : change.upserts) {
    tables.insert_or_assign(table.name.qualified, table);
  }
  std::vector<RegisteredTable> out;
  for (auto& [name, table] : tables) {
    out.push_back(std::move(table));
  }
  return out;
}

std::vector<std::string> shapes(ControlSession& session, const std::vector<TableName>& tables) {
  std::vector<std::string> names;
  for (const TableName& table : tables) {
    names.push_back(table.qualified);
  }
  const Rows rows = session.run(
      "SELECT (SELECT pg_catalog.string_agg(pg_catalog.format('%I %s%s%s', a.attname,"
      " pg_catalog.format_type(a.atttypid, a.atttypmod),"
      " CASE WHEN a.attcollation NOT IN (0, 100) THEN ' COLLATE ' || c.collname ELSE '' END,"
      " CASE WHEN a.attnotnull THEN ' NOT NULL' ELSE '' END), ', ' ORDER BY a.attnum)"
      " FROM pg_catalog.pg_attribute a LEFT JOIN pg_catalog.pg_collation c"
      " ON c.oid = a.attcollation WHERE a.attrelid = pg_catalog.to_regclass(u.name)"
      " AND a.attnum > 0 AND NOT a.attisdropped)"
      " FROM pg_catalog.unnest($1::pg_catalog.text[]) WITH ORDINALITY u (name, i) ORDER BY u.i",
      {array_text(names)});
  std::vector<std::string> out;
  for (int i = 0; i < rows.size(); ++i) {
    out.push_back(rows.text(i, 0));
  }
  return out;
}

}  // namespace

std::vector<KnownTable> tables_before(ControlSession& on_journal_shard,
                                      const std::vector<RegisteredTable>& registry) {
  std::vector<std::string> names;
  std::vector<std::string> keys;
  for (const RegisteredTable& table : registry) {
    names.push_back(table.name.qualified);
    keys.push_back(table.key_column);
  }
  const Rows rows = on_journal_shard.run(
      "SELECT c.oid, a.attnum,"
      " pg_catalog.format('%s %s %s', a.atttypid, a.atttypmod, a.attcollation)"
      " FROM unnest($1::pg_catalog.text[], $2::pg_catalog.text[])"
      " WITH ORDINALITY u (name, key, i)"
      " LEFT JOIN pg_catalog.pg_class c ON c.oid = pg_catalog.to_regclass(u.name)"
      " AND c.relkind IN ('r', 'p')"
      " LEFT JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attname = u.key"
      " AND a.attnum > 0 AND NOT a.attisdropped ORDER BY u.i",
      {array_text(names), array_text(keys)});
  std::vector<KnownTable> out;
  for (std::size_t i = 0; i < registry.size(); ++i) {
    const int row = static_cast<int>(i);
    out.push_back({registry[i], rows.text(row, 0), rows.text(row, 1), rows.text(row, 2)});
  }
  return out;
}

RegistryChange follow_schema_change(const Config& config, Cluster& shards,
                                    const std::vector<int>& slots,
                                    const std::vector<KnownTable>& before) {
  ControlSession& session = shards[config.journal_index()];
  RegistryChange change;
  const std::vector<After> after = tables_after(session, before);
  for (std::size_t i = 0; i < before.size(); ++i) {
    const KnownTable& known = before[i];
    if (!known.oid.empty()) {
      follow(shards, config, known, after[i], change);
    } else if (known.table.kind == "sharded" && known.table.key_type.empty() &&
               find_table(session, known.table.name, {})) {
      change.upserts.push_back(complete(shards, config, known.table, before));
    }
  }
  const std::vector<RegisteredTable> tables = present_after(before, change);
  std::vector<TableName> names;
  for (const RegisteredTable& table : tables) {
    if (table.kind != "local") {
      names.push_back(table.name);
    }
  }
  if (auto equal = same_shape(shards, names); equal.has_error()) {
    refuse(shards, config, equal.error());
  }
  const std::vector<RegisteredTable> sound = sound_tables(session, tables);
  for (std::size_t i = 0; i < shards.size(); ++i) {
    ensure_fences(shards[i], config.journal.scope, sound);
  }
  stride_sequences(shards, slots, tables);
  return change;
}

void apply_registry_change(ControlSession& journal, const std::string& scope,
                           const RegistryChange& change) {
  const auto optional = [](const std::string& text) {
    return text.empty() ? SqlParameter{} : SqlParameter{text};
  };
  for (const TableName& name : change.removals) {
    journal.run(
        "DELETE FROM collegedb.tables WHERE scope = $1 AND schema_name = $2"
        " AND table_name = $3",
        {scope, name.schema, name.name});
  }
  for (const RegisteredTable& table : change.upserts) {
    journal.run(
        "INSERT INTO collegedb.tables (scope, schema_name, table_name, kind, grp, key_column,"
        " key_type, key_expression) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)"
        " ON CONFLICT (scope, schema_name, table_name) DO UPDATE SET kind = excluded.kind,"
        " grp = excluded.grp, key_column = excluded.key_column, key_type = excluded.key_type,"
        " key_expression = excluded.key_expression",
        {scope, table.name.schema, table.name.name, table.kind, optional(table.group),
         optional(table.key_column), optional(table.key_type), optional(table.key_expression)});
  }
  journal.run(
      "UPDATE collegedb.manifest SET registry_version = registry_version + 1"
      " WHERE scope = $1",
      {scope});
}

Result<void> same_shape(Cluster& shards, const std::vector<TableName>& tables) {
  const std::vector<std::string> first = shapes(shards[0], tables);
  for (std::size_t i = 1; i < shards.size(); ++i) {
    const std::vector<std::string> other = shapes(shards[i], tables);
    for (std::size_t t = 0; t < tables.size(); ++t) {
      if (first[t] == other[t]) {
        continue;
      }
      const auto text = [](const std::string& shape) { return shape.empty() ? "missing" : shape; };
      return make_error("55000",
                        "table " + tables[t].qualified + " differs between shards \"" +
                            shards[0].shard() + "\" and \"" + shards[i].shard() + "\"",
                        "It needs the same columns in the same order on every shard.",
                        shards[0].shard() + ": " + text(first[t]) + "; " + shards[i].shard() +
                            ": " + text(other[t]) + ".");
    }
  }
  return {};
}

std::string table_shape(ControlSession& session, const TableName& table) {
  return shapes(session, {table}).front();
}

// int4 and int8 write one number alike, text and varchar one text; other types only themselves.
bool compatible_keys(std::string_view a, std::string_view b) {
  using routing::KeyType;
  const auto family = [](std::string_view type) -> std::string_view {
    for (const KeyType each : {KeyType::kInt2, KeyType::kInt4, KeyType::kInt8}) {
      if (type == routing::name_of(each)) {
        return "integer";
      }
    }
    return type == routing::name_of(KeyType::kVarchar) ? routing::name_of(KeyType::kText) : type;
  };
  return family(a) == family(b);
}

}  // namespace collegedb::migration
