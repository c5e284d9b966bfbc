// SELECT, VALUES, set operations, WITH, and the shape facts of the outermost query.
#include <algorithm>

#include "parser/analyzer.h"

namespace collegedb::parser {
namespace {

// LIMIT ALL and LIMIT NULL limit nothing.
bool limits(const ::Node* limit) {
  return limit != nullptr && !(is(limit, T_A_Const) && as<::A_Const>(limit)->isnull);
}

// A node of a set operation that carries nothing but the operation.
bool is_bare_set_operation(const ::SelectStmt& stmt) {
  return stmt.op != SETOP_NONE && stmt.sortClause == nullptr && stmt.limitOffset == nullptr &&
         stmt.limitCount == nullptr && stmt.lockingClause == nullptr && stmt.withClause == nullptr;
}

bool is_plain_call(const ::FuncCall& call) {
  return call.agg_order == nullptr && call.agg_filter == nullptr && call.over == nullptr &&
         !call.agg_within_group && !call.agg_star && !call.agg_distinct && !call.func_variadic;
}

// Nothing in the query but a target list and FROM.
bool is_bare(const ::SelectStmt& stmt) {
  return stmt.op == SETOP_NONE && stmt.distinctClause == nullptr && stmt.intoClause == nullptr &&
         stmt.whereClause == nullptr && stmt.groupClause == nullptr &&
         stmt.havingClause == nullptr && stmt.windowClause == nullptr &&
         stmt.valuesLists == nullptr && stmt.sortClause == nullptr && stmt.limitOffset == nullptr &&
         stmt.limitCount == nullptr && stmt.lockingClause == nullptr && stmt.withClause == nullptr;
}

// The one function of FROM when FROM is exactly one plain call, else null.
const ::RangeFunction* sole_function(const ::List* from_clause) {
  if (size_of(from_clause) != 1 || !is(at(from_clause, 0), T_RangeFunction)) return nullptr;
  const auto* item = as<::RangeFunction>(at(from_clause, 0));
  const bool renamed = item->alias != nullptr && item->alias->colnames != nullptr;
  if (item->ordinality || item->is_rowsfrom || item->coldeflist != nullptr || renamed ||
      size_of(item->functions) != 1) {
    return nullptr;
  }
  return item;
}

void append_array_element(std::string& text, const Value& value) {
  if (value.kind == Value::Kind::kNull) {
    text += "NULL";
    return;
  }
  text += '"';
  for (const char c : value.text) {
    if (c == '"' || c == '\\') text += '\\';
    text += c;
  }
  text += '"';
}

// ARRAY[...] of plain literals as the array literal it equals, so that an admin function can read
// it like '{...}'.
Value argument_value(const ::Node* node) {
  const auto elements = to_array(node);
  if (!elements) return to_value(node);
  Value array;
  array.text = "{";
  for (const Value& element : *elements) {
    if (element.kind == Value::Kind::kParam || element.kind == Value::Kind::kDefault) return {};
    if (array.text.size() > 1) array.text += ',';
    append_array_element(array.text, element);
  }
  array.text += '}';
  array.kind = Value::Kind::kString;
  if (is(node, T_TypeCast)) {
    if (auto type = to_type(*as<::TypeCast>(node)->typeName)) array.cast = std::move(*type);
  }
  return array;
}

bool add_arguments(const ::FuncCall& call, LoneCall& lone) {
  for (const ::ListCell& cell : cells(call.args)) {
    const auto* node = as<::Node>(cell.ptr_value);
    LoneCall::Argument argument;
    if (is(node, T_NamedArgExpr)) {
      argument.name = view(as<::NamedArgExpr>(node)->name);
      node = reinterpret_cast<const ::Node*>(as<::NamedArgExpr>(node)->arg);
    } else if (!lone.arguments.empty() && !lone.arguments.back().name.empty()) {
      return false;  // positional after named: the server's error
    }
    argument.value = argument_value(node);
    lone.arguments.push_back(std::move(argument));
  }
  return true;
}

// Adds a target `column`, `f.column`, `*` or `f.*`; false for anything else.
bool add_column(const ::ResTarget& target, std::string_view item_name, bool only, LoneCall& lone) {
  if (!is(target.val, T_ColumnRef)) return false;
  const ::List* fields = as<::ColumnRef>(target.val)->fields;
  const std::size_t size = size_of(fields);
  if (size > 2 || (size == 2 && string_of(at(fields, 0)) != item_name)) return false;
  const ::Node* last = at(fields, size - 1);
  if (is(last, T_A_Star)) return only;
  lone.columns.emplace_back(string_of(last));
  lone.column_labels.emplace_back(target.name != nullptr ? view(target.name) : string_of(last));
  return true;
}

}  // namespace

void Analyzer::select(const ::SelectStmt& stmt, bool outermost) {
  if (outermost) note_shape(stmt);
  if (stmt.lockingClause != nullptr) out_.select.has_locking = true;
  with(stmt.withClause);
  if (stmt.op != SETOP_NONE) {
    select_set_operation(stmt, outermost);
  } else {
    select_leaf(stmt, outermost);
  }
}

void Analyzer::select_set_operation(const ::SelectStmt& stmt, bool outermost) {
  for (const ::SelectStmt* arm : {stmt.larg, stmt.rarg}) {
    if (arm == nullptr) continue;
    if (is_bare_set_operation(*arm)) {
      push_query_at(arm, level_);
    } else {
      push_query(arm);
    }
  }
  push_output(stmt, outermost);
}

void Analyzer::select_leaf(const ::SelectStmt& stmt, bool outermost) {
  LevelScope scope;
  scope.level = level_;
  from(cells(stmt.fromClause), scope);
  where(stmt.whereClause, scope);
  push(stmt.whereClause);
  push_list(stmt.groupClause);
  push_list(stmt.valuesLists);
  push_output(stmt, outermost);
}

// What is computed from the rows of the query: an aggregate here makes it an aggregate query.
void Analyzer::push_output(const ::SelectStmt& stmt, bool outermost) {
  const bool before = outer_;
  outer_ = outer_ || outermost;
  push_list(stmt.targetList);
  push_list(stmt.distinctClause);
  push(stmt.havingClause);
  push_list(stmt.windowClause);
  push_list(stmt.sortClause);
  outer_ = before;
  push(stmt.limitOffset);
  push(stmt.limitCount);
}

void Analyzer::select_into(const ::SelectStmt& stmt) {
  const ::SelectStmt* leaf = &stmt;
  while (leaf->op != SETOP_NONE && leaf->larg != nullptr) leaf = leaf->larg;
  if (leaf->intoClause == nullptr || leaf->intoClause->rel == nullptr) return;
  const ::RangeVar& target = *leaf->intoClause->rel;
  set_kind(is_temporary(target) ? StatementKind::kCreateTemp : StatementKind::kSelectInto,
           "SELECT INTO");
  add_table(target, level_, true);
}

void Analyzer::note_shape(const ::SelectStmt& stmt) {
  SelectShape& shape = out_.select;
  shape.has_order_by = stmt.sortClause != nullptr;
  shape.has_limit = limits(stmt.limitCount) || limits(stmt.limitOffset);
  shape.has_group_by = stmt.groupClause != nullptr;
  shape.has_having = stmt.havingClause != nullptr;
  shape.has_distinct = stmt.distinctClause != nullptr;
  shape.has_set_operation = stmt.op != SETOP_NONE;
  note_count_star(stmt);
  note_lone_call(stmt);
}

void Analyzer::note_count_star(const ::SelectStmt& stmt) {
  if (size_of(stmt.targetList) != 1 || !is(at(stmt.targetList, 0), T_ResTarget)) return;
  const auto* target = as<::ResTarget>(at(stmt.targetList, 0));
  if (!is(target->val, T_FuncCall)) return;
  const auto& call = *as<::FuncCall>(target->val);
  const QualifiedName name = to_name(call.funcname);
  const bool builtin = name.schema.empty() || name.schema == "pg_catalog";
  if (!builtin || name.name != "count" || !call.agg_star) return;
  if (call.agg_filter != nullptr || call.over != nullptr || call.agg_distinct) return;
  out_.select.is_count_star = true;
  out_.select.count_label = target->name != nullptr ? view(target->name) : "count";
}

void Analyzer::note_lone_call(const ::SelectStmt& stmt) {
  if (!is_bare(stmt) || stmt.targetList == nullptr) return;
  LoneCall lone;
  const ::Node* call = nullptr;
  if (stmt.fromClause == nullptr) {
    if (size_of(stmt.targetList) != 1) return;
    const auto* target = as<::ResTarget>(at(stmt.targetList, 0));
    call = target->val;
    if (target->name != nullptr) lone.column_labels.emplace_back(target->name);
  } else {
    const ::RangeFunction* item = sole_function(stmt.fromClause);
    if (item == nullptr) return;
    const auto* function = as<::List>(at(item->functions, 0));
    if (!is(function, T_List) || size_of(function) != 2 || at(function, 1) != nullptr) return;
    call = at(function, 0);
    lone.in_from = true;
  }
  if (!is(call, T_FuncCall) || !is_plain_call(*as<::FuncCall>(call))) return;
  const auto& function = *as<::FuncCall>(call);
  lone.function = to_name(function.funcname);
  if (!add_arguments(function, lone)) return;
  if (lone.in_from) {
    const auto* item = as<::RangeFunction>(at(stmt.fromClause, 0));
    const std::string_view item_name = item->alias != nullptr
                                           ? view(item->alias->aliasname)
                                           : std::string_view(lone.function.name);
    for (const ::ListCell& cell : cells(stmt.targetList)) {
      const bool only = size_of(stmt.targetList) == 1;
      if (!add_column(*as<::ResTarget>(cell.ptr_value), item_name, only, lone)) return;
    }
  }
  out_.lone_call = std::move(lone);
}

void Analyzer::with(const ::WithClause* clause) {
  if (clause == nullptr) return;
  if (level_ == 0) out_.select.has_cte = true;
  constexpr std::size_t kHashedFrom = 8;
  CteList& list = cte_lists_.emplace_back();
  list.ctes = clause->ctes;
  const auto ctes = cells(clause->ctes);
  if (ctes.size() >= kHashedFrom) {
    for (std::size_t i = 0; i < ctes.size(); ++i) {
      list.index.emplace(view(as<::CommonTableExpr>(ctes[i].ptr_value)->ctename), i);
    }
  }
  const CteScope* outer = scope_;
  for (std::size_t i = 0; i < ctes.size(); ++i) {
    const auto& cte = *as<::CommonTableExpr>(ctes[i].ptr_value);
    // WITH RECURSIVE makes every name of the list visible in every body; plain WITH the earlier.
    const std::size_t visible = clause->recursive ? ctes.size() : i;
    scope_ = &scopes_.emplace_back(CteScope{&list, visible, outer});
    if (is(cte.ctequery, T_InsertStmt) || is(cte.ctequery, T_UpdateStmt) ||
        is(cte.ctequery, T_DeleteStmt) || is(cte.ctequery, T_MergeStmt)) {
      out_.has_modifying_cte = true;
    }
    push_query(cte.ctequery);
    if (cte.cycle_clause != nullptr) {
      push(cte.cycle_clause->cycle_mark_value);
      push(cte.cycle_clause->cycle_mark_default);
    }
  }
  scope_ = &scopes_.emplace_back(CteScope{&list, ctes.size(), outer});
}

bool Analyzer::is_cte(const ::RangeVar& relation) const {
  if (relation.schemaname != nullptr) return false;
  const std::string_view name = view(relation.relname);
  for (const CteScope* scope = scope_; scope != nullptr; scope = scope->outer) {
    if (!scope->list->index.empty()) {
      const auto found = scope->list->index.find(name);
      if (found != scope->list->index.end() && found->second < scope->visible) return true;
      continue;
    }
    const auto ctes = cells(scope->list->ctes);
    for (std::size_t i = 0; i < scope->visible; ++i) {
      if (view(as<::CommonTableExpr>(ctes[i].ptr_value)->ctename) == name) return true;
    }
  }
  return false;
}

}  // namespace collegedb::parser
