// The end of archives: when they may go, whatever dies, however many call.
#include <gmock/gmock.h>

#include <set>
#include <thread>

#include "tests/pg/migration/evidence_fixture.h"

namespace collegedb::pgtest {
namespace {

using migration::PurgeRefusal;
using migration::PurgeRequest;
using migration::PurgeResult;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

class PurgeTest : public EvidenceTest {
 protected:
  static PurgeRequest at_most(std::int64_t operations) {
    PurgeRequest out;
    out.max_ops = operations;
    return out;
  }
  static std::vector<std::string> codes(const PurgeResult& result) {
    std::vector<std::string> out;
    for (const PurgeRefusal& each : result.refused) out.push_back(each.op + " " + each.code);
    return out;
  }
};

TEST_F(PurgeTest, WaitsForTheRetentionAndForACleanVerificationSinceTheMove) {
  open();
  const std::size_t home = add_key("1");
  const std::string op = moved("1", other_than(home));
  EXPECT_EQ(archived(home, op), "4");
  EXPECT_THAT(codes(purged()), ElementsAre(op + " RETENTION_NOT_ELAPSED"));
  expect_clean();
  EXPECT_THAT(codes(purged()), ElementsAre(op + " RETENTION_NOT_ELAPSED"));
  let_retention_pass();
  const PurgeResult done = purged();
  EXPECT_THAT(done.purged, ElementsAre(op));
  EXPECT_THAT(done.refused, IsEmpty());
  EXPECT_EQ(archived(home, op), "0");
  EXPECT_EQ(tombstone(home, "1"), name(other_than(home))) << "the tombstone stays";
  EXPECT_THAT(purged().purged, IsEmpty()) << "only once";
  expect_clean();
}

TEST_F(PurgeTest, AVerificationFromBeforeTheMoveOrWithFindingsDoesNotCount) {
  open();
  const std::size_t home = add_key("1");
  expect_clean();
  const std::string op = moved("1", other_than(home));
  let_retention_pass();
  EXPECT_THAT(codes(purged()), ElementsAre(op + " NOT_VERIFIED"));
  plant_rows(home, "1", 1);  // not what was archived
  EXPECT_FALSE(verified(true).clean());
  EXPECT_THAT(codes(purged()), ElementsAre(op + " NOT_VERIFIED"));
  EXPECT_EQ(archived(home, op), "4");
  tell(home,
       "SET session_replication_role = replica; DELETE FROM orders; DELETE FROM users;"
       "RESET session_replication_role");
  EXPECT_TRUE(verified().clean());
  EXPECT_THAT(purged().purged, ElementsAre(op));
}

TEST_F(PurgeTest, AKeyThatCameBackKeepsItsLiveRows) {
  open();
  const std::size_t a = add_key("1");
  const std::size_t b = other_than(a);
  const std::string before = rows(a, "1");
  const std::string there = moved("1", b);
  const std::string back = moved("1", a);
  expect_clean();
  let_retention_pass();
  EXPECT_THAT(purged().purged, UnorderedElementsAre(there, back));
  expect_owner("1", a, before);
  EXPECT_EQ(archived(a, there), "0");
  EXPECT_EQ(archived(b, back), "0");
  expect_clean();
}

TEST_F(PurgeTest, AtMostSoManyAndTheOldestFirst) {
  open();
  std::vector<std::string> ops;
  for (const char* key : {"1", "2", "3"}) {
    const std::size_t home = add_key(key);
    ops.push_back(moved(key, other_than(home)));
  }
  expect_clean();
  let_retention_pass();
  EXPECT_THAT(purged(at_most(0)).purged, IsEmpty());
  EXPECT_THAT(purged(at_most(2)).purged, ElementsAre(ops[0], ops[1]));
  EXPECT_THAT(purged(at_most(2)).purged, ElementsAre(ops[2]));
  EXPECT_EQ(migration::purge_retired(options(), at_most(-1)).error().sqlstate, "22023");
}

TEST_F(PurgeTest, OneThatDiesAnywhereIsFinishedByTheNext) {
  open();
  int number = 100;
  for (const std::string at : {"decided", "batch", "deleted", "purged"}) {
    SCOPED_TRACE(at);
    const std::string key = std::to_string(number++);
    const std::size_t home = add_key(key, 10);
    const std::string op = moved(key, other_than(home));
    expect_clean();
    let_retention_pass(op);
    const auto ready = child_options();
    EXPECT_EQ(in_child([&] {
                PurgeRequest request;
                request.batch = 3;
                request.step = [&](std::string_view step) {
                  if (step == at) ::_exit(137);
                };
                (void)migration::purge_retired(ready, request);
              }),
              137);
    // A part of it may be gone: nobody may take the rest for the whole.
    migration::Runner runner(options());
    remove_rows(other_than(home), key);
    const auto restored = migration::restore(runner, op);
    ASSERT_FALSE(restored) << "restored from " << archived(home, op) << " rows";
    EXPECT_THAT(restored.error().message, ::testing::HasSubstr("purged"));
    const PurgeResult next = purged();
    EXPECT_EQ(next.purged.size(), at == "purged" ? 0U : 1U);
    EXPECT_EQ(archived(home, op), "0");
    EXPECT_EQ(ask(0, "SELECT purged_at IS NOT NULL FROM collegedb.moves WHERE op = '" + op + "'"),
              "t");
    expect_clean();
  }
}

TEST_F(PurgeTest, ManyCallersPurgeEachArchiveOnce) {
  open();
  constexpr int kKeys = 12;
  for (int i = 0; i < kKeys; ++i) {
    const std::string key = std::to_string(i);
    moved(key, other_than(add_key(key, 20)));
  }
  expect_clean();
  let_retention_pass();
  std::vector<Result<PurgeResult>> results(4, PurgeResult{});
  std::vector<std::thread> callers;
  const auto ready = options();
  PurgeRequest small;
  small.batch = 5;
  for (auto& result : results) {
    callers.emplace_back(
        [&result, ready, small] { result = migration::purge_retired(ready, small); });
  }
  for (std::thread& caller : callers) caller.join();
  std::multiset<std::string> all;
  for (const auto& result : results) {
    ASSERT_TRUE(result) << result.error().message;
    all.insert(result->purged.begin(), result->purged.end());
    EXPECT_THAT(result->refused, IsEmpty());
  }
  EXPECT_EQ(all.size(), static_cast<std::size_t>(kKeys));
  EXPECT_EQ(std::set<std::string>(all.begin(), all.end()).size(), all.size());
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(ask(i, "SELECT count(*) FROM collegedb.archive"), "0");
  }
}

TEST_F(PurgeTest, AShardThatIsNotThereHoldsUpItsOwnArchivesAlone) {
  open();
  const std::size_t home = add_key("1");
  const std::string op = moved("1", other_than(home));
  std::string other = "2";
  while (owner(other) == home) other = std::to_string(std::stoi(other) + 1);
  const std::string second = moved(other, other_than(add_key(other)));
  expect_clean();
  let_retention_pass();
  tell(0, "UPDATE collegedb.moves SET source = 'gone' WHERE op = '" + op + "'");
  const PurgeResult done = purged();
  EXPECT_THAT(done.purged, ElementsAre(second));
  EXPECT_THAT(codes(done), ElementsAre(op + " UNKNOWN_SHARD"));
}

// What the tombstone is kept for: whoever comes back with the knowledge of the day before the move.
TEST_F(PurgeTest, AWriterWithOldKnowledgeIsLedToTheOwnerAfterThePurge) {
  open();
  const std::size_t home = add_key("1");
  const std::size_t to = other_than(home);
  const std::string before = rows(home, "1");
  moved("1", to);
  expect_clean();
  let_retention_pass();
  ASSERT_EQ(purged().purged.size(), 1U);
  const auto frozen = session(home);
  EXPECT_EQ(guarded(*frozen, "1", "INSERT INTO users (id, name) VALUES (1, 'again')").sqlstate,
            guard::kMoved);
  expect_owner("1", to, before);
}

}  // namespace
}  // namespace collegedb::pgtest
