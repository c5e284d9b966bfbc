#include "migration/plan.h"

#include <algorithm>
#include <set>

#include "migration/control_session.h"

namespace collegedb::migration {
namespace {

std::string label_of(const GroupTable& table) {
  return table.schema + "." + table.name;
}

std::string qualified(const GroupTable& table) {
  return quote_identifier(table.schema) + "." + quote_identifier(table.name);
}

std::string equals_any(const std::vector<std::string>& keys, const std::string& op,
                       const std::string& type) {
  if (keys.size() == 1) return op + " " + quote_literal(keys.front()) + "::" + type;
  // One literal: a constructor with hundreds of elements costs more to parse than to look up.
  return op + " ANY (" + quote_literal(array_text(keys)) + "::" + type + "[])";
}

// Referenced tables first. What is in a cycle keeps its given order.
std::vector<std::size_t> order(const std::vector<TableShape>& tables,
                               const std::vector<ForeignKey>& keys) {
  std::vector<std::size_t> out;
  std::set<std::string> waiting;
  for (const TableShape& shape : tables) waiting.insert(label_of(shape.table));
  const auto ready = [&](const std::string& label) {
    return std::none_of(keys.begin(), keys.end(), [&](const ForeignKey& key) {
      return key.table == label && key.referenced != label && waiting.contains(key.referenced);
    });
  };
  while (!waiting.empty()) {
    const std::size_t before = out.size();
    for (std::size_t pass = 0; pass < 2 && out.size() == before; ++pass) {
      for (std::size_t i = 0; i < tables.size(); ++i) {
        const std::string label = label_of(tables[i].table);
        if (!waiting.contains(label) || (pass == 0 && !ready(label))) continue;
        waiting.erase(label);
        out.push_back(i);
        if (pass == 1) break;
      }
    }
  }
  return out;
}

// collegedb.operations: identities of idempotent writes travel with their key.
TablePlan operations_of(const Unit& unit) {
  TablePlan plan{.table = {"collegedb", "operations", "key"},
                 .qualified = "collegedb.operations",
                 .label = "collegedb.operations",
                 .internal = true};
  plan.conditions = {{"scope", "= " + quote_literal(unit.scope)},
                     {"grp", "= " + quote_literal(unit.group)},
                     {"key", equals_any(unit.keys, "=", "pg_catalog.text")}};
  for (const char* name : {"scope", "grp", "key", "operation_id", "tag"}) {
    plan.columns.push_back({.name = name, .type = "text"});
  }
  plan.columns.push_back({.name = "at", .type = "timestamp with time zone"});
  return plan;
}

// Values are sought through the column's own operator, for the sake of its indexes. That of citext
// folds as the database does, the key as the column's collation does: rows must agree with both.
void match_keys(TablePlan& plan, const std::vector<std::string>& keys, const TableShape& shape) {
  const routing::KeyType type = shape.key.value_or(routing::KeyType::kText);
  const std::string column = quote_identifier(shape.table.key_column);
  std::vector<std::string> literals;
  for (const std::string& key : keys) literals.push_back(routing::sql_key_literal(type, key));
  plan.conditions = {{column, equals_any(literals, shape.key_operator, shape.key_type)}};
  if (type == routing::KeyType::kCitext) {
    plan.conditions.push_back({column,
                               ")::pg_catalog.text) " + equals_any(keys, "=", "pg_catalog.text"),
                               "pg_catalog.lower(("});
  }
  plan.key = type;
  plan.key_expression = routing::sql_key_expression(type, column);
  // The text itself is sought in a citext column: at least what every collation folds is folded.
  plan.sought_expression =
      type == routing::KeyType::kCitext
          ? "pg_catalog.lower(literal COLLATE pg_catalog.\"C\")"
          : routing::sql_key_expression(type, "(literal::" + shape.key_type + ")");
}

TablePlan plan_table(const Unit& unit, const TableShape& shape) {
  TablePlan plan{
      .table = shape.table, .qualified = qualified(shape.table), .label = label_of(shape.table)};
  match_keys(plan, unit.keys, shape);
  plan.columns = shape.columns;
  plan.text_copy = std::any_of(plan.columns.begin(), plan.columns.end(),
                               [](const ColumnShape& c) { return c.as_text && !c.generated; });
  return plan;
}

void compare_tables(const TableShape& a, const TableShape& b, const GroupCatalog& source,
                    const GroupCatalog& destination, std::vector<Problem>& out) {
  std::vector<std::string> only_source;
  std::vector<std::string> only_destination;
  std::set_difference(a.fingerprint.begin(), a.fingerprint.end(), b.fingerprint.begin(),
                      b.fingerprint.end(), std::back_inserter(only_source));
  std::set_difference(b.fingerprint.begin(), b.fingerprint.end(), a.fingerprint.begin(),
                      a.fingerprint.end(), std::back_inserter(only_destination));
  for (const std::string& line : only_source) {
    out.push_back({ErrorCode::kMoveRefused, "table " + label_of(a.table) + ": only shard \"" +
                                                source.shard + "\" has " + line});
  }
  for (const std::string& line : only_destination) {
    out.push_back({ErrorCode::kMoveRefused, "table " + label_of(a.table) + ": only shard \"" +
                                                destination.shard + "\" has " + line});
  }
}

void check_server(const GroupCatalog& side, std::vector<Problem>& out) {
  if (side.server_version < 130000) {
    out.push_back({ErrorCode::kMigrationUnsupportedDialect,
                   "shard \"" + side.shard + "\" is older than PostgreSQL 13"});
  }
  if (side.prepared_transactions == 0) {
    out.push_back({ErrorCode::kMigrationNoAtomicBatch,
                   "shard \"" + side.shard + "\" has max_prepared_transactions = 0"});
  }
  out.insert(out.end(), side.problems.begin(), side.problems.end());
}

void check_triggers(const GroupCatalog& side, bool replica, std::vector<Problem>& out) {
  for (const TableShape& shape : side.tables) {
    const auto& firing = replica ? shape.always_triggers : shape.user_triggers;
    for (const std::string& trigger : firing) {
      out.push_back({ErrorCode::kMoveRefused, "trigger " + trigger + " on table " +
                                                  label_of(shape.table) + " of shard \"" +
                                                  side.shard + "\" would fire for moved rows"});
    }
  }
  if (replica) return;
  for (const ForeignKey& key : side.foreign_keys) {
    if (!key.cascades) continue;
    out.push_back({ErrorCode::kMoveRefused,
                   "foreign key " + key.name + " of table " + key.table + " on shard \"" +
                       side.shard +
                       "\" would act on moved rows, and the mover's role may not set "
                       "session_replication_role"});
  }
}

std::int64_t residue(std::int64_t value, std::int64_t step) {
  const std::int64_t rest = value % step;
  return rest < 0 ? rest + (step < 0 ? -step : step) : rest;
}

bool apart(const SequenceShape& a, const SequenceShape& b) {
  return a.increment == b.increment && (a.increment > 1 || a.increment < -1) &&
         residue(a.last_value, a.increment) != residue(b.last_value, b.increment);
}

void check_sequences(const GroupCatalog& source, const GroupCatalog& destination,
                     std::vector<Problem>& out) {
  for (const SequenceShape& a : source.sequences) {
    for (const SequenceShape& b : destination.sequences) {
      if (a.table != b.table || a.column != b.column || apart(a, b)) continue;
      out.push_back({ErrorCode::kMoveRefused,
                     "column " + a.column + " of table " + a.table +
                         " is unique and filled by a sequence "
                         "that gives out equal values on shards \"" +
                         source.shard + "\" and \"" + destination.shard +
                         "\"; give the sequences one increment above 1 and different starts"});
    }
  }
}

std::string column_list(const TablePlan& table, bool generated_too) {
  std::string out;
  for (const ColumnShape& column : table.columns) {
    if (column.generated && !generated_too) continue;
    if (!out.empty()) out += ", ";
    out += quote_identifier(column.name);
  }
  return out;
}

std::string where(const TablePlan& table, const std::string& alias = {}) {
  std::string out;
  for (const RowMatch& each : table.conditions) {
    if (!out.empty()) out += " AND ";
    out += each.before + (alias.empty() ? "" : alias + ".") + each.column + " " + each.match;
  }
  return out;
}

constexpr int kDigestColumns = 4;  // rows, hash, hash, bytes

// SHA-256 over the bytes of each row, summed as two 64-bit numbers: order does not matter, and
// equal rows do not cancel out.
std::string digest_of_bytes(const std::string& bytes, const std::string& from) {
  return "SELECT count(*), coalesce(sum(('x' || substr(h, 1, 16))::bit(64)::bigint), 0),"
         " coalesce(sum(('x' || substr(h, 17, 16))::bit(64)::bigint), 0), coalesce(sum(n), 0)"
         " FROM (SELECT encode(sha256(b), 'hex') AS h, octet_length(b) AS n"
         " FROM (SELECT " +
         bytes + " AS b FROM " + from + " OFFSET 0) AS r OFFSET 0) AS s";
}

// Over the binary form of the row.
std::string digest_over(const TablePlan& table, const std::string& from) {
  std::string row;
  for (const ColumnShape& column : table.columns) {
    if (!row.empty()) row += ", ";
    row += quote_identifier(column.name) + (column.as_text ? "::text" : "");
  }
  return digest_of_bytes("record_send(ROW(" + row + "))", from);
}

// The statement of each table as one row of one answer, in plan order.
template <class Make>
std::string in_order(const MovePlan& plan, Make make) {
  std::string out;
  for (std::size_t i = 0; i < plan.tables.size(); ++i) {
    out += (i > 0 ? " UNION ALL SELECT d.*, " : "SELECT d.*, ") + std::to_string(i) + " FROM (" +
           make(plan.tables[i], i) + ") AS d";
  }
  return out + " ORDER BY " + std::to_string(kDigestColumns + 1);
}

std::string archived(const TablePlan& table, const std::string& op, const std::string& from) {
  return "INSERT INTO collegedb.archive (op, table_name, row) SELECT " + quote_literal(op) + ", " +
         quote_literal(table.label) + ", " + kept_form(table) + " FROM " + from;
}

// One statement, so that foreign keys between the tables are looked at when all rows are gone.
std::string delete_all(const MovePlan& plan, const std::string* archive_of) {
  std::string out;
  for (std::size_t i = 0; i < plan.tables.size(); ++i) {
    const TablePlan& table = plan.tables[i];
    const std::string gone = "gone" + std::to_string(i);
    out += (i > 0 ? ", " : "WITH ") + gone + " AS (" + delete_sql(table) + " RETURNING *)";
    if (archive_of != nullptr && !table.internal) {
      out += ", kept" + std::to_string(i) + " AS (" + archived(table, *archive_of, gone) + ")";
    }
  }
  return out + " " + in_order(plan, [](const TablePlan& table, std::size_t i) {
           return digest_over(table, "gone" + std::to_string(i));
         });
}

std::string join_columns(const ForeignKey& key, const std::string& referenced,
                         const std::string& referencing) {
  std::string out;
  for (std::size_t i = 0; i < key.columns.size(); ++i) {
    if (i > 0) out += " AND ";
    out += referenced + "." + quote_identifier(key.referenced_columns[i]) + " " + key.operators[i] +
           " " + referencing + "." + quote_identifier(key.columns[i]);
  }
  return out;
}

}  // namespace

std::string kept_form(const TablePlan& table) {
  std::string names;
  std::string values;
  for (const ColumnShape& column : table.columns) {
    if (!names.empty()) {
      names += ", ";
      values += ", ";
    }
    names += quote_literal(column.name);
    values += quote_identifier(column.name) + "::text";
  }
  return "jsonb_object(ARRAY[" + names + "]::text[], ARRAY[" + values + "]::text[])";
}

// The key of an archived row is read as routing reads that of a live one.
std::string archive_of(const TablePlan& table, const std::string& op,
                       const std::vector<std::string>& keys) {
  const std::string all = "(SELECT row, row ->> " + quote_literal(table.table.key_column) +
                          " AS literal FROM collegedb.archive WHERE op = " + quote_literal(op) +
                          " AND table_name = " + quote_literal(table.label) + " OFFSET 0) AS kept";
  if (keys.empty()) return all;
  return all + " WHERE (" + table.sought_expression + ") = ANY (" +
         quote_literal(array_text(keys)) + "::text[])";
}

std::string row_condition(const TablePlan& table) {
  return where(table);
}

MovePlan plan_of(const Unit& unit, const GroupCatalog& side) {
  MovePlan plan{.foreign_keys = side.foreign_keys, .replica_role = side.replica_role};
  for (const std::size_t i : order(side.tables, side.foreign_keys)) {
    plan.tables.push_back(plan_table(unit, side.tables[i]));
  }
  plan.tables.push_back(operations_of(unit));
  return plan;
}

Preflight preflight(const Unit& unit, const GroupCatalog& source, const GroupCatalog& destination) {
  Preflight out;
  check_server(source, out.problems);
  check_server(destination, out.problems);
  if (!out.problems.empty()) return out;
  if (source.encoding != destination.encoding) {
    out.problems.push_back({ErrorCode::kMoveRefused, "encodings differ: " + source.encoding +
                                                         " on shard \"" + source.shard + "\", " +
                                                         destination.encoding + " on shard \"" +
                                                         destination.shard + "\""});
  }
  for (std::size_t i = 0; i < source.tables.size(); ++i) {
    compare_tables(source.tables[i], destination.tables.at(i), source, destination, out.problems);
  }
  const bool deferrable = std::any_of(source.tables.begin(), source.tables.end(),
                                      [](const TableShape& t) { return t.deferrable_unique; });
  const bool replica = source.replica_role && destination.replica_role && !deferrable;
  check_triggers(source, replica, out.problems);
  check_triggers(destination, replica, out.problems);
  check_sequences(source, destination, out.problems);
  out.plan = plan_of(unit, source);
  out.plan.replica_role = replica;
  return out;
}

std::string digest_sql(const TablePlan& table) {
  return digest_over(table, table.qualified + " WHERE " + where(table));
}

std::string digest_sql(const MovePlan& plan) {
  return in_order(plan, [](const TablePlan& table, std::size_t) { return digest_sql(table); });
}

std::string copy_out_sql(const TablePlan& table) {
  return "COPY (SELECT " + column_list(table, false) + " FROM " + table.qualified + " WHERE " +
         where(table) + ") TO STDOUT (FORMAT " + (table.text_copy ? "text" : "binary") + ")";
}

std::string copy_in_sql(const TablePlan& table) {
  return "COPY " + table.qualified + " (" + column_list(table, false) + ") FROM STDIN (FORMAT " +
         (table.text_copy ? "text" : "binary") + ")";
}

std::string delete_sql(const TablePlan& table) {
  return "DELETE FROM " + table.qualified + " WHERE " + where(table);
}

std::string retire_sql(const MovePlan& plan, const std::string& op) {
  return delete_all(plan, &op);
}

std::string drop_sql(const MovePlan& plan) {
  return delete_all(plan, nullptr);
}

std::string present_sql(const TablePlan& table) {
  return "SELECT DISTINCT " + table.key_expression + " FROM " + table.qualified + " WHERE " +
         where(table);
}

std::string archive_digest_sql(const TablePlan& table, const std::string& op,
                               const std::vector<std::string>& keys) {
  return digest_of_bytes("convert_to(row::text, 'UTF8')", archive_of(table, op, keys));
}

std::string text_digest_sql(const TablePlan& table) {
  return digest_of_bytes("convert_to((" + kept_form(table) + ")::text, 'UTF8')",
                         table.qualified + " WHERE " + where(table));
}

std::string archive_out_sql(const TablePlan& table, const std::string& op,
                            const std::vector<std::string>& keys) {
  std::string values;
  for (const ColumnShape& column : table.columns) {
    if (column.generated) continue;
    values += (values.empty() ? "row ->> " : ", row ->> ") + quote_literal(column.name);
  }
  return "COPY (SELECT " + values + " FROM " + archive_of(table, op, keys) + ") TO STDOUT";
}

std::string archive_in_sql(const TablePlan& table) {
  return "COPY " + table.qualified + " (" + column_list(table, false) + ") FROM STDIN";
}

std::string archive_unlike_sql(const MovePlan& plan, const std::string& op) {
  std::string known;
  for (const TablePlan& table : plan.tables) {
    if (table.internal) continue;
    std::vector<std::string> names;
    for (const ColumnShape& column : table.columns) names.push_back(column.name);
    const std::string columns = quote_literal(array_text(names)) + "::text[]";
    known += (known.empty() ? "" : " OR ") + ("(table_name = " + quote_literal(table.label)) +
             " AND row ?& " + columns + " AND row - " + columns + " = '{}'::jsonb)";
  }
  return "SELECT table_name FROM collegedb.archive WHERE op = " + quote_literal(op) + " AND NOT (" +
         (known.empty() ? "false" : known) + ") LIMIT 1";
}

std::string count_sql(const TablePlan& table) {
  return "SELECT count(*) FROM " + table.qualified + " WHERE " + where(table);
}

std::string count_sql(const MovePlan& plan) {
  std::string sum = "0";
  for (const TablePlan& table : plan.tables) {
    if (!table.internal) sum += " + (" + count_sql(table) + ")";
  }
  return "SELECT " + sum;
}

std::string dangling_sql(const TablePlan& referencing, const ForeignKey& key) {
  std::string present;
  for (const std::string& column : key.columns) {
    present += " AND f." + quote_identifier(column) + " IS NOT NULL";
  }
  return "SELECT 1 FROM " + referencing.qualified + " AS f WHERE " + where(referencing, "f") +
         present + " AND NOT EXISTS (SELECT 1 FROM " + key.referenced_sql + " AS r WHERE " +
         join_columns(key, "r", "f") + " FOR KEY SHARE) LIMIT 1";
}

std::string referenced_sql(const TablePlan& referenced, const ForeignKey& key,
                           const TablePlan* referencing) {
  return "SELECT 1 FROM " + referenced.qualified + " AS r JOIN " + key.table_sql + " AS f ON " +
         join_columns(key, "r", "f") + " WHERE " + where(referenced, "r") +
         (referencing != nullptr ? " AND (" + where(*referencing, "f") + ") IS NOT TRUE" : "") +
         " LIMIT 1";
}

std::string lock_rows_sql(const TablePlan& table) {
  return "SELECT count(*) FROM (SELECT 1 FROM " + table.qualified + " WHERE " + where(table) +
         " FOR UPDATE) AS held";
}

std::string unlike_sql(const MovePlan& plan, const std::vector<std::string>& keys) {
  std::string out;
  for (const TablePlan& table : plan.tables) {
    if (table.internal) continue;
    std::vector<std::string> literals;
    for (const std::string& key : keys)
      literals.push_back(routing::sql_key_literal(table.key, key));
    out += (out.empty() ? "" : " UNION ALL ") + ("(SELECT key, " + quote_literal(table.label)) +
           " FROM unnest(" + quote_literal(array_text(keys)) + "::text[], " +
           quote_literal(array_text(literals)) + "::text[]) AS u (key, literal) WHERE " +
           table.sought_expression + " IS DISTINCT FROM key LIMIT 1)";
  }
  return "SELECT * FROM (" + out + ") AS found LIMIT 1";
}

std::string unseen_sql(const MovePlan& plan, const std::vector<std::string>& keys) {
  std::string out;
  for (const TablePlan& table : plan.tables) {
    if (table.internal) continue;
    out += (out.empty() ? "" : " UNION ALL ") + ("(SELECT " + quote_literal(table.label)) +
           " FROM " + table.qualified + " WHERE (" + table.key_expression + ") = ANY (" +
           quote_literal(array_text(keys)) + "::text[]) LIMIT 1)";
  }
  return "SELECT * FROM (" + out + ") AS found LIMIT 1";
}

}  // namespace collegedb::migration
