// Cutovers whose decision was lost with the journal: what repair puts back, and what it leaves.
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

class StaleTest : public VerifyTest {
 protected:
  void SetUp() override {
    VerifyTest::SetUp();
    if (HasFatalFailure()) return;
    open();
    home_ = add_key("1");
    to_ = other_than(home_);
    before_ = rows(home_, "1");
    op_ = moved("1", to_);
    abort_in_journal(op_);
  }
  std::size_t home_ = 0;
  std::size_t to_ = 0;
  std::string before_;
  std::string op_;
};

TEST_F(StaleTest, IsRestoredFromItsArchive) {
  remove_rows(to_, "1");
  VerifyResult found = verified();
  const VerifyFinding stale = only(found, FindingKind::kStaleCutover);
  EXPECT_TRUE(stale.restorable) << stale.reason;
  EXPECT_EQ(stale.op, op_);
  EXPECT_EQ(stale.shard, name(home_));
  EXPECT_EQ(rows(home_, "1"), "|");
  expect_repaired("cutover");
  expect_owner("1", home_, before_);
  EXPECT_EQ(archived(home_, op_), "0");
  moved("1", to_);
  expect_owner("1", to_, before_);
}

TEST_F(StaleTest, IsLeftWhileTheDestinationHasRows) {
  // The destination's rows equal the journaled digest as well: neither is taken away.
  VerifyResult found = verified();
  EXPECT_FALSE(found[FindingKind::kStaleCutover].first.at(0).restorable);
  const VerifyResult done = verified(true);
  EXPECT_FALSE(done.clean());
  EXPECT_THAT(done.repaired, SizeIs(0)) << migration::json_of(done.repaired);
  EXPECT_EQ(rows(to_, "1"), before_);
  EXPECT_EQ(archived(home_, op_), "4");
}

TEST_F(StaleTest, IsLeftWhenTheArchiveIsNotWhole) {
  remove_rows(to_, "1");
  tell(home_, "DELETE FROM collegedb.archive WHERE table_name = 'public.orders'");
  expect_left(FindingKind::kStaleCutover, "the archive has 1 rows, the journal 4");
  EXPECT_EQ(rows(home_, "1"), "|");
}

TEST_F(StaleTest, IsLeftWhenTheArchiveIsNotWhatWasJournaled) {
  remove_rows(to_, "1");
  tell(home_,
       "UPDATE collegedb.archive SET row = row || '{\"n\": \"9\"}'"
       " WHERE table_name = 'public.users'");
  expect_left(FindingKind::kStaleCutover, "are not those that the operation has journaled");
  EXPECT_EQ(rows(home_, "1"), "|");
  EXPECT_EQ(tombstone(home_, "1"), name(to_));
}

TEST_F(StaleTest, IsLeftWhenTheKeyHasMovedSince) {
  // On from the destination, by an operation that knew better.
  tell(0, "UPDATE collegedb.moves SET state = 'retired'");
  tell(0, "INSERT INTO collegedb.exceptions (scope, grp, key, shard) VALUES ('" +
              config.journal.scope + "', 'public.users', '1', '" + name(to_) + "')");
  const std::size_t third = other_than(to_);
  if (third != home_) moved("1", third);
  tell(0, "UPDATE collegedb.moves SET state = 'aborted' WHERE op = '" + op_ + "'");
  VerifyResult found = verified();
  const VerifyFinding stale = only(found, FindingKind::kStaleCutover);
  EXPECT_FALSE(stale.restorable);
  EXPECT_THAT(stale.reason, HasSubstr("a later move"));
  EXPECT_FALSE(verified(true).clean());
  EXPECT_EQ(rows(home_, "1"), "|");
  EXPECT_EQ(rows(third, "1"), before_);
}

TEST_F(StaleTest, ARepairThatDiesAnywhereHasBeenDoneOrNot) {
  remove_rows(to_, "1");
  for (const std::string at : {"held", "fenced", "changed", "led", "committed"}) {
    SCOPED_TRACE(at);
    const auto ready = migration::completed(child_options());
    const VerifyFinding finding{.kind = FindingKind::kStaleCutover,
                                .what = "cutover",
                                .op = op_,
                                .shard = name(home_),
                                .group = std::string(kGroup),
                                .key = "1"};
    ASSERT_EQ(in_child([&] {
                (void)migration::Repair(ready, [&](std::string_view step) {
                  if (step == at) ::_exit(137);
                }).attempt(finding);
              }),
              137);
    await(
        [&] {
          return ask(0,
                     "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
                     " AND application_name = 'collegedb verify' AND state <> 'idle'") == "0";
        },
        "sessions of the dead");
    expect_quiet();
    const bool done = at == "committed";
    EXPECT_EQ(rows(home_, "1"), done ? before_ : "|");
    EXPECT_EQ(archived(home_, op_), done ? "0" : "4");
    EXPECT_EQ(tombstone(home_, "1"), done ? "" : name(to_));
    EXPECT_EQ(tombstone(to_, "1"), at == "led" || done ? name(home_) : "");
  }
  expect_clean();
  expect_owner("1", home_, before_);
}

// It has found the key without rows on the destination. That is not the key's place any more when
// it comes to move it.
TEST_F(StaleTest, AMoveThatLookedBeforeTheRepairIsRefused) {
  remove_rows(to_, "1");
  const std::size_t third = other_than(to_);
  const std::string gate = "/tmp/collegedb_stale_" + std::to_string(::getpid());
  failpoints->arm("claim.before", {.action = Failpoints::Action::kWait, .argument = gate});
  const auto ready = migration::completed(options());
  Result<migration::MoveResult> result = migration::MoveResult{};
  std::thread mover([&] {
    migration::Runner runner(ready);
    result = runner.reassign({.group = std::string(kGroup), .key = "1", .shard = name(third)});
  });
  await([&] { return ::access((gate + ".here").c_str(), F_OK) == 0; }, "the look of the mover");
  EXPECT_EQ(migration::Repair(ready, {}).attempt({.kind = FindingKind::kStaleCutover,
                                                  .what = "cutover",
                                                  .op = op_,
                                                  .shard = name(home_),
                                                  .group = std::string(kGroup),
                                                  .key = "1"}),
            "");
  std::ofstream(gate).put('\n');
  mover.join();
  ::unlink(gate.c_str());
  ::unlink((gate + ".here").c_str());
  failpoints->disarm();
  ASSERT_FALSE(result) << result->source;
  EXPECT_THAT(result.error().message, HasSubstr("is not on shard"));
  expect_clean();
  expect_owner("1", home_, before_);
  moved("1", third);
  expect_owner("1", third, before_);
}

// Whoever wants to move the key while a repair has it waits.
TEST_F(StaleTest, AMoveWaitsForARepair) {
  remove_rows(to_, "1");
  const std::size_t third = other_than(to_);
  const auto ready = migration::completed(options());
  std::thread mover;
  std::atomic<bool> ended{false};
  migration::Repair repair(ready, [&](std::string_view step) {
    if (step != "fenced") return;
    mover = std::thread([&] {
      migration::Runner runner(ready);
      (void)runner.reassign({.group = std::string(kGroup), .key = "1", .shard = name(third)});
      ended = true;
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    EXPECT_FALSE(ended);
  });
  EXPECT_EQ(repair.attempt({.kind = FindingKind::kStaleCutover,
                            .what = "cutover",
                            .op = op_,
                            .shard = name(home_),
                            .group = std::string(kGroup),
                            .key = "1"}),
            "");
  mover.join();
  // It has looked before or after: then it has moved them.
  const std::string entry = ask(0, "SELECT shard FROM collegedb.exceptions WHERE key = '1'");
  expect_owner("1", entry.empty() ? home_ : index(entry), before_);
  expect_clean();
}

}  // namespace
}  // namespace collegedb::pgtest
