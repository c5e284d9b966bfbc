#include "migration/rebalance_log.h"

#include <spdlog/spdlog.h>

#include <utility>

namespace collegedb::migration {
namespace {

SessionOptions log_options() {
  SessionOptions options;
  options.application_name = "collegedb rebalance";
  options.statement_timeout = std::chrono::seconds{15};
  options.dies_with_client = true;
  return options;
}

std::string text(std::int64_t value) {
  return std::to_string(value);
}

// Parallel arrays instead of JSON made by hand: the server quotes.
template <class T, class F>
std::string column(const std::vector<T>& items, F value) {
  std::vector<std::string> out;
  out.reserve(items.size());
  for (const T& item : items) out.push_back(value(item));
  return array_text(out);
}

}  // namespace

RebalanceLog::RebalanceLog(const RunnerOptions& options, const RebalanceRequest& request,
                           const std::vector<std::string>& groups, int concurrency)
    : shard_(options.shards.at(options.journal)), scope_(options.scope), locked_(!request.dry_run) {
  connect();
  if (locked_) {
    session_->run(
        "UPDATE collegedb.rebalances SET state = 'interrupted', finished_at = clock_timestamp()"
        " WHERE scope = $1 AND NOT dry_run AND state IN ('running', 'paused')",
        {scope_});
  }
  id_ = session_
            ->run(
                "INSERT INTO collegedb.rebalances (id, scope, groups, source, destination,"
                " dry_run, max_keys, concurrency, state) VALUES (gen_random_uuid()::text, $1,"
                " $2::text[], $3, $4, $5::bool, $6::bigint, $7::int, 'running') RETURNING id",
                {scope_, array_text(groups), request.source, request.destination,
                 request.dry_run ? "t" : "f",
                 request.max_keys ? SqlParameter{text(*request.max_keys)} : SqlParameter{},
                 text(concurrency)})
            .text(0, 0);
}

void RebalanceLog::connect() {
  session_ = std::make_unique<ControlSession>(shard_, log_options());
  if (!locked_) return;
  if (session_
          ->run("SELECT pg_try_advisory_lock(collegedb.move_lock('rebalance ' || $1))", {scope_})
          .boolean(0, 0)) {
    return;
  }
  throw SqlFailure(
      make_error("55006", "a rebalance is running",
                 "collegedb.rebalances shows it; SELECT collegedb_cancel_move(id) stops it."),
      shard_.name);
}

Rows RebalanceLog::write(const RebalanceResult& result, std::string_view state,
                         const std::string& error) {
  const auto share = [](auto member) {
    return [member](const RebalanceShare& each) { return each.*member; };
  };
  const auto& plan = result.plan;
  const auto& failures = result.failures;
  const auto of = [](auto member) {
    return [member](const RebalanceFailure& each) { return each.share.*member; };
  };
  return session_->run(
      "UPDATE collegedb.rebalances r SET state = CASE WHEN $2 <> 'running' THEN $2"
      " WHEN p.scope IS NULL THEN 'running' ELSE 'paused' END,"
      " examined = $3::bigint, agreed = $4::bigint, moved = $5::bigint, failed = $6::bigint,"
      " plan = (SELECT coalesce(jsonb_agg(jsonb_build_object('grp', g, 'source', s,"
      " 'destination', d, 'keys', k::bigint)), '[]')"
      " FROM unnest($7::text[], $8::text[], $9::text[], $10::text[]) AS u (g, s, d, k)),"
      " failures = (SELECT coalesce(jsonb_agg(jsonb_build_object('grp', g, 'source', s,"
      " 'destination', d, 'keys', k::bigint, 'key', y, 'error', e)), '[]') FROM"
      " unnest($11::text[], $12::text[], $13::text[], $14::text[], $15::text[], $16::text[])"
      " AS u (g, s, d, k, y, e)), error = nullif($17, ''), updated_at = clock_timestamp(),"
      " finished_at = CASE WHEN $2 <> 'running' THEN clock_timestamp() END"
      " FROM (SELECT 1) AS one LEFT JOIN collegedb.paused_moves p ON p.scope = $18"
      " WHERE r.id = $1 RETURNING p.scope IS NOT NULL, r.cancel_requested",
      {id_, std::string(state), text(result.examined), text(result.agreed), text(result.moved),
       text(result.failed), column(plan, share(&RebalanceShare::group)),
       column(plan, share(&RebalanceShare::source)),
       column(plan, share(&RebalanceShare::destination)),
       column(plan, [](const RebalanceShare& each) { return text(each.keys); }),
       column(failures, of(&RebalanceShare::group)), column(failures, of(&RebalanceShare::source)),
       column(failures, of(&RebalanceShare::destination)),
       column(failures, [](const RebalanceFailure& each) { return text(each.share.keys); }),
       column(failures, [](const RebalanceFailure& each) { return each.key; }),
       column(failures, [](const RebalanceFailure& each) { return each.error; }), error, scope_});
}

RebalanceLog::Wishes RebalanceLog::report(const RebalanceResult& result) {
  if (!session_->alive()) connect();
  const Rows rows = write(result, "running", {});
  // Somebody has deleted the row: nobody would see what goes on.
  if (rows.empty()) return {.paused = false, .cancelled = true};
  return {.paused = rows.boolean(0, 0), .cancelled = rows.boolean(0, 1)};
}

void RebalanceLog::finish(const RebalanceResult& result, std::string_view state,
                          const std::string& error) {
  if (!session_->alive()) connect();
  write(result, state, error);
}

bool pause_moves(ControlSession& journal, const std::string& scope) {
  return !journal
              .run(
                  "INSERT INTO collegedb.paused_moves (scope) VALUES ($1) ON CONFLICT DO NOTHING"
                  " RETURNING 1",
                  {scope})
              .empty();
}

bool resume_moves(ControlSession& journal, const std::string& scope) {
  return journal.run("DELETE FROM collegedb.paused_moves WHERE scope = $1", {scope}).affected() > 0;
}

std::optional<std::string> cancel_rebalance(ControlSession& journal, const std::string& id) {
  const Rows rows = journal.run(
      "UPDATE collegedb.rebalances SET cancel_requested = cancel_requested"
      " OR state IN ('running', 'paused') WHERE id = $1 RETURNING state",
      {id});
  if (rows.empty()) return std::nullopt;
  return rows.text(0, 0);
}

}  // namespace collegedb::migration
