// Recovery: finishes or undoes the operations whose mover is dead, in every proxy, every
// recovery_interval. What it does with one operation is decided by machine.h alone.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "migration/move.h"
#include "migration/runner.h"
#include "proxy/wire/error.h"

namespace collegedb::migration {

class PgJournal;

class Recovery {
 public:
  explicit Recovery(RunnerOptions options);

  // One round under the scope's lease (60 s by the journal's clock, not renewed).
  // RECOVERY_IN_PROGRESS when another has it, RECOVERY_FENCED when it was lost on the way.
  [[nodiscard]] Result<RecoveryResult> run();

  // run(), but only when needed(); nullopt otherwise. Leaves the lease alone when it is not.
  [[nodiscard]] Result<std::optional<RecoveryResult>> run_if_needed();

  // True when there is an operation (or an orphaned claim) that no living mover holds. Cheap.
  [[nodiscard]] Result<bool> needed();

 private:
  Result<RecoveryResult> run_with(PgJournal& journal);

  RunnerOptions options_;
};

// Runs recovery on its own thread. Two-phase commits of the proxy are finished by the same loop:
// `two_phase` is called once per round, before the moves.
class RecoveryLoop {
 public:
  struct Hooks {
    std::function<void()> two_phase;                      // may throw; the round goes on
    std::function<void(const RecoveryResult&)> finished;  // after a round that did something
    std::function<void(const SqlError&)> failed;
  };
  RecoveryLoop(RunnerOptions options, std::chrono::milliseconds interval, Hooks hooks);
  ~RecoveryLoop();
  RecoveryLoop(const RecoveryLoop&) = delete;
  RecoveryLoop& operator=(const RecoveryLoop&) = delete;

  // Ends the thread after the step it is in; idempotent, blocks until it has ended.
  void stop();

 private:
  void loop();
  void round();

  RunnerOptions options_;
  std::chrono::milliseconds interval_;
  Hooks hooks_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace collegedb::migration
