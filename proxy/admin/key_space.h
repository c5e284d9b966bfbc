// Which key an operator means: one reading of names and keys for every admin function. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "proxy/wire/error.h"
#include "routing/snapshot.h"

namespace collegedb::admin {

// `table` is any table of the colocation group, read as SQL reads a name: folded unless quoted,
// looked up along `search_path` and then in public. Without one there must be a single group: 42725
// lists them. `key` is read as if it were cast to the key column's type.
[[nodiscard]] Result<routing::GroupKey> key_meant(const routing::Snapshot& snapshot,
                                                  const std::string& key,
                                                  const std::optional<std::string>& table,
                                                  const std::vector<std::string>& search_path);

// The group alone, by the same reading.
[[nodiscard]] Result<std::string> group_meant(const routing::Snapshot& snapshot,
                                              const std::optional<std::string>& table,
                                              const std::vector<std::string>& search_path);

}  // namespace collegedb::admin
