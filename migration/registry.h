// The registry of tables: what collegedb_shard_table and its sisters change, always on all shards
// at once and under locks that keep writers of the table away meanwhile. Background threads only.
#pragma once

#include <string>
#include <vector>

#include "migration/table_catalog.h"
#include "proxy/config.h"
#include "proxy/wire/error.h"

namespace collegedb::migration {

struct TableRequest {
  std::string table;
  std::string key = "id";
  std::string colocate_with = {};             // empty = a group of its own
  std::vector<std::string> search_path = {};  // for names without a schema; public comes last
  // A table that exists nowhere yet is registered for the day it is created.
  bool may_be_missing = false;
};

// Splits rows by `key`. Rows that are already there must have one shard per key; a key that is not
// on its computed owner gets an exception. A repeated call is a no-op. Errors are values; nothing
// has changed then.
[[nodiscard]] Result<RegisteredTable> shard_table(const Config& config,
                                                  const TableRequest& request);
// Same rows on every shard: refused unless they are so already.
[[nodiscard]] Result<RegisteredTable> reference_table(const Config& config,
                                                      const TableRequest& request);
// Whole on the journal shard: refused while another shard has rows that would be lost from sight.
[[nodiscard]] Result<RegisteredTable> local_table(const Config& config,
                                                  const TableRequest& request);

// Completes tables that were registered before they existed and have been created without the
// proxy. Throws SqlFailure.
void complete_tables(const Config& config);

// Completes tables that were registered before they existed, and repairs insert fences and the
// stride of sequences on all shards. Throws SqlFailure.
void resolve_tables(const Config& config);

// Waits until every live proxy routes by this registry version or a later one; a proxy that does
// not answer is not waited for long.
void await_proxies(ControlSession& journal, const std::string& scope,
                   std::int64_t registry_version);

}  // namespace collegedb::migration
