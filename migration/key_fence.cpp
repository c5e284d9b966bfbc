#include "migration/key_fence.h"

#include <set>

#include "proxy/session/guard.h"
#include "routing/hash.h"

namespace collegedb::migration {
namespace {

// Text form of an int[].
std::string array_of(std::span<const std::int32_t> items) {
  std::string out = "{";
  for (const std::int32_t item : items) out += (out.size() > 1 ? "," : "") + std::to_string(item);
  return out + "}";
}

}  // namespace

std::vector<std::int32_t> buckets_of(const std::string& group,
                                     const std::vector<std::string>& keys) {
  std::set<std::int32_t> out;
  for (const std::string& key : keys) out.insert(routing::gate_bucket(group, key));
  return {out.begin(), out.end()};
}

// The queue first, so that sharers of the gate row cannot pass a waiting mover for ever.
void take_key_fence(ControlSession& session, std::span<const std::int32_t> buckets) {
  const std::string lock_class = std::to_string(session::guard::kLockClass);
  session.run("SELECT pg_advisory_xact_lock(" + lock_class + ", $1::int)",
              {std::to_string(buckets.front())});
  if (buckets.size() > 1) {
    const Rows missed = session.run(
        "SELECT bucket FROM unnest($1::int[]) AS bucket"
        " WHERE NOT pg_try_advisory_xact_lock(" +
            lock_class + ", bucket) LIMIT 1",
        {array_of(buckets.subspan(1))});
    if (!missed.empty()) {
      throw SqlFailure(make_error("55P03", "bucket " + missed.text(0, 0) + " is in use"),
                       session.shard());
    }
  }
  // Who holds a gate row has a share of its queue: nobody, now.
  const Rows rows = session.run(
      "WITH b AS (UPDATE collegedb.gate SET cutovers = cutovers + 1"
      " WHERE bucket = ANY ($1::int[]) RETURNING bucket)"
      " SELECT count(*), nextval('collegedb.cutover_counter') FROM b",
      {array_of(buckets)});
  if (rows.int8(0, 0) != static_cast<std::int64_t>(buckets.size())) {
    throw SqlFailure(
        make_error(ErrorCode::kMoveRefused, "collegedb.gate of shard \"" + session.shard() +
                                                "\" lacks one of the buckets " + array_of(buckets)),
        session.shard());
  }
}

void begin_fenced(ControlSession& session, bool replica_role, std::chrono::milliseconds budget) {
  session.run("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE");
  session.run(
      "SELECT set_config('lock_timeout', $1, true), set_config('collegedb.guarded', 'on', true),"
      " CASE WHEN $2::boolean THEN set_config('session_replication_role', 'replica', true) END",
      {std::to_string(budget.count()), replica_role ? "t" : "f"});
  session.run("LOCK TABLE collegedb.sweep IN ROW EXCLUSIVE MODE");
}

}  // namespace collegedb::migration
