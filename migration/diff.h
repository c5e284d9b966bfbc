// collegedb_diff: where two sets of rows that should be equal are not. Reads only. Background
// threads only.
//
// Rows are compared as text, every value by itself, in a tree of hashes over a hash of the primary
// key (of the whole row, without one): 256 ranges, those that differ in 256 more, and of those that
// still differ the rows, side by side in the order of their hash. So neither memory nor what goes
// over the wire depends on the size of the table, only on how much of it differs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "migration/control_session.h"
#include "migration/runner.h"
#include "proxy/wire/error.h"

namespace collegedb::migration {

struct DiffRow {
  std::string
      path;  // "schema.table/3f/a2 [\"7\"]": range, and the primary keys of up to three rows
  std::string shard_a;
  std::string shard_b;
  std::int64_t rows_differing = 0;  // changed, or on one side alone
};

inline constexpr std::size_t kMaxDiffRanges = 1000;

// A reference table: each shard against the journal shard, as all of them were at one moment.
// Writers of the table wait while that moment is fixed. No row: equal everywhere. More than
// kMaxDiffRanges ranges of a pair of shards are told as the 256 larger ones. `name_rows`: paths
// name primary keys.
[[nodiscard]] Result<std::vector<DiffRow>> diff_reference(const RunnerOptions& options,
                                                          const std::string& schema,
                                                          const std::string& table, bool name_rows);

// All tables of the group: the rows of a key, on the shard that has them (shard_a), against those
// in the newest archive of the key (shard_b), which shows what was written since that move. 55000
// when no archive is left. `key` is canonical.
[[nodiscard]] Result<std::vector<DiffRow>> diff_key(const RunnerOptions& options,
                                                    const std::string& group,
                                                    const std::string& key, bool name_rows);

// ---- For tests: the comparison itself -----------------------------------------------------------

// Rows as a query with columns id and t, both text.
struct DiffSide {
  ControlSession* session = nullptr;  // in a transaction
  std::string rows;
};
[[nodiscard]] std::vector<DiffRow> compare(const DiffSide& a, const DiffSide& b,
                                           std::string_view label, bool name_rows);

}  // namespace collegedb::migration
