// Gives an empty database the schema that another shard has, by pg_dump. Background threads only.
#pragma once

#include <string>

#include "migration/control_session.h"
#include "proxy/config.h"

namespace collegedb::migration {

// True when the database has nothing of a user's: no relation, type, function or schema besides
// schema collegedb, the functions of the proxy, and what extensions brought.
[[nodiscard]] bool is_empty_database(ControlSession& session);

// The schema of a shard as SQL: without rows, without schema collegedb, without publications and
// subscriptions, which are not the same on two servers. Runs pg_dump, from PATH or the newest in
// /usr/lib/postgresql; the password goes by its environment. Throws SqlFailure (58030, 55000).
[[nodiscard]] std::string dump_schema(const ShardConfig& shard);

// Runs that SQL. The functions of the proxy are dropped first, since the dump has them too; the
// schema must be installed again afterwards (install_schema_on). REQUIRES: a transaction is open,
// schema collegedb is installed, and the session is not used after the transaction for anything
// that depends on its settings, which the dump changes. Throws SqlFailure: then roll back.
void restore_schema(ControlSession& session, std::string_view dump);

}  // namespace collegedb::migration
