#include "migration/recovery.h"

#include <unistd.h>

#include <exception>
#include <utility>
#include <vector>

#include "migration/operation.h"

namespace collegedb::migration {
namespace {

constexpr std::chrono::seconds kLeaseSpan{60};
constexpr std::chrono::milliseconds kPatience{10000};

// An operation that was taken over and has to start again, with the session that has its lock.
struct Restart {
  std::unique_ptr<PgJournal> journal;
  MoveRecord record;
};

SqlError fenced() {
  return make_error(ErrorCode::kRecoveryFenced, "this recovery lost its lease and stopped");
}

class Round {
 public:
  Round(const RunnerOptions& options, PgJournal& main) : options_(options), main_(main) {}

  // False: the lease is lost.
  bool run(const PgJournal::Lease& lease) {
    options_.failpoints->hit(point::kReleaseBefore);
    result_.released = main_.release_orphaned_claims();
    options_.failpoints->hit(point::kReleaseAfter);
    for (const std::string& op : main_.active_operations()) {
      if (!main_.has_lease(lease)) return false;
      ++result_.examined;
      try {
        if (!take(op, lease)) return false;
      } catch (const StepFailure& failure) {
        result_.failed.push_back({.op = op, .key = {}, .error = failure.error().message});
      }
    }
    return true;
  }

  // What was rolled back in run() is clean; from here on this process is its ordinary mover.
  void finish_restarts() {
    for (Restart& restart : restarts_) {
      count(run_to_end(options_, std::move(restart.journal), std::move(restart.record),
                       start(State::kPrepared), kPatience));
    }
  }

  RecoveryResult& result() { return result_; }

 private:
  bool take(const std::string& op, const PgJournal::Lease& lease) {
    auto journal = open_journal(options_);
    if (!journal->lock(op)) {
      ++result_.skipped;
      return true;
    }
    auto record = journal->load(op);
    if (!record || is_final(record->state)) return true;
    journal->require_lease(lease);
    const Position at = take_over(record->state);
    Finished finished = run_once(options_, *journal, std::move(*record), at);
    if (finished.outcome == Outcome::kFenced && !main_.has_lease(lease)) return false;
    if (finished.outcome == Outcome::kRestartable) {
      journal->require_lease(std::nullopt);
      restarts_.push_back({std::move(journal), std::move(finished.record)});
      return true;
    }
    count(finished);
    return true;
  }

  void count(const Finished& finished) {
    if (finished.outcome == Outcome::kRetired) {
      ++result_.committed;
    } else if (finished.outcome == Outcome::kAborted) {
      ++result_.aborted;
    } else {
      const auto& keys = finished.record.unit.keys;
      result_.failed.push_back({.op = finished.record.unit.op,
                                .key = keys.empty() ? std::string{} : keys.front(),
                                .error = finished.error.message});
    }
  }

  const RunnerOptions& options_;
  PgJournal& main_;
  RecoveryResult result_;
  std::vector<Restart> restarts_;
};

bool is_needed(PgJournal& journal) {
  return journal.has_orphaned_claims() || !journal.orphaned_operations().empty();
}

// Unique among all recoveries that may run at once.
std::string holder_name(PgJournal& journal) {
  char host[256] = {};
  ::gethostname(host, sizeof host - 1);
  return std::string(host) + "/" + std::to_string(::getpid()) + "/" + journal.new_operation_id();
}

}  // namespace

Recovery::Recovery(RunnerOptions options) : options_(completed(std::move(options))) {}

Result<RecoveryResult> Recovery::run() {
  try {
    return run_with(*open_journal(options_));
  } catch (const StepFailure& failure) {
    return failure.error();
  }
}

Result<std::optional<RecoveryResult>> Recovery::run_if_needed() {
  try {
    const auto journal = open_journal(options_);
    if (!is_needed(*journal)) return std::optional<RecoveryResult>{};
    Result<RecoveryResult> result = run_with(*journal);
    if (!result) return result.error();
    return std::optional<RecoveryResult>{std::move(*result)};
  } catch (const StepFailure& failure) {
    return failure.error();
  }
}

Result<bool> Recovery::needed() {
  try {
    return is_needed(*open_journal(options_));
  } catch (const StepFailure& failure) {
    return failure.error();
  }
}

Result<RecoveryResult> Recovery::run_with(PgJournal& journal) {
  options_.failpoints->hit(point::kLeaseBefore);
  const auto lease = journal.take_lease(holder_name(journal), kLeaseSpan);
  if (!lease) {
    return make_error(ErrorCode::kRecoveryInProgress, "another recovery is running");
  }
  options_.failpoints->hit(point::kLeaseAfter);
  Round round(options_, journal);
  const bool whole = round.run(*lease);
  journal.release_lease(*lease);
  if (!whole) return fenced();
  round.finish_restarts();
  return std::move(round.result());
}

RecoveryLoop::RecoveryLoop(RunnerOptions options, std::chrono::milliseconds interval, Hooks hooks)
    : options_(completed(std::move(options))), interval_(interval), hooks_(std::move(hooks)) {
  thread_ = std::thread([this] { loop(); });
}

RecoveryLoop::~RecoveryLoop() {
  stop();
}

void RecoveryLoop::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    wake_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

void RecoveryLoop::loop() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    lock.unlock();
    round();
    lock.lock();
    wake_.wait_for(lock, interval_, [this] { return stopping_; });
  }
}

void RecoveryLoop::round() {
  const auto report = [this](const SqlError& error) {
    if (hooks_.failed) hooks_.failed(error);
  };
  try {
    if (hooks_.two_phase) hooks_.two_phase();
  } catch (const std::exception& failure) {
    report(make_error("XX000", failure.what()));
  }
  try {
    const Result<std::optional<RecoveryResult>> result = Recovery(options_).run_if_needed();
    if (result && *result && hooks_.finished) hooks_.finished(**result);
    // Another process is at it: as good as done.
    const std::string busy(name_of(ErrorCode::kRecoveryInProgress));
    if (!result && !result.error().message.starts_with(busy)) report(result.error());
  } catch (const std::exception& failure) {
    report(make_error("XX000", failure.what()));
  }
}

}  // namespace collegedb::migration
