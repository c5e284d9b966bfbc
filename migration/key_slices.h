// All keys of a group on one shard, cut into ranges of gate buckets that a server can sort at once.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "migration/control_session.h"
#include "migration/table_catalog.h"

namespace collegedb::migration {

// SQL expression of the gate bucket of a key; same as collegedb.bucket(), which is too slow for
// millions of calls.
[[nodiscard]] std::string bucket_sql(const std::string& group, const std::string& key);

// Of `tables` those that exist on this shard. Throws SqlFailure.
[[nodiscard]] std::vector<RegisteredTable> present_tables(ControlSession& session,
                                                          std::vector<RegisteredTable> tables);

// How many buckets one look at the tables may hold, by what the planner thinks of their size here.
// Throws SqlFailure.
[[nodiscard]] std::int32_t slice_width(ControlSession& session,
                                       const std::vector<RegisteredTable>& tables);

// SQL: columns k (COLLATE "C") and b, the distinct keys with rows in `tables` in buckets `first` to
// `last`. REQUIRES: there is a table.
[[nodiscard]] std::string distinct_keys_sql(const std::string& group,
                                            const std::vector<RegisteredTable>& tables,
                                            std::int32_t first, std::int32_t last);

}  // namespace collegedb::migration
