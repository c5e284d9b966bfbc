#include "proxy/conninfo.h"

#include <libpq-fe.h>
#include <sys/stat.h>

#include <array>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <sstream>

namespace collegedb {
namespace {

std::string or_else(const std::map<std::string, std::string>& keywords, const char* keyword,
                    std::string fallback) {
  const auto found = keywords.find(keyword);
  return found != keywords.end() && !found->second.empty() ? found->second : std::move(fallback);
}

std::string passfile_path(const std::map<std::string, std::string>& keywords) {
  if (const auto given = or_else(keywords, "passfile", {}); !given.empty()) return given;
  if (const char* path = std::getenv("PGPASSFILE")) return path;
  if (const char* home = std::getenv("HOME")) return std::string(home) + "/.pgpass";
  return {};
}

// Splits at unescaped colons and removes the escapes.
std::array<std::string, 5> split_passfile_line(std::string_view line) {
  std::array<std::string, 5> fields;
  std::size_t field = 0;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '\\' && i + 1 < line.size()) {
      fields[field] += line[++i];
    } else if (line[i] == ':' && field < 4) {
      ++field;
    } else {
      fields[field] += line[i];
    }
  }
  return fields;
}

}  // namespace

Result<std::map<std::string, std::string>> parse_conninfo(const std::string& text) {
  char* message = nullptr;
  const std::unique_ptr<PQconninfoOption, decltype(&PQconninfoFree)> options(
      PQconninfoParse(text.c_str(), &message), PQconninfoFree);
  if (!options) {
    std::string reason = message ? message : "out of memory";
    PQfreemem(message);
    while (reason.ends_with('\n')) reason.pop_back();
    return make_error("22023", reason);
  }
  std::map<std::string, std::string> keywords;
  for (const auto* option = options.get(); option->keyword; ++option) {
    if (option->val) keywords.emplace(option->keyword, option->val);
  }
  return keywords;
}

std::string conninfo_pair(std::string_view key, std::string_view value) {
  std::string result = std::string(key) + "='";
  for (const char c : value) {
    if (c == '\'' || c == '\\') result += '\\';
    result += c;
  }
  return result + "'";
}

std::string make_conninfo(const std::map<std::string, std::string>& keywords) {
  std::string result;
  for (const auto& [key, value] : keywords) {
    if (!result.empty()) result += ' ';
    result += conninfo_pair(key, value);
  }
  return result;
}

std::optional<std::string> find_in_passfile(std::string_view contents, std::string_view host,
                                            std::string_view port, std::string_view database,
                                            std::string_view user) {
  const std::array<std::string_view, 4> wanted = {host, port, database, user};
  while (!contents.empty()) {
    const auto end = contents.find('\n');
    auto line = contents.substr(0, end);
    contents.remove_prefix(end == std::string_view::npos ? contents.size() : end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || line.starts_with('#')) continue;
    const auto fields = split_passfile_line(line);
    bool fits = true;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      fits = fits && (fields[i] == "*" || fields[i] == wanted[i]);
    }
    if (fits) return fields[4];
  }
  return std::nullopt;
}

void add_passfile_password(std::map<std::string, std::string>& keywords) {
  if (keywords.contains("password")) return;
  const auto path = passfile_path(keywords);
  struct stat info{};
  if (path.empty() || ::stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode) ||
      (info.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    return;
  }
  std::ostringstream contents;
  contents << std::ifstream(path).rdbuf();
  auto host = or_else(keywords, "host", or_else(keywords, "hostaddr", "localhost"));
  if (host.starts_with('/')) host = "localhost";
  const auto user = or_else(keywords, "user", "");
  auto password = find_in_passfile(contents.str(), host, or_else(keywords, "port", "5432"),
                                   or_else(keywords, "dbname", user), user);
  if (password) keywords.emplace("password", std::move(*password));
}

}  // namespace collegedb
