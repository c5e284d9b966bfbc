#include "proxy/admin/key_space.h"

#include <optional>

#include "parser/statement.h"

namespace collegedb::admin {
namespace {

// `users`, `app.users`, `"Users"`; folded as SQL folds names.
std::optional<parser::QualifiedName> parse_name(std::string_view text) {
  std::vector<std::string> parts(1);
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c != '"') {
        parts.back() += c;
      } else if (i + 1 < text.size() && text[i + 1] == '"') {
        parts.back() += text[++i];
      } else {
        quoted = false;
      }
    } else if (c == '"') {
      quoted = true;
    } else if (c == '.') {
      parts.emplace_back();
    } else {
      parts.back() += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    }
  }
  if (quoted || parts.size() > 2 || parts.back().empty() || parts.front().empty()) {
    return std::nullopt;
  }
  return parser::QualifiedName{parts.size() == 2 ? parts[0] : "", parts.back()};
}

std::string joined(const std::vector<std::string>& items) {
  std::string out;
  for (const std::string& item : items) {
    out += (out.empty() ? "" : ", ") + item;
  }
  return out;
}

struct Space {
  std::string group;
  routing::KeyType key_type = routing::KeyType::kText;
};

Result<Space> space_of(const routing::Snapshot& snapshot, const routing::TableInfo* table,
                       std::string_view what) {
  if (table == nullptr || table->kind != routing::TableKind::kSharded) {
    return make_error(ErrorCode::kUnknownTable, std::string(what) + " is not a sharded table",
                      snapshot.groups().empty()
                          ? "No table is sharded yet: see collegedb_shard_table."
                          : "Sharded: " + joined(snapshot.groups()) + ".");
  }
  return Space{table->group, table->key_type};
}

// The named table's key space; without a name the only one there is.
Result<Space> key_space(const routing::Snapshot& snapshot, const std::optional<std::string>& table,
                        const std::vector<std::string>& search_path) {
  if (table) {
    const auto name = parse_name(*table);
    if (!name) {
      return make_error("42602", "invalid table name: \"" + *table + "\"");
    }
    std::vector<std::string> path = search_path;
    path.emplace_back("public");
    return space_of(snapshot, snapshot.find_table(*name, path), "\"" + *table + "\"");
  }
  const std::vector<std::string> groups = snapshot.groups();
  if (groups.size() > 1) {
    return make_error("42725", "there are several colocation groups: " + joined(groups),
                      "Name a table of the one that is meant.");
  }
  for (const routing::TableInfo& each : snapshot.tables) {
    if (each.kind == routing::TableKind::kSharded) {
      return Space{each.group, each.key_type};
    }
  }
  return space_of(snapshot, nullptr, "there");
}

}  // namespace

Result<routing::GroupKey> key_meant(const routing::Snapshot& snapshot, const std::string& key,
                                    const std::optional<std::string>& table,
                                    const std::vector<std::string>& search_path) {
  auto space = key_space(snapshot, table, search_path);
  if (space.has_error()) {
    return space.error();
  }
  auto canonical = routing::canonical_key_from_text(space->key_type, key);
  if (canonical.has_error()) {
    return canonical.error();
  }
  return routing::GroupKey{std::move(space->group), *std::move(canonical)};
}

Result<std::string> group_meant(const routing::Snapshot& snapshot,
                                const std::optional<std::string>& table,
                                const std::vector<std::string>& search_path) {
  auto space = key_space(snapshot, table, search_path);
  if (space.has_error()) {
    return space.error();
  }
  return std::move(space->group);
}

}  // namespace collegedb::admin
