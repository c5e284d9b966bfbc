#include "migration/machine.h"

namespace collegedb::migration {
namespace {

constexpr std::array<std::string_view, kStates> kStateNames = {
    "claim",     "prepared",  "copied",  "verified", "cutover_pending",
    "committed", "published", "retired", "aborted"};

constexpr std::array<std::string_view, kCommands> kCommandNames = {"journal_prepared",
                                                                   "preflight",
                                                                   "snapshot",
                                                                   "journal_copied",
                                                                   "copy",
                                                                   "journal_verified",
                                                                   "verify",
                                                                   "journal_cutover",
                                                                   "fence",
                                                                   "compare",
                                                                   "retire_rows",
                                                                   "prepare_destination",
                                                                   "prepare_source",
                                                                   "journal_committed",
                                                                   "commit_destination",
                                                                   "commit_source",
                                                                   "clear_incoming",
                                                                   "publish",
                                                                   "retire",
                                                                   "forget_tokens",
                                                                   "rollback",
                                                                   "back_off",
                                                                   "journal_aborted",
                                                                   "take_over",
                                                                   "raise_tokens",
                                                                   "inspect",
                                                                   "journal_reset",
                                                                   "rollback_halves",
                                                                   "stop"};

constexpr std::array<std::string_view, kEvents> kEventNames = {
    "done",   "changed", "missed", "refused", "fenced", "lost",
    "finish", "restart", "abort",  "unclear", "nothing"};

constexpr std::uint16_t bit(State s) {
  return static_cast<std::uint16_t>(1U << unsigned(s));
}
constexpr std::uint8_t bit(Found r) {
  return static_cast<std::uint8_t>(1U << unsigned(r));
}

struct Transition {
  State from;
  std::uint16_t to;
};
constexpr std::uint16_t kBack = bit(State::kPrepared) | bit(State::kAborted);
constexpr std::array<Transition, kStates> kTransitions = {{
    {State::kClaim, kBack},
    {State::kPrepared, bit(State::kCopied) | kBack},
    {State::kCopied, bit(State::kVerified) | kBack},
    {State::kVerified, bit(State::kCutoverPending) | kBack},
    {State::kCutoverPending, bit(State::kCommitted) | kBack},
    {State::kCommitted, bit(State::kPublished)},
    {State::kPublished, bit(State::kRetired)},
    {State::kRetired, 0},
    {State::kAborted, 0},
}};

// The way forward when all goes well, and the state that a journal command records.
struct Forward {
  Command command;
  Command next;
  std::optional<State> records = std::nullopt;
};
constexpr std::array kForward = {
    Forward{Command::kJournalPrepared, Command::kPreflight, State::kPrepared},
    Forward{Command::kPreflight, Command::kSnapshot},
    Forward{Command::kSnapshot, Command::kJournalCopied},
    Forward{Command::kJournalCopied, Command::kCopy, State::kCopied},
    Forward{Command::kCopy, Command::kJournalVerified},
    Forward{Command::kJournalVerified, Command::kVerify, State::kVerified},
    Forward{Command::kVerify, Command::kJournalCutover},
    Forward{Command::kJournalCutover, Command::kFence, State::kCutoverPending},
    Forward{Command::kFence, Command::kCompare},
    Forward{Command::kCompare, Command::kRetireRows},
    Forward{Command::kRetireRows, Command::kPrepareDestination},
    Forward{Command::kPrepareDestination, Command::kPrepareSource},
    Forward{Command::kPrepareSource, Command::kJournalCommitted},
    Forward{Command::kJournalCommitted, Command::kCommitDestination, State::kCommitted},
    Forward{Command::kCommitDestination, Command::kCommitSource},
    Forward{Command::kCommitSource, Command::kClearIncoming},
    Forward{Command::kClearIncoming, Command::kPublish},
    Forward{Command::kPublish, Command::kRetire, State::kPublished},
    Forward{Command::kRetire, Command::kForgetTokens, State::kRetired},
    Forward{Command::kForgetTokens, Command::kStop},
    Forward{Command::kBackOff, Command::kJournalPrepared},
    Forward{Command::kJournalAborted, Command::kStop, State::kAborted},
    Forward{Command::kTakeOver, Command::kRaiseTokens},
    Forward{Command::kRaiseTokens, Command::kInspect},
    Forward{Command::kJournalReset, Command::kRollbackHalves, State::kPrepared},
};

Position stop(Position at, Outcome outcome) {
  at.command = Command::kStop;
  at.outcome = outcome;
  return at;
}

Position go(Position at, Command command) {
  at.command = command;
  return at;
}

// Everything this mover has open goes; then another attempt or the end. The journal comes first:
// once it says `prepared`, nobody who takes over may commit the halves that are being undone.
Position roll_back(Position at, bool give_up) {
  at.give_up = give_up;
  at.fenced = false;
  const bool early = at.state == State::kClaim || at.state == State::kPrepared;
  return go(at, early ? Command::kRollback : Command::kJournalReset);
}

Position after_rollback(const Position& at) {
  return go(at, at.give_up ? Command::kJournalAborted : Command::kBackOff);
}

Position after_inspect(const Position& at, Event event) {
  const bool undo = event == Event::kRestart || event == Event::kAbort;
  if ((undo && is_decided(at.state)) || (event != Event::kNothing && is_final(at.state))) {
    return stop(at, Outcome::kUnclear);
  }
  switch (event) {
    case Event::kFinish:
      if (at.state == State::kPublished) return go(at, Command::kRetire);
      return go(at, at.state == State::kCommitted ? Command::kCommitDestination
                                                  : Command::kJournalCommitted);
    case Event::kRestart:
      return go(at, Command::kJournalReset);
    case Event::kAbort: {
      Position next = at;
      next.give_up = true;
      return go(next, Command::kJournalReset);
    }
    case Event::kUnclear:
      return stop(at, Outcome::kUnclear);
    case Event::kNothing:
      return stop(at, at.state == State::kRetired ? Outcome::kRetired : Outcome::kAborted);
    default:
      return stop(at, Outcome::kLost);
  }
}

Position forward(const Position& at) {
  for (const Forward& row : kForward) {
    if (row.command != at.command) continue;
    Position next = go(at, row.next);
    if (row.records) {
      if (!is_legal(at.state, *row.records) && at.state != *row.records) {
        return stop(at, Outcome::kLost);
      }
      next.state = *row.records;
    }
    if (row.command == Command::kFence) next.fenced = true;
    // A copy renewed under the fence needs neither preflight nor snapshot, and no second fence.
    if (at.fenced && row.command == Command::kJournalPrepared)
      next.command = Command::kJournalCopied;
    if (at.fenced && row.command == Command::kJournalCutover) next.command = Command::kRetireRows;
    if (row.command == Command::kJournalReset && !at.recovering) next.command = Command::kRollback;
    if (row.next == Command::kStop) {
      next.outcome = next.state == State::kRetired ? Outcome::kRetired : Outcome::kAborted;
    }
    return next;
  }
  return stop(at, Outcome::kLost);
}

bool undoes(Command command) {
  return command == Command::kJournalReset || command == Command::kRollback ||
         command == Command::kBackOff || command == Command::kJournalAborted;
}

constexpr std::uint16_t kBefore =
    bit(State::kClaim) | bit(State::kPrepared) | bit(State::kCopied) | bit(State::kVerified);
constexpr std::uint16_t kPending = bit(State::kCutoverPending);
constexpr std::uint16_t kUndecided = kBefore | kPending;
constexpr std::uint8_t kSomeRows = bit(Found::kEqual) | bit(Found::kDifferent);

constexpr std::array kRules = {
    Rule{.name = "final",
         .states = bit(State::kRetired) | bit(State::kAborted),
         .decision = Event::kNothing},
    Rule{.name = "published", .states = bit(State::kPublished), .decision = Event::kFinish},

    // Decided: each side must show that its half is prepared or has been committed.
    Rule{.name = "committed, source has its tombstone",
         .states = bit(State::kCommitted),
         .tombstone = Is::kYes,
         .decision = Event::kFinish},
    Rule{.name = "committed, both halves prepared",
         .states = bit(State::kCommitted),
         .destination_prepared = Is::kYes,
         .source_prepared = Is::kYes,
         .decision = Event::kFinish},
    Rule{.name = "committed, destination done, source prepared",
         .states = bit(State::kCommitted),
         .source_prepared = Is::kYes,
         .marker = Is::kYes,
         .decision = Event::kFinish},
    Rule{.name = "committed, a half is missing",
         .states = bit(State::kCommitted),
         .decision = Event::kUnclear},

    // Undecided in the journal, but a half is committed: the record of the decision was lost.
    Rule{.name = "destination carries the marker, source has its tombstone",
         .states = kUndecided,
         .marker = Is::kYes,
         .tombstone = Is::kYes,
         .decision = Event::kFinish},
    Rule{.name = "destination carries the marker, source prepared",
         .states = kUndecided,
         .source_prepared = Is::kYes,
         .marker = Is::kYes,
         .decision = Event::kFinish},
    Rule{.name = "destination carries the marker, source half is missing",
         .states = kUndecided,
         .marker = Is::kYes,
         .decision = Event::kUnclear},
    Rule{.name = "source gone into the archive, destination prepared",
         .states = kUndecided,
         .destination_prepared = Is::kYes,
         .tombstone = Is::kYes,
         .archived = Is::kYes,
         .decision = Event::kFinish},
    Rule{.name = "source gone into the archive, destination has rows",
         .states = kUndecided,
         .tombstone = Is::kYes,
         .archived = Is::kYes,
         .destination_rows = kSomeRows,
         .decision = Event::kFinish},
    Rule{.name = "source has its tombstone, destination or archive is missing",
         .states = kUndecided,
         .tombstone = Is::kYes,
         .decision = Event::kUnclear},

    // Nothing is committed anywhere.
    Rule{.name = "cancelled", .states = kUndecided, .cancel = Is::kYes, .decision = Event::kAbort},
    Rule{.name = "not yet at the cutover", .states = kBefore, .decision = Event::kRestart},
    Rule{.name = "both halves prepared",
         .states = kPending,
         .destination_prepared = Is::kYes,
         .source_prepared = Is::kYes,
         .decision = Event::kFinish},
    Rule{.name = "only the destination prepared",
         .states = kPending,
         .destination_prepared = Is::kYes,
         .decision = Event::kRestart},
    Rule{.name = "only the source prepared",
         .states = kPending,
         .source_prepared = Is::kYes,
         .decision = Event::kRestart},
    Rule{.name = "nothing prepared, source rows unchanged",
         .states = kPending,
         .source_rows = bit(Found::kEqual),
         .decision = Event::kRestart},
    Rule{.name = "nothing prepared, source rows changed",
         .states = kPending,
         .source_rows = bit(Found::kDifferent),
         .decision = Event::kAbort},
    Rule{.name = "source rows gone, nothing archived",
         .states = kPending,
         .archived = Is::kNo,
         .source_rows = bit(Found::kNone),
         .decision = Event::kAbort},
    Rule{.name = "an archive without a tombstone", .states = kPending, .decision = Event::kUnclear},
};

bool matches(Is wanted, bool found) {
  return wanted == Is::kAny || (wanted == Is::kYes) == found;
}

bool matches(const Rule& rule, const Evidence& e) {
  return (rule.states & bit(e.state)) != 0 && matches(rule.cancel, e.cancel_requested) &&
         matches(rule.destination_prepared, e.destination_prepared) &&
         matches(rule.source_prepared, e.source_prepared) && matches(rule.marker, e.marker) &&
         matches(rule.tombstone, e.tombstone) && matches(rule.archived, e.archive || !e.had_rows) &&
         (rule.source_rows & bit(e.source_rows)) != 0 &&
         (rule.destination_rows & bit(e.destination_rows)) != 0;
}

}  // namespace

std::string_view name_of(State state) noexcept {
  return kStateNames.at(unsigned(state));
}
std::string_view name_of(Command command) noexcept {
  return kCommandNames.at(unsigned(command));
}
std::string_view name_of(Event event) noexcept {
  return kEventNames.at(unsigned(event));
}

std::optional<State> state_from(std::string_view name) noexcept {
  for (std::size_t i = 0; i < kStates; ++i) {
    if (kStateNames[i] == name) return static_cast<State>(i);
  }
  return std::nullopt;
}

bool is_legal(State from, State to) noexcept {
  return (kTransitions.at(unsigned(from)).to & bit(to)) != 0;
}

Position start(State state) noexcept {
  return {.state = state, .command = Command::kJournalPrepared};
}

Position take_over(State state) noexcept {
  return {.state = state, .command = Command::kTakeOver, .recovering = true};
}

Position step(const Position& at, Event event, const Limits& limits) noexcept {
  if (at.command == Command::kStop) return at;
  if (event == Event::kFenced) return stop(at, Outcome::kFenced);
  if (event == Event::kLost) return stop(at, Outcome::kLost);
  if (at.command == Command::kInspect) return after_inspect(at, event);
  if (event == Event::kDone) {
    if (at.command == Command::kRollback) return after_rollback(at);
    if (at.command == Command::kRollbackHalves) {
      return at.give_up ? go(at, Command::kJournalAborted) : stop(at, Outcome::kRestartable);
    }
    return forward(at);
  }
  // After the decision, and while taking over or undoing, there is no way but forward: whatever
  // went wrong is left for the next one who takes over.
  if (is_decided(at.state) || at.recovering || undoes(at.command)) {
    return stop(at, Outcome::kLost);
  }
  if (event == Event::kChanged && at.command == Command::kCompare) {
    return go(at, Command::kJournalPrepared);
  }
  if (event == Event::kRefused) return roll_back(at, true);
  if (event == Event::kMissed || event == Event::kChanged) {
    Position next = at;
    ++next.misses;
    return roll_back(next, next.misses >= limits.attempts);
  }
  return stop(at, Outcome::kLost);
}

std::span<const Rule> recovery_rules() noexcept {
  return kRules;
}

Decision decide(const Evidence& evidence) noexcept {
  for (const Rule& rule : kRules) {
    if (!matches(rule, evidence)) continue;
    const bool undone = rule.decision == Event::kRestart || rule.decision == Event::kAbort;
    return {.event = rule.decision,
            .drop_copy = undone && evidence.had_rows && evidence.destination_rows == Found::kEqual,
            .rule = rule.name};
  }
  return {};
}

}  // namespace collegedb::migration
