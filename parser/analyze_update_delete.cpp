// UPDATE, DELETE and MERGE.
#include <algorithm>

#include "parser/analyzer.h"

namespace collegedb::parser {
namespace {

// True for a reference to `column` of the written table itself.
bool is_same_column(const ::Node* node, std::string_view column, std::string_view target_name) {
  if (!is(node, T_ColumnRef)) return false;
  const ::List* fields = as<::ColumnRef>(node)->fields;
  const std::size_t size = size_of(fields);
  if (size == 0 || size > 2 || string_of(at(fields, size - 1)) != column) return false;
  return size == 1 || string_of(at(fields, 0)) == target_name;
}

// What SET assigns to one column; null when it cannot be told apart from a whole row source.
const ::Node* assigned(const ::ResTarget& target) {
  if (!is(target.val, T_MultiAssignRef)) return target.val;
  const auto& multi = *as<::MultiAssignRef>(target.val);
  if (!is(multi.source, T_RowExpr)) return nullptr;
  const ::List* values = as<::RowExpr>(multi.source)->args;
  if (multi.colno < 1 || size_of(values) != static_cast<std::size_t>(multi.ncolumns) ||
      has_star(values)) {
    return nullptr;
  }
  return at(values, static_cast<std::size_t>(multi.colno) - 1);
}

}  // namespace

void Analyzer::assign(const ::List* targets, std::string_view target_name, bool record,
                      bool on_conflict) {
  for (const ::ListCell& cell : cells(targets)) {
    const auto& target = *as<::ResTarget>(cell.ptr_value);
    push(&target);
    if (!record) continue;
    Assignment assignment;
    assignment.column = view(target.name);
    const ::Node* value = assigned(target);
    if (value != nullptr && target.indirection == nullptr) {
      assignment.value = to_value(value);
      assignment.same_column = is_same_column(value, assignment.column, target_name);
      assignment.excluded_column = on_conflict && !assignment.same_column &&
                                   is_same_column(value, assignment.column, "excluded");
    }
    out_.assignments.push_back(std::move(assignment));
  }
}

void Analyzer::update(const ::UpdateStmt& stmt, bool top) {
  with(stmt.withClause);
  LevelScope scope;
  scope.level = level_;
  add_item(*stmt.relation, scope, true);
  const std::string_view target_name = scope.items.front().name;
  assign(stmt.targetList, target_name, top);
  from(cells(stmt.fromClause), scope);
  where(stmt.whereClause, scope);
  push(stmt.whereClause);
  push_list(stmt.returningList);
  if (top) out_.has_returning = stmt.returningList != nullptr;
}

void Analyzer::remove(const ::DeleteStmt& stmt, bool top) {
  with(stmt.withClause);
  LevelScope scope;
  scope.level = level_;
  add_item(*stmt.relation, scope, true);
  from(cells(stmt.usingClause), scope);
  where(stmt.whereClause, scope);
  push(stmt.whereClause);
  push_list(stmt.returningList);
  if (top) out_.has_returning = stmt.returningList != nullptr;
}

// The join condition decides which target rows are written. A source row that fails it may still
// be inserted, so it restricts the source only when no WHEN NOT MATCHED inserts.
void Analyzer::merge(const ::MergeStmt& stmt, bool top) {
  with(stmt.withClause);
  LevelScope scope;
  scope.level = level_;
  add_item(*stmt.relation, scope, true);
  const std::string_view target_name = scope.items.front().name;
  ::ListCell source{};
  source.ptr_value = stmt.sourceRelation;
  from({&source, 1}, scope);

  const auto clauses = cells(stmt.mergeWhenClauses);
  const bool inserts = std::ranges::any_of(clauses, [](const ::ListCell& cell) {
    return as<::MergeWhenClause>(cell.ptr_value)->commandType == CMD_INSERT;
  });
  conditions(stmt.joinCondition, scope,
             {.visible = scope.all(), .restricted = inserts ? ItemRange{0, 1} : scope.all()});
  push(stmt.joinCondition);
  for (const ::ListCell& cell : clauses) {
    const auto& clause = *as<::MergeWhenClause>(cell.ptr_value);
    push(clause.condition);
    if (clause.commandType == CMD_UPDATE) {
      assign(clause.targetList, target_name, top);
    } else {
      push_list(clause.targetList);
      push_list(clause.values);
    }
  }
  if (top) merge_inserts(stmt);
}

// Rows of the WHEN NOT MATCHED clauses, as far as one column list describes them all; else they
// count as computed.
void Analyzer::merge_inserts(const ::MergeStmt& stmt) {
  bool first = true;
  for (const ::ListCell& cell : cells(stmt.mergeWhenClauses)) {
    const auto& clause = *as<::MergeWhenClause>(cell.ptr_value);
    if (clause.commandType != CMD_INSERT) continue;
    std::vector<std::string> columns;
    bool partial = false;
    for (const ::ListCell& target : cells(clause.targetList)) {
      columns.emplace_back(view(as<::ResTarget>(target.ptr_value)->name));
      partial = partial || as<::ResTarget>(target.ptr_value)->indirection != nullptr;
    }
    std::vector<Value> row;
    for (const ::ListCell& value : cells(clause.values)) {
      row.push_back(to_value(as<::Node>(value.ptr_value)));
    }
    const bool overridden = clause.override == OVERRIDING_USER_VALUE;
    if (row.empty() || partial || overridden || has_star(clause.values) ||
        (!first && columns != out_.insert_columns)) {
      out_.insert_rows.clear();
      out_.insert_columns.clear();
      out_.insert_select = true;
      return;
    }
    out_.insert_columns = std::move(columns);
    out_.insert_rows.push_back(std::move(row));
    first = false;
  }
}

}  // namespace collegedb::parser
