// SQL text -> Statements. The only door to libpg_query.
#pragma once

#include <string_view>
#include <vector>

#include "parser/statement.h"
#include "proxy/wire/error.h"

namespace collegedb::parser {

// All statements of `sql` in order; an empty list for empty or comment-only text.
// Errors: 42601 with PostgreSQL's own message and position; 54001 beyond the nesting bound.
// Thread-safe; any bytes are accepted (a NUL ends nothing: text with a NUL is refused, 42601).
// Does not keep `sql`.
[[nodiscard]] Result<std::vector<Statement>> analyze(std::string_view sql);

// Start-up self-test: compares the raw-tree walk with libpg_query's JSON output on fixed
// statements, so that a library whose node layout differs from the headers is refused at once.
// Returns an empty string, or what differs.
[[nodiscard]] std::string self_test();

}  // namespace collegedb::parser
