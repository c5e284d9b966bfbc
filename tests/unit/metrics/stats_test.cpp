#include "metrics/stats.h"

#include <gmock/gmock.h>

#include <set>

namespace collegedb::metrics {
namespace {

using ::testing::ElementsAre;

// The sample of a family with these label values, in order; nullptr when there is none.
const Sample* find(const std::vector<Family>& families, std::string_view name,
                   const std::vector<std::string>& labels = {}) {
  for (const auto& family : families) {
    if (family.info->name != name) continue;
    for (const auto& sample : family.samples) {
      std::vector<std::string> values;
      for (const auto& label : sample.labels) values.push_back(label.second);
      if (values == labels) return &sample;
    }
  }
  return nullptr;
}

double value(const std::vector<Family>& families, std::string_view name,
             const std::vector<std::string>& labels = {}) {
  const auto* sample = find(families, name, labels);
  EXPECT_NE(sample, nullptr) << name;
  return sample ? sample->value : -1;
}

std::uint64_t fake_now = 0;
std::uint64_t fake_clock() noexcept {
  return fake_now;
}

TEST(StatsTest, SumsTheWorkers) {
  Registry registry({"east", "west"}, 2);
  registry.worker(0).shards[1].queries[QueryKind::kUpdate][Protocol::kExtended].add(3);
  registry.worker(1).shards[1].queries[QueryKind::kUpdate][Protocol::kExtended].add(4);
  registry.worker(0).clients[ClientState::kIdle].add(5);
  registry.worker(1).clients[ClientState::kIdle].add(-1);
  const auto families = collect(registry);
  EXPECT_EQ(value(families, "collegedb_queries_total", {"west", "update", "extended"}), 7);
  EXPECT_EQ(value(families, "collegedb_queries_total", {"east", "update", "extended"}), 0);
  EXPECT_EQ(value(families, "collegedb_clients", {"idle"}), 4);
}

TEST(StatsTest, SumsHistograms) {
  Registry registry({"east"}, 2);
  registry.worker(0).shards[0].pool_wait.observe_ns(50'000);  // a bound belongs to its bucket
  registry.worker(1).shards[0].pool_wait.observe_ns(50'001);
  registry.worker(1).shards[0].pool_wait.observe_seconds(11);
  const auto families = collect(registry);
  const auto* sample = find(families, "collegedb_pool_wait_seconds", {"east"});
  ASSERT_NE(sample, nullptr);
  ASSERT_EQ(sample->buckets.size(), kWaitBounds.size() + 1);
  EXPECT_EQ(sample->buckets.front(), 1U);
  EXPECT_EQ(sample->buckets[1], 1U);
  EXPECT_EQ(sample->buckets.back(), 1U);
  EXPECT_NEAR(sample->sum_seconds, 11.0001, 1e-6);
}

TEST(StatsTest, NegativeTimesCountAsZero) {
  FineHistogram histogram;
  histogram.observe_seconds(-1);
  EXPECT_EQ(histogram.count_in(0), 1U);
  EXPECT_EQ(histogram.sum_ns(), 0U);
}

TEST(StatsTest, CountsErrorsByTheCodeAtTheStart) {
  Registry registry({"east"}, 1);
  auto& worker = registry.worker(0);
  worker.count_error(make_error(ErrorCode::kKeyRequired, "no key"));
  worker.count_error(make_error(ErrorCode::kKeyRequired, "no key"));
  worker.count_error(make_error("42601", "syntax error: at x"));
  worker.count_error(make_error("23505", "KEY_REQUIRED: said a shard"), true);
  worker.count_write_rejection(make_error(ErrorCode::kStaleTopology, "old"));
  const auto families = collect(registry);
  EXPECT_EQ(value(families, "collegedb_errors_total", {"KEY_REQUIRED"}), 2);
  EXPECT_EQ(value(families, "collegedb_errors_total", {"other"}), 1);
  EXPECT_EQ(value(families, "collegedb_errors_total", {"shard"}), 1);
  EXPECT_EQ(value(families, "collegedb_write_rejections_total", {"STALE_TOPOLOGY"}), 1);
  EXPECT_EQ(find(families, "collegedb_errors_total", {"POOL_TIMEOUT"}), nullptr);
}

TEST(StatsTest, EveryErrorCodeHasACell) {
  for (std::size_t i = 0; i < kErrorCodes; ++i) {
    EXPECT_FALSE(name_of(static_cast<ErrorCode>(i)).empty()) << i;
  }
}

TEST(StatsTest, ManifestAgeNeedsASnapshot) {
  Registry registry({"east"}, 1, fake_clock, "1.2");
  fake_now = 5'000'000'000;
  EXPECT_EQ(find(collect(registry), "collegedb_manifest_age_seconds"), nullptr);
  registry.process().manifest_confirmed_ns.set(2'000'000'000);
  const auto families = collect(registry);
  EXPECT_EQ(value(families, "collegedb_manifest_age_seconds"), 3);
  EXPECT_EQ(value(families, "collegedb_build_info", {"1.2"}), 1);
}

TEST(StatsTest, FamiliesAreNamedAsPrometheusWants) {
  std::set<std::string_view> names;
  for (const auto& info : families()) {
    EXPECT_TRUE(names.insert(info.name).second) << info.name << " twice";
    EXPECT_TRUE(info.name.starts_with("collegedb_")) << info.name;
    EXPECT_EQ(info.name.ends_with("_total"), info.type == Type::kCounter) << info.name;
    EXPECT_EQ(info.name.ends_with("_seconds") && info.type != Type::kGauge,
              info.type == Type::kHistogram)
        << info.name;
    EXPECT_TRUE(info.help.ends_with('.')) << info.name;
  }
}

TEST(StatsTest, SamplesCarryTheLabelsTheirFamilyDeclares) {
  Registry registry({"east", "west"}, 1, fake_clock);
  fake_now = 1;
  registry.process().manifest_confirmed_ns.set(1);
  registry.worker(0).count_error(make_error("42601", "x"));
  registry.worker(0).count_write_rejection(make_error("42601", "x"));
  const auto all = collect(registry);
  EXPECT_EQ(all.size(), families().size());
  for (const auto& family : all) {
    EXPECT_FALSE(family.samples.empty()) << family.info->name;
    for (const auto& sample : family.samples) {
      std::string labels;
      for (const auto& label : sample.labels) {
        if (!labels.empty()) labels += ',';
        labels += label.first;
      }
      EXPECT_EQ(labels, family.info->labels) << family.info->name;
      EXPECT_EQ(sample.bounds.empty(), family.info->type != Type::kHistogram);
    }
  }
}

TEST(StatsTest, ClockIsTheOneGiven) {
  Registry registry({"east"}, 1, fake_clock);
  fake_now = 42;
  EXPECT_EQ(registry.worker(0).now_ns(), 42U);
  EXPECT_EQ(WorkerStats(1).now_ns(), 0U);
}

}  // namespace
}  // namespace collegedb::metrics
