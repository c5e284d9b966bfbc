// When the guard says no: the statement behind it has not run, so it is tried again where the
// tombstones lead, with a newer snapshot, or after a while; or the client gets the reason.
#include <algorithm>

#include "proxy/session/guard.h"
#include "proxy/session/session_impl.h"

namespace collegedb::session {
namespace {

constexpr int kMaxTries = 20;        // a guard's serialization failures and deadlocks
constexpr std::size_t kMaxHops = 4;  // tombstones followed for one statement
constexpr int kMaxRestarts = 2;      // of the search, when tombstones lead in a circle
constexpr std::uint32_t kRetryDelayMs = 2;
constexpr std::uint32_t kIncomingDelayMs = 5;

struct Tombstone {
  std::string_view shard;
  std::string_view hop;  // shard and operation
  std::string_view key;
};

// DETAIL of CDB02: shard, operation and key, a line each.
std::optional<Tombstone> read_tombstone(std::string_view detail) {
  const std::size_t first = detail.find('\n');
  const std::size_t second = first == std::string_view::npos ? first : detail.find('\n', first + 1);
  if (second == std::string_view::npos) {
    return std::nullopt;
  }
  return Tombstone{detail.substr(0, first), detail.substr(0, second), detail.substr(second + 1)};
}

}  // namespace

SqlError SessionImpl::held_too_long() const {
  return make_error(ErrorCode::kMigrationCutoverPending,
                    "the statement waited too long for a move of its key to finish",
                    txn_.open() ? "It was not applied; run the transaction again."
                                : "It was not applied; try again.");
}

// No cutover could be kept apart from the write there.
SqlError SessionImpl::damaged_gate() const {
  return make_error(
      ErrorCode::kMigrationLookupUnavailable,
      "the gate of shard " + context_.snapshot->shards[attempt_.target.shard].name + " is damaged",
      "Run collegedb init to repair it.");
}

SqlError SessionImpl::stale_topology() const {
  return make_error(ErrorCode::kStaleTopology,
                    "the shard refuses this proxy's topology even after a reload",
                    "Try again; check that the journal shard can be reached.");
}

// What the fence said in the middle of a statement that the proxy could not know whole.
SqlError SessionImpl::in_our_words(const SqlError& fence) const {
  if (fence.sqlstate == guard::kDamaged) {
    return damaged_gate();
  }
  if (fence.sqlstate == guard::kOtherKey) {
    return make_error(ErrorCode::kKeyRequired, fence.message,
                      "A trigger, a rule or a function writes under another key, or the columns of "
                      "the table have just been changed: then try again.");
  }
  return make_error(ErrorCode::kMovedInTransaction,
                    "a key of this transaction has moved to another shard",
                    "Run the transaction again.");
}

void SessionImpl::guard_passed() {
  if (txn_.open() && txn_.bound()) {
    for (const routing::RoutedKey& key : attempt_.keys) {
      if (!txn_.guarded(key)) {
        txn_.add_guard(key);
      }
    }
  }
  attempt_.undecided = attempt_.watch_empty || attempt_.hold;
  cancelling_ = false;
  if (wait_.kind == Wait::Kind::kServer) {
    wait_.timeout_ms = context_.query_timeout_ms;
  }
}

bool SessionImpl::handle_failure(Step restart) {
  if (link_ && link_->skipping) {
    // The server discards everything up to a Sync; what was open there is gone with it.
    wire::encode_sync(link_->out);
    link_->owe(Expect::kSync, Role::kSilent);
    link_->skipping = false;
    link_->open = false;
    await_drain(step_);
    return true;
  }
  const SqlError failure = *attempt_.failure;
  if (attempt_.preamble_failed) {
    attempt_.failure.reset();
    attempt_.undecided = false;
    turn_error_ = failure;
    return false;
  }
  if (!attempt_.retryable) {
    attempt_.failure.reset();
    attempt_.undecided = false;
    turn_error_ = failure.sqlstate.starts_with(guard::kOurs) ? in_our_words(failure) : failure;
    if (patience_.timed_out) {
      turn_error_ = held_too_long();
    }
    context_.stats->count_write_rejection(*turn_error_);
    return false;
  }
  retry_step_ = restart;
  if (txn_.bound() && link_) {
    // The preamble ran there and failed with the guard: undone, and sent again elsewhere.
    wire::Query{"ROLLBACK"}.encode(link_->out);
    link_->owe(Expect::kQuery, Role::kSilent);
    txn_.unbind();
    await_drain(&SessionImpl::rolled_back);
    return true;
  }
  return plan_retry(failure);
}

void SessionImpl::rolled_back() {
  const SqlError failure = *attempt_.failure;
  if (plan_retry(failure)) {
    return;
  }
  txn_.fail();
  if (extended_) {
    batch_error();
  } else {
    report_and_finish();
  }
}

// Decides whether and how to try again. False: turn_error_ is what the client gets.
bool SessionImpl::plan_retry(const SqlError& failure) {
  client_out_.resize(attempt_.client_mark);
  if (link_) {
    link_->executed = false;
  }
  const std::string_view code = failure.sqlstate;
  auto& stats = *context_.stats;
  const bool patient = patience_.waited_ms < context_.write_hold_ms;
  ++patience_.tries;
  turn_error_ = failure;
  if (patience_.timed_out ||
      ((code == guard::kIncoming || code == "40001" || code == "40P01") && !patient)) {
    turn_error_ = held_too_long();
    stats.held_writes_total[metrics::HeldWrite::kTimedOut].add();
  } else if (code == guard::kDamaged) {
    turn_error_ = damaged_gate();
  } else if (code == guard::kOtherKey) {
    // The columns of the table may have changed, and with them which value is the key.
    if (patience_.reloads++ == 0) {
      start_control(ControlRequest{Reload{context_.snapshot->version}, {}}, &SessionImpl::reloaded);
      return true;
    }
    turn_error_ = in_our_words(failure);
  } else if (code == guard::kStale) {
    stats.stale_routes[metrics::StaleReason::kGeneration].add();
    if (patience_.reloads++ == 0) {
      start_control(ControlRequest{Reload{context_.snapshot->version}, {}}, &SessionImpl::reloaded);
      return true;
    }
    turn_error_ = stale_topology();
  } else if (code == guard::kMoved) {
    stats.stale_routes[metrics::StaleReason::kMoved].add();
    if (chain_exceeded(failure.detail) && patience_.restarts < kMaxRestarts) {
      // The key may have gone on, and back, while its tombstones were followed: once more from what
      // the directory says now. A circle that stays is damage.
      ++patience_.restarts;
      patience_.visited.clear();
      patience_.found.clear();
      for (const routing::RoutedKey& key : attempt_.keys) {
        context_.learned.forget(key.group, key.key);
      }
      start_control(ControlRequest{Reload{context_.snapshot->version}, {}}, &SessionImpl::reloaded);
      return true;
    }
    if (follow_tombstone(failure)) {
      stats.tombstone_follows.add();
      stats.held_writes_total[metrics::HeldWrite::kRerouted].add();
      start_over();
      return true;
    }
  } else if (code == guard::kIncoming) {
    stats.stale_routes[metrics::StaleReason::kIncoming].add();
    patience_.waited_ms += kIncomingDelayMs;
    await_delay(kIncomingDelayMs, &SessionImpl::start_over);
    return true;
  } else if ((code == "40001" || code == "40P01") && patience_.tries < kMaxTries) {
    patience_.waited_ms += kRetryDelayMs;
    await_delay(kRetryDelayMs, &SessionImpl::start_over);
    return true;
  }
  attempt_.failure.reset();
  attempt_.undecided = false;
  stats.count_write_rejection(*turn_error_);
  return false;
}

void SessionImpl::start_over() {
  turn_error_.reset();
  const Step restart = retry_step_;
  const std::size_t cursor = attempt_.cursor_mark;
  attempt_ = Attempt{};
  attempt_.cursor_mark = cursor;
  (this->*restart)();
}

void SessionImpl::adopt_reloaded() {
  if (const auto* done = std::get_if<ReloadDone>(&*control_reply_)) {
    if (done->snapshot && done->snapshot->version > context_.snapshot->version) {
      context_.snapshot = done->snapshot;
    }
  }
  control_reply_.reset();
}

void SessionImpl::reloaded() {
  adopt_reloaded();
  start_over();
}

// True when the tombstone was seen before by this statement, or is one too many.
bool SessionImpl::chain_exceeded(std::string_view detail) const {
  const auto tombstone = read_tombstone(detail);
  const auto& visited = patience_.visited;
  return tombstone && (visited.size() >= kMaxHops ||
                       std::find(visited.begin(), visited.end(), tombstone->hop) != visited.end());
}

bool SessionImpl::follow_tombstone(const SqlError& error) {
  const auto tombstone = read_tombstone(error.detail);
  if (!tombstone) {
    turn_error_ = make_error(ErrorCode::kMigrationLookupUnavailable,
                             "a tombstone could not be read", "Run collegedb_verify().");
    return false;
  }
  const std::string_view shard_name = tombstone->shard;
  const auto shard = context_.snapshot->find_shard(shard_name);
  if (!shard) {
    turn_error_ = make_error(
        ErrorCode::kMigrationLookupUnavailable,
        "the key moved to shard " + std::string(shard_name) + ", which is not configured here",
        "Add the shard to this proxy's configuration.");
    return false;
  }
  if (chain_exceeded(error.detail)) {
    turn_error_ = make_error(ErrorCode::kMigrationChainExceeded,
                             "the key's tombstones lead over more than 4 shards or in a circle",
                             "Try again; run collegedb_verify() if it stays.");
    return false;
  }
  patience_.visited.emplace_back(tombstone->hop);
  for (const routing::RoutedKey& routed : attempt_.keys) {
    if (routed.key == tombstone->key) {
      learn(routed, *shard);
      remember_found(routed, {.shard = *shard, .settled = true});
    }
  }
  return true;
}

}  // namespace collegedb::session
