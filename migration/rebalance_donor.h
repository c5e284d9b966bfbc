// One shard that keys are taken from: what is still to be moved, and how much of it at once.
#pragma once

#include <algorithm>
#include <chrono>
#include <deque>
#include <memory>
#include <string>
#include <utility>

#include "migration/misplaced.h"
#include "migration/rebalance_batch.h"
#include "proxy/config.h"

namespace collegedb::migration {

// Operations at once on one donor: grows by one after a while of success, halves when a fence was
// not to be had in time or kept writers waiting. One thread at a time.
class DonorLimit {
 public:
  using Clock = std::chrono::steady_clock;

  explicit DonorLimit(int most) : most_(most), limit_(most) {}

  [[nodiscard]] int limit() const { return limit_; }
  [[nodiscard]] bool resting(Clock::time_point now) const { return now < rest_until_; }

  void congested(Clock::time_point now) {
    limit_ = std::max(1, limit_ / 2);
    smooth_ = 0;
    pause_ = std::min(pause_ * 2, kLongestPause);
    rest_until_ = now + pause_;
  }
  void smooth() {
    pause_ = kFirstPause;
    if (++smooth_ < kSmooth || limit_ >= most_) return;
    smooth_ = 0;
    ++limit_;
  }

 private:
  static constexpr int kSmooth = 16;  // operations
  static constexpr std::chrono::milliseconds kFirstPause{50};
  static constexpr std::chrono::milliseconds kLongestPause{2000};

  int most_;
  int limit_;
  int smooth_ = 0;
  std::chrono::milliseconds pause_{kFirstPause};
  Clock::time_point rest_until_{};
};

struct Donor {
  Donor(ShardConfig config, int most) : shard(std::move(config)), limit(most) {}

  ShardConfig shard;
  DonorLimit limit;
  int active = 0;        // operations
  bool reading = false;  // some thread asks the shard for more
  bool exhausted = false;
  int read_failures = 0;  // in a row
  struct Scan {
    std::string group;
    std::unique_ptr<KeyScan> scan;
  };
  std::deque<Scan> scans;  // the first is at work
  std::unique_ptr<Batcher> batcher;
  std::unique_ptr<ControlSession> session;
  struct Waiting {
    RebalanceBatch batch;
    DonorLimit::Clock::time_point not_before;
  };
  std::deque<Waiting> waiting;
};

}  // namespace collegedb::migration
