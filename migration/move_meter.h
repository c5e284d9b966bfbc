// What one run of a mover adds to the statistics: time by phase, where it stands, how it ended.
#pragma once

#include <optional>

#include "metrics/stats.h"
#include "migration/mover.h"

namespace collegedb::migration {

class MoveMeter {
 public:
  // `stats` may be null; it and `clock` outlive the meter.
  MoveMeter(metrics::ProcessStats* stats, const Clock& clock, State state);
  ~MoveMeter();
  MoveMeter(const MoveMeter&) = delete;
  MoveMeter& operator=(const MoveMeter&) = delete;

  // After each step of the mover.
  void at(State state);
  // Once, when the mover has stopped. An outcome that somebody will take over counts nothing.
  void ended(Outcome outcome, const MoveRecord& record);

 private:
  void leave();

  metrics::ProcessStats* stats_;
  const Clock& clock_;
  State state_;
  double begun_ms_;
  double entered_ms_;
};

}  // namespace collegedb::migration
