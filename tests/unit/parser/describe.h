// Statements as short texts, so that a table of cases can say what it expects in one line.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "parser/analyze.h"

namespace collegedb::parser {

inline std::string text_of(const QualifiedName& name) {
  return name.schema.empty() ? name.name : name.schema + "." + name.name;
}

// 'x'  42  4.2  t  b101  null  $1  default  ?   each with ::type when cast
inline std::string text_of(const Value& value) {
  std::string text;
  switch (value.kind) {
    case Value::Kind::kString:
      text = "'" + value.text + "'";
      break;
    case Value::Kind::kNumeric:
      text = "n" + value.text;
      break;
    case Value::Kind::kNull:
      text = "null";
      break;
    case Value::Kind::kParam:
      text = "$" + std::to_string(value.param);
      break;
    case Value::Kind::kDefault:
      text = "default";
      break;
    case Value::Kind::kOpaque:
      text = "?";
      break;
    default:
      text = value.text;
      break;
  }
  return value.cast.name.empty() ? text : text + "::" + text_of(value.cast);
}

// "t0.id" for a column of table 0, "id@1" for an unqualified one of level 1
inline std::string text_of(const ColumnRef& column) {
  if (column.table >= 0) return "t" + std::to_string(column.table) + "." + column.column;
  return column.column + "@" + std::to_string(column.level);
}

template <class T>
std::string joined(const std::vector<T>& items, std::string_view separator = " ") {
  std::string text;
  for (const T& item : items) {
    if (!text.empty()) text += separator;
    if constexpr (std::is_arithmetic_v<T>) {
      text += std::to_string(item);
    } else if constexpr (std::is_same_v<T, std::string>) {
      text += item;
    } else {
      text += text_of(item);
    }
  }
  return text;
}

// "s.users u@0 written nullable"
inline std::string text_of(const TableRef& table) {
  std::string text = text_of(table.name);
  if (table.alias != table.name.name) text += " " + table.alias;
  text += "@" + std::to_string(table.level);
  if (table.written) text += " written";
  if (table.nullable) text += " nullable";
  return text;
}

// "t0.id = 1 {0}", "id@0 in 1 2 {0 1}", "id@0 any $1 {0}", "t0.id == t1.id {0 1}"
inline std::string text_of(const Conjunct& conjunct) {
  std::string text = text_of(conjunct.column);
  switch (conjunct.kind) {
    case Conjunct::Kind::kEquals:
      text += " = " + joined(conjunct.values);
      break;
    case Conjunct::Kind::kIn:
      text += " in " + joined(conjunct.values);
      break;
    case Conjunct::Kind::kAnyArray:
      text += " any " + joined(conjunct.values);
      break;
    case Conjunct::Kind::kColumns:
      text += " == " + text_of(conjunct.other);
      break;
  }
  return text + " {" + joined(conjunct.restricts) + "}";
}

inline std::string text_of(const FunctionCall& call) {
  return text_of(call.name) + "@" + std::to_string(call.level);
}

inline std::string text_of(const Assignment& assignment) {
  return assignment.column + "=" + text_of(assignment.value) +
         (assignment.same_column ? " same" : "") + (assignment.excluded_column ? " excluded" : "");
}

inline std::string tables(const Statement& s) {
  return joined(s.tables, ", ");
}
inline std::string conditions(const Statement& s) {
  return joined(s.conjuncts, ", ");
}
inline std::string functions(const Statement& s) {
  return joined(s.functions);
}
inline std::string assignments(const Statement& s) {
  return joined(s.assignments, ", ");
}

inline std::string rows(const Statement& s) {
  std::string text;
  for (const auto& row : s.insert_rows) {
    text += "(" + joined(row) + ")";
  }
  return text;
}

// Names of the flags that are set, in the order of the struct.
inline std::string text_of(const SelectShape& shape) {
  std::vector<std::string> flags;
  const auto add = [&](bool set, std::string_view name) {
    if (set) flags.emplace_back(name);
  };
  add(shape.has_order_by, "order_by");
  add(shape.has_limit, "limit");
  add(shape.has_group_by, "group_by");
  add(shape.has_having, "having");
  add(shape.has_distinct, "distinct");
  add(shape.has_aggregate, "aggregate");
  add(shape.has_window, "window");
  add(shape.has_set_operation, "set_operation");
  add(shape.has_locking, "locking");
  add(shape.has_sublink, "sublink");
  add(shape.has_cte, "cte");
  add(shape.has_subquery, "subquery");
  add(shape.is_count_star, "count_star:" + shape.count_label);
  return joined(flags);
}

inline std::string text_of(const LoneCall& call) {
  std::string text = (call.in_from ? "from " : "") + text_of(call.function) + "(";
  std::string separator;
  for (const LoneCall::Argument& argument : call.arguments) {
    text +=
        separator + (argument.name.empty() ? "" : argument.name + "=>") + text_of(argument.value);
    separator = " ";
  }
  text += ")";
  for (const std::string& column : call.columns) text += " " + column;
  for (const std::string& label : call.column_labels) text += " as:" + label;
  return text;
}

// The one statement of `sql`; a test failure and an empty Statement when there is not exactly one.
inline Statement one(std::string_view sql) {
  const auto statements = analyze(sql);
  if (statements.has_error()) {
    ADD_FAILURE() << sql << ": " << statements.error().message;
    return {};
  }
  if (statements->size() != 1) {
    ADD_FAILURE() << sql << ": " << statements->size() << " statements";
    return {};
  }
  return statements->front();
}

// For INSTANTIATE_TEST_SUITE_P: the row's own name.
template <class Case>
std::string case_name(const ::testing::TestParamInfo<Case>& info) {
  return std::string(info.param.name);
}

}  // namespace collegedb::parser
