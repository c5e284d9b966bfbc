// Replies the extended-protocol handlers make themselves. Pure.
#pragma once

#include <string>
#include <string_view>

#include "proxy/wire/backend.h"

namespace collegedb::session {

// The bytes one of wire's encoders appends.
[[nodiscard]] inline std::string made(void (*encode)(std::string&)) {
  std::string out;
  encode(out);
  return out;
}

[[nodiscard]] inline SqlError no_statement(std::string_view name) {
  return name.empty() ? make_error("26000", "unnamed prepared statement does not exist")
                      : make_error("26000", "prepared statement \"" + std::string(name) +
                                                "\" does not exist");
}

// Results the proxy makes itself are not cut into portions.
[[nodiscard]] inline SqlError row_limit_error() {
  return make_error("0A000", "a row limit smaller than the result is not supported here",
                    "Execute the statement without a row limit.");
}

[[nodiscard]] inline SqlError no_portal(std::string_view name) {
  return make_error("34000", "portal \"" + std::string(name) + "\" does not exist");
}

}  // namespace collegedb::session
