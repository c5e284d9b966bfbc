// SQL text -> Statements. The only door to libpg_query.
#pragma once

#include <string_view>
#include <vector>

#include "parser/statement.h"
#include "proxy/wire/error.h"

namespace collegedb::parser {

// All statements of `sql` in order; an empty list for empty or comment-only text.
// Errors: what PostgreSQL's parser says, with its SQLSTATE (nearly always 42601), words and
// character position; 42P02 for a parameter number no Bind can supply; 0A000 for the few forms we
// cannot represent.
// Thread-safe, in constant stack for any text. Any bytes are accepted but NUL (refused, 42601).
// Text is read with standard_conforming_strings = on: a session that turns it off must not be
// routed by what this returns. Does not keep `sql`.
[[nodiscard]] Result<std::vector<Statement>> analyze(std::string_view sql);

// Start-up self-test: compares the raw-tree walk with libpg_query's JSON output on fixed
// statements, so that a library whose node layout differs from the headers is refused at once.
// Returns an empty string, or what differs.
[[nodiscard]] std::string self_test();

}  // namespace collegedb::parser
