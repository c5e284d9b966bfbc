// libpq connection strings as the configuration uses them: checked, and completed with the
// password that libpq itself would find. Reads the environment and the password file; no network.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "proxy/wire/error.h"

namespace collegedb {

// Keywords given in a connection string or URI; an error in libpq's words when it is malformed.
[[nodiscard]] Result<std::map<std::string, std::string>> parse_conninfo(const std::string& text);

// "key='value'" with quotes and backslashes escaped.
[[nodiscard]] std::string conninfo_pair(std::string_view key, std::string_view value);

// The connection string of these keywords.
[[nodiscard]] std::string make_conninfo(const std::map<std::string, std::string>& keywords);

// The password of the first line "host:port:database:user:password" that fits ('*' matches all,
// backslash escapes). Contents of a password file, not its path.
[[nodiscard]] std::optional<std::string> find_in_passfile(std::string_view contents,
                                                          std::string_view host,
                                                          std::string_view port,
                                                          std::string_view database,
                                                          std::string_view user);

// Adds the password of passfile=, PGPASSFILE or ~/.pgpass where the keywords have none. Files that
// others may read are ignored, as libpq does.
void add_passfile_password(std::map<std::string, std::string>& keywords);

}  // namespace collegedb
