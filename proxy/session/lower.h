// Names of settings are compared in lower case. Pure.
#pragma once

#include <algorithm>
#include <cctype>
#include <string>
#include <string_view>

namespace collegedb::session {

[[nodiscard]] inline std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

}  // namespace collegedb::session
