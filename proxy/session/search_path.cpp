#include "proxy/session/search_path.h"

#include <cctype>

namespace collegedb::session {
namespace {

bool is_space(char c) {
  return std::isspace(static_cast<unsigned char>(c)) != 0;
}

std::string take_quoted(std::string_view& text) {
  std::string name;
  text.remove_prefix(1);
  while (!text.empty()) {
    if (text.front() == '"') {
      text.remove_prefix(1);
      if (text.empty() || text.front() != '"') {
        break;
      }
    }
    name += text.front();
    text.remove_prefix(1);
  }
  return name;
}

std::string take_plain(std::string_view& text) {
  std::string name;
  while (!text.empty() && text.front() != ',' && !is_space(text.front())) {
    name += static_cast<char>(std::tolower(static_cast<unsigned char>(text.front())));
    text.remove_prefix(1);
  }
  return name;
}

}  // namespace

std::vector<std::string> split_search_path(std::string_view text, std::string_view user) {
  std::vector<std::string> schemas;
  while (!text.empty()) {
    if (is_space(text.front()) || text.front() == ',') {
      text.remove_prefix(1);
      continue;
    }
    std::string name = text.front() == '"' ? take_quoted(text) : take_plain(text);
    if (name == "$user") {
      name = user;
    }
    if (!name.empty()) {
      schemas.push_back(std::move(name));
    }
  }
  return schemas;
}

}  // namespace collegedb::session
