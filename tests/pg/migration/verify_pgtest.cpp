// What verify finds: nothing in a healthy system, whatever moves meanwhile, and every state that
// was planted; and what it repairs: only what the rules prove.
#include <gmock/gmock.h>

#include <fstream>
#include <optional>
#include <tuple>

#include "migration/operation.h"
#include "migration/verify_repair.h"
#include "tests/pg/migration/verify_fixture.h"

namespace collegedb::pgtest {
namespace {

using migration::Failpoints;
using ::testing::HasSubstr;
using ::testing::SizeIs;

TEST_F(VerifyTest, AFreshClusterIsCleanAndThatIsRecorded) {
  open();
  expect_clean();
  EXPECT_EQ(ask(0,
                "SELECT count(*) FROM collegedb.verifications WHERE clean"
                " AND finished_at >= started_at AND findings -> 'ghosts' = '[]'"),
            "1");
}

TEST_F(VerifyTest, FindsNothingAfterMovesAndTheirChains) {
  open();
  const std::size_t a = add_key("1");
  const std::size_t b = other_than(a);
  const std::size_t c = other_than(b);
  for (const std::size_t to : {b, a, b, c, a}) {
    moved("1", to);
    expect_clean();
  }
  const VerifyResult repaired = verified(true);
  EXPECT_TRUE(repaired.clean());
  EXPECT_THAT(repaired.repaired, SizeIs(0));
}

// Moves, recoveries of dead movers and writers all along; the verifications must agree all the time
// but for operations that really have nobody.
TEST_F(VerifyTest, FindsNothingWhileMovesAndWritersRun) {
  open();
  constexpr int kKeys = 6;
  std::vector<std::unique_ptr<Writer>> writers;
  for (int i = 0; i < kKeys; ++i) {
    const std::string key = std::to_string(i);
    const std::size_t home = add_key(key);
    if (i < 3) {
      writers.push_back(std::make_unique<Writer>(
          config,
          [this](auto& session, const auto& k, const auto& sql, auto begin) {
            return guarded(session, k, sql, begin);
          },
          key, home));
    }
  }
  std::atomic<bool> stopping{false};
  std::atomic<int> moves{0};
  std::vector<std::thread> movers;
  const auto ready = options();
  for (int t = 0; t < 2; ++t) {
    movers.emplace_back([&, t] {
      migration::Runner runner(ready);
      for (int turn = 0; !stopping; ++turn) {
        const std::string key = std::to_string((turn * 2 + t) % kKeys);
        const auto done = runner.reassign({.group = std::string(kGroup),
                                           .key = key,
                                           .shard = config.shards[(turn / kKeys + t) % 3].name});
        if (done && done->op) ++moves;
      }
    });
  }
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(8);
  int looks = 0;
  while (std::chrono::steady_clock::now() < deadline && !HasFailure()) {
    expect_clean();
    const VerifyResult repaired = verified(true);
    EXPECT_TRUE(repaired.clean());
    EXPECT_THAT(repaired.repaired, SizeIs(0)) << migration::json_of(repaired.repaired);
    ++looks;
  }
  stopping = true;
  for (std::thread& mover : movers) mover.join();
  for (const auto& writer : writers) {
    writer->stop();
    EXPECT_TRUE(writer->errors().empty()) << writer->errors().front();
  }
  EXPECT_GT(moves, 10);
  EXPECT_GT(looks, 2);
  expect_clean();
}

// ---- Dangling operations ------------------------------------------------------------------------

TEST_F(VerifyTest, AnOperationWithoutMoverIsDanglingUntilRepairRecoversIt) {
  open();
  int number = 10;
  for (const std::string point :
       {"copy.after", "prepare_source.after", "journal_committed.after", "publish.after"}) {
    SCOPED_TRACE(point);
    const std::string key = std::to_string(number++);
    const std::size_t home = add_key(key);
    die_at(point, key, other_than(home));
    VerifyResult found = verified();
    const VerifyFinding finding = only(found, FindingKind::kDanglingOp);
    EXPECT_EQ(finding.key, key);
    EXPECT_EQ(finding.what, "operation");
    expect_repaired("operation");
  }
}

TEST_F(VerifyTest, AnOperationUnderWayIsNotDangling) {
  open();
  const std::size_t home = add_key("1");
  const std::string gate = "/tmp/collegedb_verify_" + std::to_string(::getpid());
  const auto ready = options();
  failpoints->arm("journal_committed.after",
                  {.action = Failpoints::Action::kWait, .argument = gate});
  std::thread mover([&] {
    migration::Runner runner(ready);
    EXPECT_TRUE(runner.reassign(
        {.group = std::string(kGroup), .key = "1", .shard = name(other_than(home))}));
  });
  await([&] { return ::access((gate + ".here").c_str(), F_OK) == 0; }, "the decision");
  // Both halves are prepared, the decision is written.
  expect_clean();
  EXPECT_TRUE(verified(true).clean());
  std::ofstream(gate).put('\n');
  mover.join();
  ::unlink(gate.c_str());
  ::unlink((gate + ".here").c_str());
  expect_clean();
}

TEST_F(VerifyTest, AClaimOfNoOperationIsReleased) {
  open();
  tell(0, "INSERT INTO collegedb.claims VALUES ('" + config.journal.scope +
              "', 'public.users', '7', 'nobody')");
  VerifyResult found = verified();
  EXPECT_EQ(only(found, FindingKind::kDanglingOp).what, "claim");
  expect_repaired("claim");
}

// ---- Ghosts -------------------------------------------------------------------------------------

TEST_F(VerifyTest, AGhostThatIsWhatWasArchivedIsRemoved) {
  open();
  const std::size_t home = add_key("1");
  const std::size_t to = other_than(home);
  const std::string before = rows(home, "1");
  const std::string op = moved("1", to);
  plant_rows(home, "1");
  VerifyResult found = verified();
  const VerifyFinding ghost = only(found, FindingKind::kGhost);
  EXPECT_EQ(ghost.key, "1");
  EXPECT_EQ(ghost.shard, name(home));
  EXPECT_EQ(ghost.op, op);
  EXPECT_NE(rows(home, "1"), "|") << "looking changes nothing";
  expect_repaired("rows");
  expect_owner("1", to, before);
}

TEST_F(VerifyTest, AGhostThatDiffersFromTheArchiveIsLeft) {
  open();
  for (const auto& [key, orders, n] :
       {std::tuple{"1", 3, "5"}, std::tuple{"2", 2, "0"}, std::tuple{"3", 4, "0"}}) {
    SCOPED_TRACE(key);
    const std::size_t home = add_key(key);
    moved(key, other_than(home));
    plant_rows(home, key, orders, n);
    const std::string ghost = rows(home, key);
    expect_left(FindingKind::kGhost, "not those that the move archived");
    EXPECT_EQ(rows(home, key), ghost);
    remove_rows(home, key);
    expect_clean();
  }
}

TEST_F(VerifyTest, AGhostWhoseArchiveWasPurgedIsLeft) {
  open();
  const std::size_t home = add_key("1");
  moved("1", other_than(home));
  expect_clean();
  let_retention_pass();
  ASSERT_THAT(purged().purged, SizeIs(1));
  plant_rows(home, "1");
  expect_left(FindingKind::kGhost, "not those that the move archived");
}

// Of many keys that moved in one operation only one has come back.
TEST_F(VerifyTest, AGhostOfABatchIsComparedWithItsOwnRows) {
  open();
  std::vector<std::string> keys;
  for (int i = 1; keys.size() < 5; ++i) {
    if (owner(std::to_string(i)) == 1) keys.push_back(std::to_string(i));
  }
  for (const std::string& key : keys) add_key(key);
  migration::Runner runner(options());
  ASSERT_TRUE(runner.reassign_keys(std::string(kGroup), keys, name(1), name(2)));
  plant_rows(1, keys[2]);
  plant_rows(1, keys[4], 1);
  VerifyResult found = verified();
  EXPECT_EQ(found[FindingKind::kGhost].count, 2);
  VerifyResult done = verified(true);
  ASSERT_THAT(done.repaired, SizeIs(1));
  EXPECT_EQ(done.repaired.front().key, keys[2]);
  EXPECT_EQ(only(done, FindingKind::kGhost).key, keys[4]);
  EXPECT_EQ(rows(1, keys[2]), "|");
  EXPECT_NE(rows(1, keys[4]), "|");
  for (const std::string& key : keys) EXPECT_NE(rows(2, key), "|");
}

// More tombstones than one page has.
TEST_F(VerifyTest, GhostsAreFoundOnEveryPage) {
  open();
  tell(2, "INSERT INTO collegedb.retired (scope, grp, key, op, moved_to) SELECT '" +
              config.journal.scope +
              "', 'public.users', g, 'epoch:1:' || g, 'sa' FROM generate_series(1000, 6999) g");
  plant_rows(2, "1003");
  plant_rows(2, "4321");
  plant_rows(2, "6999");
  VerifyResult found = verified();
  EXPECT_EQ(found[FindingKind::kGhost].count, 3);
  EXPECT_FALSE(verified(true).clean()) << "a tombstone without a move proves nothing";
  EXPECT_NE(rows(2, "4321"), "|");
}

TEST_F(VerifyTest, AMissingFenceIsFoundAndInstalled) {
  open();
  tell(1, "DROP TRIGGER collegedb_fence_insert ON orders");
  VerifyResult found = verified();
  const VerifyFinding finding = only(found, FindingKind::kGhost);
  EXPECT_EQ(finding.what, "fence");
  EXPECT_EQ(finding.object, "public.orders");
  EXPECT_EQ(finding.shard, name(1));
  expect_repaired("fence");
  EXPECT_EQ(ask(1, "SELECT count(*) FROM pg_trigger WHERE tgname = 'collegedb_fence_insert'"), "2");
}

// A group that cannot be looked at is told, and the others are looked at all the same.
TEST_F(VerifyTest, TablesThatCannotBeLookedAtAreTold) {
  open();
  const std::size_t home = add_key("1");
  moved("1", other_than(home));
  tell(home, "DROP TABLE orders");
  VerifyResult found = verified();
  const VerifyFinding finding = only(found, FindingKind::kGhost);
  EXPECT_EQ(finding.what, "unexamined");
  EXPECT_THAT(finding.reason, HasSubstr("does not exist"));
  EXPECT_FALSE(verified(true).clean());
}

// ---- Stranded archives --------------------------------------------------------------------------

TEST_F(VerifyTest, WhatTheJournalDoesNotKnowIsReportedAndLeft) {
  open();
  const std::size_t home = add_key("1");
  const std::string op = moved("1", other_than(home));
  tell(0, "DELETE FROM collegedb.moves WHERE op = '" + op + "'");
  VerifyResult found = verified(true);
  EXPECT_EQ(found[FindingKind::kStrandedArchive].count, 2) << "its tombstone and its archive";
  EXPECT_THAT(found.repaired, SizeIs(0));
  EXPECT_EQ(archived(home, op), "4");
  EXPECT_EQ(tombstone(home, "1"), name(other_than(home)));
  tell(home, "DELETE FROM collegedb.archive");
  found = verified();
  EXPECT_EQ(only(found, FindingKind::kStrandedArchive).what, "tombstone");
}

// ---- Stranded copies ----------------------------------------------------------------------------

TEST_F(VerifyTest, TheCopyOfAnAbortedMoveIsRemovedWhileTheSourceHasTheRows) {
  open();
  const std::size_t home = add_key("1");
  const std::size_t to = other_than(home);
  const std::string before = rows(home, "1");
  failpoints->arm("fence.before", {.action = Failpoints::Action::kError, .argument = {}});
  EXPECT_FALSE(reassign("1", name(to)));
  failpoints->disarm();
  expect_clean();
  plant_rows(to, "1");
  VerifyResult found = verified();
  const VerifyFinding copy = only(found, FindingKind::kStrandedCopy);
  EXPECT_EQ(copy.what, "copy");
  EXPECT_EQ(copy.shard, name(to));
  expect_repaired("copy");
  expect_owner("1", home, before);
}

TEST_F(VerifyTest, ACopyThatWasWrittenToOrIsTheOnlyOneIsLeft) {
  open();
  const std::size_t home = add_key("1");
  const std::size_t to = other_than(home);
  failpoints->arm("fence.before", {.action = Failpoints::Action::kError, .argument = {}});
  EXPECT_FALSE(reassign("1", name(to)));
  failpoints->disarm();
  plant_rows(to, "1");
  remove_rows(home, "1");
  expect_left(FindingKind::kStrandedCopy, "these may be the only ones");
  EXPECT_NE(rows(to, "1"), "|");
  tell(to, "UPDATE users SET n = 1");
  expect_clean();  // not the journaled copy any more: nothing that this journal can judge
  EXPECT_NE(rows(to, "1"), "|");
}

// The rows of a later move to the same shard look like the copy.
TEST_F(VerifyTest, TheRowsOfALaterMoveAreNoCopy) {
  open();
  const std::size_t home = add_key("1");
  const std::size_t to = other_than(home);
  failpoints->arm("fence.before", {.action = Failpoints::Action::kError, .argument = {}});
  EXPECT_FALSE(reassign("1", name(to)));
  failpoints->disarm();
  const std::string before = rows(home, "1");
  moved("1", to);
  expect_clean();
  EXPECT_TRUE(verified(true).clean());
  expect_owner("1", to, before);
  tell(home, "DELETE FROM collegedb.retired");  // as when its epoch is dropped
  expect_clean();
  EXPECT_TRUE(verified(true).clean());
  EXPECT_EQ(rows(to, "1"), before);
}

TEST_F(VerifyTest, HalvesOfAnAbortedMoveAreRolledBack) {
  open();
  const std::size_t home = add_key("1");
  const std::size_t to = other_than(home);
  const std::string before = rows(home, "1");
  die_at("prepare_source.after", "1", to);
  tell(0, "UPDATE collegedb.moves SET state = 'aborted'; DELETE FROM collegedb.claims");
  VerifyResult found = verified();
  EXPECT_EQ(found[FindingKind::kStrandedCopy].count, 2);
  const VerifyResult done = verified(true);
  EXPECT_TRUE(done.clean());
  EXPECT_THAT(done.repaired, SizeIs(2));
  expect_clean();
  expect_quiet();
  expect_owner("1", home, before);
}

TEST_F(VerifyTest, HalvesThatMayHaveBeenDecidedAreLeft) {
  open();
  const std::size_t home = add_key("1");
  die_at("prepare_source.after", "1", other_than(home));
  tell(0, "DELETE FROM collegedb.claims; UPDATE collegedb.moves SET state = 'retired'");
  VerifyResult done = verified(true);
  EXPECT_EQ(done[FindingKind::kStrandedCopy].count, 2);
  EXPECT_THAT(done.repaired, SizeIs(0));
  tell(0, "DELETE FROM collegedb.moves");
  done = verified(true);
  EXPECT_EQ(done[FindingKind::kStrandedCopy].count, 2);
  EXPECT_THAT(done.repaired, SizeIs(0));
  EXPECT_EQ(ask(home, "SELECT count(*) FROM pg_prepared_xacts WHERE database = current_database()"),
            "1");
}

TEST_F(VerifyTest, HalvesOfOthersAreNobodysBusiness) {
  open();
  for (const std::string gid : {"app-7", "collegedb:elsewhere:x:1:src", "collegedb:ddl-1"}) {
    tell(1, "BEGIN; INSERT INTO collegedb.sweep DEFAULT VALUES; PREPARE TRANSACTION '" + gid + "'");
  }
  expect_clean();
  EXPECT_TRUE(verified(true).clean());
  EXPECT_EQ(ask(1, "SELECT count(*) FROM pg_prepared_xacts WHERE database = current_database()"),
            "3");
}

TEST_F(VerifyTest, RepairsSideBySideDoEachThingOnce) {
  open();
  std::vector<std::string> keys;
  for (int i = 1; i <= 8; ++i) {
    const std::string key = std::to_string(i);
    const std::size_t home = add_key(key);
    moved(key, other_than(home));
    plant_rows(home, key);
  }
  std::vector<Result<VerifyResult>> results(3, VerifyResult{});
  std::vector<std::thread> callers;
  const auto ready = options();
  for (auto& result : results) {
    callers.emplace_back([&result, ready] { result = migration::verify(ready, true); });
  }
  for (std::thread& caller : callers) caller.join();
  for (const auto& result : results) {
    ASSERT_TRUE(result) << result.error().message;
    EXPECT_TRUE(result->clean()) << migration::json_of(result->remaining[1].first);
  }
  expect_clean();
  expect_quiet();
}

TEST_F(VerifyTest, AShardThatCannotBeReachedLeavesItUnfinished) {
  open();
  auto broken = options();
  broken.shards[2].conninfo = "host=127.0.0.1 port=1 dbname=nowhere";
  const auto result = migration::verify(broken, false);
  ASSERT_FALSE(result);
  EXPECT_THAT(result.error().message, HasSubstr("SHARD_UNAVAILABLE"));
  EXPECT_EQ(ask(0, "SELECT count(*) FROM collegedb.verifications WHERE clean"), "0");
}

}  // namespace
}  // namespace collegedb::pgtest
