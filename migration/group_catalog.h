// Reads what the preflight compares from the catalogs of one shard.
#pragma once

#include "migration/control_session.h"
#include "migration/plan.h"

namespace collegedb::migration {

// REQUIRES: session with search_path = pg_catalog. Inside a transaction `replica_role` is left
// false. Throws SqlFailure.
[[nodiscard]] GroupCatalog read_catalog(ControlSession& session, const Unit& unit);

}  // namespace collegedb::migration
