#include "migration/restore.h"

#include <exception>
#include <memory>
#include <thread>
#include <utility>

#include "migration/archive.h"
#include "migration/key_fence.h"
#include "migration/key_hold.h"
#include "migration/operation.h"

namespace collegedb::migration {
namespace {

using std::chrono::milliseconds;

constexpr int kTries = 20;
constexpr milliseconds kPause{50};

SessionOptions restore_options() {
  return {.application_name = "collegedb restore",
          .statement_timeout = milliseconds(30 * 60 * 1000),
          .idle_in_transaction_timeout = milliseconds(0),
          .dies_with_client = true};
}

SqlFailure refused(std::string_view what, std::string_view hint, const std::string& shard) {
  return {make_error("55000", what, hint), shard};
}

// Puts archived rows back where their keys are by now.
class PutBack {
 public:
  PutBack(const RunnerOptions& options, const MoveRecord& record, const StepHook& step)
      : options_(options), record_(record), unit_(record.unit), step_(step) {}

  // How many rows; 0 when the keys have rows of their own, or nothing was archived.
  std::int64_t run() {
    if (record_.digest.rows == 0) return 0;
    const Lease journal = take(options_.shards.at(options_.journal));
    KeyHold hold(*journal, unit_.scope, unit_.group, unit_.keys);
    if (!hold.taken()) {
      throw SqlFailure(make_error("55006", "a key of the operation is being moved", "Try again."),
                       unit_.source);
    }
    const ShardConfig& source = *find_shard(options_, unit_.source);
    const Lease writer = take(source);
    const std::int64_t rows = perform(*journal, hold, *writer, source);
    if (rows > 0) {
      hold.release(unit_.op, std::to_string(rows) + " archived rows were put back on shard " +
                                 unit_.source + " by collegedb_restore()");
    }
    return rows;
  }

 private:
  using Lease = std::unique_ptr<ControlSession>;
  Lease take(const ShardConfig& shard) const {
    return options_.sessions->take(shard, restore_options());
  }
  void did(std::string_view step) const {
    if (step_) step_(step);
  }

  std::int64_t perform(ControlSession& journal, KeyHold& hold, ControlSession& writer,
                       const ShardConfig& source) {
    const MovePlan plan = read_plan(writer, unit_);
    struct End {  // whatever happens, the session is outside a transaction afterwards
      ControlSession& session;
      ~End() {
        try {
          if (session.alive() && session.in_transaction()) session.run("ROLLBACK");
        } catch (const std::exception&) {
          // It is gone, and its transaction with it.
        }
      }
    } end{writer};
    begin_fenced(writer, plan.replica_role, options_.limits.cutover_lock_timeout);
    take_key_fence(writer, buckets_of(unit_.group, unit_.keys));
    did("fenced");
    if (!writer
             .run("SELECT 1 FROM collegedb.retired WHERE scope = $1 AND grp = $2"
                  " AND key = ANY ($3::text[]) LIMIT 1",
                  {unit_.scope, unit_.group, array_text(unit_.keys)})
             .empty()) {
      throw SqlFailure(make_error("40001", "a key of the operation has been moved meanwhile"),
                       unit_.source);
    }
    if (!keys_present(writer, plan).empty()) return 0;
    require_archive(journal, hold, writer, plan);
    const Lease reader = take(source);
    put_back(*reader, writer, plan, unit_.op, {});
    if (!record_.digest.text.empty() && !equals_journaled(writer, plan, record_.digest)) {
      throw refused("the archived rows are not those that operation " + unit_.op +
                        " has journaled; nothing was put back",
                    {}, unit_.source);
    }
    const std::int64_t rows = writer.run(count_sql(plan)).int8(0, 0);
    did("changed");
    if (writer.run("COMMIT").tag() != "COMMIT") {
      throw SqlFailure(make_error("25P02", "the transaction was rolled back"), unit_.source);
    }
    did("committed");
    return rows;
  }

  void require_archive(ControlSession& journal, KeyHold& hold, ControlSession& writer,
                       const MovePlan& plan) const {
    const Rows later = journal.run(
        "SELECT newer.op FROM collegedb.moves m JOIN collegedb.move_keys mine ON mine.op = m.op"
        " JOIN collegedb.move_keys other ON other.scope = mine.scope AND other.grp = mine.grp"
        " AND other.key = mine.key JOIN collegedb.moves newer ON newer.op = other.op"
        " WHERE m.op = $1 AND newer.op <> m.op AND newer.started_at >= m.started_at"
        " AND newer.state = 'retired' AND newer.rows > 0 ORDER BY newer.started_at DESC LIMIT 1",
        {unit_.op});
    if (!later.empty()) {
      throw refused("the keys have no rows, and what operation " + unit_.op +
                        " has archived was outdated when operation " + later.text(0, 0) +
                        " moved them",
                    "SELECT * FROM collegedb_restore('" + later.text(0, 0) + "')", unit_.source);
    }
    if (!hold.keep_archive(unit_.op)) {
      throw refused(
          "the keys have no rows, and the archive of operation " + unit_.op + " has been purged",
          {}, unit_.source);
    }
    if (std::string flaw = archive_flaw(writer, plan, unit_.op, record_.digest); !flaw.empty()) {
      throw refused("the keys have no rows, and " + flaw, {}, unit_.source);
    }
  }

  const RunnerOptions& options_;
  const MoveRecord& record_;
  const Unit& unit_;
  const StepHook& step_;
};

// A fence or a claim that is in use now is free a moment later.
std::int64_t put_back_patiently(const RunnerOptions& options, const MoveRecord& record,
                                const StepHook& step) {
  for (int tries = 1;; ++tries) {
    try {
      return PutBack(options, record, step).run();
    } catch (const SqlFailure& failure) {
      const std::string_view state = failure.error().sqlstate;
      const bool passes = state == "55P03" || state == "40P01" || state == kKeyIsMoving;
      if (!passes || tries == kTries) throw;
    }
    std::this_thread::sleep_for(kPause);
  }
}

Result<MoveRecord> finished_move(const RunnerOptions& options, const std::string& op) {
  auto record = open_journal(options)->load(op);
  if (!record) return make_error("42704", "operation \"" + op + "\" does not exist");
  if (record->state == State::kAborted) {
    return make_error("55000", "operation \"" + op + "\" was aborted: its rows never left");
  }
  if (record->state != State::kRetired) {
    return make_error("55006", "operation \"" + op + "\" is under way",
                      "Wait for it, or SELECT collegedb_cancel_move('" + op + "').");
  }
  if (find_shard(options, record->unit.source) == nullptr) {
    return make_error(ErrorCode::kUnknownShard,
                      "shard \"" + record->unit.source + "\" is not configured");
  }
  if (record->unit.tables.empty()) {
    return make_error(ErrorCode::kUnknownTable,
                      "group " + record->unit.group + " has no sharded table any more");
  }
  return *std::move(record);
}

}  // namespace

Result<std::vector<MoveResult>> restore(Runner& runner, const std::string& op,
                                        const StepHook& step) {
  const RunnerOptions& options = runner.options();
  try {
    const Result<MoveRecord> record = finished_move(options, op);
    if (!record) return record.error();
    std::vector<MoveResult> out;
    for (const std::string& key : record->unit.keys) {
      auto moved =
          runner.reassign({.group = record->unit.group, .key = key, .shard = record->unit.source});
      if (!moved) return moved.error();
      out.push_back(*std::move(moved));
    }
    if (step) step("moved");
    const std::int64_t rows = put_back_patiently(options, *record, step);
    if (rows > 0) out.front().rows = rows;
    return out;
  } catch (const SqlFailure& failure) {
    return failure.error();
  } catch (const StepFailure& failure) {
    return failure.error();
  }
}

}  // namespace collegedb::migration
