#include "migration/table_catalog.h"

namespace collegedb::migration {
namespace {

// A fence is right when its trigger fires ALWAYS, calls our function, and was made for this scope,
// group and key expression. $1 scope, $2 tables, $3 groups, $4 key expressions. Roots come first,
// since their row trigger is cloned to their partitions.
constexpr std::string_view kUnfenced =
    "WITH RECURSIVE registered AS ("
    " SELECT u.i, pg_catalog.to_regclass(u.name)::pg_catalog.oid AS oid, u.grp, u.expression"
    " FROM unnest($2::pg_catalog.text[], $3::pg_catalog.text[], $4::pg_catalog.text[])"
    " WITH ORDINALITY u (name, grp, expression, i)"
    "), tree (i, oid, depth) AS ("
    " SELECT i, oid, 0 FROM registered WHERE oid IS NOT NULL"
    " UNION SELECT t.i, h.inhrelid, t.depth + 1 FROM tree t"
    " JOIN pg_catalog.pg_inherits h ON h.inhparent = t.oid"
    ") SELECT t.i, t.oid::pg_catalog.regclass::pg_catalog.text FROM tree t"
    " JOIN registered r ON r.i = t.i JOIN pg_catalog.pg_class c ON c.oid = t.oid"
    " WHERE c.relkind IN ('r', 'p', 'f')"
    " AND (SELECT pg_catalog.count(*) FROM pg_catalog.pg_trigger g"
    "  JOIN pg_catalog.pg_proc p ON p.oid = g.tgfoid"
    "  JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace AND n.nspname = 'collegedb'"
    "  WHERE g.tgrelid = t.oid AND g.tgenabled = 'A' AND (g.tgname, p.proname) IN"
    "   (('collegedb_fence_insert', 'fence_insert'), ('collegedb_fence_update', 'fence_update'))"
    "  AND g.tgargs = pg_catalog.convert_to($1, pg_catalog.getdatabaseencoding()) || '\\x00'::bytea"
    "   || pg_catalog.convert_to(r.grp, pg_catalog.getdatabaseencoding()) || '\\x00'::bytea"
    "   || pg_catalog.convert_to(r.expression, pg_catalog.getdatabaseencoding())"
    "   || '\\x00'::bytea) < 2"
    " ORDER BY t.depth, t.i, 2";

}  // namespace

TableName parse_table_name(ControlSession& session, std::string_view text) {
  const Rows rows = session.run(
      "SELECT p, CASE pg_catalog.cardinality(p) WHEN 1 THEN pg_catalog.quote_ident(p[1])"
      " ELSE pg_catalog.quote_ident(p[1]) || '.' || pg_catalog.quote_ident(p[2]) END"
      " FROM pg_catalog.parse_ident($1) p",
      {std::string(text)});
  const std::vector<std::string> parts = rows.array(0, 0);
  if (parts.empty() || parts.size() > 2) {
    throw SqlFailure(make_error("42602", "invalid table name: \"" + std::string(text) + "\""),
                     session.shard());
  }
  return {parts.size() == 2 ? parts[0] : "", parts.back(), rows.text(0, 1)};
}

std::optional<TableName> find_table(ControlSession& session, const TableName& name,
                                    const std::vector<std::string>& search_path) {
  std::vector<std::string> schemas = {name.schema};
  if (name.schema.empty()) {
    schemas = search_path;
    schemas.emplace_back("public");
  }
  const Rows rows = session.run(
      "SELECT n.nspname, pg_catalog.format('%I.%I', n.nspname, c.relname), c.relkind IN ('r', 'p'),"
      " c.relpersistence FROM pg_catalog.unnest($1::pg_catalog.text[]) WITH ORDINALITY s (name, i)"
      " JOIN pg_catalog.pg_namespace n ON n.nspname = s.name"
      " JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = $2"
      " ORDER BY s.i LIMIT 1",
      {array_text(schemas), name.name});
  if (rows.empty()) {
    return std::nullopt;
  }
  if (!rows.boolean(0, 2) || rows.view(0, 3) == "t") {
    throw SqlFailure(make_error("42809", rows.text(0, 1) + " is not an ordinary table"),
                     session.shard());
  }
  return TableName{rows.text(0, 0), name.name, rows.text(0, 1)};
}

Result<KeyColumn> describe_key(ControlSession& session, const TableName& table,
                               std::string_view column) {
  // A domain counts as what it is made of, with the type modifier of the innermost domain.
  const Rows rows = session.run(
      "WITH RECURSIVE base (oid, typmod) AS ("
      " SELECT a.atttypid, a.atttypmod FROM pg_catalog.pg_attribute a"
      " WHERE a.attrelid = $1::pg_catalog.regclass AND a.attname = $2 AND a.attnum > 0"
      " AND NOT a.attisdropped"
      " UNION ALL SELECT t.typbasetype, t.typtypmod FROM base b"
      " JOIN pg_catalog.pg_type t ON t.oid = b.oid AND t.typtype = 'd'"
      ") SELECT t.oid, t.typname, b.typmod, pg_catalog.format_type(t.oid, b.typmod),"
      " COALESCE(c.collisdeterministic, true), a.attgenerated <> ''"
      " FROM base b JOIN pg_catalog.pg_type t ON t.oid = b.oid AND t.typtype <> 'd'"
      " JOIN pg_catalog.pg_attribute a ON a.attrelid = $1::pg_catalog.regclass AND a.attname = $2"
      " LEFT JOIN pg_catalog.pg_collation c ON c.oid = a.attcollation",
      {table.qualified, std::string(column)});
  if (rows.empty()) {
    return make_error("42703", "column \"" + std::string(column) + "\" of relation \"" +
                                   table.name + "\" does not exist");
  }
  const auto type = routing::key_type_of(static_cast<std::uint32_t>(rows.int8(0, 0)),
                                         rows.view(0, 1), static_cast<int>(rows.int8(0, 2)));
  const std::string where = table.qualified + "." + std::string(column);
  if (!type) {
    return make_error("0A000",
                      "column " + where + " of type " + rows.text(0, 3) + " cannot be a key column",
                      "Keys are integers, uuid, text, varchar, char(n), citext, bytea, boolean, "
                      "date, or numeric(p,0).");
  }
  if (!rows.boolean(0, 4)) {
    return make_error(
        "0A000", "column " + where + " has a nondeterministic collation and cannot be a key column",
        "Two different texts could be one key.");
  }
  return KeyColumn{*type, routing::sql_key_expression(*type, quote_identifier(column)),
                   rows.boolean(0, 5)};
}

Result<KeyColumn> describe_new_key(ControlSession& session, const TableName& table,
                                   std::string_view column) {
  auto key = describe_key(session, table, column);
  if (key.has_value() && key->computed) {
    return make_error("0A000",
                      "column " + table.qualified + "." + std::string(column) +
                          " is generated from other columns and cannot be a key column",
                      "The proxy must see the key of a row in INSERT: use a plain column.");
  }
  return key;
}

std::vector<RegisteredTable> sound_tables(ControlSession& session,
                                          std::vector<RegisteredTable> tables) {
  std::erase_if(tables, [&](const RegisteredTable& table) {
    if (table.kind != "sharded" || table.key_type.empty() || !find_table(session, table.name, {})) {
      return false;
    }
    const auto key = describe_key(session, table.name, table.key_column);
    return key.has_error() || routing::name_of(key->type) != table.key_type;
  });
  return tables;
}

int ensure_fences(ControlSession& session, std::string_view scope,
                  std::span<const RegisteredTable> tables) {
  std::vector<const RegisteredTable*> sharded;
  std::vector<std::string> names;
  std::vector<std::string> groups;
  std::vector<std::string> expressions;
  for (const RegisteredTable& table : tables) {
    if (table.kind == "sharded" && !table.key_expression.empty()) {
      sharded.push_back(&table);
      names.push_back(table.name.qualified);
      groups.push_back(table.group);
      expressions.push_back(table.key_expression);
    }
  }
  const Rows bare = session.run(kUnfenced, {std::string(scope), array_text(names),
                                            array_text(groups), array_text(expressions)});
  for (int i = 0; i < bare.size(); ++i) {
    const RegisteredTable& table = *sharded[static_cast<std::size_t>(bare.int8(i, 0)) - 1];
    session.run(
        "SELECT collegedb.install_fence($1::pg_catalog.regclass, $2, $3, $4, $5)",
        {bare.text(i, 1), std::string(scope), table.group, table.key_column, table.key_expression});
  }
  return bare.size();
}

bool is_fenced(ControlSession& session, std::string_view scope, const RegisteredTable& table) {
  const auto one = [](const std::string& text) { return array_text({&text, 1}); };
  return session
      .run(kUnfenced, {std::string(scope), one(table.name.qualified), one(table.group),
                       one(table.key_expression)})
      .empty();
}

void drop_fence(ControlSession& session, const TableName& table) {
  const Rows fenced = session.run(
      "WITH RECURSIVE tree (oid) AS (SELECT $1::pg_catalog.regclass::pg_catalog.oid"
      " UNION SELECT h.inhrelid FROM tree t JOIN pg_catalog.pg_inherits h ON h.inhparent = t.oid)"
      " SELECT t.oid::pg_catalog.regclass::pg_catalog.text, g.tgname FROM tree t"
      " JOIN pg_catalog.pg_trigger g ON g.tgrelid = t.oid AND g.tgparentid = 0"
      " WHERE g.tgname IN ('collegedb_fence_insert', 'collegedb_fence_update')",
      {table.qualified});
  for (int i = 0; i < fenced.size(); ++i) {
    session.run("DROP TRIGGER " + quote_identifier(fenced.view(i, 1)) + " ON " + fenced.text(i, 0));
  }
}

std::vector<RegisteredTable> read_registry(ControlSession& journal, std::string_view scope) {
  const Rows rows = journal.run(
      "SELECT schema_name, table_name, pg_catalog.format('%I.%I', schema_name, table_name), kind,"
      " grp, key_column, key_type, key_expression FROM collegedb.tables WHERE scope = $1"
      " ORDER BY schema_name, table_name",
      {std::string(scope)});
  std::vector<RegisteredTable> out;
  for (int i = 0; i < rows.size(); ++i) {
    out.push_back({{rows.text(i, 0), rows.text(i, 1), rows.text(i, 2)},
                   rows.text(i, 3),
                   rows.text(i, 4),
                   rows.text(i, 5),
                   rows.text(i, 6),
                   rows.text(i, 7)});
  }
  return out;
}

}  // namespace collegedb::migration
