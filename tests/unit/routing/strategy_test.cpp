#include "routing/strategy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <vector>

namespace collegedb::routing {
namespace {

using ::testing::ElementsAre;

std::vector<Taker> takers(const std::vector<std::string>& names) {
  std::vector<Taker> out;
  for (const std::string& name : names) out.push_back({.shard = name, .region = {}, .full = false});
  return out;
}

std::vector<std::string> names(const std::vector<Taker>& takers) {
  std::vector<std::string> out;
  for (const Taker& taker : takers) out.push_back(taker.shard);
  return out;
}

std::size_t hashed(const std::vector<Taker>& takers, std::string_view key) {
  return choose(Strategy::kHash, takers, key, 99, "");
}

TEST(Strategy, NamesGoBothWays) {
  for (const Strategy each :
       {Strategy::kHash, Strategy::kRoundRobin, Strategy::kRandom, Strategy::kLocation}) {
    EXPECT_EQ(strategy_named(name_of(each)), each);
  }
  EXPECT_EQ(name_of(Strategy::kRoundRobin), "round-robin");
  EXPECT_FALSE(strategy_named("mixed"));
  EXPECT_FALSE(strategy_named(""));
}

// The vectors of CollegeDB's hash: user-1 -836031825, user-123 -267697872, polygenelubricants
// -2147483648.
TEST(Strategy, HashIsCollegeDbsModuloInDeclaredOrder) {
  EXPECT_EQ(hashed(takers({"a", "b"}), "user-1"), 1U);
  EXPECT_EQ(hashed(takers({"a", "b", "c"}), "user-1"), 0U);
  EXPECT_EQ(hashed(takers({"a", "b", "c", "d", "e"}), "user-1"), 0U);
  EXPECT_EQ(hashed(takers({"a", "b", "c", "d", "e"}), "user-123"), 2U);
  EXPECT_EQ(hashed(takers({"a", "b", "c", "d", "e"}), "polygenelubricants"), 3U);
  EXPECT_EQ(hashed(takers({"a", "b", "c"}), ""), 0U);
  EXPECT_EQ(hashed(takers({"c", "b", "a"}), "user-1"), 0U);  // by position, not by name
}

TEST(Strategy, RoundRobinTakesTurns) {
  const auto three = takers({"a", "b", "c"});
  std::vector<std::size_t> seen;
  for (std::uint64_t n = 0; n < 5; ++n) {
    seen.push_back(choose(Strategy::kRoundRobin, three, "same key", n, ""));
  }
  EXPECT_THAT(seen, ElementsAre(0, 1, 2, 0, 1));
}

TEST(Strategy, RandomUsesWhatIsDrawn) {
  const auto three = takers({"a", "b", "c"});
  std::set<std::size_t> seen;
  for (const std::uint64_t drawn : {7ULL, 8ULL, 18446744073709551615ULL, 9ULL}) {
    const std::size_t chosen = choose(Strategy::kRandom, three, "k", drawn, "");
    EXPECT_LT(chosen, 3U);
    seen.insert(chosen);
  }
  EXPECT_EQ(seen.size(), 3U);
}

TEST(Strategy, LocationTakesTheNearest) {
  std::vector<Taker> some = takers({"east", "west", "london", "tokyo"});
  some[0].region = "enam";
  some[1].region = "wnam";
  some[2].region = "weur";
  some[3].region = "apac";
  const auto near = [&](std::string_view region) {
    return some[choose(Strategy::kLocation, some, "user-1", 0, region)].shard;
  };
  EXPECT_EQ(near("wnam"), "west");
  EXPECT_EQ(near("enam"), "east");
  EXPECT_EQ(near("eeur"), "london");
  EXPECT_EQ(near("af"), "london");
  EXPECT_EQ(near("oc"), "tokyo");
}

TEST(Strategy, EquallyNearShardsShareByHash) {
  std::vector<Taker> some = takers({"far", "one", "two"});
  some[0].region = "apac";
  some[1].region = some[2].region = "weur";
  std::map<std::string, int> counts;
  for (int i = 0; i < 300; ++i) {
    const std::string key = "user-" + std::to_string(i);
    const std::size_t chosen = choose(Strategy::kLocation, some, key, 0, "weur");
    ++counts[some[chosen].shard];
    const auto pair = takers({"one", "two"});
    EXPECT_EQ(some[chosen].shard, pair[hashed(pair, key)].shard) << key;
  }
  EXPECT_EQ(counts.count("far"), 0U);
  EXPECT_GT(counts["one"], 90);
  EXPECT_GT(counts["two"], 90);
}

TEST(Strategy, ShardsWithoutARegionArePassedOver) {
  std::vector<Taker> some = takers({"nowhere", "tokyo"});
  some[1].region = "apac";
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(choose(Strategy::kLocation, some, std::to_string(i), 0, "weur"), 1U);
  }
  // All of them without: by hash, as with a region that nobody knows.
  const auto none = takers({"a", "b", "c"});
  some = none;
  some[0].region = "atlantis";
  for (int i = 0; i < 20; ++i) {
    const std::string key = std::to_string(i);
    EXPECT_EQ(choose(Strategy::kLocation, some, key, 0, "weur"), hashed(none, key));
    EXPECT_EQ(choose(Strategy::kLocation, none, key, 0, "mars"), hashed(none, key));
  }
}

TEST(Strategy, FullShardsAreLeftOutUnlessAllAreFull) {
  std::vector<Taker> some = takers({"a", "b", "c"});
  EXPECT_THAT(names(eligible(some)), ElementsAre("a", "b", "c"));
  some[1].full = true;
  EXPECT_THAT(names(eligible(some)), ElementsAre("a", "c"));
  some[0].full = some[2].full = true;
  EXPECT_THAT(names(eligible(some)), ElementsAre("a", "b", "c"));
}

}  // namespace
}  // namespace collegedb::routing
