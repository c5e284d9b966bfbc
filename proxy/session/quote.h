// SQL text the proxy writes: quoted so that it reads the same whatever standard_conforming_strings
// says. Pure.
#pragma once

#include <string>
#include <string_view>

namespace collegedb::session {

// 'text', or E'text' when it holds a backslash. NUL bytes cannot occur: the wire forbids them.
[[nodiscard]] inline std::string quote_literal(std::string_view text) {
  const bool escape = text.find('\\') != std::string_view::npos;
  std::string out = escape ? " E'" : "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') {
      out += c;
    }
    out += c;
  }
  out += '\'';
  return out;
}

// "name" or "class"."name" for custom GUCs.
[[nodiscard]] inline std::string quote_identifier_path(std::string_view name) {
  std::string out = "\"";
  for (const char c : name) {
    if (c == '.') {
      out += "\".\"";
    } else {
      if (c == '"') {
        out += '"';
      }
      out += c;
    }
  }
  out += '"';
  return out;
}

}  // namespace collegedb::session
