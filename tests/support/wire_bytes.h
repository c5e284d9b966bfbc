// Protocol bytes written by hand, independently of wire::Writer, for byte tables.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace collegedb::test {

inline std::string big_endian(std::uint64_t value, int size) {
  std::string bytes;
  for (int shift = 8 * (size - 1); shift >= 0; shift -= 8) {
    bytes.push_back(static_cast<char>(value >> shift & 0xff));
  }
  return bytes;
}
inline std::string i8(std::int64_t value) {
  return big_endian(static_cast<std::uint64_t>(value), 1);
}
inline std::string i16(std::int64_t value) {
  return big_endian(static_cast<std::uint64_t>(value), 2);
}
inline std::string i32(std::int64_t value) {
  return big_endian(static_cast<std::uint64_t>(value), 4);
}
// A String: its bytes and a NUL.
inline std::string z(std::string_view text) {
  return std::string(text) + '\0';
}
// Int32 length and the bytes.
inline std::string sized(std::string_view value) {
  return i32(static_cast<std::int64_t>(value.size())) + std::string(value);
}
inline const std::string kNull = i32(-1);

inline std::string typed(char tag, std::string_view payload) {
  return tag + i32(static_cast<std::int64_t>(payload.size()) + 4) + std::string(payload);
}
inline std::string untyped(std::string_view payload) {
  return i32(static_cast<std::int64_t>(payload.size()) + 4) + std::string(payload);
}

// One row of a byte table. error: what decode() must say, empty when it must succeed.
struct MessageCase {
  std::string name;
  char tag;
  std::string payload;
  std::string error;
};

}  // namespace collegedb::test
