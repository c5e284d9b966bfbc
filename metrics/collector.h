// The process' statistics as prometheus-cpp sees them.
#pragma once

#include <prometheus/collectable.h>

#include "metrics/stats.h"

namespace collegedb::metrics {

class Collector : public prometheus::Collectable {
 public:
  // `registry` outlives the collector. Collect() may be called from any thread.
  explicit Collector(const Registry& registry) : registry_(registry) {}
  [[nodiscard]] std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  const Registry& registry_;
};

}  // namespace collegedb::metrics
