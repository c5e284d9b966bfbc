#include "parser/analyze.h"

#include <algorithm>

#include "parser/analyzer.h"
#include "parser/pg_query.h"

namespace collegedb::parser {

Result<std::vector<Statement>> analyze(std::string_view sql) {
  if (sql.find('\0') != std::string_view::npos) {
    return make_error("42601", "a statement must not contain a zero byte");
  }
  // The library addresses text with int.
  if (sql.size() > std::size_t{1} << 30) {
    return make_error("54000", "statement is longer than 1 GB");
  }
  Result<ParseTree> tree = ParseTree::parse(sql);
  if (tree.has_error()) return tree.error();

  std::vector<Statement> statements;
  statements.reserve(size_of(tree->statements()));
  for (const ::ListCell& cell : cells(tree->statements())) {
    const auto& raw = *as<::RawStmt>(cell.ptr_value);
    Statement& statement = statements.emplace_back();
    const int location = raw.stmt_location > 0 ? raw.stmt_location : 0;
    statement.location = static_cast<std::uint32_t>(location);
    statement.length = raw.stmt_len > 0
                           ? static_cast<std::uint32_t>(raw.stmt_len)
                           : static_cast<std::uint32_t>(sql.size()) - statement.location;
    Analyzer analyzer(sql, statement);
    if (std::optional<SqlError> error = analyzer.run(raw.stmt)) return *std::move(error);
  }
  return statements;
}

std::optional<SqlError> Analyzer::run(const ::Node* statement) {
  if (statement == nullptr) return std::nullopt;
  begin_statement(statement);
  std::reverse(work_.begin(), work_.end());
  drain();
  return std::move(error_);
}

void Analyzer::push(const void* node) {
  if (node == nullptr) return;
  switch (tag_of(node)) {  // leaves never enter the list
    case T_A_Const:
    case T_String:
      return;
    case T_ColumnRef:
      return add_attribute(*as<::ColumnRef>(node));
    case T_ParamRef:
      return visit_param(*as<::ParamRef>(node));
    default:
      work_.push_back({as<::Node>(node), scope_, level_, outer_, false});
  }
}

void Analyzer::push_list(const ::List* list) {
  for (const ::ListCell& cell : cells(list)) push(cell.ptr_value);
}

void Analyzer::push_query_at(const void* node, int level) {
  if (node != nullptr) work_.push_back({as<::Node>(node), scope_, level, outer_, true});
}

void Analyzer::drain() {
  while (!work_.empty() && !error_) {
    const WorkItem item = work_.back();
    work_.pop_back();
    const std::size_t mark = work_.size();
    scope_ = item.scope;
    level_ = item.level;
    outer_ = item.outer;
    own_level_ = item.own_level;
    visit(item.node);
    std::reverse(work_.begin() + static_cast<std::ptrdiff_t>(mark), work_.end());
  }
}

void Analyzer::fail(std::string_view sqlstate, std::string_view message, int location) {
  if (error_) return;
  error_ = make_error(sqlstate, message);
  if (location < 0 || static_cast<std::size_t>(location) >= sql_.size()) return;
  // The wire counts characters: bytes that do not continue a UTF-8 sequence.
  const std::string_view before = sql_.substr(0, static_cast<std::size_t>(location));
  const auto starts = [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; };
  error_->position = static_cast<int>(std::ranges::count_if(before, starts)) + 1;
}

void Analyzer::set_kind(StatementKind kind, std::string_view verb) {
  out_.kind = kind;
  out_.verb = verb;
}

void Analyzer::begin_statement(const ::Node* node) {
  switch (tag_of(node)) {
    case T_SelectStmt:
      set_kind(StatementKind::kSelect, "SELECT");
      select_into(*as<::SelectStmt>(node));
      return select(*as<::SelectStmt>(node), true);
    case T_InsertStmt:
      set_kind(StatementKind::kInsert, "INSERT");
      return insert(*as<::InsertStmt>(node), true);
    case T_UpdateStmt:
      set_kind(StatementKind::kUpdate, "UPDATE");
      return update(*as<::UpdateStmt>(node), true);
    case T_DeleteStmt:
      set_kind(StatementKind::kDelete, "DELETE");
      return remove(*as<::DeleteStmt>(node), true);
    case T_MergeStmt:
      set_kind(StatementKind::kMerge, "MERGE");
      return merge(*as<::MergeStmt>(node), true);
    case T_CopyStmt:
      return copy(*as<::CopyStmt>(node));
    default:
      if (!begin_session(node)) begin_ddl(node);
  }
}

StatementKind Analyzer::begin_inner(const ::Node* node) {
  if (node == nullptr) return StatementKind::kOther;
  const StatementKind kind = out_.kind;
  std::string verb = std::move(out_.verb);
  begin_statement(node);
  out_.verb = std::move(verb);
  return std::exchange(out_.kind, kind);
}

}  // namespace collegedb::parser
