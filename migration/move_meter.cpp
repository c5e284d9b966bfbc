#include "migration/move_meter.h"

namespace collegedb::migration {
namespace {

struct Place {
  metrics::MoveState state;
  metrics::MovePhase phase;
};

// States in which work is done; a claim and the final states are none.
std::optional<Place> place_of(State state) {
  using metrics::MovePhase;
  using metrics::MoveState;
  switch (state) {
    case State::kPrepared:
      return Place{MoveState::kPrepared, MovePhase::kPrepare};
    case State::kCopied:
      return Place{MoveState::kCopied, MovePhase::kCopy};
    case State::kVerified:
      return Place{MoveState::kVerified, MovePhase::kVerify};
    case State::kCutoverPending:
      return Place{MoveState::kCutoverPending, MovePhase::kCutover};
    case State::kCommitted:
      return Place{MoveState::kCommitted, MovePhase::kPublish};
    case State::kPublished:
      return Place{MoveState::kPublished, MovePhase::kPublish};
    case State::kClaim:
    case State::kRetired:
    case State::kAborted:
      return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace

MoveMeter::MoveMeter(metrics::ProcessStats* stats, const Clock& clock, State state)
    : stats_(stats),
      clock_(clock),
      state_(state),
      begun_ms_(clock.now_ms()),
      entered_ms_(begun_ms_) {
  if (!stats_) return;
  if (const auto place = place_of(state_)) stats_->moves_active[place->state].add(1);
}

MoveMeter::~MoveMeter() {
  if (stats_) leave();
}

void MoveMeter::at(State state) {
  if (!stats_ || state == state_) return;
  leave();
  state_ = state;
  entered_ms_ = clock_.now_ms();
  if (const auto place = place_of(state_)) stats_->moves_active[place->state].add(1);
}

void MoveMeter::leave() {
  const auto place = place_of(state_);
  if (!place) return;
  stats_->moves_active[place->state].add(-1);
  stats_->move_time[place->phase].observe_seconds((clock_.now_ms() - entered_ms_) / 1000);
}

void MoveMeter::ended(Outcome outcome, const MoveRecord& record) {
  if (!stats_) return;
  at(record.state);
  switch (outcome) {
    case Outcome::kRetired:
      stats_->moves[metrics::MoveResult::kPublished].add();
      stats_->move_rows.add(static_cast<std::uint64_t>(record.digest.rows));
      stats_->move_bytes.add(static_cast<std::uint64_t>(record.digest.bytes));
      stats_->move_time[metrics::MovePhase::kTotal].observe_seconds((clock_.now_ms() - begun_ms_) /
                                                                    1000);
      if (record.write_stall_ms) {
        stats_->move_write_stall.observe_seconds(*record.write_stall_ms / 1000);
      }
      break;
    case Outcome::kAborted:
      stats_->moves[metrics::MoveResult::kAborted].add();
      break;
    case Outcome::kUnclear:
      stats_->moves[metrics::MoveResult::kFailed].add();
      break;
    case Outcome::kRunning:
    case Outcome::kRestartable:
    case Outcome::kFenced:
    case Outcome::kLost:
      break;
  }
}

}  // namespace collegedb::migration
