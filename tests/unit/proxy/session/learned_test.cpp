#include "proxy/session/learned.h"

#include <gtest/gtest.h>

#include <string>

namespace collegedb::session {
namespace {

using Context = LearnedOwners::Context;
constexpr std::uint64_t kSecond = 1'000'000'000;

TEST(LearnedOwners, RemembersForItsLife) {
  LearnedOwners owners;
  EXPECT_TRUE(owners.empty());
  owners.learn("g", "k", 2, Context{0, 5, 10 * kSecond}, kSecond);
  EXPECT_FALSE(owners.empty());
  EXPECT_EQ(owners.find("g", "k", Context{0, 5, 11 * kSecond}), 2);
  EXPECT_EQ(owners.find("other", "k", Context{0, 5, 11 * kSecond}), std::nullopt);
  EXPECT_EQ(owners.find("g", "k", Context{0, 5, 11 * kSecond + 1}), std::nullopt);
  EXPECT_TRUE(owners.empty());
}

TEST(LearnedOwners, ALifeOfNothingForgetsWhatWasThere) {
  LearnedOwners owners;
  owners.learn("g", "k", 2, Context{0, 5, 0}, kSecond);
  owners.learn("g", "k", 1, Context{0, 5, 0}, 0);
  EXPECT_EQ(owners.find("g", "k", Context{0, 5, 0}), std::nullopt);
  EXPECT_TRUE(owners.empty());
}

TEST(LearnedOwners, AnotherGenerationOrWordOfTheSnapshotEndsIt) {
  LearnedOwners owners;
  owners.learn("g", "k", 2, Context{0, 5, 0});
  owners.learn("g", "l", 2, Context{0, 5, 0});
  EXPECT_EQ(owners.find("g", "k", Context{0, 6, 0}), std::nullopt);
  EXPECT_EQ(owners.find("g", "k", Context{0, 5, 0}), std::nullopt);
  EXPECT_EQ(owners.find("g", "l", Context{1, 5, 0}), std::nullopt);
}

// What is in use survives any number of others, and the whole is bounded.
TEST(LearnedOwners, OnlyWhatIsNotUsedMakesRoom) {
  LearnedOwners owners(100);
  const Context now{0, 5, 0};
  owners.learn("g", "used", 1, now);
  owners.learn("g", "idle", 1, now);
  for (int i = 0; i < 1000; ++i) {
    owners.learn("g", "other" + std::to_string(i), 2, now);
    EXPECT_EQ(owners.find("g", "used", now), 1) << i;
    EXPECT_LE(owners.size(), 100U);
  }
  EXPECT_EQ(owners.find("g", "idle", now), std::nullopt);
  EXPECT_EQ(owners.find("g", "other999", now), 2);
  EXPECT_GE(owners.size(), 40U);  // never all at once
}

TEST(LearnedOwners, AUsedEntryKeepsItsEnd) {
  LearnedOwners owners(4);
  owners.learn("g", "k", 1, Context{0, 5, 0}, kSecond);
  owners.learn("g", "a", 1, Context{0, 5, 0}, kSecond);
  owners.learn("g", "b", 1, Context{0, 5, 0}, kSecond);  // k is old now
  EXPECT_EQ(owners.find("g", "k", Context{0, 5, kSecond}), 1);
  EXPECT_EQ(owners.find("g", "k", Context{0, 5, kSecond + 1}), std::nullopt);
}

TEST(LearnedOwners, ForgetsOldAndYoung) {
  LearnedOwners owners(4);
  const Context now{0, 5, 0};
  for (const char* key : {"a", "b", "c"}) owners.learn("g", key, 1, now);
  for (const char* key : {"a", "c"}) {
    owners.forget("g", key);
    EXPECT_EQ(owners.find("g", key, now), std::nullopt) << key;
  }
  owners.learn("g", "b", 2, now);
  EXPECT_EQ(owners.find("g", "b", now), 2);
}

}  // namespace
}  // namespace collegedb::session
