#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "proxy/session/login.h"

namespace collegedb::session {
namespace {

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

std::string lower_case(std::string_view text) {
  std::string result(text);
  std::ranges::transform(result, result.begin(), lower);
  return result;
}

// Encoding names compare without case and punctuation, as pg_char_to_encoding does.
std::string squeezed(std::string_view text) {
  std::string result;
  for (const char c : text) {
    const char l = lower(c);
    if ((l >= 'a' && l <= 'z') || (l >= '0' && l <= '9')) result.push_back(l);
  }
  return result;
}

struct Encoding {
  std::string_view squeezed;
  std::string_view name;
};
constexpr std::array<Encoding, 30> kEncodings = {{
    {"utf8", "UTF8"},           {"unicode", "UTF8"},    {"sqlascii", "SQL_ASCII"},
    {"latin1", "LATIN1"},       {"iso88591", "LATIN1"}, {"latin2", "LATIN2"},
    {"iso88592", "LATIN2"},     {"latin3", "LATIN3"},   {"latin4", "LATIN4"},
    {"latin5", "LATIN5"},       {"iso88599", "LATIN5"}, {"latin9", "LATIN9"},
    {"iso885915", "LATIN9"},    {"latin10", "LATIN10"}, {"win1250", "WIN1250"},
    {"windows1250", "WIN1250"}, {"win1251", "WIN1251"}, {"windows1251", "WIN1251"},
    {"win", "WIN1251"},         {"win1252", "WIN1252"}, {"windows1252", "WIN1252"},
    {"win1254", "WIN1254"},     {"koi8r", "KOI8R"},     {"koi8u", "KOI8U"},
    {"eucjp", "EUC_JP"},        {"euckr", "EUC_KR"},    {"euccn", "EUC_CN"},
    {"sjis", "SJIS"},           {"big5", "BIG5"},       {"gbk", "GBK"},
}};

std::string encoding_name(std::string_view asked) {
  const std::string key = squeezed(asked);
  const auto* found = std::ranges::find(kEncodings, std::string_view(key), &Encoding::squeezed);
  return found == kEncodings.end() ? std::string(asked) : std::string(found->name);
}

// "style, order": each word of the request replaces one of the two.
std::string date_style(std::string_view asked, std::string_view server_value) {
  const std::size_t comma = server_value.find(", ");
  std::string style(comma == std::string_view::npos ? "ISO" : server_value.substr(0, comma));
  std::string order(comma == std::string_view::npos ? "MDY" : server_value.substr(comma + 2));
  std::size_t at = 0;
  while (at < asked.size()) {
    const std::size_t end = std::min(asked.find_first_of(", ", at), asked.size());
    const std::string word = lower_case(asked.substr(at, end - at));
    if (word == "iso")
      style = "ISO";
    else if (word == "sql")
      style = "SQL";
    else if (word.starts_with("postgres"))
      style = "Postgres";
    else if (word == "german")
      style = "German", order = "DMY";
    else if (word == "ymd")
      order = "YMD";
    else if (word == "dmy" || word.starts_with("euro"))
      order = "DMY";
    else if (word == "mdy" || word == "us" || word.starts_with("noneuro"))
      order = "MDY";
    at = end + 1;
  }
  return style + ", " + order;
}

std::string boolean(std::string_view asked) {
  const std::string word = lower_case(asked);
  const bool on = word == "on" || word == "1" || std::string_view("true").starts_with(word) ||
                  std::string_view("yes").starts_with(word);
  return on && !word.empty() ? "on" : "off";
}

}  // namespace

std::string reported_form(std::string_view name, std::string_view asked,
                          std::string_view server_value) {
  const std::string key = lower_case(name);
  if (key == "client_encoding") return encoding_name(asked);
  if (key == "datestyle") return date_style(asked, server_value);
  if (key == "intervalstyle") return lower_case(asked);
  if (key == "default_transaction_read_only" || key == "standard_conforming_strings") {
    return boolean(asked);
  }
  return std::string(asked);
}

}  // namespace collegedb::session
