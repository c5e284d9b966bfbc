#include "migration/rebalance_batch.h"

#include <gmock/gmock.h>

#include <set>

#include "migration/rebalance_donor.h"
#include "routing/hash.h"

namespace collegedb::migration {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// `count` keys of one bucket.
void add(Batcher& batcher, std::int32_t bucket, const std::string& destination, std::size_t count,
         std::int64_t rows = 1) {
  for (std::size_t i = 0; i < count; ++i) {
    batcher.add({.bucket = bucket,
                 .destination = destination,
                 .key = std::to_string(bucket) + "-" + std::to_string(i),
                 .rows = rows});
  }
}

TEST(BatcherTest, WholeBucketsUntilThereIsEnough) {
  Batcher batcher("g");
  for (std::int32_t bucket = 0; bucket < 4; ++bucket) add(batcher, bucket, "b", 100);
  ASSERT_THAT(batcher.ready, SizeIs(1));
  EXPECT_EQ(batcher.ready[0].group, "g");
  EXPECT_EQ(batcher.ready[0].destination, "b");
  EXPECT_THAT(batcher.ready[0].buckets, ElementsAre(0, 1, 2));
  EXPECT_THAT(batcher.ready[0].keys, SizeIs(300));
  batcher.finish();
  ASSERT_THAT(batcher.ready, SizeIs(2));
  EXPECT_THAT(batcher.ready[1].buckets, ElementsAre(3));
}

TEST(BatcherTest, FewBucketsHoweverSmall) {
  Batcher batcher("g");
  for (std::int32_t bucket = 0; bucket < 66; ++bucket) add(batcher, bucket, "b", 1);
  batcher.finish();
  ASSERT_THAT(batcher.ready, SizeIs(3));
  EXPECT_THAT(batcher.ready[0].buckets, SizeIs(Batcher::kBuckets));
  EXPECT_THAT(batcher.ready[2].buckets, ElementsAre(64, 65));
}

TEST(BatcherTest, ManyRowsAreEnoughToo) {
  Batcher batcher("g");
  for (std::int32_t bucket = 0; bucket < 5; ++bucket) add(batcher, bucket, "b", 10, 60);
  batcher.finish();
  ASSERT_THAT(batcher.ready, SizeIs(3));
  EXPECT_THAT(batcher.ready[0].buckets, ElementsAre(0, 1));
  EXPECT_EQ(batcher.ready[0].rows, 1200);
}

TEST(BatcherTest, ABucketOfManyRowsIsSplit) {
  Batcher batcher("g");
  add(batcher, 3, "b", 9, Batcher::kMostRows / 2);
  batcher.finish();
  ASSERT_THAT(batcher.ready, SizeIs(5));
  for (const RebalanceBatch& batch : batcher.ready) EXPECT_THAT(batch.buckets, ElementsAre(3));
  EXPECT_THAT(batcher.ready[4].keys, SizeIs(1));
}

TEST(BatcherTest, ALargeBucketIsSplitAndDestinationsAreApart) {
  Batcher batcher("g");
  add(batcher, 7, "b", Batcher::kMost + 5);
  add(batcher, 7, "c", 2);
  batcher.finish();
  std::multiset<std::pair<std::string, std::size_t>> sizes;
  for (const RebalanceBatch& batch : batcher.ready) {
    EXPECT_THAT(batch.buckets, ElementsAre(7));
    sizes.insert({batch.destination, batch.keys.size()});
  }
  EXPECT_THAT(sizes,
              ElementsAre(std::pair("b", 5U), std::pair("b", Batcher::kMost), std::pair("c", 2U)));
}

TEST(BatcherTest, NothingInNothingOut) {
  Batcher batcher("g");
  batcher.finish();
  EXPECT_THAT(batcher.ready, IsEmpty());
}

TEST(BatchTest, SplittingKeepsEveryKeyOnceAndItsBucketRight) {
  std::vector<std::string> keys;
  for (int i = 0; i < 101; ++i) keys.push_back("k" + std::to_string(i));
  const RebalanceBatch batch =
      narrowed({.group = "g", .destination = "b", .keys = {}, .buckets = {}, .tries = 2}, keys);
  const std::multiset<std::string> all(batch.keys.begin(), batch.keys.end());
  for (const auto& parts : {split_buckets(batch), split_in_half(batch)}) {
    std::multiset<std::string> seen;
    for (const RebalanceBatch& part : parts) {
      EXPECT_EQ(part.destination, "b");
      EXPECT_EQ(part.tries, 2);
      std::set<std::int32_t> buckets;
      for (const std::string& key : part.keys) {
        seen.insert(key);
        buckets.insert(routing::gate_bucket("g", key));
      }
      EXPECT_TRUE(
          std::equal(buckets.begin(), buckets.end(), part.buckets.begin(), part.buckets.end()));
    }
    EXPECT_EQ(seen, all);
  }
  const auto parts = split_buckets(batch);
  ASSERT_THAT(parts, SizeIs(2));
  EXPECT_LT(parts[0].buckets.back(), parts[1].buckets.front());
  EXPECT_EQ(parts[0].buckets.size(), batch.buckets.size() / 2);
  const auto halves = split_in_half(batch);
  ASSERT_THAT(halves, SizeIs(2));
  EXPECT_THAT(halves[0].keys, SizeIs(50));
}

TEST(DonorLimitTest, HalvesAndRestsAndComesBackSlowly) {
  const DonorLimit::Clock::time_point start{};
  DonorLimit limit(4);
  EXPECT_EQ(limit.limit(), 4);
  EXPECT_FALSE(limit.resting(start + std::chrono::seconds(1)));
  limit.congested(start);
  EXPECT_EQ(limit.limit(), 2);
  EXPECT_TRUE(limit.resting(start));
  limit.congested(start);
  limit.congested(start);
  EXPECT_EQ(limit.limit(), 1);
  // Longer each time, within bounds.
  for (int i = 0; i < 20; ++i) limit.congested(start);
  EXPECT_TRUE(limit.resting(start + std::chrono::milliseconds(1999)));
  EXPECT_FALSE(limit.resting(start + std::chrono::milliseconds(2000)));
  int operations = 0;
  while (limit.limit() < 4) {
    limit.smooth();
    ++operations;
    ASSERT_LT(operations, 1000);
  }
  EXPECT_GT(operations, 30);
  limit.smooth();
  EXPECT_EQ(limit.limit(), 4);
}

}  // namespace
}  // namespace collegedb::migration
