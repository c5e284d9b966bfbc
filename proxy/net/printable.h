// Text of a client's or server's choice, made fit for one line of a log.
#pragma once

#include <string>
#include <string_view>

namespace collegedb::net {

[[nodiscard]] inline std::string printable(std::string_view text) {
  std::string result(text.substr(0, 400));
  for (char& c : result) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  return result;
}

}  // namespace collegedb::net
