// Any text as SQL. What comes back must be consistent in itself, and each statement alone must
// mean what it meant in the whole text: what is routed is what is sent.
#include <algorithm>
#include <string>

#include "parser/analyze.h"
#include "tests/fuzz/fuzz_target.h"

using namespace collegedb;
using test::require;

namespace {

void check_value(const parser::Value& value, const parser::Statement& statement) {
  if (value.kind == parser::Value::Kind::kParam) {
    require(value.param >= 1 && value.param <= statement.max_param);
  } else {
    require(value.param == 0);
  }
  require(value.kind != parser::Value::Kind::kOpaque || value.cast.name.empty());
}

void check_column(const parser::ColumnRef& column, const parser::Statement& statement) {
  require(!column.column.empty());
  require(column.level >= 0 && column.level < statement.levels);
  if (column.table < 0) return;
  require(static_cast<std::size_t>(column.table) < statement.tables.size());
  require(statement.tables[static_cast<std::size_t>(column.table)].level == column.level);
}

void check_conjunct(const parser::Conjunct& conjunct, const parser::Statement& statement) {
  using Kind = parser::Conjunct::Kind;
  check_column(conjunct.column, statement);
  if (conjunct.kind == Kind::kColumns) {
    check_column(conjunct.other, statement);
    require(conjunct.other.level == conjunct.column.level && conjunct.values.empty());
  } else {
    require(conjunct.kind == Kind::kIn ? !conjunct.values.empty() : conjunct.values.size() == 1);
  }
  for (const parser::Value& value : conjunct.values) {
    require(value.kind != parser::Value::Kind::kOpaque);
    check_value(value, statement);
  }
  require(!conjunct.restricts.empty());
  for (const int table : conjunct.restricts) {
    require(table >= 0 && static_cast<std::size_t>(table) < statement.tables.size());
    require(statement.tables[static_cast<std::size_t>(table)].level == conjunct.column.level);
  }
}

void check(const parser::Statement& statement) {
  for (const parser::TableRef& table : statement.tables) {
    require(!table.name.name.empty() && !table.alias.empty());
    require(table.level >= 0 && table.level < statement.levels);
  }
  for (const parser::Conjunct& conjunct : statement.conjuncts) check_conjunct(conjunct, statement);
  for (const parser::FunctionCall& call : statement.functions) {
    require(!call.name.name.empty() && call.level < statement.levels);
  }
  for (const auto& row : statement.insert_rows) {
    for (const parser::Value& value : row) check_value(value, statement);
  }
  for (const auto& assignment : statement.assignments) check_value(assignment.value, statement);
  require(!statement.insert_select || statement.insert_rows.empty());
  require(!statement.verb.empty());
}

void check_alone(const parser::Statement& statement, std::string_view sql) {
  const auto alone = parser::analyze(sql.substr(statement.location, statement.length));
  require(alone.has_value() && alone->size() == 1);
  const parser::Statement& same = alone->front();
  require(same.kind == statement.kind && same.verb == statement.verb);
  require(same.name == statement.name && same.value == statement.value);
  require(same.tables.size() == statement.tables.size());
  require(same.conjuncts.size() == statement.conjuncts.size());
  require(same.functions.size() == statement.functions.size());
  require(same.insert_rows.size() == statement.insert_rows.size());
  require(same.levels == statement.levels && same.max_param == statement.max_param);
}

// Every node the grammar makes is known; only statements inside SQL function bodies may be new.
void check_error(const SqlError& error, std::string_view sql) {
  require(error.sqlstate.size() == 5 && !error.message.empty());
  require(error.position >= 0 && static_cast<std::size_t>(error.position) <= sql.size() + 1);
  if (!error.message.starts_with("unsupported")) return;
  std::string upper(sql);
  std::ranges::transform(upper, upper.begin(),
                         [](char c) { return c >= 'a' && c <= 'z' ? char(c - 32) : c; });
  require(upper.find("ATOMIC") != std::string::npos);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view sql = test::as_text(data, size);
  const auto statements = parser::analyze(sql);
  if (statements.has_error()) {
    check_error(statements.error(), sql);
    return 0;
  }
  std::size_t end = 0;
  for (const parser::Statement& statement : *statements) {
    require(statement.location >= end && statement.length > 0);
    end = std::size_t{statement.location} + statement.length;
    require(end <= sql.size());
    check(statement);
    check_alone(statement, sql);
  }
  return 0;
}
