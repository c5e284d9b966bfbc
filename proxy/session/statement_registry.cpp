#include "proxy/session/statement_registry.h"

namespace collegedb::session {
namespace {

// Above this the ids are given out anew; names are never reused, so that server connections that
// still carry old ones stay right.
constexpr std::size_t kMaxStatements = 50000;

void append_part(std::string& out, std::string_view part) {
  out += std::to_string(part.size());
  out += ':';
  out += part;
}

}  // namespace

std::uint32_t StatementRegistry::id_of(std::string_view text, std::span<const std::uint32_t> types,
                                       std::string_view search_path, std::string_view role) {
  std::string key;
  key.reserve(text.size() + search_path.size() + role.size() + types.size() * 4 + 24);
  append_part(key, text);
  append_part(key, search_path);
  append_part(key, role);
  for (const std::uint32_t type : types) {
    key.append(reinterpret_cast<const char*>(&type), sizeof type);
  }
  if (const auto found = ids_.find(key); found != ids_.end()) {
    return found->second;
  }
  if (ids_.size() >= kMaxStatements) {
    ids_.clear();
  }
  ids_.emplace(std::move(key), next_);
  return next_++;
}

void StatementRegistry::forget(std::uint32_t id) {
  boost::unordered::erase_if(ids_, [id](const auto& entry) { return entry.second == id; });
}

std::string StatementRegistry::name_of(std::uint32_t id) {
  return "collegedb_" + std::to_string(id);
}

}  // namespace collegedb::session
