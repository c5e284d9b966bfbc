#include "migration/mover.h"

#include <algorithm>
#include <charconv>
#include <thread>
#include <utility>

#include "migration/key_fence.h"

namespace collegedb::migration {
namespace {

using std::chrono::milliseconds;

StepFailure refused(std::string_view text, std::string_view hint = {}) {
  return {Event::kRefused, make_error(ErrorCode::kMoveRefused, text, hint)};
}

// All problems in one error: the first gives the code.
StepFailure refused(const std::vector<Problem>& problems) {
  std::string text;
  for (const Problem& problem : problems) {
    if (!text.empty()) text += "; ";
    text += problem.text;
  }
  const bool slots = problems.front().code == ErrorCode::kMigrationNoAtomicBatch;
  return {Event::kRefused,
          make_error(problems.front().code, text,
                     slots ? "Set max_prepared_transactions to at least 16 and restart it." : "")};
}

// Time that is left of a budget for several waits.
class Budget {
 public:
  Budget(const Clock& clock, milliseconds whole)
      : clock_(clock), end_(clock.now_ms() + static_cast<double>(whole.count())) {}
  [[nodiscard]] milliseconds left() const {
    return milliseconds(static_cast<std::int64_t>(std::max(1.0, end_ - clock_.now_ms())));
  }

 private:
  const Clock& clock_;
  double end_;
};

}  // namespace

Clock Clock::steady() {
  return {.now_ms =
              [] {
                const auto now = std::chrono::steady_clock::now().time_since_epoch();
                return std::chrono::duration<double, std::milli>(now).count();
              },
          .sleep = [](milliseconds span) { std::this_thread::sleep_for(span); }};
}

std::string gid_of(const Unit& unit, std::int32_t attempt, Side side) {
  return "collegedb:" + unit.scope + ":" + unit.op + ":" + std::to_string(attempt) +
         (side == Side::kSource ? ":src" : ":dst");
}

std::int32_t attempt_of(const Unit& unit, std::string_view gid) {
  const std::string head = "collegedb:" + unit.scope + ":" + unit.op + ":";
  if (!gid.starts_with(head)) return 0;
  std::int32_t attempt = 0;
  const std::string_view rest = gid.substr(head.size());
  std::from_chars(rest.data(), rest.data() + rest.size(), attempt);
  return attempt;
}

Mover::Mover(MoveRecord record, Position at, Parts parts, Options options)
    : record_(std::move(record)), at_(at), parts_(std::move(parts)), options_(options) {}

Outcome Mover::run() {
  while (advance()) {
  }
  return at_.outcome;
}

bool Mover::advance() {
  if (at_.command == Command::kStop) return false;
  const Event event = attempt(at_.command);
  at_ = step(at_, event, Limits{.attempts = options_.attempts});
  record_.state = at_.state;
  if (at_.command != Command::kStop) return true;
  if (at_.outcome == Outcome::kRetired) error_ = SqlError{};
  parts_.source.close();
  parts_.destination.close();
  return false;
}

// Failures become events; the reason of the last one is kept for the journal and the caller.
Event Mover::attempt(Command command) {
  const std::string name(name_of(command));
  const bool has_effect = command != Command::kBackOff;
  try {
    if (has_effect) parts_.failpoints.hit(name + ".before");
    const Event event = perform(command);
    if (has_effect) parts_.failpoints.hit(name + ".after");
    return event;
  } catch (const StepFailure& failure) {
    error_ = failure.error();
    return failure.event();
  }
}

Event Mover::perform(Command command) {
  Shard& source = parts_.source;
  Shard& destination = parts_.destination;
  switch (command) {
    case Command::kJournalPrepared:
      if (!at_.fenced) {
        ++record_.attempt;
        record_.unit.tables = parts_.journal.group_tables(record_.unit);
      }
      return write(State::kPrepared);
    case Command::kPreflight:
      return prepare_plan();
    case Command::kSnapshot:
      return take_snapshot();
    case Command::kJournalCopied:
      ++record_.copies;
      return write(State::kCopied);
    case Command::kCopy:
      return copy();
    case Command::kJournalVerified:
      return write(State::kVerified);
    case Command::kVerify:
      return verify();
    case Command::kJournalCutover:
      return write(State::kCutoverPending);
    case Command::kFence:
      return fence();
    case Command::kCompare:
      return compare();
    case Command::kRetireRows:
      return retire_rows();
    case Command::kPrepareDestination:
      destination.prepare(record_.unit, gid(Side::kDestination));
      return Event::kDone;
    case Command::kPrepareSource:
      source.prepare(record_.unit, gid(Side::kSource));
      return Event::kDone;
    case Command::kJournalCommitted:
      return decide();
    case Command::kCommitDestination:
      if (destination_done_) return Event::kDone;
      destination.commit_prepared(record_.unit, gid(Side::kDestination), Side::kDestination);
      return Event::kDone;
    case Command::kCommitSource:
      source.commit_prepared(record_.unit, gid(Side::kSource), Side::kSource);
      if (!at_.recovering) record_.write_stall_ms = parts_.clock.now_ms() - stall_from_;
      return Event::kDone;
    case Command::kClearIncoming:
      destination.clear_incoming(record_.unit);
      return Event::kDone;
    case Command::kPublish:
      parts_.journal.publish(record_);
      return Event::kDone;
    case Command::kRetire:
      parts_.journal.retire(record_);
      return Event::kDone;
    case Command::kForgetTokens:
      // An operation that was ever taken over keeps its tokens: an older mover may wake up yet.
      if (record_.token > 1) return Event::kDone;
      return both(point::kForgetTokensMiddle,
                  [&](Shard& shard, Side) { shard.forget_token(record_.unit); });
    case Command::kRollback:
      return both(point::kRollbackMiddle, [](Shard& shard, Side) { shard.rollback(); });
    case Command::kBackOff:
      parts_.clock.sleep(milliseconds(50) * (1U << std::min(at_.misses, 5U)));
      return Event::kDone;
    case Command::kJournalAborted:
      record_.error = error_.message;
      parts_.journal.abort(record_);
      return Event::kDone;
    case Command::kTakeOver:
      record_.token = parts_.journal.take_over(record_);
      return Event::kDone;
    case Command::kRaiseTokens:
      return both(point::kRaiseTokensMiddle, [&](Shard& shard, Side side) {
        shard.raise_token(record_.unit, record_.token, record_.attempt, side);
      });
    case Command::kInspect:
      return inspect();
    case Command::kJournalReset:
      record_.error = error_.message;
      parts_.journal.record(record_, State::kPrepared);
      return Event::kDone;
    case Command::kRollbackHalves:
      return roll_back_halves();
    case Command::kStop:
      break;
  }
  return Event::kDone;
}

Event Mover::write(State state) {
  if (parts_.journal.record(record_, state)) {
    throw refused(kMoveCancelled);
  }
  return Event::kDone;
}

Event Mover::both(std::string_view middle, const std::function<void(Shard&, Side)>& act) {
  act(parts_.source, Side::kSource);
  parts_.failpoints.hit(middle);
  act(parts_.destination, Side::kDestination);
  return Event::kDone;
}

std::string Mover::gid(Side side) const {
  return gid_of(record_.unit, record_.attempt, side);
}

Event Mover::prepare_plan() {
  const GroupCatalog source = parts_.source.describe(record_.unit);
  const GroupCatalog destination = parts_.destination.describe(record_.unit);
  Preflight checked = preflight(record_.unit, source, destination);
  if (!checked.problems.empty()) throw refused(checked.problems);
  plan_ = std::make_shared<const MovePlan>(std::move(checked.plan));
  parts_.source.adopt(plan_);
  parts_.destination.adopt(plan_);
  return Event::kDone;
}

Event Mover::take_snapshot() {
  record_.position = parts_.source.begin_snapshot(record_.unit);
  record_.digest = parts_.source.digest();
  if (record_.digest.rows == 0) parts_.source.refuse_unseen(record_.unit);
  return Event::kDone;
}

Event Mover::copy() {
  if (at_.fenced) {
    parts_.destination.clear_import();
  } else {
    parts_.destination.install_token(record_.unit, record_.token);
    parts_.destination.begin_import(record_.unit, record_.token);
  }
  copy_from_ = parts_.clock.now_ms();
  copied_bytes_ = 0;
  for (std::size_t i = 0; i < plan_->tables.size(); ++i) {
    if (i == plan_->tables.size() / 2) parts_.failpoints.hit(point::kCopyMiddle);
    copy_table(i);
  }
  if (!at_.fenced) parts_.source.end_snapshot();
  return Event::kDone;
}

void Mover::copy_table(std::size_t table) {
  Shard& destination = parts_.destination;
  destination.copy_in_begin(table);
  parts_.source.copy_out(table, [&](std::string_view bytes) {
    destination.copy_in(bytes);
    copied_bytes_ += bytes.size();
    // Under the fence writers wait: no brake there.
    if (options_.copy_rate == 0 || at_.fenced) return;
    const double due = copy_from_ + 1000.0 * static_cast<double>(copied_bytes_) /
                                        static_cast<double>(options_.copy_rate);
    const double ahead = due - parts_.clock.now_ms();
    if (ahead > 5) parts_.clock.sleep(milliseconds(static_cast<std::int64_t>(ahead)));
  });
  destination.copy_in_end();
}

Event Mover::verify() {
  const Digest found = parts_.destination.digest();
  if (found == record_.digest) {
    parts_.destination.check_references();
    return Event::kDone;
  }
  error_ = make_error(ErrorCode::kMoveRefused, "the copy differs from the source's snapshot", {},
                      "expected " + record_.digest.text + ", found " + found.text);
  return Event::kChanged;
}

// Sweep locks of both shards come before the key fence of either: a scatter that waits for one of
// them never waits behind a fence. Each kind is taken in name order. The budget bounds all waits
// together.
Event Mover::fence() {
  parts_.source.install_token(record_.unit, record_.token);
  parts_.source.begin_cutover(record_.unit, record_.token);
  Shard* first = &parts_.source;
  Shard* second = &parts_.destination;
  if (second->name() < first->name()) std::swap(first, second);
  const std::vector<std::int32_t> buckets = buckets_of(record_.unit.group, record_.unit.keys);
  const Budget budget(parts_.clock, options_.lock_budget);
  first->lock_sweep(budget.left());
  second->lock_sweep(budget.left());
  stall_from_ = 0;
  for (Shard* shard : {first, second}) {
    shard->lock_keys(buckets, budget.left());
    if (shard == &parts_.source) stall_from_ = parts_.clock.now_ms();
    if (shard == first) parts_.failpoints.hit(point::kFenceMiddle);
  }
  return Event::kDone;
}

Event Mover::compare() {
  Digest found = parts_.source.digest();
  if (!(found == record_.digest)) {
    record_.digest = std::move(found);
    return Event::kChanged;
  }
  if (parts_.destination.count_rows() != record_.digest.rows) {
    throw StepFailure(Event::kRefused,
                      make_error(ErrorCode::kDestinationConflict,
                                 "shard \"" + record_.unit.destination +
                                     "\" got rows of the key while it was being copied"));
  }
  return Event::kDone;
}

Event Mover::retire_rows() {
  const Digest deleted = parts_.source.retire_rows(record_.unit);
  if (deleted == record_.digest) return Event::kDone;
  error_ = make_error(ErrorCode::kMoveRefused,
                      "rows changed under the fence: somebody writes past the proxy", {},
                      "expected " + record_.digest.text + ", deleted " + deleted.text);
  return Event::kChanged;
}

Event Mover::decide() {
  if (parts_.journal.decide(record_)) return Event::kDone;
  throw refused(std::string(kMoveCancelled) + ", or the tables of the group have changed");
}

Event Mover::inspect() {
  Shard& source = parts_.source;
  Shard& destination = parts_.destination;
  const SideEvidence from =
      source.inspect(record_.unit, record_.attempt, Side::kSource, record_.digest);
  const SideEvidence to =
      destination.inspect(record_.unit, record_.attempt, Side::kDestination, record_.digest);
  const Decision decision = migration::decide({.state = record_.state,
                                               .cancel_requested = record_.cancel_requested,
                                               .had_rows = record_.digest.rows > 0,
                                               .destination_prepared = to.prepared,
                                               .source_prepared = from.prepared,
                                               .marker = to.marker,
                                               .tombstone = from.tombstone,
                                               .archive = from.archive,
                                               .source_rows = from.rows,
                                               .destination_rows = to.rows});
  if (decision.event == Event::kUnclear) {
    // What looks impossible may be the work of somebody who has taken over since.
    const auto now = parts_.journal.load(record_.unit.op);
    if (!now || now->token != record_.token) return Event::kFenced;
  }
  drop_copy_ = decision.drop_copy;
  destination_done_ = from.tombstone && !to.prepared;
  if (decision.event == Event::kUnclear || decision.event == Event::kAbort) {
    error_ = make_error(ErrorCode::kMoveRefused, "recovery: " + std::string(decision.rule));
  }
  return decision.event;
}

Event Mover::roll_back_halves() {
  both(point::kRollbackHalvesMiddle,
       [&](Shard& shard, Side) { shard.rollback_halves(record_.unit, record_.attempt); });
  if (drop_copy_ && !parts_.destination.drop_copy(record_.unit, record_.token, record_.digest)) {
    throw StepFailure(Event::kLost, make_error(ErrorCode::kDestinationConflict,
                                               "rows on shard \"" + record_.unit.destination +
                                                   "\" are not the copy of this move any more"));
  }
  return Event::kDone;
}

}  // namespace collegedb::migration
