// The move protocol as a pure object: which command follows which event, and what recovery makes
// of the pieces that a dead mover left. No I/O, no clock, no threads; who performs the commands
// is mover.h. The protocol itself is described in docs/moves.md.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace collegedb::migration {

// State of an operation: a row of collegedb.moves, always written before the work it names.
enum class State : std::uint8_t {
  kClaim,           // keys are claimed; nothing has been touched
  kPrepared,        // preflight, then the digest of the source's rows in one snapshot
  kCopied,          // rows go into one open transaction on the destination
  kVerified,        // the copy is being compared with the snapshot's digest
  kCutoverPending,  // fence, last comparison, archive and delete, both sides prepared
  kCommitted,       // the decision: from here on only forward
  kPublished,       // every proxy can learn the new owner
  kRetired,         // claims released; the archive waits for its purge
  kAborted,         // the source is untouched; the reason is in `error`
};
inline constexpr std::size_t kStates = 9;
[[nodiscard]] std::string_view name_of(State state) noexcept;
[[nodiscard]] std::optional<State> state_from(std::string_view name) noexcept;
[[nodiscard]] bool is_legal(State from, State to) noexcept;
[[nodiscard]] constexpr bool is_final(State s) noexcept {
  return s == State::kRetired || s == State::kAborted;
}
// True when the decision is recorded: nothing may be rolled back any more.
[[nodiscard]] constexpr bool is_decided(State s) noexcept {
  return s == State::kCommitted || s == State::kPublished || s == State::kRetired;
}

// One command has one external effect (or only reads).
enum class Command : std::uint8_t {
  kJournalPrepared,     // journal: prepared; a new attempt unless the fence is held
  kPreflight,           // both: schemas equal, privileges, nothing that would fire or collide
  kSnapshot,            // source: digest of the rows in a REPEATABLE READ snapshot
  kJournalCopied,       // journal: copied, with digest and position
  kCopy,                // destination: transaction open, rows streamed into it
  kJournalVerified,     // journal: verified
  kVerify,              // destination: digest of what it holds
  kJournalCutover,      // journal: cutover_pending
  kFence,               // both: sweep lock, queue and gate rows; bounded as a whole
  kCompare,             // source: digest under the fence
  kRetireRows,          // source: archive, tombstone, delete; digest of what was deleted
  kPrepareDestination,  // destination: PREPARE TRANSACTION
  kPrepareSource,       // source: PREPARE TRANSACTION
  kJournalCommitted,    // journal: committed
  kCommitDestination,   // destination: COMMIT PREPARED
  kCommitSource,        // source: COMMIT PREPARED
  kClearIncoming,       // destination: writers may pass
  kPublish,             // journal: published, exception and its version, NOTIFY
  kRetire,              // journal: retired, claims released
  kForgetTokens,        // both: token rows of this operation go
  kRollback,            // both: open transactions and this attempt's halves
  kBackOff,             // wait before the next attempt
  kJournalAborted,      // journal: aborted, claims released
  kTakeOver,            // journal: next token; older movers can write no more there
  kRaiseTokens,         // both: next token; older movers can prepare no more there
  kInspect,             // both: evidence; the answer is a decision
  kJournalReset,        // journal: back to prepared, same attempt: its halves may not commit now
  kRollbackHalves,      // both: halves of every attempt, and a committed copy by proof
  kStop,                // end; see Position::outcome
};
inline constexpr std::size_t kCommands = 29;
[[nodiscard]] std::string_view name_of(Command command) noexcept;

enum class Event : std::uint8_t {
  kDone,
  kChanged,  // rows differ from what was expected
  kMissed,   // a lock was not to be had in time, or a conflict with another transaction
  kRefused,  // cannot succeed by trying again, or was cancelled
  kFenced,   // the token was raised: somebody else has this operation now
  kLost,     // a connection was lost: whether the effect happened is unknown
  // Answers to kInspect.
  kFinish,
  kRestart,
  kAbort,
  kUnclear,  // evidence that fits no rule: left as it is
  kNothing,  // already final
};
inline constexpr std::size_t kEvents = 11;
[[nodiscard]] std::string_view name_of(Event event) noexcept;

enum class Outcome : std::uint8_t {
  kRunning,
  kRetired,
  kAborted,
  kRestartable,  // taken over and clean: may start again at kJournalPrepared
  kFenced,       // stopped without touching anything further
  kLost,         // stopped; to be taken over
  kUnclear,
};

// Where one mover stands.
struct Position {
  State state = State::kClaim;
  Command command = Command::kJournalPrepared;
  Outcome outcome = Outcome::kRunning;
  bool fenced = false;  // this mover holds the fence
  std::uint32_t misses = 0;
  bool give_up = false;     // the rollback under way ends in aborted
  bool recovering = false;  // taken over from a mover that may be dead
  friend bool operator==(const Position&, const Position&) = default;
};

struct Limits {
  std::uint32_t attempts = 3;
};

// A new operation, one whose restart recovery has prepared, and one whose mover may be dead.
[[nodiscard]] Position start(State state) noexcept;
[[nodiscard]] Position take_over(State state) noexcept;

// The next position after `command` has answered with `event`. An event that the command cannot
// answer with is treated as kLost: stop, and let the operation be taken over.
[[nodiscard]] Position step(const Position& at, Event event, const Limits& limits) noexcept;

// ---- Recovery -------------------------------------------------------------------------------

// What is found of the unit's rows on one side, against the journaled digest.
enum class Found : std::uint8_t { kNone, kEqual, kDifferent };

struct Evidence {
  State state = State::kClaim;
  bool cancel_requested = false;
  bool had_rows = true;               // the journaled copy was not empty
  bool destination_prepared = false;  // halves of the journaled attempt
  bool source_prepared = false;
  bool marker = false;     // destination: `incoming` of this operation is committed
  bool tombstone = false;  // source: tombstone of this operation is committed
  bool archive = false;    // source: archived rows of this operation
  Found source_rows = Found::kEqual;
  Found destination_rows = Found::kNone;
};

// Yes, no, or either.
enum class Is : std::uint8_t { kNo, kYes, kAny };

// One row of the decision table; the first that matches decides.
struct Rule {
  std::string_view name;
  std::uint16_t states;  // bit per State
  Is cancel = Is::kAny;
  Is destination_prepared = Is::kAny;
  Is source_prepared = Is::kAny;
  Is marker = Is::kAny;
  Is tombstone = Is::kAny;
  Is archived = Is::kAny;        // archive, or there was nothing to archive
  std::uint8_t source_rows = 7;  // bit per Found
  std::uint8_t destination_rows = 7;
  Event decision = Event::kUnclear;
};
[[nodiscard]] std::span<const Rule> recovery_rules() noexcept;

struct Decision {
  Event event = Event::kUnclear;
  // Rows on the destination equal the journaled digest and are owned by nobody: delete them, with
  // that proof repeated in the deleting transaction.
  bool drop_copy = false;
  std::string_view rule;
};
[[nodiscard]] Decision decide(const Evidence& evidence) noexcept;

}  // namespace collegedb::migration
