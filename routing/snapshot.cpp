#include "routing/snapshot.h"

#include <algorithm>

#include "routing/hash.h"

namespace collegedb::routing {
namespace {

constexpr std::string_view kCatalog = "pg_catalog";

}  // namespace

std::size_t GroupKeyHash::operator()(const GroupKeyView& value) const noexcept {
  return hash_bytes_extended(value.key, value.group.size());
}

std::size_t GroupKeyHash::operator()(const GroupKey& value) const noexcept {
  return (*this)(GroupKeyView{value.group, value.key});
}

std::size_t NameHash::operator()(const parser::QualifiedName& name) const noexcept {
  return hash_bytes_extended(name.name, hash_bytes_extended(name.schema, 0));
}

parser::QualifiedName Snapshot::resolve(const parser::QualifiedName& name,
                                        const std::vector<std::string>& search_path) const {
  if (!name.schema.empty()) return name;
  const auto exists = [&](const parser::QualifiedName& candidate) {
    const auto same = [&](const parser::QualifiedName& other) { return other == candidate; };
    return homonyms.contains(candidate) || std::ranges::any_of(tables, same, &TableInfo::name) ||
           std::ranges::any_of(dependent_relations, same) || hidden.read.contains(candidate) ||
           hidden.written.contains(candidate);
  };
  parser::QualifiedName candidate{std::string(kCatalog), name.name};
  if (std::ranges::find(search_path, kCatalog) == search_path.end() && exists(candidate)) {
    return candidate;
  }
  for (const std::string& schema : search_path) {
    candidate.schema = schema;
    if (exists(candidate)) return candidate;
  }
  return name;
}

const TableInfo* Snapshot::find_table(const parser::QualifiedName& name,
                                      const std::vector<std::string>& search_path) const {
  const parser::QualifiedName resolved = resolve(name, search_path);
  const auto found = std::ranges::find(tables, resolved, &TableInfo::name);
  return found == tables.end() ? nullptr : &*found;
}

const BrokenTable* Snapshot::find_broken(const parser::QualifiedName& name) const {
  const auto found =
      std::find_if(broken_tables.begin(), broken_tables.end(), [&](const BrokenTable& table) {
        return table.name.name == name.name &&
               (name.schema.empty() || name.schema == table.name.schema);
      });
  return found == broken_tables.end() ? nullptr : &*found;
}

bool Snapshot::is_dependent(const parser::QualifiedName& name,
                            const std::vector<std::string>& search_path) const {
  return !dependent_relations.empty() &&
         std::ranges::find(dependent_relations, resolve(name, search_path)) !=
             dependent_relations.end();
}

std::optional<ShardId> Snapshot::find_shard(std::string_view name) const {
  for (std::size_t i = 0; i < shards.size(); ++i) {
    if (shards[i].name == name) return static_cast<ShardId>(i);
  }
  return std::nullopt;
}

std::vector<ShardId> Snapshot::members() const {
  std::vector<ShardId> out;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    if (shards[i].member) out.push_back(static_cast<ShardId>(i));
  }
  return out;
}

bool Snapshot::has_sharded_tables() const {
  return std::any_of(tables.begin(), tables.end(),
                     [](const TableInfo& table) { return table.kind == TableKind::kSharded; });
}

std::vector<std::string> Snapshot::groups() const {
  std::vector<std::string> out;
  for (const TableInfo& table : tables) {
    if (table.kind == TableKind::kSharded) out.push_back(table.group);
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

}  // namespace collegedb::routing
