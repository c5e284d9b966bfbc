// Arguments of an admin call as C++ values, and C++ values as rows. Pure.
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "proxy/session/control.h"
#include "proxy/wire/error.h"

namespace collegedb::admin {

class Arguments {
 public:
  explicit Arguments(const session::AdminCall& call) : call_(call) {}

  // Of the caller, see auth.admin_users.
  [[nodiscard]] bool by_admin() const { return call_.is_admin; }
  // Neither left out nor NULL.
  [[nodiscard]] bool given(std::size_t index) const;
  // nullopt when not given.
  [[nodiscard]] std::optional<std::string> text(std::size_t index) const;
  // 22004 when not given: for arguments that a NULL makes meaningless.
  [[nodiscard]] Result<std::string> required(std::size_t index) const;
  // nullopt when not given; 22P02 for what is no bigint.
  [[nodiscard]] Result<std::optional<std::int64_t>> integer(std::size_t index) const;
  // 22P02 for what PostgreSQL would not take for a boolean.
  [[nodiscard]] Result<bool> boolean(std::size_t index, bool fallback) const;

 private:
  const session::AdminCall& call_;
};

// Text form of a value, as PostgreSQL writes it.
using Cell = std::optional<std::string>;
[[nodiscard]] inline Cell cell(std::string_view text) {
  return std::string(text);
}
[[nodiscard]] inline Cell cell(const char* text) {
  return std::string(text);
}
[[nodiscard]] inline Cell cell(const std::string& text) {
  return text;
}
[[nodiscard]] inline Cell cell(bool value) {
  return value ? "t" : "f";
}
template <std::integral T>
  requires(!std::same_as<T, bool>)
[[nodiscard]] Cell cell(T value) {
  return std::to_string(value);
}
[[nodiscard]] Cell cell(double value);
[[nodiscard]] Cell cell(const std::vector<std::string>& items);  // text[]
template <class T>
[[nodiscard]] Cell cell(const std::optional<T>& value) {
  return value ? cell(*value) : Cell{};
}

// One row, values in the order of the function's columns.
template <class... Values>
void add_row(session::AdminRows& rows, const Values&... values) {
  rows.rows.push_back({cell(values)...});
}

// NULL for an empty text.
[[nodiscard]] inline Cell non_empty(std::string text) {
  return text.empty() ? Cell{} : Cell{std::move(text)};
}

// "text" of JSON, with quotes. Bytes that are no UTF-8 stay as they are.
[[nodiscard]] std::string json_string(std::string_view text);

}  // namespace collegedb::admin
