#include "migration/fence_raise.h"

#include <algorithm>
#include <thread>

namespace collegedb::migration {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr int kBatch = 64;
constexpr milliseconds kFirstWait{20};
constexpr milliseconds kLastWait{200};
// A queue is blocked for at most 1 / (1 + kPauses) of the time.
constexpr int kPauses = 4;

constexpr std::string_view kLockNotAvailable = "55P03";

SessionOptions raise_options() {
  SessionOptions options;
  options.application_name = "collegedb fence";
  options.dies_with_client = true;
  return options;
}

class Raise {
 public:
  Raise(ControlSession& session, const std::string& scope, std::int64_t generation,
        milliseconds patience, KeyChecks checks)
      : session_(session),
        scope_(scope),
        generation_(std::to_string(generation)),
        least_cutovers_(checks == KeyChecks::kEveryKey ? "1" : "0"),
        deadline_(Clock::now() + patience) {
    out_.shard = session.shard();
  }

  FenceRaise run() {
    do {
      out_.bulk_raised = raise_bulk();
    } while (!out_.bulk_raised && pause());
    raise_free_buckets();
    while (raise_one_by_one() > 0 && pause()) {
    }
    out_.buckets_left = count_left();
    out_.done = out_.bulk_raised && out_.buckets_left == 0;
    if (!out_.done) name_holders();
    return std::move(out_);
  }

 private:
  // One transaction with short lock waits; false when a lock was not to be had.
  template <class F>
  bool briefly(F act) {
    try {
      Transaction transaction(session_);
      session_.run("SELECT pg_catalog.set_config('lock_timeout', $1, true)",
                   {std::to_string(wait_.count())});
      act();
      transaction.commit();
      return true;
    } catch (const SqlFailure& failure) {
      if (failure.error().sqlstate != kLockNotAvailable) throw;
      return false;
    }
  }

  bool raise_bulk() {
    const Rows row = session_.run(
        "SELECT min_generation < $2::pg_catalog.int8 FROM collegedb.topology"
        " WHERE scope = $1",
        {scope_, generation_});
    if (row.empty()) {
      throw SqlFailure(
          make_error("55000", "the shard has no topology row of scope \"" + scope_ + "\"",
                     "Run collegedb init."),
          session_.shard());
    }
    if (!row.boolean(0, 0)) return true;
    return briefly([&] {
      session_.run("LOCK TABLE collegedb.sweep IN ROW EXCLUSIVE MODE");
      session_.run(
          "UPDATE collegedb.topology SET min_generation = $2::pg_catalog.int8"
          " WHERE scope = $1 AND min_generation < $2::pg_catalog.int8",
          {scope_, generation_});
    });
  }

  // Try-locks are granted only past an empty queue, so a batch waits for nobody but for what holds
  // a gate row without its queue.
  void raise_free_buckets() {
    for (int from = 0;;) {
      Rows range = session_.run(
          "SELECT max(bucket) FROM (SELECT bucket FROM collegedb.gate"
          " WHERE bucket >= $1::pg_catalog.int4 AND min_generation < $2::pg_catalog.int8"
          " ORDER BY bucket LIMIT $3::pg_catalog.int4) b",
          {std::to_string(from), generation_, std::to_string(kBatch)});
      if (range.null(0, 0)) return;
      const std::string last = range.text(0, 0);
      briefly([&] {
        session_.run(
            "WITH free AS MATERIALIZED (SELECT bucket FROM collegedb.gate"
            " WHERE bucket BETWEEN $1::pg_catalog.int4 AND $2::pg_catalog.int4"
            " AND min_generation < $3::pg_catalog.int8"
            " AND pg_catalog.pg_try_advisory_xact_lock(1128546865, bucket))"
            " UPDATE collegedb.gate g SET min_generation = $3::pg_catalog.int8,"
            " cutovers = GREATEST(cutovers, $4::pg_catalog.int8) FROM free"
            " WHERE g.bucket = free.bucket AND g.min_generation < $3::pg_catalog.int8",
            {std::to_string(from), last, generation_, least_cutovers_});
      });
      from = std::stoi(last) + 1;
    }
  }

  // Returns how many are left.
  int raise_one_by_one() {
    const Rows left = session_.run(
        "SELECT bucket FROM collegedb.gate WHERE min_generation < $1::pg_catalog.int8"
        " ORDER BY bucket",
        {generation_});
    int missed = 0;
    for (int i = 0; i < left.size(); ++i) {
      const std::string bucket = left.text(i, 0);
      const bool raised = briefly([&] {
        session_.run("SELECT pg_catalog.pg_advisory_xact_lock(1128546865, $1::pg_catalog.int4)",
                     {bucket});
        session_.run(
            "UPDATE collegedb.gate SET min_generation = $2::pg_catalog.int8,"
            " cutovers = GREATEST(cutovers, $3::pg_catalog.int8)"
            " WHERE bucket = $1::pg_catalog.int4 AND min_generation < $2::pg_catalog.int8",
            {bucket, generation_, least_cutovers_});
      });
      if (!raised) {
        ++missed;
        // The next bucket has queues of its own: no pause, but no end of waiting either.
        if (Clock::now() >= deadline_) return missed;
      }
    }
    return missed;
  }

  // False when the patience is used up. Lets the queues move on; waits longer the next time.
  bool pause() {
    const auto now = Clock::now();
    if (now >= deadline_) return false;
    std::this_thread::sleep_for(
        std::min(wait_ * kPauses, std::chrono::ceil<milliseconds>(deadline_ - now)));
    wait_ = std::min(wait_ * 2, kLastWait);
    return true;
  }

  int count_left() {
    return static_cast<int>(session_
                                .run("SELECT pg_catalog.count(*) FROM collegedb.gate"
                                     " WHERE min_generation < $1::pg_catalog.int8",
                                     {generation_})
                                .int8(0, 0));
  }

  void name_holders() {
    const Rows rows = session_.run(
        "SELECT DISTINCT CASE WHEN l.pid IS NULL THEN 'a prepared transaction' ELSE"
        " pg_catalog.format('pid %s (%s, %s since %s)', l.pid, a.application_name, a.state,"
        " pg_catalog.date_trunc('second', a.xact_start)) END"
        " FROM pg_catalog.pg_locks l LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid"
        " WHERE l.granted AND l.pid IS DISTINCT FROM pg_catalog.pg_backend_pid()"
        " AND l.database = (SELECT oid FROM pg_catalog.pg_database"
        "  WHERE datname = pg_catalog.current_database())"
        " AND ((l.locktype = 'advisory' AND l.classid = 1128546865 AND l.objsubid = 2"
        "   AND l.objid::pg_catalog.int8 IN (SELECT bucket FROM collegedb.gate"
        "    WHERE min_generation < $1::pg_catalog.int8))"
        "  OR (NOT $2::pg_catalog.bool AND l.locktype = 'relation' AND l.mode = 'ShareLock'"
        "   AND l.relation = 'collegedb.sweep'::pg_catalog.regclass)) ORDER BY 1 LIMIT 20",
        {generation_, out_.bulk_raised ? "t" : "f"});
    for (int i = 0; i < rows.size(); ++i) out_.waiting_for.push_back(rows.text(i, 0));
  }

  ControlSession& session_;
  const std::string& scope_;
  const std::string generation_;
  const std::string least_cutovers_;
  const Clock::time_point deadline_;
  milliseconds wait_ = kFirstWait;
  FenceRaise out_;
};

FenceRaise raise_on(const ShardConfig& shard, const std::string& scope, std::int64_t generation,
                    milliseconds patience, KeyChecks checks) {
  try {
    ControlSession session(shard, raise_options());
    return raise_fence(session, scope, generation, patience, checks);
  } catch (const SqlFailure& failure) {
    FenceRaise out;
    out.shard = shard.name;
    out.waiting_for = {failure.what()};
    return out;
  }
}

}  // namespace

FenceRaise raise_fence(ControlSession& session, const std::string& scope, std::int64_t generation,
                       milliseconds patience, KeyChecks checks) {
  return Raise(session, scope, generation, patience, checks).run();
}

std::vector<FenceRaise> raise_fences(const Config& cluster, std::int64_t generation,
                                     milliseconds patience, KeyChecks checks) {
  std::vector<FenceRaise> out(cluster.shards.size());
  std::vector<std::jthread> threads;
  for (std::size_t i = 0; i < out.size(); ++i) {
    threads.emplace_back([&, i] {
      out[i] = raise_on(cluster.shards[i], cluster.journal.scope, generation, patience, checks);
    });
  }
  threads.clear();  // joins
  return out;
}

}  // namespace collegedb::migration
