// Settings a client may not have through the proxy, because the proxy could then read a statement
// otherwise than the server does, or take for a route what it is not. Pure.
#pragma once

#include <optional>
#include <string_view>

#include "proxy/wire/error.h"

namespace collegedb::session {

// `name` in lower case; `value` as set_config takes it. nullopt: allowed.
[[nodiscard]] std::optional<SqlError> refused_setting(std::string_view name,
                                                      std::string_view value);

}  // namespace collegedb::session
