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

SqlError to_error(const ::PgQueryError& error) {
  const std::string_view message = view(error.message);
  SqlError result = make_error(sqlstate_for(message), message);
  result.position = error.cursorpos > 0 ? error.cursorpos : 0;
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
    SqlError error = to_error(*parsed.error);
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
