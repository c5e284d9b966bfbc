#include "migration/purge.h"

#include <algorithm>
#include <exception>
#include <memory>

#include "migration/operation.h"

namespace collegedb::migration {
namespace {

constexpr int kPage = 500;

// Over collegedb.moves; $1 is the scope. An interval is compared, not added: it may be longer than
// a timestamp can tell.
constexpr std::string_view kElapsed = "clock_timestamp() - finished_at >= retire_after";
constexpr std::string_view kVerified =
    "finished_at < (SELECT max(v.started_at) FROM collegedb.verifications v"
    " WHERE v.scope = $1 AND v.clean)";

std::string kept(std::string_view condition) {
  return " FROM collegedb.moves WHERE scope = $1 AND state = 'retired' AND purged_at IS NULL"
         " AND " +
         std::string(condition);
}

std::string may_go() {
  return "coalesce(purging_at IS NOT NULL OR (" + std::string(kElapsed) + " AND " +
         std::string(kVerified) + "), false)";
}

// What a client would see before the colon, or the SQLSTATE.
std::string code_of(const SqlError& error) {
  const std::string head = error.message.substr(0, error.message.find(':'));
  const bool is_code = !head.empty() && std::all_of(head.begin(), head.end(), [](char c) {
    return (c >= 'A' && c <= 'Z') || c == '_';
  });
  return is_code && head.size() < error.message.size() ? head : error.sqlstate;
}

class Purge {
 public:
  Purge(const RunnerOptions& options, const PurgeRequest& request)
      : options_(options),
        request_(request),
        most_(static_cast<std::size_t>(std::min(request.max_ops.value_or(kMaxPurged), kMaxPurged))),
        journal_(options.sessions->take(options.shards.at(options.journal), SessionOptions{})) {}
  ~Purge() {
    options_.sessions->give_back(std::move(journal_));
    options_.sessions->give_back(std::move(source_));
  }
  Purge(const Purge&) = delete;
  Purge& operator=(const Purge&) = delete;

  PurgeResult run() {
    // Keyset over (finished_at, op): one that fails is not tried again by this call.
    std::string after = "-infinity";
    std::string after_op;
    while (out_.purged.size() < most_) {
      const Rows rows = journal_->run(
          "SELECT op, source, finished_at" + kept(may_go() +
                                                  " AND (finished_at, op) > ($2::timestamptz, $3)"
                                                  " ORDER BY finished_at, op LIMIT " +
                                                  std::to_string(kPage)),
          {options_.scope, after, after_op});
      for (int i = 0; i < rows.size() && out_.purged.size() < most_; ++i) {
        purge(rows.text(i, 0), rows.text(i, 1));
      }
      if (rows.size() < kPage) break;
      after = rows.text(rows.size() - 1, 2);
      after_op = rows.text(rows.size() - 1, 0);
    }
    refuse_the_rest();
    return std::move(out_);
  }

 private:
  void did(std::string_view step) const {
    if (request_.step) request_.step(step);
  }

  void refuse(const std::string& op, std::string code) {
    if (out_.refused.size() < kMaxRefused) out_.refused.push_back({op, std::move(code)});
  }

  void refuse_the_rest() {
    const Rows rows = journal_->run(
        "SELECT op, CASE WHEN " + std::string(kElapsed) + " THEN $2 ELSE $3 END" +
            kept("NOT " + may_go() + " ORDER BY finished_at, op LIMIT $4::bigint"),
        {options_.scope, std::string(name_of(ErrorCode::kNotVerified)),
         std::string(name_of(ErrorCode::kRetentionNotElapsed)), std::to_string(kMaxRefused)});
    for (int i = 0; i < rows.size(); ++i) refuse(rows.text(i, 0), rows.text(i, 1));
  }

  void purge(const std::string& op, const std::string& source) {
    try {
      if (!decide(op)) return;
      did("decided");
      delete_archive(op, source);
      did("deleted");
      const Rows done = journal_->run(
          "UPDATE collegedb.moves SET purged_at = clock_timestamp() WHERE op = $1"
          " AND purging_at IS NOT NULL AND purged_at IS NULL RETURNING op",
          {op});
      did("purged");
      if (!done.empty()) out_.purged.push_back(op);
    } catch (const SqlFailure& failure) {
      if (!journal_->alive()) throw;
      refuse(op, code_of(failure.error()));
    }
  }

  // The conditions once more, in the statement that makes it final: from here on no restore begins
  // to read the archive. One that reads it holds the row.
  bool decide(const std::string& op) {
    return !journal_
                ->run(
                    "UPDATE collegedb.moves SET purging_at = coalesce(purging_at,"
                    " clock_timestamp()) WHERE scope = $1 AND op = $2 AND state = 'retired'"
                    " AND purged_at IS NULL AND " +
                        may_go() + " RETURNING op",
                    {options_.scope, op})
                .empty();
  }

  // By the operation's name alone: rows that have come back to the shard since are not looked at.
  void delete_archive(const std::string& op, const std::string& source) {
    ControlSession& session = session_of(source);
    for (;;) {
      const Rows gone = session.run(
          "DELETE FROM collegedb.archive WHERE ctid = ANY (ARRAY(SELECT ctid FROM"
          " collegedb.archive WHERE op = $1 LIMIT $2::bigint))",
          {op, std::to_string(request_.batch)});
      did("batch");
      if (gone.affected() == 0 &&
          session.run("SELECT 1 FROM collegedb.archive WHERE op = $1 LIMIT 1", {op}).empty()) {
        return;
      }
    }
  }

  // One shard's session at a time: archives come in the order of their age.
  ControlSession& session_of(const std::string& shard) {
    if (source_ && source_->alive() && source_->shard() == shard) return *source_;
    options_.sessions->give_back(std::move(source_));
    const ShardConfig* config = find_shard(options_, shard);
    if (config == nullptr) {
      throw SqlFailure(make_error(ErrorCode::kUnknownShard, "no shard is named \"" + shard + "\""),
                       shard);
    }
    source_ = options_.sessions->take(*config, SessionOptions{});
    return *source_;
  }

  const RunnerOptions& options_;
  const PurgeRequest& request_;
  std::size_t most_;
  std::unique_ptr<ControlSession> journal_;
  std::unique_ptr<ControlSession> source_;
  PurgeResult out_;
};

}  // namespace

Result<PurgeResult> purge_retired(const RunnerOptions& options, const PurgeRequest& request) {
  if (request.max_ops.value_or(0) < 0) return make_error("22023", "max_ops must not be negative");
  try {
    const RunnerOptions whole = completed(options);
    return Purge(whole, request).run();
  } catch (const SqlFailure& failure) {
    return failure.error();
  }
}

}  // namespace collegedb::migration
