// SET, RESET and their relatives.
#include <algorithm>
#include <array>

#include "parser/analyzer.h"

namespace collegedb::parser {
namespace {

// Settings whose list items are identifiers, quoted when the list is written down (GUC_LIST_QUOTE).
constexpr std::array<std::string_view, 6> kQuotedLists{
    "local_preload_libraries",  "search_path",      "session_preload_libraries",
    "shared_preload_libraries", "temp_tablespaces", "unix_socket_directories"};

// Settings that take a list (GUC_LIST_INPUT) beside those above. A dotted name belongs to an
// extension, which alone knows.
constexpr std::array<std::string_view, 9> kLists{"createrole_self_grant",
                                                 "datestyle",
                                                 "debug_io_direct",
                                                 "listen_addresses",
                                                 "log_connections",
                                                 "log_destination",
                                                 "restrict_nonsystem_relation_kind",
                                                 "synchronous_standby_names",
                                                 "wal_consistency_checking"};

bool takes_list(std::string_view name) {
  return name.find('.') != std::string_view::npos ||
         std::ranges::find(kQuotedLists, name) != kQuotedLists.end() ||
         std::ranges::find(kLists, name) != kLists.end();
}

bool is_plain_identifier(std::string_view text) {
  const auto starts = [](char c) { return (c >= 'a' && c <= 'z') || c == '_'; };
  const auto continues = [&](char c) { return starts(c) || (c >= '0' && c <= '9'); };
  return !text.empty() && starts(text.front()) && std::ranges::all_of(text, continues);
}

// Keywords are quoted too, which reads back the same.
std::string quote_identifier(std::string_view text) {
  if (is_plain_identifier(text)) return std::string(text);
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + '"';
}

}  // namespace

std::string to_lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return lower;
}

void Analyzer::set_variable(const ::VariableSetStmt& stmt) {
  out_.name = to_lower(view(stmt.name));
  out_.local = stmt.is_local;
  switch (stmt.kind) {
    case VAR_SET_VALUE:
      set_kind(StatementKind::kSet, "SET");
      return set_value(stmt);
    case VAR_SET_DEFAULT:
      set_kind(StatementKind::kSet, "SET");
      out_.value_default = true;
      return;
    case VAR_SET_CURRENT:
      // The value is the one in force on the server; no kind says that.
      return set_kind(StatementKind::kOther, "SET FROM CURRENT");
    case VAR_SET_MULTI:
      set_kind(StatementKind::kSetTransaction, "SET TRANSACTION");
      transaction_options(stmt.args);
      if (out_.name == "transaction snapshot") {
        out_.value = to_value(at(stmt.args, 0)).text;
      }
      return;
    case VAR_RESET:
      return set_kind(StatementKind::kReset, "RESET");
    case VAR_RESET_ALL:
      out_.name = "all";
      return set_kind(StatementKind::kReset, "RESET");
  }
}

void Analyzer::set_value(const ::VariableSetStmt& stmt) {
  if (size_of(stmt.args) > 1 && !takes_list(out_.name)) {
    return fail("22023", "SET " + std::string(view(stmt.name)) + " takes only one argument");
  }
  const bool quoted = std::ranges::find(kQuotedLists, out_.name) != kQuotedLists.end();
  for (const ::ListCell& cell : cells(stmt.args)) {
    const auto* node = as<::Node>(cell.ptr_value);
    // libpg_query's grammar takes a parameter here, PostgreSQL's does not.
    if (is(node, T_ParamRef)) return refuse_param(*as<::ParamRef>(node));
    if (&cell != cells(stmt.args).data()) out_.value += ", ";
    if (is(node, T_TypeCast)) {
      set_interval(*as<::TypeCast>(node));
      continue;
    }
    const Value value = to_value(node);
    const bool identifier = quoted && value.kind == Value::Kind::kString;
    out_.value += identifier ? quote_identifier(value.text) : value.text;
  }
}

// SET TIME ZONE INTERVAL '...' [HOUR [TO MINUTE]]
void Analyzer::set_interval(const ::TypeCast& cast) {
  constexpr int kHour = 1 << 10;
  constexpr int kHourToMinute = kHour | 1 << 11;
  const Value value = to_value(cast.arg);
  const ::List* typmods = cast.typeName->typmods;
  const int mask = typmods == nullptr ? 0 : std::atoi(to_value(at(typmods, 0)).text.c_str());
  const bool number = value.text.find_first_not_of("+-0123456789") == std::string::npos;
  const bool clock = value.text.find(':') != std::string::npos;
  std::string text = value.text;
  if (mask == kHour && number) {
    text += " hours";
  } else if (mask == kHourToMinute && number) {
    text += " minutes";
  } else if (mask != 0 && !(mask == kHourToMinute && clock)) {
    return fail("0A000", "this form of interval is not supported in SET TIME ZONE");
  }
  out_.value += "INTERVAL '" + text + "'";
}

}  // namespace collegedb::parser
