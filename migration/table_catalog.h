// What the control plane asks a shard's system catalogs about a table, and the insert fence.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "migration/control_session.h"
#include "proxy/wire/error.h"
#include "routing/key.h"

namespace collegedb::migration {

struct TableName {
  std::string schema;
  std::string name;
  std::string qualified;  // as SQL wants it: quoted where needed ("public.users")
  friend bool operator==(const TableName&, const TableName&) = default;
};

// One row of collegedb.tables.
struct RegisteredTable {
  TableName name;
  std::string kind;   // sharded, reference, local
  std::string group;  // sharded only, as the three below
  std::string key_column;
  std::string key_type;  // empty while the table does not exist yet
  std::string key_expression;
};

// Splits `users`, `app.users`, `"App"."Users"` as SQL does. The schema stays empty when the text
// has none. Throws SqlFailure for what is no name.
[[nodiscard]] TableName parse_table_name(ControlSession& session, std::string_view text);

// The table of that name on this shard; an empty schema is looked up along `search_path`, then in
// public. nullopt when there is none. Throws 42809 when it is no table.
[[nodiscard]] std::optional<TableName> find_table(ControlSession& session, const TableName& name,
                                                  const std::vector<std::string>& search_path);

struct KeyColumn {
  routing::KeyType type = routing::KeyType::kText;
  std::string expression;  // routing::sql_key_expression of the column
  bool computed = false;   // GENERATED ALWAYS AS (...): no INSERT can give it
};

// The key column of an existing table. Errors: 42703 no such column, 0A000 a type or collation
// that cannot be a key.
[[nodiscard]] Result<KeyColumn> describe_key(ControlSession& session, const TableName& table,
                                             std::string_view column);

// describe_key for a table that is being registered: 0A000 also for a computed column.
[[nodiscard]] Result<KeyColumn> describe_new_key(ControlSession& session, const TableName& table,
                                                 std::string_view column);

// Without the tables that exist here and whose key column is not what was registered.
[[nodiscard]] std::vector<RegisteredTable> sound_tables(ControlSession& session,
                                                        std::vector<RegisteredTable> tables);

// Installs the insert fence where one of the sharded tables, or a partition of it, lacks it or has
// another one. Tables that do not exist here are passed over. Returns how many relations were
// changed; takes no lock when that is 0.
int ensure_fences(ControlSession& session, std::string_view scope,
                  std::span<const RegisteredTable> tables);
// True when the table exists here with all its fences, or not at all.
[[nodiscard]] bool is_fenced(ControlSession& session, std::string_view scope,
                             const RegisteredTable& table);
// Removes it from the table and its partitions.
void drop_fence(ControlSession& session, const TableName& table);

// Registered tables of the scope, sorted by name.
[[nodiscard]] std::vector<RegisteredTable> read_registry(ControlSession& journal,
                                                         std::string_view scope);

}  // namespace collegedb::migration
