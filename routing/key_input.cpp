#include "routing/key_input.h"

#include <algorithm>
#include <array>
#include <charconv>

namespace collegedb::routing::input {
namespace {

constexpr std::string_view kSpace = " \t\n\v\f\r";

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

std::string_view trim(std::string_view text) {
  const auto first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

int hex_value(char c) {
  if (is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// Digits with an optional sign to canonical text: no leading zeros, no plus, no minus zero.
std::string canonical_integer(bool negative, std::string_view digits) {
  const auto first = digits.find_first_not_of('0');
  if (first == std::string_view::npos) return "0";
  std::string out = negative ? "-" : "";
  out += digits.substr(first);
  return out;
}

struct Signed {
  bool negative = false;
  std::string_view rest;
};

Signed split_sign(std::string_view text) {
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) return {text[0] == '-', text.substr(1)};
  return {false, text};
}

std::uint64_t big_endian(std::string_view bytes) {
  std::uint64_t value = 0;
  for (const char c : bytes) value = (value << 8) | static_cast<unsigned char>(c);
  return value;
}

// Longest key of a numeric(p, 0) column, and so the longest integer worth keeping.
constexpr std::size_t kMaxNumericDigits = 1000;

// Value of digits with the decimal point `scale` digits from the right (negative: zeros follow).
std::optional<Number> make_number(bool negative, std::string digits, long scale) {
  const auto first = digits.find_first_not_of('0');
  if (first == std::string::npos) return Number{"0", false};
  digits.erase(0, first);
  if (scale < 0) {
    if (static_cast<std::size_t>(-scale) + digits.size() > kMaxNumericDigits) return std::nullopt;
    digits.append(static_cast<std::size_t>(-scale), '0');
    scale = 0;
  }
  const auto cut = static_cast<std::size_t>(scale);
  const std::size_t whole = digits.size() > cut ? digits.size() - cut : 0;
  if (digits.find_first_not_of('0', whole) != std::string::npos) return Number{{}, true};
  if (whole > kMaxNumericDigits) return std::nullopt;
  return Number{canonical_integer(negative, std::string_view(digits).substr(0, whole)), false};
}

// ---- dates -------------------------------------------------------------------------------------

// The greatest year that to_char can print; dates beyond it are no keys (see sql_key_expression).
constexpr std::int32_t kMaxYear = 294276;
constexpr std::int32_t kMinYear = -4712;  // 4713 BC; year 0 is 1 BC

bool is_leap(std::int32_t year) {
  return year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
}

int days_in_month(std::int32_t year, int month) {
  constexpr std::array<int, 12> kDays{31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
  return month == 2 && is_leap(year) ? 29 : kDays[static_cast<std::size_t>(month - 1)];
}

std::string padded(std::int32_t value, std::size_t width) {
  std::string out = std::to_string(value);
  if (out.size() < width) out.insert(0, width - out.size(), '0');
  return out;
}

// `year` counts 1 BC as 0.
KeyResult date_text(std::int32_t year, int month, int day) {
  if (year > kMaxYear || year < kMinYear) return Unknown{};
  std::string out = padded(year > 0 ? year : 1 - year, 4);
  out += '-';
  out += padded(month, 2);
  out += '-';
  out += padded(day, 2);
  if (year <= 0) out += " BC";
  return out;
}

// Days since 2000-01-01 to a civil date, by 400-year eras that begin on 1 March.
KeyResult date_of_days(std::int32_t days) {
  constexpr std::int64_t kEra = 146097;
  const std::int64_t from_march_0 =
      std::int64_t{days} + 730425;  // 2000-01-01 counted from 0000-03-01
  const std::int64_t era = (from_march_0 >= 0 ? from_march_0 : from_march_0 - (kEra - 1)) / kEra;
  const std::int64_t in_era = from_march_0 - era * kEra;
  const std::int64_t year_of_era =
      (in_era - in_era / 1460 + in_era / 36524 - in_era / 146096) / 365;
  const std::int64_t in_year = in_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
  const std::int64_t shifted_month = (5 * in_year + 2) / 153;
  const auto day = static_cast<int>(in_year - (153 * shifted_month + 2) / 5 + 1);
  const auto month = static_cast<int>(shifted_month < 10 ? shifted_month + 3 : shifted_month - 9);
  const std::int64_t year = year_of_era + era * 400 + (month <= 2 ? 1 : 0);
  return date_text(static_cast<std::int32_t>(year), month, day);
}

std::optional<int> small_number(std::string_view digits) {
  int value = 0;
  if (digits.empty() || !std::all_of(digits.begin(), digits.end(), is_digit)) return std::nullopt;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc{} || end != digits.data() + digits.size()) return std::nullopt;
  return value;
}

// bytea in the escape format: \\ and \ooo, everything else as it stands.
KeyResult read_bytea_escape(std::string_view text) {
  std::string bytes;
  for (std::size_t i = 0; i < text.size();) {
    if (text[i] != '\\') {
      bytes += text[i++];
      continue;
    }
    const std::string_view rest = text.substr(i + 1);
    if (rest.starts_with('\\')) {
      bytes += '\\';
      i += 2;
      continue;
    }
    const auto octal = [&](std::size_t at, char top) {
      return rest.size() > at && rest[at] >= '0' && rest[at] <= top;
    };
    if (!octal(0, '3') || !octal(1, '7') || !octal(2, '7')) return Unknown{};
    bytes += static_cast<char>((rest[0] - '0') * 64 + (rest[1] - '0') * 8 + (rest[2] - '0'));
    i += 4;
  }
  return to_hex(bytes);
}

}  // namespace

KeyResult read_int(std::string_view text, int bytes) {
  const auto [negative, digits] = split_sign(trim(text));
  if (digits.empty() || !std::all_of(digits.begin(), digits.end(), is_digit)) return Unknown{};
  std::string canonical = canonical_integer(negative, digits);
  if (!fits(canonical, bytes)) return NoMatch{};
  return canonical;
}

KeyResult read_int_binary(std::string_view bytes) {
  const std::uint64_t raw = big_endian(bytes);
  switch (bytes.size()) {
    case 2:
      return std::to_string(static_cast<std::int16_t>(raw));
    case 4:
      return std::to_string(static_cast<std::int32_t>(raw));
    case 8:
      return std::to_string(static_cast<std::int64_t>(raw));
    default:
      return Unknown{};
  }
}

bool fits(std::string_view digits, int bytes) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc{} || end != digits.data() + digits.size()) return false;
  const std::int64_t limit = bytes == 8 ? INT64_MAX : (std::int64_t{1} << (8 * bytes - 1)) - 1;
  return value <= limit && value >= -limit - 1;
}

std::optional<Number> read_numeric(std::string_view text) {
  const auto [negative, body] = split_sign(trim(text));
  std::string digits;
  long scale = 0;
  std::size_t i = 0;
  for (; i < body.size() && is_digit(body[i]); ++i) digits += body[i];
  if (i < body.size() && body[i] == '.') {
    for (++i; i < body.size() && is_digit(body[i]); ++i, ++scale) digits += body[i];
  }
  if (digits.empty()) return std::nullopt;
  if (i < body.size() && (body[i] == 'e' || body[i] == 'E')) {
    const auto [minus, exponent_digits] = split_sign(body.substr(i + 1));
    const std::optional<int> exponent = small_number(exponent_digits);
    if (!exponent || *exponent > 100000) return std::nullopt;
    scale += minus ? *exponent : -*exponent;
    i = body.size();
  }
  if (i != body.size()) return std::nullopt;
  return make_number(negative, std::move(digits), scale);
}

std::optional<Number> read_numeric_binary(std::string_view bytes) {
  if (bytes.size() < 8) return std::nullopt;
  const auto word = [&](std::size_t at) {
    return static_cast<std::uint16_t>(big_endian(bytes.substr(at, 2)));
  };
  const std::size_t count = word(0);
  const auto weight = static_cast<std::int16_t>(word(2));
  const std::uint16_t sign = word(4);
  const std::uint16_t display_scale = word(6);
  if ((sign != 0 && sign != 0x4000) || bytes.size() != 8 + 2 * count) return std::nullopt;
  if (weight > 300 || weight < -300 || count > 1000 || display_scale > 0x3fff) return std::nullopt;

  std::string digits;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint16_t group = word(8 + 2 * i);
    if (group >= 10000) return std::nullopt;
    digits += padded(group, 4);
  }
  long scale = 4 * (static_cast<long>(count) - 1 - weight);
  // The server drops the digits that the display scale hides.
  const long hidden = scale - display_scale;
  if (hidden > 0) {
    digits.resize(digits.size() > static_cast<std::size_t>(hidden)
                      ? digits.size() - static_cast<std::size_t>(hidden)
                      : 0);
    scale = display_scale;
  }
  return make_number(sign != 0, std::move(digits), scale);
}

KeyResult read_bool(std::string_view text) {
  const std::string word = lower(trim(text));
  if (word.empty()) return Unknown{};
  const auto spells = [&](std::string_view full, std::size_t shortest) {
    return word.size() >= shortest && full.starts_with(word);
  };
  if (spells("true", 1) || spells("yes", 1) || word == "on" || word == "1") return "t";
  if (spells("false", 1) || spells("no", 1) || spells("off", 2) || word == "0") return "f";
  return Unknown{};
}

KeyResult read_uuid(std::string_view text) {
  if (text.starts_with('{')) {
    if (!text.ends_with('}')) return Unknown{};
    text = text.substr(1, text.size() - 2);
  }
  std::string out;
  std::size_t pos = 0;
  for (int byte = 0; byte < 16; ++byte) {
    for (int half = 0; half < 2; ++half, ++pos) {
      if (pos >= text.size() || hex_value(text[pos]) < 0) return Unknown{};
      out += text[pos];
    }
    if (byte == 3 || byte == 5 || byte == 7 || byte == 9) out += '-';
    if (byte % 2 == 1 && byte < 15 && pos < text.size() && text[pos] == '-') ++pos;
  }
  if (pos != text.size()) return Unknown{};
  return lower(out);
}

KeyResult read_uuid_binary(std::string_view bytes) {
  if (bytes.size() != 16) return Unknown{};
  return read_uuid(to_hex(bytes));
}

KeyResult read_bytea(std::string_view text) {
  if (!text.starts_with("\\x")) return read_bytea_escape(text);
  std::string out;
  text.remove_prefix(2);
  for (std::size_t i = 0; i < text.size();) {
    if (text[i] == ' ' || text[i] == '\n' || text[i] == '\t' || text[i] == '\r') {
      ++i;
      continue;
    }
    if (i + 1 >= text.size() || hex_value(text[i]) < 0 || hex_value(text[i + 1]) < 0) {
      return Unknown{};
    }
    out += text.substr(i, 2);
    i += 2;
  }
  return lower(out);
}

KeyResult read_date(std::string_view text) {
  std::string word = lower(trim(text));
  if (word == "infinity" || word == "-infinity") return word;
  bool before_christ = false;
  if (word.ends_with(" bc")) {
    before_christ = true;
    word.resize(word.size() - 3);
  }
  // Only yyyy-mm-dd: its meaning does not depend on DateStyle. A leading zero in a year of more
  // than four digits is left to the server.
  const std::size_t year_end = word.find('-');
  if (year_end == std::string::npos || year_end < 4 || year_end > 6) return Unknown{};
  if (word.size() != year_end + 6 || word[year_end + 3] != '-') return Unknown{};
  if (year_end > 4 && word[0] == '0') return Unknown{};
  const std::string_view view = word;
  const auto year = small_number(view.substr(0, year_end));
  const auto month = small_number(view.substr(year_end + 1, 2));
  const auto day = small_number(view.substr(year_end + 4, 2));
  if (!year || !month || !day || *year == 0 || *month < 1 || *month > 12) return Unknown{};
  const int astronomical = before_christ ? 1 - *year : *year;
  if (*day < 1 || *day > days_in_month(astronomical, *month)) return Unknown{};
  return date_text(astronomical, *month, *day);
}

KeyResult read_date_binary(std::string_view bytes) {
  if (bytes.size() != 4) return Unknown{};
  const auto days = static_cast<std::int32_t>(big_endian(bytes));
  if (days == INT32_MAX) return "infinity";
  if (days == INT32_MIN) return "-infinity";
  return date_of_days(days);
}

std::string to_hex(std::string_view bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string out;
  out.reserve(2 * bytes.size());
  for (const char c : bytes) {
    const auto value = static_cast<unsigned char>(c);
    out += kDigits[value >> 4];
    out += kDigits[value & 15];
  }
  return out;
}

std::string_view strip_blanks(std::string_view text) {
  const auto last = text.find_last_not_of(' ');
  return last == std::string_view::npos ? std::string_view{} : text.substr(0, last + 1);
}

}  // namespace collegedb::routing::input
