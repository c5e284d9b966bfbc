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

// True when bytes of this client_encoding are what UTF8 shards store, unconverted.
[[nodiscard]] bool is_utf8(std::string_view client_encoding);

}  // namespace collegedb::session
