#include <algorithm>
#include <array>
#include <charconv>
#include <limits>

#include "parser/analyzer.h"

namespace collegedb::parser {
namespace {

// Aggregates of pg_catalog, PostgreSQL 13 to 18; sorted.
constexpr std::array<std::string_view, 56> kAggregates{"any_value",
                                                       "array_agg",
                                                       "avg",
                                                       "bit_and",
                                                       "bit_or",
                                                       "bit_xor",
                                                       "bool_and",
                                                       "bool_or",
                                                       "corr",
                                                       "count",
                                                       "covar_pop",
                                                       "covar_samp",
                                                       "cume_dist",
                                                       "dense_rank",
                                                       "every",
                                                       "json_agg",
                                                       "json_agg_strict",
                                                       "json_arrayagg",
                                                       "json_object_agg",
                                                       "json_object_agg_strict",
                                                       "json_object_agg_unique",
                                                       "json_object_agg_unique_strict",
                                                       "json_objectagg",
                                                       "jsonb_agg",
                                                       "jsonb_agg_strict",
                                                       "jsonb_object_agg",
                                                       "jsonb_object_agg_strict",
                                                       "jsonb_object_agg_unique",
                                                       "jsonb_object_agg_unique_strict",
                                                       "max",
                                                       "min",
                                                       "mode",
                                                       "percent_rank",
                                                       "percentile_cont",
                                                       "percentile_disc",
                                                       "range_agg",
                                                       "range_intersect_agg",
                                                       "rank",
                                                       "regr_avgx",
                                                       "regr_avgy",
                                                       "regr_count",
                                                       "regr_intercept",
                                                       "regr_r2",
                                                       "regr_slope",
                                                       "regr_sxx",
                                                       "regr_sxy",
                                                       "regr_syy",
                                                       "stddev",
                                                       "stddev_pop",
                                                       "stddev_samp",
                                                       "string_agg",
                                                       "sum",
                                                       "var_pop",
                                                       "var_samp",
                                                       "variance",
                                                       "xmlagg"};

bool fits_int8(std::string_view digits) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  return error == std::errc() && end == digits.data() + digits.size();
}

Value const_value(const ::A_Const& node) {
  Value value;
  if (node.isnull) {
    value.kind = Value::Kind::kNull;
    return value;
  }
  switch (node.val.node.type) {
    case T_Integer:
      value.kind = Value::Kind::kInteger;
      value.text = std::to_string(node.val.ival.ival);
      break;
    case T_Float:
      value.text = view(node.val.fval.fval);
      value.kind = fits_int8(value.text) ? Value::Kind::kInteger : Value::Kind::kNumeric;
      break;
    case T_Boolean:
      value.kind = Value::Kind::kBool;
      value.text = node.val.boolval.boolval ? "t" : "f";
      break;
    case T_String:
      value.kind = Value::Kind::kString;
      value.text = view(node.val.sval.sval);
      break;
    case T_BitString:
      value.kind = Value::Kind::kBit;
      value.text = view(node.val.bsval.bsval);
      break;
    default:
      break;
  }
  return value;
}

Value with_cast(Value value, const ::TypeName& type_name) {
  std::optional<QualifiedName> type = to_type(type_name);
  if (!type || !value.cast.name.empty()) return {};
  if (value.kind == Value::Kind::kOpaque || value.kind == Value::Kind::kDefault) return {};
  value.cast = std::move(*type);
  return value;
}

// A literal or parameter without a cast.
Value plain_value(const ::Node* node) {
  Value value;
  switch (tag_of(node)) {
    case T_A_Const:
      return const_value(*as<::A_Const>(node));
    case T_ParamRef: {
      const int number = as<::ParamRef>(node)->number;
      if (number < 1 || number > std::numeric_limits<std::uint16_t>::max()) return value;
      value.kind = Value::Kind::kParam;
      value.param = static_cast<std::uint16_t>(number);
      return value;
    }
    case T_SetToDefault:
      value.kind = Value::Kind::kDefault;
      return value;
    default:
      return value;
  }
}

bool is_exact_number(const QualifiedName& type) {
  return type.name == "int2" || type.name == "int4" || type.name == "int8" ||
         type.name == "numeric";
}

// `-5::int8` is minus applied to a cast; of an exact number type it equals the cast of -5.
Value negated_cast(const ::A_Expr& expr) {
  if (expr.kind != AEXPR_OP || expr.lexpr != nullptr || !is(expr.rexpr, T_TypeCast)) return {};
  if (size_of(expr.name) != 1 || string_of(at(expr.name, 0)) != "-") return {};
  Value value = to_value(expr.rexpr);
  const bool number = value.kind == Value::Kind::kInteger || value.kind == Value::Kind::kNumeric;
  if (!number || !is_exact_number(value.cast)) return {};
  if (value.text.starts_with('-')) {
    value.text.erase(0, 1);
  } else {
    value.text.insert(0, 1, '-');
  }
  return value;
}

}  // namespace

Value to_value(const ::Node* node) {
  if (node == nullptr) return {};
  if (is(node, T_TypeCast)) {
    const auto* cast = as<::TypeCast>(node);
    if (cast->arg == nullptr || cast->typeName == nullptr) return {};
    return with_cast(plain_value(cast->arg), *cast->typeName);
  }
  if (is(node, T_A_Expr)) return negated_cast(*as<::A_Expr>(node));
  return plain_value(node);
}

std::optional<std::vector<Value>> to_array(const ::Node* node) {
  const ::TypeName* type = nullptr;
  if (is(node, T_TypeCast)) {
    type = as<::TypeCast>(node)->typeName;
    node = as<::TypeCast>(node)->arg;
  }
  if (!is(node, T_A_ArrayExpr)) return std::nullopt;
  std::optional<QualifiedName> element;
  if (type != nullptr) {
    element = to_type(*type);
    if (!element || !element->name.ends_with("[]")) return std::nullopt;
    element->name.resize(element->name.size() - 2);
  }
  std::vector<Value> values;
  for (const ::ListCell& cell : cells(as<::A_ArrayExpr>(node)->elements)) {
    Value value = to_value(as<::Node>(cell.ptr_value));
    if (element && value.cast.name.empty()) {
      value.cast = *element;
    } else if (element) {
      return std::nullopt;
    }
    if (value.kind == Value::Kind::kOpaque) return std::nullopt;
    values.push_back(std::move(value));
  }
  return values;
}

std::optional<QualifiedName> to_type(const ::TypeName& type) {
  if (type.setof || type.pct_type || type.typmods != nullptr || type.names == nullptr) {
    return std::nullopt;
  }
  QualifiedName name = to_name(type.names);
  if (type.arrayBounds != nullptr) name.name += "[]";
  return name;
}

std::string option_text(const ::Node* node) {
  if (node == nullptr) return {};
  if (is(node, T_A_Const)) return to_value(node).text;
  if (is(node, T_Integer)) return std::to_string(as<::Integer>(node)->ival);
  if (is(node, T_Float)) return std::string(view(as<::Float>(node)->fval));
  if (is(node, T_Boolean)) return as<::Boolean>(node)->boolval ? "true" : "false";
  return std::string(string_of(node));
}

bool option_on(const ::DefElem& option) {
  if (option.arg == nullptr) return true;
  const std::string text = to_lower(option_text(option.arg));
  return text == "1" || text == "true" || text == "on";
}

QualifiedName to_name(const ::List* names) {
  QualifiedName result;
  const std::size_t size = size_of(names);
  if (size > 0) result.name = string_of(at(names, size - 1));
  if (size > 1) result.schema = string_of(at(names, size - 2));
  return result;
}

bool has_star(const ::List* row) {
  return std::ranges::any_of(cells(row), [](const ::ListCell& cell) {
    const ::List* parts = nullptr;
    if (is(cell.ptr_value, T_ColumnRef)) parts = as<::ColumnRef>(cell.ptr_value)->fields;
    if (is(cell.ptr_value, T_A_Indirection)) {
      parts = as<::A_Indirection>(cell.ptr_value)->indirection;
    }
    return parts != nullptr && is(at(parts, size_of(parts) - 1), T_A_Star);
  });
}

bool is_equals(const ::List* operator_name) {
  const std::size_t size = size_of(operator_name);
  if (size == 1) return string_of(at(operator_name, 0)) == "=";
  return size == 2 && string_of(at(operator_name, 0)) == "pg_catalog" &&
         string_of(at(operator_name, 1)) == "=";
}

bool is_temporary(const ::RangeVar& relation) {
  constexpr char kTemporary = 't';  // RELPERSISTENCE_TEMP
  const std::string_view schema = view(relation.schemaname);
  return relation.relpersistence == kTemporary || schema == "pg_temp" ||
         schema.starts_with("pg_temp_");
}

bool is_aggregate_name(const QualifiedName& name) {
  if (!name.schema.empty() && name.schema != "pg_catalog") return false;
  return std::ranges::find(kAggregates, name.name) != kAggregates.end();
}

}  // namespace collegedb::parser
