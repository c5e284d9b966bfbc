#include "parser/analyzer.h"

namespace collegedb::parser {

void Analyzer::copy(const ::CopyStmt& stmt) {
  StatementKind kind = stmt.is_from ? StatementKind::kCopyFrom : StatementKind::kCopyTo;
  if (stmt.filename != nullptr || stmt.is_program) kind = StatementKind::kCopyServer;
  if (stmt.query != nullptr) out_.explained = begin_inner(stmt.query);
  set_kind(kind, "COPY");
  if (stmt.relation != nullptr) add_table(*stmt.relation, level_, stmt.is_from);
  for (const ::ListCell& cell : cells(stmt.attlist)) {
    out_.insert_columns.emplace_back(string_of(cell.ptr_value));
  }
  push_list(stmt.options);
  // WHERE of COPY FROM filters incoming rows; it restricts no stored row.
  push(stmt.whereClause);
}

}  // namespace collegedb::parser
