// RAII over libpg_query's raw parser. Internal to parser/.
#pragma once

#include <string>
#include <string_view>

#include "proxy/wire/error.h"

struct List;
struct MemoryContextData;

namespace collegedb::parser {

// The raw parse tree of one text. The tree and all strings in it live in a memory context of this
// thread's parser and die with this object, which must be destroyed on the thread that made it.
class ParseTree {
 public:
  // REQUIRES: `sql` has no NUL byte. It is copied.
  // Error: PostgreSQL's message, SQLSTATE and character position.
  [[nodiscard]] static Result<ParseTree> parse(std::string_view sql);

  ParseTree(ParseTree&& other) noexcept;
  ParseTree(const ParseTree&) = delete;
  ParseTree& operator=(ParseTree&&) = delete;
  ParseTree& operator=(const ParseTree&) = delete;
  ~ParseTree();

  // List of RawStmt, null for empty text.
  [[nodiscard]] const ::List* statements() const noexcept { return statements_; }

 private:
  ParseTree(::MemoryContextData* context, const ::List* statements) noexcept
      : context_(context), statements_(statements) {}

  ::MemoryContextData* context_;
  const ::List* statements_;
};

// libpg_query's own JSON of the tree of `sql`; empty when it does not parse. For the self-test.
[[nodiscard]] std::string parse_to_json(const std::string& sql);

}  // namespace collegedb::parser
