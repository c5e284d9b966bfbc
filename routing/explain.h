// Plan and Route in words: rows of collegedb_explain, and the first line of EXPLAIN. Pure.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "routing/route.h"

namespace collegedb::routing {

// One row of collegedb_explain(sql).
struct Explanation {
  int step = 1;
  std::vector<std::string> shards;   // where it would run; empty when that depends on parameters
  std::string kind;                  // "keyed read", "keyed write", "scatter", "refused", ...
  std::optional<std::string> table;  // main registered table
  std::optional<std::string> key;    // canonical text; several separated by ", "
  std::string reason;
};

// Under mapped placement: the shard of a key by the directory; nullopt when nobody has the key.
using Directory = std::function<Result<std::optional<ShardId>>(const RoutedKey& key)>;

// `directory` may be empty; then mapped keys are on no shard.
[[nodiscard]] Explanation explain(const Plan& plan, std::span<const Parameter> parameters,
                                  const Snapshot& snapshot, const Directory& directory = {});

// "CollegeDB: shard db-west, key users(user-1), via computed"
[[nodiscard]] std::string explain_line(const Plan& plan, const Route& route,
                                       const Snapshot& snapshot);

}  // namespace collegedb::routing
