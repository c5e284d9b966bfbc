#include "proxy/session/settings_policy.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string>

namespace collegedb::session {
namespace {

// Client encodings in which a byte of a multi-byte character can be a quote or a backslash
// (PostgreSQL documentation, "Character Set Support": those that are client-only).
constexpr std::array<std::string_view, 9> kUnsafeEncodings = {
    "big5", "gb18030", "gbk", "johab", "sjis", "shiftjis", "mskanji", "shiftjis2004", "uhc"};

// PostgreSQL compares encoding names by their letters and digits only.
std::string plain(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) {
      out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
  }
  return out;
}

bool is_off(std::string_view value) {
  const std::string word = plain(value);
  return word == "off" || word == "of" || word == "0" ||
         (!word.empty() && (std::string_view("false").starts_with(word) ||
                            std::string_view("no").starts_with(word)));
}

}  // namespace

bool is_utf8(std::string_view client_encoding) {
  const std::string name = plain(client_encoding);
  // A server takes SQL_ASCII as it comes, and checks that it is UTF8.
  return name.empty() || name == "utf8" || name == "unicode" || name == "sqlascii";
}

std::optional<SqlError> refused_setting(std::string_view name, std::string_view value) {
  if (name.starts_with("collegedb.")) {
    return make_error("0A000", "routing hints (" + std::string(name) + ") are not supported yet",
                      "Restrict the statement to one key instead.");
  }
  if (name.starts_with("transaction_") || name == "seed") {
    // Of one transaction, or of one server session: it cannot be put in force on another one.
    return make_error("0A000", "SET " + std::string(name) + " is not supported through the proxy",
                      "Use SET TRANSACTION, or give the value to the statement itself.");
  }
  if (name == "session_authorization") {
    return make_error("0A000", "SET SESSION AUTHORIZATION is not supported through the proxy",
                      "Connect as that user, or use SET ROLE.");
  }
  if (name == "standard_conforming_strings" && is_off(value)) {
    return make_error("0A000", "standard_conforming_strings = off is not supported by the proxy",
                      "Write E'...' where backslashes are meant as escapes.");
  }
  if (name == "client_encoding") {
    const std::string encoding = plain(value);
    if (std::ranges::find(kUnsafeEncodings, encoding) != kUnsafeEncodings.end()) {
      return make_error("0A000",
                        "client_encoding " + std::string(value) + " is not supported by the proxy",
                        "Use UTF8.");
    }
  }
  return std::nullopt;
}

}  // namespace collegedb::session
