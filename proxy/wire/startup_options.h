// The `options` of a StartupMessage: a command line for the session. Pure.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "proxy/wire/error.h"

namespace collegedb::wire::detail {

// Appends the settings that `options` names to `parameters`. Takes what clients send, -c k=v, -ck=v
// and --k=v; every other switch is refused with PostgreSQL's error for an unknown one (FATAL
// 42601).
[[nodiscard]] Result<void> parse_startup_options(
    std::string_view options, std::vector<std::pair<std::string, std::string>>& parameters);

}  // namespace collegedb::wire::detail
