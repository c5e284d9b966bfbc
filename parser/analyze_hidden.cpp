// Operators, types and attributes: what may call a function without looking like a call.
#include "parser/analyzer.h"

namespace collegedb::parser {

void Analyzer::add_operators(const ::A_Expr& expr) {
  switch (expr.kind) {
    case AEXPR_BETWEEN:
    case AEXPR_NOT_BETWEEN:
    case AEXPR_BETWEEN_SYM:
    case AEXPR_NOT_BETWEEN_SYM:
      for (const std::string_view name : {">=", "<=", "<", ">"}) add_operator(name);
      return;
    default:
      return add_operator(last_of(expr.name));
  }
}

void Analyzer::add_operator(std::string_view name) {
  if (seen_operators_.insert(name).second) out_.operators.emplace_back(name);
}

void Analyzer::add_type(const ::TypeName& type) {
  const std::string_view name = last_of(type.names);
  if (!name.empty() && seen_types_.insert(name).second) out_.types.emplace_back(name);
}

void Analyzer::add_attribute(const ::ColumnRef& column) {
  const std::size_t size = size_of(column.fields);
  if (size < 2) return;
  const ::Node* name = at(column.fields, size - 1);
  if (is(name, T_String)) {
    add_attribute(string_of(at(column.fields, size - 2)), string_of(name));
  }
}

void Analyzer::add_attribute(std::string_view qualifier, std::string_view name) {
  if (!seen_attributes_.emplace(qualifier, name).second) return;
  out_.attributes.push_back({std::string(qualifier), std::string(name)});
}

void Analyzer::add_row_alias(std::string_view name) {
  if (!name.empty() && seen_aliases_.insert(name).second) out_.row_aliases.emplace_back(name);
}

}  // namespace collegedb::parser
