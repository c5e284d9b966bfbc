// What the functions that move keys have in common.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "migration/runner.h"
#include "proxy/admin/handlers.h"

namespace collegedb::admin {

// JOURNAL_NOT_CONFIGURED without a journal shard.
[[nodiscard]] Result<migration::Runner*> runner_of(Services& services);
// By the registry as the journal has it now, if it answers.
[[nodiscard]] Result<routing::GroupKey> newest_key(Services& services, const std::string& key,
                                                   const std::optional<std::string>& table,
                                                   const session::SessionContext& context);
// The columns of collegedb_reassign.
[[nodiscard]] std::vector<Cell> cells(const migration::MoveResult& move);

}  // namespace collegedb::admin
