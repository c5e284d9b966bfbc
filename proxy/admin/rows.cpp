#include "proxy/admin/rows.h"

#include <array>
#include <charconv>

#include "migration/control_session.h"

namespace collegedb::admin {
namespace {

std::string folded(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == ' ' || (c >= '\t' && c <= '\r')) {
      continue;
    }
    out += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  return out;
}

// PostgreSQL takes any unambiguous beginning of these words.
std::optional<bool> parse_boolean(std::string_view text) {
  const std::string word = folded(text);
  if (word.empty()) {
    return std::nullopt;
  }
  const auto begins = [&](std::string_view whole, std::size_t least) {
    return word.size() >= least && whole.starts_with(word);
  };
  if (begins("true", 1) || begins("yes", 1) || word == "on" || word == "1") {
    return true;
  }
  if (begins("false", 1) || begins("no", 1) || begins("off", 2) || word == "0") {
    return false;
  }
  return std::nullopt;
}

}  // namespace

bool Arguments::given(std::size_t index) const {
  return text(index).has_value();
}

std::optional<std::string> Arguments::text(std::size_t index) const {
  if (index >= call_.arguments.size()) {
    return std::nullopt;
  }
  const auto* value = std::get_if<std::optional<std::string>>(&call_.arguments[index]);
  return value != nullptr ? *value : std::nullopt;
}

Result<std::string> Arguments::required(std::size_t index) const {
  if (auto value = text(index)) {
    return *std::move(value);
  }
  return make_error("22004", "argument \"" + std::string(call_.function->arguments[index].name) +
                                 "\" of " + std::string(call_.function->name) +
                                 " must not be null");
}

Result<std::optional<std::int64_t>> Arguments::integer(std::size_t index) const {
  const auto value = text(index);
  if (!value) {
    return std::optional<std::int64_t>{};
  }
  std::int64_t out = 0;
  const auto [end, error] = std::from_chars(value->data(), value->data() + value->size(), out);
  if (error != std::errc{} || end != value->data() + value->size()) {
    return make_error("22P02", "invalid input syntax for type bigint: \"" + *value + "\"");
  }
  return std::optional{out};
}

Result<bool> Arguments::boolean(std::size_t index, bool fallback) const {
  const auto value = text(index);
  if (!value) {
    return fallback;
  }
  if (const auto parsed = parse_boolean(*value)) {
    return *parsed;
  }
  return make_error("22P02", "invalid input syntax for type boolean: \"" + *value + "\"");
}

Cell cell(double value) {
  std::array<char, 32> text{};
  const auto [end, error] = std::to_chars(text.data(), text.data() + text.size(), value);
  return std::string(text.data(), end);
}

Cell cell(const std::vector<std::string>& items) {
  return migration::array_text(items);
}

std::string json_string(std::string_view text) {
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += "\\u00";
      out += kHex[static_cast<unsigned char>(c) >> 4];
      out += kHex[static_cast<unsigned char>(c) & 15];
    } else {
      out += c;
    }
  }
  return out + "\"";
}

}  // namespace collegedb::admin
