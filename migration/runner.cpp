#include "migration/runner.h"

#include <algorithm>
#include <set>
#include <thread>
#include <utility>

#include "migration/allocator.h"
#include "migration/finder.h"
#include "migration/operation.h"
#include "migration/pg_shard.h"
#include "migration/recovery.h"
#include "proxy/session/guard.h"
#include "routing/hash.h"
#include "routing/route.h"

namespace collegedb::migration {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kPatience{30000};
constexpr int kMaxHops = 4;

// What a request means: a unit without source and operation.
struct Target {
  Unit unit;
  std::string computed;  // shard that placement alone gives
  bool one_epoch = true;
};

std::string joined(const std::vector<std::string>& items) {
  std::string out;
  for (const std::string& item : items) out += (out.empty() ? "" : ", ") + item;
  return out;
}

Result<Target> resolve(const RunnerOptions& options, const std::string& group,
                       const std::string& key) {
  const auto snapshot = options.snapshot();
  if (!snapshot || snapshot->epochs.empty()) {
    return make_error(ErrorCode::kPlacementUnverified, "this process has no snapshot yet");
  }
  Target out;
  out.unit.scope = options.scope;
  out.unit.group = group;
  out.unit.keys = {key};
  out.one_epoch = std::count_if(snapshot->epochs.begin(), snapshot->epochs.end(),
                                [](const routing::Epoch& epoch) {
                                  return epoch.state == routing::EpochState::kActive;
                                }) == 1;
  const routing::Candidates owners = routing::candidates(*snapshot, out.unit.keys.front());
  if (!owners.empty()) out.computed = snapshot->shards[owners.front()].name;
  return out;
}

PgShard shard_of(const RunnerOptions& options, const std::string& name) {
  const ShardConfig* config = find_shard(options, name);
  if (config == nullptr) {
    throw StepFailure(Event::kRefused, make_error(ErrorCode::kMigrationLookupUnavailable,
                                                  "shard \"" + name + "\" is not configured"));
  }
  return {*options.sessions, *config, "lookup"};
}

// A key that the directory does not have under mapped placement: where its rows are. Enters it,
// unless the move is a rehearsal.
Result<std::string> entered(const RunnerOptions& options, const std::string& group,
                            const std::string& key, bool rehearsal) {
  const auto snapshot = options.snapshot();
  const auto found = Allocator(options).look(
      *snapshot, {group, key, routing::gate_bucket(group, key), true}, !rehearsal);
  if (found.has_error()) {
    const bool stale = found.error().sqlstate == session::guard::kStale;
    return stale ? make_error(ErrorCode::kStaleTopology, "the topology is changing", "Try again.")
                 : found.error();
  }
  if (!*found) {
    return make_error(ErrorCode::kMappingNotFound,
                      "key \"" + key + "\" of group " + group + " has no mapping and no rows",
                      "A key gets its shard when it is first written.");
  }
  return snapshot->shards[(*found)->shard].name;
}

// Where the key is: the directory's word, then along the tombstones.
std::string locate(const RunnerOptions& options, const Target& target,
                   const std::optional<std::string>& entry) {
  if (const auto snapshot = options.snapshot(); !entry && snapshot) {
    const std::string& key = target.unit.keys.front();
    if (routing::candidates(*snapshot, key).size() > 1) {
      // For a write: a key without rows must have one home before it can leave it.
      const auto found = Finder(options).find(
          *snapshot, {target.unit.group, key, routing::gate_bucket(target.unit.group, key), true},
          true);
      if (!found) {
        const bool stale = found.error().sqlstate == session::guard::kStale;
        throw StepFailure(
            Event::kRefused,
            stale ? make_error(ErrorCode::kStaleTopology, "the topology is changing", "Try again.")
                  : found.error());
      }
      return snapshot->shards[found->shard].name;
    }
  }
  std::string name = entry.value_or(target.computed);
  std::set<std::pair<std::string, std::string>> seen;
  for (int hops = 0; hops <= kMaxHops; ++hops) {
    const PgShard::KeyState state = shard_of(options, name).locate(target.unit);
    if (!state.moved_to) {
      if (state.rows > 0 || entry) return name;
      break;
    }
    if (!seen.emplace(name, state.op).second) {
      throw StepFailure(Event::kRefused, make_error(ErrorCode::kMigrationChainExceeded,
                                                    "tombstones of the key form a cycle"));
    }
    if (hops == kMaxHops) {
      throw StepFailure(Event::kRefused, make_error(ErrorCode::kMigrationChainExceeded,
                                                    "more than 4 tombstones in a row"));
    }
    name = *state.moved_to;
  }
  // No row where the key belongs. Rows elsewhere are the key's under an older epoch; with one epoch
  // alone they are strays that a move must not legitimate.
  for (const ShardConfig& other : options.shards) {
    if (other.name == name || !seen.empty()) continue;
    const PgShard::KeyState state = shard_of(options, other.name).locate(target.unit);
    if (state.moved_to || state.rows == 0) continue;
    if (!target.one_epoch) return other.name;
    throw StepFailure(Event::kRefused, make_error(ErrorCode::kMoveRefused,
                                                  "shard \"" + other.name +
                                                      "\" has rows of the key, which belongs "
                                                      "to shard \"" +
                                                      name + "\""));
  }
  return name;
}

MoveResult result_of(const MoveRecord& record) {
  return {.op = record.unit.op,
          .key = joined(record.unit.keys),
          .source = record.unit.source,
          .destination = record.unit.destination,
          .state = std::string(name_of(record.state)),
          .tables = static_cast<std::int32_t>(record.unit.tables.size()),
          .rows = record.digest.rows,
          .bytes = record.digest.bytes,
          .copies = record.copies,
          .write_stall_ms = record.write_stall_ms,
          .duration_ms = record.duration_ms};
}

Result<MoveResult> outcome_of(const Finished& finished) {
  switch (finished.outcome) {
    case Outcome::kRetired:
      return result_of(finished.record);
    case Outcome::kAborted:
      if (!finished.error.message.empty()) return finished.error;
      return make_error("55000", finished.record.error.empty()
                                     ? "MOVE_REFUSED: the move was given up"
                                     : finished.record.error);
    default:
      return make_error("08007",
                        "the outcome of operation " + finished.record.unit.op +
                            " is not known yet; recovery finishes it",
                        "SELECT * FROM collegedb_migration_status(...) shows its state.",
                        finished.error.message);
  }
}

// Waits for an operation that another mover has.
Result<MoveResult> join(const RunnerOptions& options, const std::string& op) {
  for (;;) {
    const auto record = open_journal(options)->load(op);
    if (!record) return make_error(ErrorCode::kMoveRefused, "operation " + op + " is gone");
    if (record->state == State::kRetired) return result_of(*record);
    if (record->state == State::kAborted) {
      return make_error(
          "55000", record->error.empty() ? "MOVE_REFUSED: the move was given up" : record->error);
    }
    std::this_thread::sleep_for(milliseconds(50));
  }
}

// What a move would do; reads only.
Result<MoveResult> rehearse(const RunnerOptions& options, const Unit& unit) {
  PgShard source = shard_of(options, unit.source);
  PgShard destination = shard_of(options, unit.destination);
  Preflight checked = preflight(unit, source.describe(unit), destination.describe(unit));
  if (!checked.problems.empty()) {
    return make_error(checked.problems.front().code, checked.problems.front().text);
  }
  if (destination.locate(unit).rows > 0) {
    return make_error(ErrorCode::kDestinationConflict,
                      "shard \"" + unit.destination + "\" already has rows of the key");
  }
  source.adopt(std::make_shared<const MovePlan>(std::move(checked.plan)));
  source.begin_snapshot(unit);
  MoveRecord record{.unit = unit, .digest = source.digest()};
  if (record.digest.rows == 0) source.refuse_unseen(unit);
  source.end_snapshot();
  MoveResult out = result_of(record);
  out.op.reset();
  out.state = "dry_run";
  return out;
}

MoveResult already_there(const Unit& unit) {
  return {.key = joined(unit.keys),
          .source = unit.destination,
          .destination = unit.destination,
          .state = std::string(name_of(State::kPublished)),
          .tables = static_cast<std::int32_t>(unit.tables.size())};
}

SqlError paused() {
  return make_error(ErrorCode::kMovesPaused, "no move begins until they are resumed",
                    "SELECT collegedb_resume_moves() resumes them.");
}

Result<MoveResult> run_move(const RunnerOptions& options, const Target& target,
                            const std::optional<std::string>& expected_source, bool dry_run,
                            const std::string& rebalance = {}) {
  const double begun = Clock::steady().now_ms();
  for (int tries = 0; tries < 5; ++tries) {
    auto journal = open_journal(options);
    MoveRecord record{.unit = target.unit, .token = 1, .rebalance = rebalance};
    Unit& unit = record.unit;
    Directory directory = journal->directory(unit.group, unit.keys.front());
    unit.tables = directory.tables;
    if (unit.tables.empty()) {
      return make_error(ErrorCode::kUnknownTable, "group " + unit.group + " has no sharded table");
    }
    for (const std::string& key : journal->unmapped(unit)) {
      auto shard = entered(options, unit.group, key, dry_run);
      if (shard.has_error()) return shard.error();
      if (key == unit.keys.front()) directory.entry = *std::move(shard);
    }
    Target known = target;
    known.unit = unit;
    unit.source = expected_source ? *expected_source : locate(options, known, directory.entry);
    if (unit.source == unit.destination) return already_there(unit);
    if (dry_run) return rehearse(options, unit);
    unit.op = journal->new_operation_id();
    options.failpoints->hit(point::kClaimBefore);
    const ClaimResult claim = journal->claim(record);
    options.failpoints->hit(point::kClaimAfter);
    if (claim.paused) return paused();
    if (!claim.claimed) {
      if (claim.destination == unit.destination && unit.keys.size() == 1) {
        return join(options, claim.op);
      }
      SqlError busy =
          make_error(ErrorCode::kMoveRefused,
                     "key " + claim.key + " is being moved to shard \"" + claim.destination +
                         "\" by operation " + claim.op,
                     "Wait for it, or SELECT collegedb_cancel_move('" + claim.op + "').");
      busy.sqlstate = kKeyIsMoving;
      return busy;
    }
    if (journal->directory(unit.group, unit.keys.front()).entry != directory.entry) {
      // It moved between our look and our claim: look again.
      record.error = "the key has moved meanwhile";
      journal->abort(record);
      continue;
    }
    const Finished finished =
        run_to_end(options, std::move(journal), std::move(record), start(State::kClaim), kPatience);
    Result<MoveResult> out = outcome_of(finished);
    if (out) out->duration_ms = Clock::steady().now_ms() - begun;
    return out;
  }
  return make_error(ErrorCode::kPlacementConflict, "the key keeps moving");
}

}  // namespace

// Holds one of max_concurrent_moves for as long as it lives.
class Runner::Slot {
 public:
  explicit Slot(Runner& runner) : runner_(runner) {
    std::unique_lock lock(runner_.mutex_);
    const unsigned most = std::max(1U, runner_.options_.limits.max_concurrent_moves);
    runner_.freed_.wait(lock, [&] { return runner_.running_ < most; });
    ++runner_.running_;
  }
  ~Slot() {
    const std::lock_guard lock(runner_.mutex_);
    --runner_.running_;
    runner_.freed_.notify_one();
  }
  Slot(const Slot&) = delete;
  Slot& operator=(const Slot&) = delete;

 private:
  Runner& runner_;
};

Runner::Runner(RunnerOptions options) : options_(completed(std::move(options))) {}

Result<MoveResult> Runner::reassign(const MoveRequest& request) {
  if (find_shard(options_, request.shard) == nullptr) {
    return make_error(ErrorCode::kUnknownShard, "no shard is named \"" + request.shard + "\"");
  }
  Result<Target> target = resolve(options_, request.group, request.key);
  if (!target) return target.error();
  target->unit.destination = request.shard;
  target->unit.retire_after = request.retire_after.value_or(options_.limits.retire_after);
  if (target->unit.retire_after.count() < 0) {
    return make_error("22023", "retire_after must not be negative");
  }
  const Slot slot(*this);
  try {
    return run_move(options_, *target, std::nullopt, request.dry_run);
  } catch (const StepFailure& failure) {
    return failure.error();
  }
}

Result<MoveResult> Runner::reassign_keys(const std::string& group,
                                         const std::vector<std::string>& keys,
                                         const std::string& source, const std::string& destination,
                                         const BatchOptions& batch) {
  for (const std::string& name : {source, destination}) {
    if (find_shard(options_, name) != nullptr) continue;
    return make_error(ErrorCode::kUnknownShard, "no shard is named \"" + name + "\"");
  }
  if (keys.empty()) return make_error("22023", "a move needs at least one key");
  Target target;
  target.unit = {.scope = options_.scope,
                 .group = group,
                 .destination = destination,
                 .keys = keys,
                 .retire_after = options_.limits.retire_after};
  std::sort(target.unit.keys.begin(), target.unit.keys.end());
  target.unit.keys.erase(std::unique(target.unit.keys.begin(), target.unit.keys.end()),
                         target.unit.keys.end());
  const Slot slot(*this);
  try {
    RunnerOptions options = options_;
    if (batch.copy_rate) options.limits.copy_rate = *batch.copy_rate;
    if (!batch.patient) options.limits.cutover_attempts = 1;
    return run_move(options, target, source, false, batch.rebalance);
  } catch (const StepFailure& failure) {
    return failure.error();
  }
}

Result<RecoveryResult> Runner::recover() {
  return Recovery(options_).run();
}

Result<std::optional<MoveStatus>> Runner::status(const std::string& group, const std::string& key) {
  try {
    const auto journal = open_journal(options_);
    const auto op = journal->latest(group, key);
    if (!op) return std::optional<MoveStatus>{};
    return std::optional<MoveStatus>{journal->status(*op, key)};
  } catch (const StepFailure& failure) {
    return failure.error();
  }
}

Result<std::string> Runner::cancel(const std::string& op) {
  try {
    const auto state = open_journal(options_)->request_cancel(op);
    if (!state) return make_error("42704", "operation \"" + op + "\" does not exist");
    return std::string(name_of(*state));
  } catch (const StepFailure& failure) {
    return failure.error();
  }
}

}  // namespace collegedb::migration
