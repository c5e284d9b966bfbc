// PostgreSQL's input functions (text and binary) for the types that key values come in, re-made so
// that the proxy reads a value as the server will. Internal to routing/key.
//
// Each function accepts only what every supported server version accepts and reads alike: anything
// else is Unknown, never a guess.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "routing/key.h"

namespace collegedb::routing::input {

// A numeric value as far as a key needs it: `integer` is the canonical decimal text when there is
// no fraction.
struct Number {
  std::string integer;
  bool fraction = false;
};

// int2in/int4in/int8in for a type of `bytes` bytes: canonical text, NoMatch when out of range.
[[nodiscard]] KeyResult read_int(std::string_view text, int bytes);
[[nodiscard]] KeyResult read_int_binary(std::string_view bytes);  // the size says the type
// True when the canonical integer `digits` fits a type of `bytes` bytes.
[[nodiscard]] bool fits(std::string_view digits, int bytes);

// nullopt: malformed, NaN, infinite, or too long to be a key.
[[nodiscard]] std::optional<Number> read_numeric(std::string_view text);
[[nodiscard]] std::optional<Number> read_numeric_binary(std::string_view bytes);

[[nodiscard]] KeyResult read_bool(std::string_view text);
[[nodiscard]] KeyResult read_uuid(std::string_view text);
[[nodiscard]] KeyResult read_uuid_binary(std::string_view bytes);
[[nodiscard]] KeyResult read_bytea(std::string_view text);
[[nodiscard]] KeyResult read_date(std::string_view text);
[[nodiscard]] KeyResult read_date_binary(std::string_view bytes);

[[nodiscard]] std::string to_hex(std::string_view bytes);
[[nodiscard]] std::string_view strip_blanks(std::string_view text);  // trailing spaces, as char(n)

}  // namespace collegedb::routing::input
