// Conditions every result row must satisfy: AND-ed terms of WHERE and of join ON. Whatever is not
// certainly of a known form is left out; a missing condition costs a scatter, a wrong one a row.
#include <algorithm>

#include "parser/analyzer.h"

namespace collegedb::parser {
namespace {

bool has_opaque(const std::vector<Value>& values) {
  return std::ranges::any_of(values, [](const Value& v) { return v.kind == Value::Kind::kOpaque; });
}

}  // namespace

void Analyzer::where(const ::Node* quals, const LevelScope& scope) {
  conditions(quals, scope, {.visible = scope.all(), .restricted = scope.all()});
}

void Analyzer::conditions(const ::Node* quals, const LevelScope& scope,
                          const ConditionPlace& place) {
  if (quals == nullptr || scope.too_wide()) return;
  boost::container::small_vector<const ::Node*, 8> terms{quals};
  while (!terms.empty()) {
    const ::Node* term = terms.back();
    terms.pop_back();
    if (is(term, T_A_Expr)) {
      condition(*as<::A_Expr>(term), scope, place);
    } else if (is(term, T_BoolExpr) && as<::BoolExpr>(term)->boolop == AND_EXPR) {
      const auto args = cells(as<::BoolExpr>(term)->args);
      for (auto cell = args.rbegin(); cell != args.rend(); ++cell) {
        terms.push_back(as<::Node>(cell->ptr_value));
      }
    }
  }
}

void Analyzer::condition(const ::A_Expr& expr, const LevelScope& scope,
                         const ConditionPlace& place) {
  if (expr.lexpr == nullptr || expr.rexpr == nullptr || !is_equals(expr.name)) return;
  switch (expr.kind) {
    case AEXPR_OP:
      return equality(expr.lexpr, expr.rexpr, false, scope, place);
    case AEXPR_NOT_DISTINCT:
      return equality(expr.lexpr, expr.rexpr, true, scope, place);
    case AEXPR_IN:
      return in_list(expr, scope, place);
    case AEXPR_OP_ANY:
      return any_array(expr, scope, place);
    default:
      return;
  }
}

void Analyzer::equality(const ::Node* left, const ::Node* right, bool distinct,
                        const LevelScope& scope, const ConditionPlace& place) {
  if (is(left, T_RowExpr) && is(right, T_RowExpr)) {
    return row_equality(*as<::RowExpr>(left), *as<::RowExpr>(right), distinct, scope, place);
  }
  if (!is(left, T_ColumnRef)) std::swap(left, right);
  std::optional<ColumnRef> subject = column(left, scope, place);
  if (!subject) return;

  Conjunct conjunct;
  conjunct.column = std::move(*subject);
  if (is(right, T_ColumnRef)) {
    // NULL is not distinct from NULL, so that form says nothing about a null-extended row.
    std::optional<ColumnRef> other = column(right, scope, place);
    if (!other || distinct) return;
    conjunct.kind = Conjunct::Kind::kColumns;
    conjunct.other = std::move(*other);
    return add_conjunct(std::move(conjunct), scope, place);
  }
  Value value = to_value(right);
  if (value.kind == Value::Kind::kOpaque) return;
  if (distinct && value.kind == Value::Kind::kNull) return;
  if (distinct && value.kind == Value::Kind::kParam && may_be_null(conjunct.column, scope)) return;
  conjunct.values.push_back(std::move(value));
  add_conjunct(std::move(conjunct), scope, place);
}

// (a, b) = (1, 2) holds when every pair does. A pair of rows inside is left out.
void Analyzer::row_equality(const ::RowExpr& left, const ::RowExpr& right, bool distinct,
                            const LevelScope& scope, const ConditionPlace& place) {
  if (size_of(left.args) != size_of(right.args)) return;
  if (has_star(left.args) || has_star(right.args)) return;
  for (std::size_t i = 0; i < size_of(left.args); ++i) {
    const ::Node* a = at(left.args, i);
    const ::Node* b = at(right.args, i);
    if (!is(a, T_RowExpr) || !is(b, T_RowExpr)) equality(a, b, distinct, scope, place);
  }
}

void Analyzer::in_list(const ::A_Expr& expr, const LevelScope& scope, const ConditionPlace& place) {
  if (!is(expr.rexpr, T_List)) return;
  const auto items = cells(as<::List>(expr.rexpr));
  const ::List* subjects = is(expr.lexpr, T_RowExpr) ? as<::RowExpr>(expr.lexpr)->args : nullptr;
  const std::size_t width = subjects != nullptr ? size_of(subjects) : 1;
  const auto same_shape = [&](const ::ListCell& cell) {
    return subjects == nullptr || (is(cell.ptr_value, T_RowExpr) &&
                                   size_of(as<::RowExpr>(cell.ptr_value)->args) == width &&
                                   !has_star(as<::RowExpr>(cell.ptr_value)->args));
  };
  if (has_star(subjects)) return;
  if (!std::ranges::all_of(items, same_shape)) return;

  for (std::size_t i = 0; i < width; ++i) {
    std::optional<ColumnRef> subject =
        column(subjects != nullptr ? at(subjects, i) : expr.lexpr, scope, place);
    if (!subject) continue;
    Conjunct conjunct;
    conjunct.kind = Conjunct::Kind::kIn;
    conjunct.column = std::move(*subject);
    conjunct.values.reserve(items.size());
    for (const ::ListCell& cell : items) {
      conjunct.values.push_back(to_value(subjects != nullptr
                                             ? at(as<::RowExpr>(cell.ptr_value)->args, i)
                                             : as<::Node>(cell.ptr_value)));
    }
    if (!has_opaque(conjunct.values)) add_conjunct(std::move(conjunct), scope, place);
  }
}

void Analyzer::any_array(const ::A_Expr& expr, const LevelScope& scope,
                         const ConditionPlace& place) {
  std::optional<ColumnRef> subject = column(expr.lexpr, scope, place);
  if (!subject) return;
  Conjunct conjunct;
  conjunct.column = std::move(*subject);
  if (std::optional<std::vector<Value>> elements = to_array(expr.rexpr)) {
    if (elements->empty()) return;
    conjunct.kind = Conjunct::Kind::kIn;
    conjunct.values = std::move(*elements);
    return add_conjunct(std::move(conjunct), scope, place);
  }
  Value array = to_value(expr.rexpr);
  if (array.kind != Value::Kind::kParam && array.kind != Value::Kind::kString) return;
  conjunct.kind = Conjunct::Kind::kAnyArray;
  conjunct.values.push_back(std::move(array));
  add_conjunct(std::move(conjunct), scope, place);
}

void Analyzer::add_conjunct(Conjunct conjunct, const LevelScope& scope,
                            const ConditionPlace& place) {
  for (std::size_t i = place.restricted.begin; i < place.restricted.end; ++i) {
    if (scope.items[i].table >= 0) conjunct.restricts.push_back(scope.items[i].table);
  }
  if (!conjunct.restricts.empty()) out_.conjuncts.push_back(std::move(conjunct));
}

std::optional<ColumnRef> Analyzer::column(const ::Node* node, const LevelScope& scope,
                                          const ConditionPlace& place) const {
  if (!is(node, T_ColumnRef)) return std::nullopt;
  const ::List* fields = as<::ColumnRef>(node)->fields;
  const std::size_t size = size_of(fields);
  if (size == 0 || size > 4 || !is(at(fields, size - 1), T_String)) return std::nullopt;

  ColumnRef result;
  result.level = scope.level;
  result.column = string_of(at(fields, size - 1));
  if (size == 1) {
    // A join condition sees only its own sides: a name may mean a column there, or one of an outer
    // query, while a table beside the join has a column of that name too.
    if (place.visible.begin != 0 || place.visible.end != scope.items.size()) return std::nullopt;
    for (std::size_t i = place.visible.begin; i < place.visible.end; ++i) {
      if (scope.items[i].table >= 0 && scope.items[i].renamed) return std::nullopt;
    }
    return result;
  }
  const std::string_view name = string_of(at(fields, size - 2));
  const std::string_view schema = size > 2 ? string_of(at(fields, size - 3)) : std::string_view();
  const RangeItem* found = nullptr;
  for (std::size_t i = place.visible.begin; i < place.visible.end; ++i) {
    const RangeItem& item = scope.items[i];
    if (item.hidden || item.name != name) continue;
    if (size > 2 && (item.aliased || item.schema != schema)) continue;
    if (found != nullptr) return std::nullopt;
    found = &item;
  }
  if (found == nullptr || found->table < 0 || found->renamed) return std::nullopt;
  result.table = found->table;
  return result;
}

bool Analyzer::may_be_null(const ColumnRef& column, const LevelScope& scope) const {
  const auto nullable = [&](int table) {
    return table >= 0 && out_.tables[static_cast<std::size_t>(table)].nullable;
  };
  if (column.table >= 0) return nullable(column.table);
  return std::ranges::any_of(scope.items,
                             [&](const RangeItem& item) { return nullable(item.table); });
}

}  // namespace collegedb::parser
