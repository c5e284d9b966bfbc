#include <algorithm>

#include "routing/planner.h"

namespace collegedb::routing {
namespace {

using parser::Value;

constexpr std::string_view kGiveKey = "Give the key as a constant or a parameter.";

SqlError no_insert_key(const Planner& planner, std::string_view why) {
  return make_error(ErrorCode::kKeyRequired,
                    "INSERT into table " + quoted(planner.plan.table) + " " + std::string(why) +
                        " key column " + quoted(planner.plan.key_column),
                    kGiveKey);
}

SqlError key_update(const Planner& planner) {
  return make_error(ErrorCode::kKeyUpdate,
                    "the key column " + quoted(planner.plan.key_column) + " of table " +
                        quoted(planner.plan.table) + " cannot be changed",
                    "Insert the row under its new key and delete the old one.");
}

// Where the key stands in a VALUES row.
std::optional<std::size_t> key_position(const parser::Statement& statement,
                                        const TableInfo& table) {
  if (!statement.insert_columns.empty()) {
    const auto& columns = statement.insert_columns;
    const auto found = std::find(columns.begin(), columns.end(), table.key_column);
    if (found == columns.end()) return std::nullopt;
    return static_cast<std::size_t>(found - columns.begin());
  }
  const auto found =
      std::find_if(table.columns.begin(), table.columns.end(),
                   [&](const ColumnInfo& column) { return column.name == table.key_column; });
  if (found == table.columns.end()) return std::nullopt;
  return static_cast<std::size_t>(found - table.columns.begin());
}

// False (and refused) when a row does not give its key.
bool add_row(Planner& planner, const TableInfo& table, const std::vector<Value>& row,
             std::size_t position) {
  if (position >= row.size() || row[position].kind == Value::Kind::kDefault) {
    planner.refuse_placement(no_insert_key(planner, "gives no value for its"));
    return false;
  }
  const Value& value = row[position];
  if (value.kind == Value::Kind::kOpaque) {
    planner.refuse_placement(no_insert_key(planner, "computes the value of its"));
    return false;
  }
  if (value.kind == Value::Kind::kNull) {
    planner.refuse_placement(
        make_error("23502", "null value in column " + quoted(table.key_column) + " of relation " +
                                quoted(table.name.name) + " violates not-null constraint"));
    return false;
  }
  planner.plan.keys.push_back(key_source(planner, value, table.key_type, true));
  return true;
}

bool add_rows(Planner& planner, const TableInfo& table) {
  const parser::Statement& statement = planner.statement();
  if (statement.insert_select) {
    planner.refuse_placement(
        make_error(ErrorCode::kUnroutableQuery,
                   "INSERT ... SELECT into table " + quoted(table.name.name) + " is not supported",
                   "Read the rows first, then insert them with VALUES."));
    return false;
  }
  const std::optional<std::size_t> position = key_position(statement, table);
  if (statement.insert_default_values || statement.insert_rows.empty() || !position) {
    planner.refuse_placement(no_insert_key(planner, "gives no value for its"));
    return false;
  }
  return std::all_of(statement.insert_rows.begin(), statement.insert_rows.end(),
                     [&](const auto& row) { return add_row(planner, table, row, *position); });
}

// ON CONFLICT DO UPDATE SET key: only what leaves the row's key, or makes it that of the new row.
bool keeps_conflicting_key(const Planner& planner, const TableInfo& table) {
  const auto& assignments = planner.statement().assignments;
  return std::all_of(assignments.begin(), assignments.end(), [&](const auto& assignment) {
    return assignment.column != table.key_column || assignment.same_column ||
           assignment.excluded_column;
  });
}

// True when the expression (pg_get_expr text of a column default) calls only functions of
// pg_catalog. Anything that looks like a call and is not surely one of them counts against it.
bool calls_only_builtins(const Snapshot& snapshot, std::string_view expression) {
  constexpr std::string_view kName =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.\"";
  for (std::size_t open = expression.find('('); open != std::string_view::npos;
       open = expression.find('(', open + 1)) {
    const std::size_t before = expression.substr(0, open).find_last_not_of(kName);
    const std::size_t start = before == std::string_view::npos ? 0 : before + 1;
    std::string_view name = expression.substr(start, open - start);
    if (name.starts_with("pg_catalog.")) name.remove_prefix(11);
    if (!name.empty() && !is_builtin(snapshot, {"", std::string(name)})) return false;
  }
  return true;
}

}  // namespace

void plan_insert(Planner& planner) {
  const TableInfo& table = *planner.tables[*planner.target()];
  Plan& plan = planner.plan;
  plan.for_insert = true;
  if (!keeps_conflicting_key(planner, table)) return planner.refuse_placement(key_update(planner));
  if (!add_rows(planner, table)) return;
  plan.many_keys = planner.sharded == 1;
  const Restriction sources = find_keys(planner);
  if (!sources.complete) {
    return planner.refuse_placement(
        make_error(ErrorCode::kUnroutableQuery,
                   "table " + quoted(planner.tables[sources.unrestricted]->name.name) +
                       ", which this INSERT reads, is not restricted to the key of the new row",
                   "Read the values first, then insert them."));
  }
  planner.settle(PlanKind::kKeyed);
}

bool check_assignments(Planner& planner) {
  const auto target = planner.target();
  if (planner.kind != parser::StatementKind::kUpdate || !target || !planner.is_sharded(*target)) {
    return true;
  }
  const TableInfo& table = *planner.tables[*target];
  for (const parser::Assignment& assignment : planner.statement().assignments) {
    if (assignment.column != table.key_column || assignment.same_column) continue;
    if (assignment.value.kind == Value::Kind::kOpaque ||
        assignment.value.kind == Value::Kind::kDefault ||
        assignment.value.kind == Value::Kind::kNull) {
      planner.refuse_placement(key_update(planner));
      return false;
    }
    planner.plan.key_assignments.push_back(
        key_source(planner, assignment.value, table.key_type, true));
  }
  return true;
}

bool writes_are_known(const Planner& planner) {
  const auto target = planner.target();
  if (!target || !planner.opaque.empty() || planner.statement().has_modifying_cte) return false;
  const TableInfo& table = *planner.tables[*target];
  if (table.user_triggers) return false;
  if (planner.kind != parser::StatementKind::kInsert) return true;
  // Which value is the key depends on the order of the columns as the owner has them now.
  if (planner.statement().insert_columns.empty()) return false;
  const auto& assignments = planner.statement().assignments;
  // The conflicting row may have had another key.
  const bool takes_key = std::any_of(assignments.begin(), assignments.end(), [&](const auto& a) {
    return a.column == table.key_column && a.excluded_column;
  });
  return !takes_key &&
         std::all_of(table.columns.begin(), table.columns.end(), [&](const ColumnInfo& column) {
           return calls_only_builtins(planner.snapshot, column.default_expression);
         });
}

}  // namespace collegedb::routing
