#include "migration/operation.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "migration/move_meter.h"
#include "migration/pg_shard.h"

namespace collegedb::migration {
namespace {

bool is_over(Outcome outcome) {
  return outcome == Outcome::kRetired || outcome == Outcome::kAborted ||
         outcome == Outcome::kUnclear;
}

}  // namespace

RunnerOptions completed(RunnerOptions options) {
  // One set for the process: what has fired for its mover must not fire for its recovery again.
  static const std::shared_ptr<Failpoints> of_process = Failpoints::from_environment();
  if (!options.failpoints) options.failpoints = of_process;
  if (!options.sessions) options.sessions = std::make_shared<SessionPool>();
  return options;
}

std::unique_ptr<PgJournal> open_journal(const RunnerOptions& options) {
  return std::make_unique<PgJournal>(*options.sessions, options.shards.at(options.journal),
                                     options.scope);
}

const ShardConfig* find_shard(const RunnerOptions& options, const std::string& name) {
  const auto found = std::find_if(options.shards.begin(), options.shards.end(),
                                  [&](const ShardConfig& shard) { return shard.name == name; });
  return found == options.shards.end() ? nullptr : &*found;
}

Finished run_once(const RunnerOptions& options, PgJournal& journal, MoveRecord record,
                  Position at) {
  const ShardConfig* from = find_shard(options, record.unit.source);
  const ShardConfig* to = find_shard(options, record.unit.destination);
  if (from == nullptr || to == nullptr) {
    return {.outcome = Outcome::kUnclear,
            .record = std::move(record),
            .error = make_error(ErrorCode::kUnknownShard,
                                "a shard of the operation is not configured here")};
  }
  PgShard source(*options.sessions, *from, record.unit.op);
  PgShard destination(*options.sessions, *to, record.unit.op);
  const Clock clock = Clock::steady();
  MoveMeter meter(options.stats, clock, record.state);
  Mover mover(std::move(record), at,
              {.journal = journal,
               .source = source,
               .destination = destination,
               .failpoints = *options.failpoints,
               .clock = clock},
              {.attempts = std::max(1U, options.limits.cutover_attempts),
               .lock_budget = options.limits.cutover_lock_timeout,
               .copy_rate = options.limits.copy_rate});
  while (mover.advance()) meter.at(mover.record().state);
  const Outcome outcome = mover.position().outcome;
  meter.ended(outcome, mover.record());
  return {.outcome = outcome, .record = mover.record(), .error = mover.error()};
}

Finished run_to_end(const RunnerOptions& options, std::unique_ptr<PgJournal> journal,
                    MoveRecord record, Position at, std::chrono::milliseconds patience) {
  const std::string op = record.unit.op;
  Finished last{.record = std::move(record)};
  auto deadline = std::chrono::steady_clock::now() + patience;
  auto pause = std::chrono::milliseconds(20);
  for (;;) {
    if (journal) {
      last = run_once(options, *journal, std::move(last.record), at);
      if (is_over(last.outcome)) return last;
      if (last.outcome == Outcome::kRestartable) {
        at = start(State::kPrepared);
        continue;
      }
      journal.reset();  // frees the lock: whoever takes over next may be another process
    }
    if (std::chrono::steady_clock::now() > deadline) return last;
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::milliseconds(500));
    try {
      auto next = open_journal(options);
      if (!next->lock(op)) continue;  // our old session lingers, or another process has it
      auto found = next->load(op);
      if (!found) return last;
      last.record = std::move(*found);
      at = take_over(last.record.state);
      journal = std::move(next);
    } catch (const StepFailure& failure) {
      last.error = failure.error();
    }
  }
}

}  // namespace collegedb::migration
