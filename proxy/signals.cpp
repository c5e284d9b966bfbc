#include "proxy/signals.h"

#include <ctime>

namespace collegedb {

Signals::Signals() {
  sigemptyset(&watched_);
  for (const int number : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&watched_, number);
  pthread_sigmask(SIG_BLOCK, &watched_, &before_);
  std::signal(SIGPIPE, SIG_IGN);
}

std::optional<int> Signals::wait(std::chrono::milliseconds timeout) const {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(timeout);
  const timespec limit{.tv_sec = seconds.count(),
                       .tv_nsec = std::chrono::nanoseconds(timeout - seconds).count()};
  const int number = sigtimedwait(&watched_, nullptr, &limit);
  if (number < 0) return std::nullopt;
  return number;
}

void Signals::restore_in_child() const {
  std::signal(SIGPIPE, SIG_DFL);
  sigprocmask(SIG_SETMASK, &before_, nullptr);
}

}  // namespace collegedb
