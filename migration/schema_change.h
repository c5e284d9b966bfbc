// What a schema change means for the registry: looked at inside the change's own transactions, so
// that a registered table is never without its key, its fence or its like on the other shards.
#pragma once

#include <string>
#include <vector>

#include "migration/cluster.h"
#include "migration/table_catalog.h"
#include "proxy/config.h"
#include "proxy/wire/error.h"

namespace collegedb::migration {

// A registered table as the journal shard had it before the change.
struct KnownTable {
  RegisteredTable table;
  std::string oid;  // empty = did not exist
  std::string key_attnum;
  std::string key_shape;  // type, modifier and collation of the key column
};
[[nodiscard]] std::vector<KnownTable> tables_before(ControlSession& on_journal_shard,
                                                    const std::vector<RegisteredTable>& registry);

struct RegistryChange {
  std::vector<RegisteredTable> upserts;
  std::vector<TableName> removals;
  std::vector<TableName> dropped = {};  // of the removals: tables that are gone, not renamed
};

// Fences new partitions, strides new sequences, completes tables that came into being, follows
// renamed ones. A dropped one is not registered any more, whatever dropped it: another table of
// that name is another table. One that was registered before it existed goes on waiting. REQUIRES:
// the statement has run in the open transaction of every shard. Throws SqlFailure when it must not
// be committed: a key column dropped or of another type, or shards that now differ.
[[nodiscard]] RegistryChange follow_schema_change(const Config& config, Cluster& shards,
                                                  const std::vector<int>& slots,
                                                  const std::vector<KnownTable>& before);

// Writes the change and raises registry_version. REQUIRES: inside a transaction of the journal.
void apply_registry_change(ControlSession& journal, const std::string& scope,
                           const RegistryChange& change);

// 55000 when the columns of one of the tables differ between shards. Tables that exist on no shard
// are passed over.
[[nodiscard]] Result<void> same_shape(Cluster& shards, const std::vector<TableName>& tables);

// Columns of a table as text: what must be equal on all shards. Empty when it does not exist.
[[nodiscard]] std::string table_shape(ControlSession& session, const TableName& table);

// True when keys of these types have one canonical text for one value (int4 and int8 do).
[[nodiscard]] bool compatible_keys(std::string_view a, std::string_view b);

}  // namespace collegedb::migration
