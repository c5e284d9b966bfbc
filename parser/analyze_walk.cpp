// Every node that is not a statement: what it names and what lies below it.
#include <charconv>
#include <limits>

#include "parser/analyzer.h"

namespace collegedb::parser {

void Analyzer::visit(const ::Node* node) {
  if (visit_expression(node) || visit_clause(node) || visit_query(node) || visit_definition(node)) {
    return;
  }
  fail("0A000", "unsupported statement element (node " + std::to_string(tag_of(node)) + ")");
}

bool Analyzer::visit_expression(const ::Node* node) {
  switch (tag_of(node)) {
    case T_A_Const:
    case T_ColumnRef:
    case T_SetToDefault:
    case T_CurrentOfExpr:
    case T_A_Star:
    case T_Integer:
    case T_Float:
    case T_Boolean:
    case T_String:
    case T_BitString:
    case T_IntList:
    case T_OidList:
      return true;
    case T_SQLValueFunction:
      out_.uses_current_value = true;
      return true;
    case T_ParamRef:
      visit_param(*as<::ParamRef>(node));
      return true;
    case T_List:
      push_list(as<::List>(node));
      return true;
    case T_A_Expr:
      add_operators(*as<::A_Expr>(node));
      push(as<::A_Expr>(node)->lexpr);
      push(as<::A_Expr>(node)->rexpr);
      return true;
    case T_BoolExpr:
      push_list(as<::BoolExpr>(node)->args);
      return true;
    case T_TypeCast:
      visit_cast(*as<::TypeCast>(node));
      return true;
    case T_TypeName:
      add_type(*as<::TypeName>(node));
      push_list(as<::TypeName>(node)->typmods);
      return true;
    case T_CollateClause:
      push(as<::CollateClause>(node)->arg);
      return true;
    case T_FuncCall:
      visit_function(*as<::FuncCall>(node));
      return true;
    case T_NamedArgExpr:
      push(as<::NamedArgExpr>(node)->arg);
      return true;
    case T_A_Indices:
      push(as<::A_Indices>(node)->lidx);
      push(as<::A_Indices>(node)->uidx);
      return true;
    case T_A_Indirection:
      for (const ::ListCell& cell : cells(as<::A_Indirection>(node)->indirection)) {
        if (is(cell.ptr_value, T_String)) add_attribute({}, string_of(cell.ptr_value));
      }
      push(as<::A_Indirection>(node)->arg);
      push_list(as<::A_Indirection>(node)->indirection);
      return true;
    case T_A_ArrayExpr:
      push_list(as<::A_ArrayExpr>(node)->elements);
      return true;
    case T_RowExpr:
      push_list(as<::RowExpr>(node)->args);
      return true;
    case T_CaseExpr:
      if (as<::CaseExpr>(node)->arg != nullptr) add_operator("=");
      push(as<::CaseExpr>(node)->arg);
      push_list(as<::CaseExpr>(node)->args);
      push(as<::CaseExpr>(node)->defresult);
      return true;
    case T_CaseWhen:
      push(as<::CaseWhen>(node)->expr);
      push(as<::CaseWhen>(node)->result);
      return true;
    case T_CoalesceExpr:
      push_list(as<::CoalesceExpr>(node)->args);
      return true;
    case T_MinMaxExpr:
      push_list(as<::MinMaxExpr>(node)->args);
      return true;
    case T_NullTest:
      push(as<::NullTest>(node)->arg);
      return true;
    case T_BooleanTest:
      push(as<::BooleanTest>(node)->arg);
      return true;
    case T_XmlExpr:
      push_list(as<::XmlExpr>(node)->named_args);
      push_list(as<::XmlExpr>(node)->args);
      return true;
    case T_XmlSerialize:
      push(as<::XmlSerialize>(node)->expr);
      push(as<::XmlSerialize>(node)->typeName);
      return true;
    case T_GroupingFunc:
      push_list(as<::GroupingFunc>(node)->args);
      return true;
    case T_SubLink:
      visit_sublink(*as<::SubLink>(node));
      return true;
    default:
      return false;
  }
}

bool Analyzer::visit_clause(const ::Node* node) {
  switch (tag_of(node)) {
    case T_ResTarget:
      push_list(as<::ResTarget>(node)->indirection);
      push(as<::ResTarget>(node)->val);
      return true;
    case T_MultiAssignRef:
      // The same source hangs below every column of SET (a, b) = ...; it is read once.
      if (as<::MultiAssignRef>(node)->colno == 1) push(as<::MultiAssignRef>(node)->source);
      return true;
    case T_SortBy:
      if (as<::SortBy>(node)->useOp != nullptr) {
        add_operator(last_of(as<::SortBy>(node)->useOp));
      }
      push(as<::SortBy>(node)->node);
      return true;
    case T_WindowDef:
      push_list(as<::WindowDef>(node)->partitionClause);
      push_list(as<::WindowDef>(node)->orderClause);
      push(as<::WindowDef>(node)->startOffset);
      push(as<::WindowDef>(node)->endOffset);
      return true;
    case T_GroupingSet:
      push_list(as<::GroupingSet>(node)->content);
      return true;
    case T_RangeFunction:
      visit_range_function(*as<::RangeFunction>(node));
      return true;
    case T_RangeTableFunc:
      visit_table_function(*as<::RangeTableFunc>(node));
      return true;
    case T_RangeTableFuncCol:
      push(as<::RangeTableFuncCol>(node)->typeName);
      push(as<::RangeTableFuncCol>(node)->colexpr);
      push(as<::RangeTableFuncCol>(node)->coldefexpr);
      return true;
    case T_InferClause:
      push_list(as<::InferClause>(node)->indexElems);
      push(as<::InferClause>(node)->whereClause);
      return true;
    case T_IndexElem:
      push(as<::IndexElem>(node)->expr);
      push_list(as<::IndexElem>(node)->opclassopts);
      return true;
    case T_MergeWhenClause:
      push(as<::MergeWhenClause>(node)->condition);
      push_list(as<::MergeWhenClause>(node)->targetList);
      push_list(as<::MergeWhenClause>(node)->values);
      return true;
    case T_DefElem:
      push(as<::DefElem>(node)->arg);
      return true;
    case T_RangeVar:
      add_table(*as<::RangeVar>(node), level_, false);
      return true;
    default:
      return false;
  }
}

bool Analyzer::visit_query(const ::Node* node) {
  switch (tag_of(node)) {
    case T_SelectStmt:
    case T_InsertStmt:
    case T_UpdateStmt:
    case T_DeleteStmt:
    case T_MergeStmt:
      break;
    default:
      return false;
  }
  if (!own_level_) level_ = open_level();
  own_level_ = false;
  switch (tag_of(node)) {
    case T_SelectStmt:
      select(*as<::SelectStmt>(node), false);
      break;
    case T_InsertStmt:
      insert(*as<::InsertStmt>(node), false);
      break;
    case T_UpdateStmt:
      update(*as<::UpdateStmt>(node), false);
      break;
    case T_DeleteStmt:
      remove(*as<::DeleteStmt>(node), false);
      break;
    default:
      merge(*as<::MergeStmt>(node), false);
      break;
  }
  return true;
}

void Analyzer::visit_function(const ::FuncCall& call) {
  add_function(call.funcname);
  if (outer_) {
    SelectShape& shape = out_.select;
    const bool certain = call.agg_star || call.agg_distinct || call.agg_order != nullptr ||
                         call.agg_filter != nullptr || call.agg_within_group;
    if (call.over != nullptr) {
      shape.has_window = true;
    } else if (certain || is_aggregate_name(out_.functions.back().name)) {
      shape.has_aggregate = true;
    }
  }
  push_list(call.args);
  push_list(call.agg_order);
  push(call.agg_filter);
  push(call.over);
}

void Analyzer::add_function(const ::List* name) {
  out_.functions.push_back({.name = to_name(name), .level = level_});
}

// The scanner reads the number with atol, so the digits of a huge one wrap round to a small one;
// servers differ in what they make of that. The text is what counts.
void Analyzer::visit_param(const ::ParamRef& param) {
  constexpr int kMax = std::numeric_limits<std::uint16_t>::max();
  const std::size_t start = param.location < 0 ? sql_.size() : std::size_t(param.location);
  int number = 0;
  bool written = false;
  if (start < sql_.size() && sql_[start] == '$') {
    const char* first = sql_.data() + start + 1;
    const auto [end, error] = std::from_chars(first, sql_.data() + sql_.size(), number);
    written = error == std::errc() && end != first && number == param.number;
  }
  if (!written || number < 1 || number > kMax) {
    const std::size_t end = sql_.find_first_not_of("0123456789", std::min(start + 1, sql_.size()));
    const std::string_view text = sql_.substr(std::min(start, sql_.size()), end - start);
    return fail("42P02", "there is no parameter " + std::string(text), param.location);
  }
  const auto param_number = static_cast<std::uint16_t>(number);
  out_.max_param = std::max(out_.max_param, param_number);
  if (param_uses_.size() <= param_number) param_uses_.resize(param_number + std::size_t{1});
  std::uint8_t& uses = param_uses_[param_number];
  if (uses == 1) out_.repeated_params.push_back(param_number);
  if (uses < 2) ++uses;
}

// `type $1` is libpg_query's own; PostgreSQL takes only a literal there. Such a cast alone has no
// location.
void Analyzer::visit_cast(const ::TypeCast& cast) {
  if (cast.location < 0 && is(cast.arg, T_ParamRef)) {
    return refuse_param(*as<::ParamRef>(cast.arg));
  }
  push(cast.arg);
  push(cast.typeName);
}

void Analyzer::refuse_param(const ::ParamRef& param) {
  fail("42601", "syntax error at or near \"$" + std::to_string(param.number) + "\"",
       param.location);
}

void Analyzer::visit_sublink(const ::SubLink& link) {
  out_.select.has_sublink = true;
  if (link.testexpr != nullptr) {
    add_operator(link.operName != nullptr ? last_of(link.operName) : std::string_view("="));
  }
  push(link.testexpr);
  push_query(link.subselect);
}

void Analyzer::visit_range_function(const ::RangeFunction& function) {
  for (const ::ListCell& cell : cells(function.functions)) {
    // Pairs of a call and its column definitions.
    push(cell.ptr_value);
  }
  push_list(function.coldeflist);
}

void Analyzer::visit_table_function(const ::RangeTableFunc& function) {
  push(function.docexpr);
  push(function.rowexpr);
  push_list(function.namespaces);
  push_list(function.columns);
}

}  // namespace collegedb::parser
