#include "proxy/net/watchdog.h"

namespace collegedb::net {

void Watchdog::watch(Watched& watched, TimePoint due) {
  watched.due_ = due;
  if (!watched.is_linked()) linked_.push_back(watched);
  if (!ticking_ && !stopped_) {
    ticking_ = true;
    now_ = Clock::now();
    arm();
  }
}

void Watchdog::stop() {
  stopped_ = true;
  timer_.cancel();
}

void Watchdog::arm() {
  timer_.expires_after(kTick);
  timer_.async_wait([this](IoError ec) {
    if (!ec && !stopped_) tick();
  });
}

void Watchdog::tick() {
  now_ = Clock::now();
  for (auto it = linked_.begin(); it != linked_.end();) {
    Watched& watched = *it++;
    if (watched.due_ > now_) continue;
    watched.unlink();
    watched.on_due(now_);
  }
  ticking_ = !linked_.empty();
  if (ticking_) arm();
}

}  // namespace collegedb::net
