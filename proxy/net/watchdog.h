// All deadlines of one worker: no timer per read. Whoever is about to suspend stores its due time
// and links itself in; one coarse tick looks at the linked ones. Ticks only while any is linked.
// Precision is one tick; whatever needs better uses its own timer.
#pragma once

#include <boost/intrusive/list.hpp>

#include "proxy/net/asio.h"

namespace collegedb::net {

class Watched : public boost::intrusive::list_base_hook<
                    boost::intrusive::link_mode<boost::intrusive::auto_unlink>> {
 public:
  // Due has passed; already unlinked. Must not destroy any Watched inline: wake by post.
  virtual void on_due(TimePoint now) = 0;

 protected:
  ~Watched() = default;

 private:
  friend class Watchdog;
  TimePoint due_;
};

class Watchdog {
 public:
  static constexpr Milliseconds kTick{50};

  explicit Watchdog(Executor executor) : timer_(executor) {}

  // Time of the last tick while ticking, else now: good enough to compute a due time from.
  [[nodiscard]] TimePoint now() const { return ticking_ ? now_ : Clock::now(); }
  void watch(Watched& watched, TimePoint due);
  static void unwatch(Watched& watched) { watched.unlink(); }
  // No more ticks; linked ones stay silent.
  void stop();

 private:
  void arm();
  void tick();

  Timer timer_;
  boost::intrusive::list<Watched, boost::intrusive::constant_time_size<false>> linked_;
  TimePoint now_;
  bool ticking_ = false;
  bool stopped_ = false;
};

}  // namespace collegedb::net
