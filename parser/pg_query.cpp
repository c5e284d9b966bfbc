#include "parser/pg_query.h"

#include <array>
#include <cstdlib>
#include <utility>

#include <pg_query.h>

namespace {
constexpr int kLibraryMajor = PG_VERSION_NUM / 10000;
}
// pg_config.h of the server headers defines these again.
#undef PG_MAJORVERSION
#undef PG_VERSION
#undef PG_VERSION_NUM

#include "parser/nodes.h"

extern "C" {
#include <pg_query_internal.h>
}

static_assert(PG_VERSION_NUM / 10000 == kLibraryMajor,
              "libpg_query and the node headers must be of the same PostgreSQL major");

namespace collegedb::parser {
namespace {

// The grammar raises nearly everything as a syntax error; these are the exceptions.
struct StateRule {
  std::string_view part;
  std::string_view sqlstate;
};
constexpr std::array kStateRules{
    StateRule{"not yet implemented", "0A000"},
    StateRule{"not implemented", "0A000"},
    StateRule{"not supported", "0A000"},
    StateRule{"current database cannot be changed", "0A000"},
    StateRule{"constraints cannot be marked", "0A000"},
    StateRule{"unsafe use of \\'", "22P06"},
    StateRule{"invalid byte sequence for encoding", "22021"},
    StateRule{"invalid escape string", "22025"},
    StateRule{"frame start", "42P20"},
    StateRule{"frame end", "42P20"},
    StateRule{"frame starting from", "42P20"},
    StateRule{"is reserved", "42939"},
    StateRule{"precision for type float", "22023"},
    StateRule{"stack depth limit exceeded", "54001"},
    StateRule{"out of memory", "53200"},
};

std::string_view sqlstate_for(std::string_view message) {
  // "... at or near" is always the scanner's or parser's own error, whatever it quotes.
  if (message.find(" at or near ") != std::string_view::npos) return "42601";
  for (const StateRule& rule : kStateRules) {
    if (message.find(rule.part) != std::string_view::npos) return rule.sqlstate;
  }
  return "42601";
}

// Byte offset of a 1-based character position.
std::size_t offset_of(std::string_view sql, int position) {
  std::size_t offset = 0;
  for (int left = position - 1; left > 0 && offset < sql.size(); --left) {
    do ++offset;
    while (offset < sql.size() && (static_cast<unsigned char>(sql[offset]) & 0xC0U) == 0x80U);
  }
  return offset;
}

bool continues_identifier(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '$' || static_cast<unsigned char>(c) >= 0x80U;
}

// Servers of today quote the whole word that follows a number, the library its first letter.
void quote_whole_word(SqlError& error, std::string_view sql) {
  if (!error.message.starts_with("trailing junk after ")) return;
  const std::size_t quote = error.message.find('"');
  if (quote == std::string::npos || !error.message.ends_with('"')) return;
  const std::size_t length = error.message.size() - quote - 2;
  std::size_t end = offset_of(sql, error.position) + length;
  if (length == 0 || end > sql.size() || !continues_identifier(sql[end - 1])) return;
  const std::size_t start = end;
  while (end < sql.size() && continues_identifier(sql[end])) ++end;
  error.message.insert(error.message.size() - 1, sql.substr(start, end - start));
}

// One message, two places in the scanner: E'\u...' and U&'\...'.
void tell_unicode_escapes_apart(SqlError& error, std::string_view sql) {
  if (error.message != "invalid Unicode escape") return;
  const std::size_t at = offset_of(sql, error.position);
  const bool escape_string = at + 1 < sql.size() && (sql[at + 1] == 'u' || sql[at + 1] == 'U');
  error.sqlstate = escape_string ? "22025" : "42601";
  error.hint = escape_string ? "Unicode escapes must be \\uXXXX or \\UXXXXXXXX."
                             : "Unicode escapes must be \\XXXX or \\+XXXXXX.";
}

SqlError to_error(const ::PgQueryError& error, std::string_view sql) {
  const std::string_view message = view(error.message);
  SqlError result = make_error(sqlstate_for(message), message);
  result.position = error.cursorpos > 0 ? error.cursorpos : 0;
  quote_whole_word(result, sql);
  tell_unicode_escapes_apart(result, sql);
  return result;
}

}  // namespace

Result<ParseTree> ParseTree::parse(std::string_view sql) {
  const std::string text(sql);
  ::MemoryContext context = ::pg_query_enter_memory_context();
  const ::PgQueryInternalParsetreeAndError parsed = ::pg_query_raw_parse(text.c_str());
  ParseTree tree(context, parsed.tree);
  std::free(parsed.stderr_buffer);
  if (parsed.error != nullptr) {
    SqlError error = to_error(*parsed.error, sql);
    ::pg_query_free_error(parsed.error);
    return error;
  }
  return tree;
}

ParseTree::ParseTree(ParseTree&& other) noexcept
    : context_(std::exchange(other.context_, nullptr)),
      statements_(std::exchange(other.statements_, nullptr)) {}

ParseTree::~ParseTree() {
  if (context_ != nullptr) ::pg_query_exit_memory_context(context_);
}

std::string parse_to_json(const std::string& sql) {
  const ::PgQueryParseResult parsed = ::pg_query_parse(sql.c_str());
  std::string json = parsed.error == nullptr ? std::string(view(parsed.parse_tree)) : std::string();
  ::pg_query_free_parse_result(parsed);
  return json;
}

}  // namespace collegedb::parser
