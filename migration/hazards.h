// What a sharded table asks of its servers that no server can do alone.
#pragma once

#include <string>
#include <vector>

#include "migration/table_catalog.h"

namespace collegedb::migration {

// One sentence each: unique indexes and exclusion constraints without the key, triggers and rules
// of the user, foreign keys whose other side may be on another shard. `registry` has the table.
// Without `unregistered_too` a table that references it and is not registered is passed over: it
// may be about to be.
[[nodiscard]] std::vector<std::string> hazards(ControlSession& session,
                                               const RegisteredTable& table,
                                               const std::vector<RegisteredTable>& registry,
                                               bool unregistered_too);

}  // namespace collegedb::migration
