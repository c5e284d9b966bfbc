// Counts the prepared transactions of CollegeDB on every shard, over one control session each that
// is kept between rounds. One background thread at a time.
#pragma once

#include <memory>
#include <vector>

#include "metrics/stats.h"
#include "migration/control_session.h"
#include "proxy/config.h"

namespace collegedb {

class ShardWatch {
 public:
  // Both outlive the watch.
  ShardWatch(const Config& config, metrics::ProcessStats& stats)
      : config_(config), stats_(stats), sessions_(config.shards.size()) {}

  // Never throws: a shard that does not answer is marked as down.
  void look();

 private:
  void look_at(std::size_t shard);

  const Config& config_;
  metrics::ProcessStats& stats_;
  std::vector<std::unique_ptr<migration::ControlSession>> sessions_;
};

}  // namespace collegedb
