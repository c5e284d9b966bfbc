#include "migration/bucket_fence.h"

#include "proxy/session/guard.h"

namespace collegedb::migration {

void open_bucket_fence(ControlSession& session, std::int32_t bucket, std::int64_t generation) {
  const std::string number = std::to_string(bucket);
  session.script("BEGIN ISOLATION LEVEL READ COMMITTED; SELECT pg_catalog.pg_advisory_xact_lock(" +
                 std::to_string(session::guard::kLockClass) + ", " + number + ")");
  const Rows gate = session.run(
      "UPDATE collegedb.gate SET cutovers = cutovers + 1 WHERE bucket = $1::pg_catalog.int4"
      " RETURNING min_generation",
      {number});
  if (gate.empty()) {
    throw SqlFailure(
        make_error(ErrorCode::kMigrationLookupUnavailable,
                   "collegedb.gate of shard \"" + session.shard() + "\" lacks bucket " + number,
                   "Run collegedb init to repair it."),
        session.shard());
  }
  if (gate.int8(0, 0) > generation) {
    throw SqlFailure(make_error(session::guard::kStale, "the topology has changed meanwhile"),
                     session.shard());
  }
}

}  // namespace collegedb::migration
