// What of the snapshot comes from the catalogs of functions, operators and types. Blocking SQL.
#pragma once

#include "migration/control_session.h"
#include "routing/snapshot.h"

namespace collegedb::store {

// Fills `hidden` and `homonyms`: three statements, however large the catalogs. REQUIRES: tables and
// dependent_relations are filled. Throws SqlFailure.
void read_hidden_code(migration::ControlSession& session, routing::Snapshot& snapshot);

}  // namespace collegedb::store
