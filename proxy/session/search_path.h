// The GUC search_path as a list of schemas. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace collegedb::session {

inline const std::string kDefaultSearchPath = "\"$user\", public";

// Splits as PostgreSQL's SplitIdentifierString does: comma separated, unquoted names folded to
// lower case, "" inside quotes. "$user" becomes `user`. Malformed text gives what could be read.
[[nodiscard]] std::vector<std::string> split_search_path(std::string_view text,
                                                         std::string_view user);

}  // namespace collegedb::session
