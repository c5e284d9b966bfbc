#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>

#include "routing/hash.h"
#include "routing/route.h"

namespace collegedb::routing {
namespace {

Snapshot cluster(const std::vector<std::string>& names) {
  Snapshot snapshot;
  Epoch epoch;
  for (const std::string& name : names) {
    epoch.shards.push_back(static_cast<ShardId>(snapshot.shards.size()));
    snapshot.shards.push_back({name});
  }
  snapshot.epochs.push_back(std::move(epoch));
  return snapshot;
}

std::string owner_name(const Snapshot& snapshot, std::string_view key) {
  return snapshot.shards[computed_owner(snapshot, snapshot.epochs[0], key)].name;
}

constexpr int kKeys = 30000;

std::string key_number(int i) {
  return "user-" + std::to_string(i);
}

TEST(Hrw, HighestScoreWins) {
  const Snapshot snapshot = cluster({"a", "b", "c"});
  for (int i = 0; i < 200; ++i) {
    const std::string key = key_number(i);
    const std::string winner = owner_name(snapshot, key);
    for (const Shard& shard : snapshot.shards) {
      EXPECT_LE(hrw_score(shard.name, key), hrw_score(winner, key));
    }
  }
}

TEST(Hrw, OrderOfDeclarationDoesNotMatter) {
  const Snapshot one = cluster({"db-east", "db-west", "db-north"});
  const Snapshot two = cluster({"db-north", "db-east", "db-west"});
  for (int i = 0; i < 1000; ++i) {
    EXPECT_EQ(owner_name(one, key_number(i)), owner_name(two, key_number(i)));
  }
}

TEST(Hrw, SpreadsEvenly) {
  const Snapshot snapshot = cluster({"db-east", "db-west", "db-north"});
  std::map<std::string, int> counts;
  for (int i = 0; i < kKeys; ++i) ++counts[owner_name(snapshot, key_number(i))];
  ASSERT_EQ(counts.size(), 3u);
  for (const auto& [name, count] : counts) {
    EXPECT_NEAR(count, kKeys / 3.0, kKeys / 30.0) << name;
  }
}

TEST(Hrw, FourthShardTakesAQuarterAndNothingElseMoves) {
  const Snapshot three = cluster({"db-east", "db-west", "db-north"});
  const Snapshot four = cluster({"db-east", "db-west", "db-north", "db-south"});
  int moved = 0;
  for (int i = 0; i < kKeys; ++i) {
    const std::string before = owner_name(three, key_number(i));
    const std::string after = owner_name(four, key_number(i));
    if (before == after) continue;
    ++moved;
    EXPECT_EQ(after, "db-south");
  }
  EXPECT_GE(moved, kKeys * 20 / 100);
  EXPECT_LE(moved, kKeys * 30 / 100);
}

TEST(Hrw, LeavingShardMovesOnlyItsOwnKeys) {
  const Snapshot three = cluster({"db-east", "db-west", "db-north"});
  const Snapshot two = cluster({"db-east", "db-north"});
  for (int i = 0; i < kKeys; ++i) {
    const std::string before = owner_name(three, key_number(i));
    if (before != "db-west") {
      EXPECT_EQ(owner_name(two, key_number(i)), before);
    }
  }
}

TEST(Hrw, WeightsShareTheKeys) {
  Snapshot snapshot = cluster({"small", "large"});
  snapshot.epochs[0].weights = {1, 3};
  int small = 0;
  for (int i = 0; i < kKeys; ++i) small += owner_name(snapshot, key_number(i)) == "small";
  EXPECT_NEAR(small, kKeys / 4.0, kKeys / 40.0);
}

TEST(Hrw, RaisingAWeightOnlyDrawsKeysToThatShard) {
  Snapshot snapshot = cluster({"a", "b", "c"});
  Snapshot heavier = snapshot;
  heavier.epochs[0].weights = {1, 1, 2};
  for (int i = 0; i < 3000; ++i) {
    const std::string before = owner_name(snapshot, key_number(i));
    const std::string after = owner_name(heavier, key_number(i));
    EXPECT_TRUE(after == before || after == "c");
  }
}

TEST(Hrw, EqualWeightsChangeNothing) {
  const Snapshot plain = cluster({"a", "b", "c"});
  Snapshot weighted = plain;
  weighted.epochs[0].weights = {2.5, 2.5, 2.5};
  for (int i = 0; i < 1000; ++i) {
    EXPECT_EQ(owner_name(plain, key_number(i)), owner_name(weighted, key_number(i)));
  }
}

TEST(Hrw, ShardOfWeightZeroGetsNothing) {
  Snapshot snapshot = cluster({"a", "b"});
  snapshot.epochs[0].weights = {0, 1};
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(owner_name(snapshot, key_number(i)), "b");
}

TEST(Modulo, VectorsInDeclaredOrder) {
  struct Row {
    std::string key;
    std::array<ShardId, 3> of_2_3_5;
  };
  const Row kRows[] = {{"user-1", {1, 0, 0}},
                       {"user-123", {0, 0, 2}},
                       {"", {0, 0, 0}},
                       {"polygenelubricants", {0, 2, 3}}};
  for (const Row& row : kRows) {
    constexpr std::array<int, 3> kCounts{2, 3, 5};
    for (std::size_t c = 0; c < kCounts.size(); ++c) {
      const int count = kCounts[c];
      const ShardId expected = row.of_2_3_5[c];
      Snapshot snapshot;
      Epoch epoch;
      epoch.algorithm = Algorithm::kModulo;
      for (int i = 0; i < count; ++i) {
        snapshot.shards.push_back({"s" + std::to_string(i)});
        epoch.shards.push_back(static_cast<ShardId>(i));
      }
      EXPECT_EQ(computed_owner(snapshot, epoch, row.key), expected) << row.key << " of " << count;
      std::reverse(epoch.shards.begin(), epoch.shards.end());
      EXPECT_EQ(computed_owner(snapshot, epoch, row.key), count - 1 - expected);
    }
  }
}

TEST(Locate, ExceptionComesFirst) {
  Snapshot snapshot = cluster({"a", "b", "c"});
  const Owner computed = locate(snapshot, "public.users", "7");
  EXPECT_EQ(computed.via, Via::kComputed);
  auto exceptions = std::make_shared<ExceptionMap>();
  const auto elsewhere = static_cast<ShardId>((computed.shard + 1) % 3);
  exceptions->emplace(GroupKey{"public.users", "7"}, elsewhere);
  snapshot.exceptions = exceptions;
  EXPECT_EQ(locate(snapshot, "public.users", "7").shard, elsewhere);
  EXPECT_EQ(locate(snapshot, "public.users", "7").via, Via::kException);
  EXPECT_EQ(locate(snapshot, "public.other", "7").shard, computed.shard);
  EXPECT_EQ(locate(snapshot, "public.users", "8").via, Via::kComputed);
}

TEST(Locate, EpochsThatDifferAreSaidSo) {
  Snapshot snapshot = cluster({"a", "b", "c"});
  Epoch older = snapshot.epochs[0];
  older.shards = {0, 1};
  snapshot.epochs.push_back(older);
  int differing = 0;
  for (int i = 0; i < 300; ++i) {
    const Owner owner = locate(snapshot, "g", key_number(i));
    const bool differs = computed_owner(snapshot, snapshot.epochs[0], key_number(i)) !=
                         computed_owner(snapshot, snapshot.epochs[1], key_number(i));
    differing += differs;
    EXPECT_EQ(owner.via, differs ? Via::kEpoch : Via::kComputed);
    EXPECT_EQ(owner.shard, computed_owner(snapshot, snapshot.epochs[0], key_number(i)));
  }
  EXPECT_GT(differing, 0);
}

TEST(Locate, EpochBeingPublishedIsNotYetTheOwner) {
  Snapshot snapshot = cluster({"a", "b", "c"});
  Epoch newest = snapshot.epochs[0];
  newest.shards = {2};
  newest.state = EpochState::kPublishing;
  snapshot.epochs.insert(snapshot.epochs.begin(), newest);
  for (int i = 0; i < 300; ++i) {
    EXPECT_EQ(locate(snapshot, "g", key_number(i)).shard,
              computed_owner(snapshot, snapshot.epochs[1], key_number(i)));
  }
}

TEST(Locate, WithoutAnActiveEpochNothingIsKnown) {
  Snapshot snapshot = cluster({"a", "b"});
  snapshot.epochs.clear();
  EXPECT_EQ(locate(snapshot, "g", "k").shard, kNoShard);
}

}  // namespace
}  // namespace collegedb::routing
