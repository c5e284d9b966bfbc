#include "proxy/session/hot_keys.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "routing/hash.h"

namespace collegedb::session {
namespace {

constexpr std::uint64_t kSecond = 1'000'000'000;

routing::RoutedKey key_of(const std::string& key, const std::string& group = "public.users") {
  return {.group = group, .key = key, .bucket = routing::gate_bucket(group, key)};
}

class HotKeysTest : public testing::Test {
 protected:
  void count(const routing::RoutedKey& key, int times, bool write = false,
             routing::ShardId shard = 0) {
    for (int i = 0; i < times; ++i) keys_->count(key, shard, write, now_);
  }
  [[nodiscard]] std::vector<HotKey> top(std::size_t limit) const {
    return hottest(keys_->all(now_), limit);
  }

  std::unique_ptr<HotKeys> keys_ = std::make_unique<HotKeys>();
  std::uint64_t now_ = 77 * kSecond;
};

TEST_F(HotKeysTest, NothingCountedShowsNothing) {
  EXPECT_TRUE(top(10).empty());
}

TEST_F(HotKeysTest, RatesShardAndOrder) {
  count(key_of("a"), 30, false, 1);
  count(key_of("b"), 20, true, 2);
  count(key_of("a"), 10, true, 2);
  now_ += 10 * kSecond;
  const auto found = top(10);
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].key, "a");
  EXPECT_EQ(found[0].shard, 2);
  EXPECT_DOUBLE_EQ(found[0].statements_per_second, 4);
  EXPECT_DOUBLE_EQ(found[0].writes_per_second, 1);
  EXPECT_EQ(found[1].key, "b");
  EXPECT_DOUBLE_EQ(found[1].writes_per_second, 2);
  EXPECT_EQ(top(1).size(), 1U);
}

TEST_F(HotKeysTest, SameKeyOfAnotherGroupIsAnotherKey) {
  count(key_of("a"), 3);
  count(key_of("a", "public.orgs"), 5);
  const auto found = top(10);
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].group, "public.orgs");
}

// A steady rate is shown as it is, in whatever part of a minute somebody looks.
TEST_F(HotKeysTest, SteadyRateIsShownAsItIs) {
  for (int second = 0; second < 400; ++second) {
    count(key_of("steady"), 8, second % 2 == 0);
    now_ += kSecond;
    if (second < 5) continue;
    const auto found = top(1);
    ASSERT_NEAR(found.at(0).statements_per_second, 8, 0.2) << second;
    ASSERT_NEAR(found[0].writes_per_second, 4, 0.8) << second;
  }
}

TEST_F(HotKeysTest, WhatWasHotIsForgotten) {
  count(key_of("old"), 6000);
  now_ += 300 * kSecond;
  count(key_of("new"), 600);
  EXPECT_EQ(top(1).at(0).key, "new");
  now_ += 100 * 60 * kSecond;
  count(key_of("third"), 1);
  EXPECT_LT(top(3).at(1).statements_per_second, 1e-6);
}

TEST_F(HotKeysTest, NeverMoreThanThereWere) {
  std::mt19937 random(5);  // NOLINT: the same numbers each time
  for (int i = 0; i < 200000; ++i) count(key_of("k" + std::to_string(random() % 50000)), 1);
  now_ += kSecond;
  double sum = 0;
  for (const HotKey& each : keys_->all(now_)) sum += each.statements_per_second;
  EXPECT_LE(sum, 200000);
  EXPECT_LE(keys_->all(now_).size(), HotKeys::kSets * HotKeys::kWays);
}

// One key in fifty statements stands out of a hundred thousand others.
TEST_F(HotKeysTest, HotKeyIsFoundAmongMany) {
  std::mt19937 random(6);  // NOLINT: the same numbers each time
  for (int i = 0; i < 300000; ++i) {
    count(key_of(i % 50 == 0 ? "hot" : "k" + std::to_string(random() % 100000)), 1);
  }
  now_ += kSecond;
  const auto found = top(1);
  EXPECT_EQ(found.at(0).key, "hot");
  EXPECT_NEAR(found[0].statements_per_second, 6000, 300);
}

TEST_F(HotKeysTest, LongKeysAreNotKept) {
  count(key_of(std::string(HotKeys::kLongestKey + 1, 'x')), 100);
  count(key_of(std::string(HotKeys::kLongestKey, 'x')), 1);
  ASSERT_EQ(top(9).size(), 1U);
}

TEST_F(HotKeysTest, WorkersAreAddedUp) {
  HotKey a{"g", "k", 1, 10, 5};
  HotKey b{"g", "k", 2, 20, 1};
  HotKey other{"g", "z", 0, 25, 0};
  const auto found = hottest({a, other, b}, 5);
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].key, "k");
  EXPECT_EQ(found[0].shard, 2);
  EXPECT_DOUBLE_EQ(found[0].statements_per_second, 30);
  EXPECT_DOUBLE_EQ(found[0].writes_per_second, 6);
}

}  // namespace
}  // namespace collegedb::session
