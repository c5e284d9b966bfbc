// SIGTERM, SIGINT and SIGHUP as values that the main thread waits for. Made before any other
// thread, so that all of them inherit the blocked mask.
#pragma once

#include <chrono>
#include <csignal>
#include <optional>

namespace collegedb {

class Signals {
 public:
  // Blocks the three signals and ignores SIGPIPE, for the rest of the process' life.
  Signals();

  // The next signal, or nullopt after `timeout`.
  [[nodiscard]] std::optional<int> wait(std::chrono::milliseconds timeout) const;

  // In a child before exec: gives back the mask and SIGPIPE as they were.
  void restore_in_child() const;

 private:
  sigset_t watched_;
  sigset_t before_;
};

}  // namespace collegedb
