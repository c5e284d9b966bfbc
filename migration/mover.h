// Performs the commands of the machine for one operation, one at a time.
#pragma once

#include <chrono>
#include <functional>

#include "migration/failpoint.h"
#include "migration/machine.h"
#include "migration/move.h"
#include "migration/shard.h"

namespace collegedb::migration {

// Time as the mover sees it; the simulation has its own.
struct Clock {
  std::function<double()> now_ms;
  std::function<void(std::chrono::milliseconds)> sleep;
  static Clock steady();
};

// Part of the error of a move that was cancelled.
inline constexpr std::string_view kMoveCancelled = "the move was cancelled";

class Mover {
 public:
  struct Parts {
    Journal& journal;  // REQUIRES: holds the operation's lock
    Shard& source;
    Shard& destination;
    Failpoints& failpoints;
    Clock clock;
  };
  struct Options {
    std::uint32_t attempts = 3;
    std::chrono::milliseconds lock_budget{250};
    std::uint64_t copy_rate = 0;  // bytes per second, 0 = unbounded
  };
  Mover(MoveRecord record, Position at, Parts parts, Options options);

  // Performs one command; false when the position is kStop.
  bool advance();
  // Until kStop.
  Outcome run();

  [[nodiscard]] const Position& position() const { return at_; }
  [[nodiscard]] const MoveRecord& record() const { return record_; }
  // Why it did not succeed; empty message when it did.
  [[nodiscard]] const SqlError& error() const { return error_; }

 private:
  Event perform(Command command);
  Event attempt(Command command);
  Event prepare_plan();
  Event take_snapshot();
  Event copy();
  Event verify();
  Event fence();
  Event compare();
  Event retire_rows();
  Event inspect();
  Event write(State state);
  Event decide();
  Event roll_back_halves();
  Event both(std::string_view middle, const std::function<void(Shard&, Side)>& act);
  void copy_table(std::size_t table);
  [[nodiscard]] std::string gid(Side side) const;

  MoveRecord record_;
  Position at_;
  Parts parts_;
  Options options_;
  SqlError error_;
  std::shared_ptr<const MovePlan> plan_;
  bool drop_copy_ = false;
  bool destination_done_ =
      false;  // the source's half is committed, so the destination's was before
  double stall_from_ = 0;
  double copy_from_ = 0;
  std::uint64_t copied_bytes_ = 0;
};

}  // namespace collegedb::migration
