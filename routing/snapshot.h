// What a proxy knows of the cluster at one instant: an immutable value, shared by pointer.
// Built by store/snapshot_reader from one REPEATABLE READ read of the journal shard; pure itself.
#pragma once

#include <boost/unordered/unordered_flat_map.hpp>
#include <boost/unordered/unordered_flat_set.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "parser/statement.h"
#include "routing/key.h"

namespace collegedb::routing {

using ShardId = std::uint16_t;  // index into Snapshot::shards
inline constexpr ShardId kNoShard = 0xffff;

// What decides where a key lives: the epochs, or its row in collegedb.mappings. Of the cluster.
enum class Placement : std::uint8_t { kComputed, kMapped };

enum class Algorithm : std::uint8_t { kHrw, kModulo };
enum class EpochState : std::uint8_t { kPublishing, kActive };

struct Epoch {
  std::int32_t id = 0;
  Algorithm algorithm = Algorithm::kHrw;
  EpochState state = EpochState::kActive;
  std::vector<ShardId> shards;  // declared order (modulo depends on it)
  std::vector<double> weights;  // hrw only; empty = all 1
};

enum class TableKind : std::uint8_t { kSharded, kReference, kLocal };

struct ColumnInfo {
  std::string name;
  std::uint32_t type_oid = 0;      // on the journal shard
  std::string default_expression;  // pg_get_expr text; empty = none
  bool generated = false;          // GENERATED ALWAYS AS (...) STORED
  bool identity = false;
};

struct TableInfo {
  parser::QualifiedName name;  // schema always set
  TableKind kind = TableKind::kLocal;
  std::string group;       // colocation group: qualified name of its root table
  std::string key_column;  // kSharded
  KeyType key_type = KeyType::kText;
  std::vector<ColumnInfo> columns;  // attnum order, dropped ones left out
  // Other triggers than collegedb's own, or defaults, constraints, types or indexes that call code
  // the proxy does not know: the insert fence stays on.
  bool user_triggers = false;
};

struct NameHash {
  std::size_t operator()(const parser::QualifiedName& name) const noexcept;
};
using NameSet = boost::unordered_flat_set<parser::QualifiedName, NameHash>;
using WordSet = boost::unordered_flat_set<std::string>;

// What runs code the proxy does not know without being a visible call: "code" is a function of a
// user in a language other than internal and C, or a built-in one that runs SQL text or depends on
// the server session. Names of operators, types and attributes are without schema: each counts
// whatever the search_path, overloaded or not.
struct HiddenCode {
  WordSet operators;
  WordSet types;       // naming one may convert a value to it, or compare it
  WordSet attributes;  // functions of one argument: x.f means f(x) where x has no column f
  // Columns named like one of `attributes`: there the column is meant.
  struct Column {
    parser::QualifiedName relation;
    std::string name;
  };
  std::vector<Column> columns;
  NameSet read;     // views, policies, ...: reading the relation runs code
  NameSet written;  // triggers, rules, defaults, constraints, ...: writing it does
  // A cast between built-in types calls code wherever the server finds it fit.
  bool casts = false;
};

// One exception of the directory: this key of this group lives on `shard`.
struct GroupKey {
  std::string group;
  std::string key;  // canonical text
  friend bool operator==(const GroupKey&, const GroupKey&) = default;
};
// The same borrowed, for look-ups that need no copy.
struct GroupKeyView {
  std::string_view group;
  std::string_view key;
};
struct GroupKeyHash {
  using is_transparent = void;
  std::size_t operator()(const GroupKey& value) const noexcept;
  std::size_t operator()(const GroupKeyView& value) const noexcept;
};
struct GroupKeyEqual {
  using is_transparent = void;
  template <class A, class B>
  bool operator()(const A& a, const B& b) const noexcept {
    return std::string_view(a.key) == std::string_view(b.key) &&
           std::string_view(a.group) == std::string_view(b.group);
  }
};
using ExceptionMap = boost::unordered_flat_map<GroupKey, ShardId, GroupKeyHash, GroupKeyEqual>;

struct Shard {
  std::string name;
  // False: configured, but not added to the cluster (yet, or any more): it has no keys and perhaps
  // no tables.
  bool member = true;
};

// A registered table that is not what it was registered as. It is also among the tables and the
// dependent relations: statements that name it are refused, and no look for rows passes over it.
struct BrokenTable {
  parser::QualifiedName name;
  std::string reason;
  friend bool operator==(const BrokenTable&, const BrokenTable&) = default;
};

struct Snapshot {
  // Order of this value among all that one process has loaded; strictly increasing.
  std::uint64_t version = 0;
  std::string scope = "default";
  std::int64_t revision = 0;
  std::int64_t generation = 0;  // every write is bound to it
  Placement placement = Placement::kComputed;
  std::vector<Shard> shards;  // all that are configured, in configuration order
  ShardId journal_shard = 0;
  std::vector<Epoch> epochs;  // newest first, at least one
  std::vector<TableInfo> tables;
  std::shared_ptr<const ExceptionMap> exceptions;
  std::int64_t registry_version =
      0;  // changes with tables, columns or functions: plans depend on it
  // Unregistered relations that show rows of a sharded or reference table: views and materialized
  // views over them (through any number of views), partitions, inheritance children and parents.
  // The journal shard holds only part of such rows, so statements that name one are refused.
  std::vector<parser::QualifiedName> dependent_relations;
  HiddenCode hidden;
  // Every relation that bears the name of a relation in `tables`, dependent_relations or `hidden`,
  // and all of pg_catalog: what a name means along the search_path.
  NameSet homonyms;
  std::vector<BrokenTable> broken_tables;
  // Names in pg_catalog: a call of anything else is opaque to routing. A name that some other
  // schema overloads in a language other than C is left out, since the call may resolve there.
  boost::unordered_flat_set<std::string> builtin_functions;
  // Of these, the volatile ones and those that change session state are in routing/functions.h.

  // The name with the schema PostgreSQL finds it in: pg_catalog first unless `search_path` (schemas
  // in order; "$user" must already be replaced) lists it, then the first schema with a relation of
  // that name, registered or not. Unchanged when it has a schema, or when no relation is known.
  [[nodiscard]] parser::QualifiedName resolve(const parser::QualifiedName& name,
                                              const std::vector<std::string>& search_path) const;
  // nullptr when resolve(name) is no registered table.
  [[nodiscard]] const TableInfo* find_table(const parser::QualifiedName& name,
                                            const std::vector<std::string>& search_path) const;
  // The first of broken_tables that `name` may mean, whatever the search path; nullptr = none.
  [[nodiscard]] const BrokenTable* find_broken(const parser::QualifiedName& name) const;
  // True when `name` means one of dependent_relations (by the same rules).
  [[nodiscard]] bool is_dependent(const parser::QualifiedName& name,
                                  const std::vector<std::string>& search_path) const;
  [[nodiscard]] std::optional<ShardId> find_shard(std::string_view name) const;
  // The shards that belong to the cluster, in configuration order.
  [[nodiscard]] std::vector<ShardId> members() const;
  [[nodiscard]] bool has_sharded_tables() const;
  // Distinct colocation groups, sorted.
  [[nodiscard]] std::vector<std::string> groups() const;
};

}  // namespace collegedb::routing
