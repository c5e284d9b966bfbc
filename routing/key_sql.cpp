#include "routing/key.h"

namespace collegedb::routing {
namespace {

std::string cast(std::string_view expression, std::string_view type) {
  std::string out = "(";
  out += expression;
  out += ")::pg_catalog.";
  out += type;
  return out;
}

// to_char prints a year BC without its era, and no infinity; casting to text would depend on
// DateStyle.
std::string date_expression(std::string_view column) {
  const std::string c = "(" + std::string(column) + ")";
  return "CASE WHEN pg_catalog.isfinite" + c + " THEN pg_catalog.to_char(" + c +
         "::pg_catalog.timestamp, 'YYYY-MM-DD') OPERATOR(pg_catalog.||) CASE WHEN " + c +
         " OPERATOR(pg_catalog.<) '0001-01-01'::pg_catalog.date THEN ' BC' ELSE '' END WHEN " + c +
         " OPERATOR(pg_catalog.=) 'infinity'::pg_catalog.date THEN 'infinity' WHEN " + c +
         " OPERATOR(pg_catalog.=) '-infinity'::pg_catalog.date THEN '-infinity' END";
}

}  // namespace

std::string sql_key_expression(KeyType type, std::string_view quoted_column) {
  const std::string column(quoted_column);
  switch (type) {
    case KeyType::kBytea:
      return "pg_catalog.encode(" + column + ", 'hex')";
    case KeyType::kBool:
      return "CASE WHEN " + column + " THEN 't' WHEN NOT " + column + " THEN 'f' END";
    case KeyType::kDate:
      return date_expression(column);
    case KeyType::kCitext:
      return "pg_catalog.lower(" + cast(column, "text") + ")";
    default:
      return cast(column, "text");
  }
}

std::string sql_key_from_text(KeyType type, std::string_view sql_text_expression) {
  switch (type) {
    case KeyType::kBytea:
      return "pg_catalog.decode(" + std::string(sql_text_expression) + ", 'hex')";
    case KeyType::kCitext:
      return cast(sql_text_expression, "text");
    default:
      return cast(sql_text_expression, name_of(type));
  }
}

std::string sql_key_literal(KeyType type, std::string_view canonical) {
  return (type == KeyType::kBytea ? "\\x" : "") + std::string(canonical);
}

std::string sql_key_condition(KeyType type, std::string_view quoted_column,
                              std::string_view sql_text_expression) {
  const std::string left = type == KeyType::kCitext ? sql_key_expression(type, quoted_column)
                                                    : std::string(quoted_column);
  return left + " OPERATOR(pg_catalog.=) " + sql_key_from_text(type, sql_text_expression);
}

}  // namespace collegedb::routing
