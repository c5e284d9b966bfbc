#include <algorithm>

#include "parser/analyzer.h"

namespace collegedb::parser {
namespace {

// VALUES and nothing else: PostgreSQL treats any further clause as a general SELECT.
bool is_plain_values(const ::SelectStmt& stmt) {
  return stmt.valuesLists != nullptr && stmt.sortClause == nullptr && stmt.limitOffset == nullptr &&
         stmt.limitCount == nullptr && stmt.lockingClause == nullptr && stmt.withClause == nullptr;
}

std::vector<Value> row_values(const ::List* row, const std::vector<bool>& partial) {
  std::vector<Value> values;
  values.reserve(size_of(row));
  for (const ::ListCell& cell : cells(row)) {
    const bool whole = values.size() >= partial.size() || !partial[values.size()];
    values.push_back(whole ? to_value(as<::Node>(cell.ptr_value)) : Value());
  }
  return values;
}

}  // namespace

void Analyzer::insert(const ::InsertStmt& stmt, bool top) {
  with(stmt.withClause);
  const int target = add_table(*stmt.relation, level_, true);
  if (top) {
    insert_source(stmt);
    out_.has_on_conflict = stmt.onConflictClause != nullptr;
    out_.has_returning = stmt.returningList != nullptr;
  }
  if (is(stmt.selectStmt, T_SelectStmt)) {
    const auto& source = *as<::SelectStmt>(stmt.selectStmt);
    if (is_plain_values(source)) {
      push_list(source.valuesLists);
    } else {
      push_query(stmt.selectStmt);
    }
  }
  if (stmt.onConflictClause != nullptr) {
    const std::string alias = out_.tables[static_cast<std::size_t>(target)].alias;
    on_conflict(*stmt.onConflictClause, alias, top);
  }
  push_list(stmt.returningList);
}

void Analyzer::insert_source(const ::InsertStmt& stmt) {
  std::vector<bool> partial;  // columns of which only an element or a field is given
  for (const ::ListCell& cell : cells(stmt.cols)) {
    const auto& column = *as<::ResTarget>(cell.ptr_value);
    out_.insert_columns.emplace_back(view(column.name));
    partial.push_back(column.indirection != nullptr);
  }
  if (stmt.selectStmt == nullptr) {
    out_.insert_default_values = true;
    return;
  }
  const auto& source = *as<::SelectStmt>(stmt.selectStmt);
  const auto expands = [](const ::ListCell& cell) { return has_star(as<::List>(cell.ptr_value)); };
  // OVERRIDING USER VALUE ignores what is given for identity columns.
  if (!is_plain_values(source) || stmt.override == OVERRIDING_USER_VALUE ||
      std::ranges::any_of(cells(source.valuesLists), expands)) {
    out_.insert_select = true;
    return;
  }
  out_.insert_rows.reserve(size_of(source.valuesLists));
  for (const ::ListCell& cell : cells(source.valuesLists)) {
    out_.insert_rows.push_back(row_values(as<::List>(cell.ptr_value), partial));
  }
}

void Analyzer::on_conflict(const ::OnConflictClause& clause, std::string_view target_name,
                           bool top) {
  push(clause.infer);
  assign(clause.targetList, target_name, top, true);
  push(clause.whereClause);
}

}  // namespace collegedb::parser
