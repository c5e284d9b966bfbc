#include "metrics/collector.h"

#include <prometheus/metric_family.h>

#include <limits>

namespace collegedb::metrics {
namespace {

prometheus::MetricType type_of(Type type) {
  switch (type) {
    case Type::kCounter:
      return prometheus::MetricType::Counter;
    case Type::kGauge:
      return prometheus::MetricType::Gauge;
    case Type::kHistogram:
      return prometheus::MetricType::Histogram;
  }
  return prometheus::MetricType::Untyped;
}

prometheus::ClientMetric::Histogram histogram_of(const Sample& sample) {
  prometheus::ClientMetric::Histogram histogram;
  std::uint64_t cumulative = 0;
  for (std::size_t i = 0; i < sample.buckets.size(); ++i) {
    cumulative += sample.buckets[i];
    const double bound = i < sample.bounds.size() ? static_cast<double>(sample.bounds[i]) / 1e9
                                                  : std::numeric_limits<double>::infinity();
    histogram.bucket.push_back({.cumulative_count = cumulative, .upper_bound = bound});
  }
  histogram.sample_count = cumulative;
  histogram.sample_sum = sample.sum_seconds;
  return histogram;
}

prometheus::ClientMetric metric_of(Type type, const Sample& sample) {
  prometheus::ClientMetric metric;
  for (const auto& [name, value] : sample.labels) {
    metric.label.push_back({.name = std::string(name), .value = value});
  }
  switch (type) {
    case Type::kCounter:
      metric.counter.value = sample.value;
      break;
    case Type::kGauge:
      metric.gauge.value = sample.value;
      break;
    case Type::kHistogram:
      metric.histogram = histogram_of(sample);
      break;
  }
  return metric;
}

}  // namespace

std::vector<prometheus::MetricFamily> Collector::Collect() const {
  std::vector<prometheus::MetricFamily> result;
  for (const auto& family : collect(registry_)) {
    prometheus::MetricFamily out;
    out.name = family.info->name;
    out.help = family.info->help;
    out.type = type_of(family.info->type);
    for (const auto& sample : family.samples) {
      out.metric.push_back(metric_of(family.info->type, sample));
    }
    result.push_back(std::move(out));
  }
  return result;
}

}  // namespace collegedb::metrics
