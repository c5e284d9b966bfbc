#include "routing/snapshot.h"

#include <algorithm>

#include "routing/hash.h"

namespace collegedb::routing {
namespace {

bool equal(const parser::QualifiedName& name, std::string_view schema, std::string_view relation) {
  return name.name == relation && name.schema == schema;
}

}  // namespace

std::size_t GroupKeyHash::operator()(const GroupKeyView& value) const noexcept {
  return hash_bytes_extended(value.key, value.group.size());
}

std::size_t GroupKeyHash::operator()(const GroupKey& value) const noexcept {
  return (*this)(GroupKeyView{value.group, value.key});
}

const TableInfo* Snapshot::find_table(const parser::QualifiedName& name,
                                      const std::vector<std::string>& search_path) const {
  const auto in_schema = [&](std::string_view schema) -> const TableInfo* {
    const auto found = std::find_if(tables.begin(), tables.end(), [&](const TableInfo& table) {
      return equal(table.name, schema, name.name);
    });
    return found == tables.end() ? nullptr : &*found;
  };
  if (!name.schema.empty()) return in_schema(name.schema);
  for (const std::string& schema : search_path) {
    if (const TableInfo* table = in_schema(schema)) return table;
  }
  return nullptr;
}

bool Snapshot::is_dependent(const parser::QualifiedName& name,
                            const std::vector<std::string>& search_path) const {
  const auto in_schema = [&](std::string_view schema) {
    return std::any_of(dependent_relations.begin(), dependent_relations.end(),
                       [&](const auto& relation) { return equal(relation, schema, name.name); });
  };
  if (dependent_relations.empty()) return false;
  if (!name.schema.empty()) return in_schema(name.schema);
  for (const std::string& schema : search_path) {
    if (in_schema(schema)) return true;
    if (find_table({schema, name.name}, {}) != nullptr) return false;
  }
  return false;
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
