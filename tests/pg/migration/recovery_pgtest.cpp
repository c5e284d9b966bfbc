// Movers that die at every point, states built by SQL, shards that restart: recovery, then the
// invariants.
#include <gmock/gmock.h>

#include <fstream>
#include <set>

#include "migration/operation.h"
#include "tests/pg/migration/move_fixture.h"

namespace collegedb::pgtest {
namespace {

using migration::Failpoints;
using migration::MoveResult;
using migration::RecoveryResult;
using ::testing::HasSubstr;

class RecoveryTest : public MoveTest {
 protected:
  // Recovery until nobody is left to be recovered: the sessions of the dead may linger.
  void recover_all() {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    for (;;) {
      const Result<RecoveryResult> result = recover();
      ASSERT_TRUE(result) << result.error().message;
      for (const auto& failed : result->failed) ADD_FAILURE() << failed.op << ": " << failed.error;
      if (result->skipped == 0) return;
      ASSERT_LT(std::chrono::steady_clock::now(), deadline);
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }

  // A mover in a child process that dies at the point; returns whether the point was reached.
  bool die_at(const std::string& point, const std::string& key, std::size_t to) {
    const auto ready = child_options();
    const std::string shard = name(to);
    return in_child([&] {
             migration::Runner runner(ready);
             ready.failpoints->arm(point, {.action = Failpoints::Action::kCrash, .argument = {}});
             (void)runner.reassign({.group = std::string(kGroup), .key = key, .shard = shard});
           }) == 137;
  }

  // After recovery the key is where the directory says, with its rows.
  void expect_consistent(const std::string& key, const std::string& expected) {
    const std::string there = entry(key);
    expect_owner(key, there.empty() ? owner(key) : index(there), expected);
  }

  // An operation as a dead mover leaves it.
  std::string seed_operation(const std::string& key, std::size_t from, std::size_t to,
                             const std::string& state) {
    const std::string op = "00000000-0000-0000-0000-" + key + std::string(12 - key.size(), '0');
    tell(0,
         "INSERT INTO collegedb.moves (op, scope, state, grp, source, destination, attempt,"
         " token) VALUES ('" +
             op + "', '" + config.journal.scope + "', '" + state + "', 'public.users', '" +
             name(from) + "', '" + name(to) +
             "', 1, 1);"
             "INSERT INTO collegedb.move_keys VALUES ('" +
             op + "', '" + config.journal.scope + "', 'public.users', '" + key +
             "');"
             "INSERT INTO collegedb.claims VALUES ('" +
             config.journal.scope + "', 'public.users', '" + key + "', '" + op + "')");
    return op;
  }
};

// One test for each quarter of the points, so that they can run side by side.
class CrashTest : public RecoveryTest,
                  public ::testing::WithParamInterface<std::tuple<int, std::string>> {};

TEST_P(CrashTest, AtEveryPointRecoveryLeavesOneOwnerAndNoDebris) {
  config.routing.placement = std::get<1>(GetParam());
  open();
  int key_number = 5000;
  int index = 0;
  for (const std::string& point : migration::all_points()) {
    if (index++ % 4 != std::get<0>(GetParam())) continue;
    const std::string key = std::to_string(key_number++);
    const std::size_t from = add_key(key);
    const std::size_t to = other_than(from);
    SCOPED_TRACE(point + ", key " + key);
    const std::string before = rows(from, key);
    die_at(point, key, to);
    recover_all();
    expect_consistent(key, before);
    expect_quiet();
    // And it can be moved again.
    const std::size_t next = entry(key) == name(to) ? from : to;
    const Result<MoveResult> again = reassign(key, name(next));
    ASSERT_TRUE(again) << again.error().message;
    expect_owner(key, next, before);
    if (HasFatalFailure()) return;
  }
  expect_quiet();
}
INSTANTIATE_TEST_SUITE_P(Quarter, CrashTest,
                         ::testing::Combine(::testing::Range(0, 4),
                                            ::testing::Values(std::string("computed"),
                                                              std::string("mapped"))));

TEST_F(RecoveryTest, ARecoveryThatDiesIsRecoveredToo) {
  open();
  int key_number = 6000;
  for (const std::string first : {"prepare_destination.after", "prepare_source.after",
                                  "journal_committed.after", "commit_destination.after"}) {
    for (const std::string second :
         {"take_over.after", "raise_tokens.middle", "inspect.after", "journal_reset.after",
          "rollback_halves.middle", "commit_destination.before", "commit_source.after",
          "clear_incoming.before", "publish.after", "lease.after"}) {
      const std::string key = std::to_string(key_number++);
      const std::size_t from = add_key(key);
      const std::size_t to = other_than(from);
      SCOPED_TRACE(first + " then " + second);
      const std::string before = rows(from, key);
      ASSERT_TRUE(die_at(first, key, to));
      const auto ready = child_options();
      in_child([&] {
        ready.failpoints->arm(second, {.action = Failpoints::Action::kCrash, .argument = {}});
        (void)migration::Recovery(ready).run();
      });
      // Its lease goes with its session: nobody waits a minute.
      await([&] { return recover().has_value(); }, "the lease of a dead recovery");
      recover_all();
      expect_consistent(key, before);
      expect_quiet();
      if (HasFailure()) return;
    }
  }
}

TEST_F(RecoveryTest, ALostAnswerAtAnyPointIsHealedByTheMoverItself) {
  open();
  int key_number = 7000;
  std::set<std::string> never;
  for (const std::string& point : migration::all_points()) {
    if (point.starts_with("lease") || point.starts_with("release") || point.starts_with("claim")) {
      continue;
    }
    const std::string key = std::to_string(key_number++);
    const std::size_t from = add_key(key);
    const std::size_t to = other_than(from);
    SCOPED_TRACE(point);
    const std::string before = rows(from, key);
    failpoints->arm(point, {.action = Failpoints::Action::kDropReply, .argument = {}});
    const Result<MoveResult> moved = reassign(key, name(to));
    failpoints->disarm();
    ASSERT_TRUE(moved) << moved.error().message << moved.error().detail;
    expect_owner(key, to, before);
    expect_quiet();
    if (HasFailure()) return;
  }
}

// What a restart of a shard or of the journal does to a mover: all its sessions there end at once.
TEST_F(RecoveryTest, ServersThatDropTheMoverInTheMiddleAreSurvived) {
  open();
  int key_number = 7500;
  for (const std::string point :
       {"copy.middle", "compare.before", "prepare_destination.after", "prepare_source.after",
        "journal_committed.after", "commit_destination.after", "commit_source.after"}) {
    for (const bool journal_too : {false, true}) {
      const std::string key = std::to_string(key_number++);
      const std::size_t from = add_key(key);
      const std::size_t to = other_than(from);
      SCOPED_TRACE(point + (journal_too ? ", and the journal" : ""));
      const std::string before = rows(from, key);
      const int visits = failpoints->visits()[point];
      failpoints->arm(point, {.action = Failpoints::Action::kSleep, .argument = "300"});
      std::optional<Result<MoveResult>> moved;
      std::thread mover([&] { moved = reassign(key, name(to)); });
      await([&] { return failpoints->visits()[point] > visits; }, point);
      for (std::size_t i = 0; i < 3; ++i) {
        tell(i, std::string("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname ="
                            " current_database() AND (application_name LIKE 'collegedb move%'") +
                    (journal_too ? " OR application_name = 'collegedb journal')" : ")"));
      }
      mover.join();
      ASSERT_TRUE(*moved) << moved->error().message << moved->error().detail;
      expect_owner(key, to, before);
      expect_quiet();
      if (HasFailure()) return;
    }
  }
}

TEST_F(RecoveryTest, EveryPointIsVisitedAndEveryActionActs) {
  open();
  // Misses and refusals at every point, lost answers at the cutover; what a point never sees in one
  // kind of life it sees in another.
  int key_number = 8000;
  for (const auto action : {Failpoints::Action::kMiss, Failpoints::Action::kError,
                            Failpoints::Action::kSleep, Failpoints::Action::kDropReply}) {
    for (const std::string point :
         {"prepare_source.after", "fence.middle", "prepare_destination.before"}) {
      const std::string key = std::to_string(key_number++);
      const std::size_t from = add_key(key);
      const std::string before = rows(from, key);
      SCOPED_TRACE(point);
      failpoints->arm(point, {.action = action, .argument = "10"});
      const Result<MoveResult> moved = reassign(key, name(other_than(from)));
      EXPECT_EQ(moved.has_value(), action != Failpoints::Action::kError);
      expect_owner(key, moved ? other_than(from) : from, before);
      expect_quiet();
    }
  }
  const std::string waits = std::to_string(key_number++);
  const std::size_t home = add_key(waits);
  const std::string file = "/tmp/collegedb_" + config.journal.scope;
  failpoints->arm("verify.before", {.action = Failpoints::Action::kWait, .argument = file});
  std::thread release([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    std::ofstream{file};
  });
  EXPECT_TRUE(reassign(waits, name(other_than(home))));
  release.join();
  ::unlink(file.c_str());
  ::unlink((file + ".here").c_str());
  // A mover that was given up by recovery: its halves are rolled back and it is aborted.
  const std::string last = std::to_string(key_number);
  const std::size_t from = add_key(last);
  ASSERT_TRUE(die_at("prepare_destination.after", last, other_than(from)));
  await([&] { return migration::Recovery(options()).needed().value(); }, "the dead mover's lock");
  recover_all();
  const auto visits = failpoints->visits();
  for (const std::string& point : migration::all_points()) {
    EXPECT_TRUE(visits.contains(point)) << point << " was never reached";
  }
}

TEST_F(RecoveryTest, FailPointsAreReadFromTheEnvironmentAndCheckedThere) {
  ::setenv("COLLEGEDB_FAILPOINTS", "copy.after=sleep:1*2,fence.before=error", 1);
  const auto armed = Failpoints::from_environment();
  EXPECT_THROW(armed->hit("fence.before"), migration::StepFailure);
  EXPECT_NO_THROW(armed->hit("fence.before")) << "fires once";
  for (const char* wrong :
       {"nonsense=crash", "copy.after=explode", "copy.after", "copy.after=sleep:x"}) {
    ::setenv("COLLEGEDB_FAILPOINTS", wrong, 1);
    EXPECT_THROW((void)Failpoints::from_environment(), std::runtime_error) << wrong;
  }
  ::unsetenv("COLLEGEDB_FAILPOINTS");
}

TEST_F(RecoveryTest, AClaimWithoutAnOperationIsReleased) {
  open();
  tell(0, "INSERT INTO collegedb.claims VALUES ('" + config.journal.scope +
              "', 'public.users', '1', 'no-such-op')");
  EXPECT_TRUE(migration::Recovery(options()).needed().value());
  const Result<RecoveryResult> result = recover();
  ASSERT_TRUE(result);
  EXPECT_EQ(result->released, 1);
  EXPECT_FALSE(migration::Recovery(options()).needed().value());
}

TEST_F(RecoveryTest, ALiveLeaseIsRespectedAndAnExpiredOneTakenOver) {
  open();
  tell(0, "INSERT INTO collegedb.recovery_lease VALUES ('" + config.journal.scope +
              "', 'other', 7, clock_timestamp() + interval '1 minute')");
  const Result<RecoveryResult> refused = recover();
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("RECOVERY_IN_PROGRESS"));
  EXPECT_EQ(refused.error().sqlstate, "55P03");
  tell(0, "UPDATE collegedb.recovery_lease SET expires_at = clock_timestamp()");
  ASSERT_TRUE(recover());
  EXPECT_EQ(ask(0, "SELECT generation FROM collegedb.recovery_lease"), "8");
}

TEST_F(RecoveryTest, ALostLeaseStopsTheRound) {
  open();
  const std::size_t from = add_key("31");
  seed_operation("31", from, other_than(from), "prepared");
  failpoints->arm("release_claims.after",
                  {.action = Failpoints::Action::kSleep, .argument = "600"});
  std::optional<Result<RecoveryResult>> result;
  std::thread recovery([&] { result = recover(); });
  await([&] { return !ask(0, "SELECT 1 FROM collegedb.recovery_lease").empty(); }, "no lease");
  tell(0, "UPDATE collegedb.recovery_lease SET holder = 'other', generation = generation + 1");
  recovery.join();
  ASSERT_FALSE(*result);
  EXPECT_THAT(result->error().message, HasSubstr("RECOVERY_FENCED"));
  EXPECT_EQ(result->error().sqlstate, "40001");
  EXPECT_EQ(ask(0, "SELECT state || token FROM collegedb.moves"), "prepared1");
}

TEST_F(RecoveryTest, ALivingMoverIsLeftAlone) {
  open();
  const std::size_t from = add_key("32");
  failpoints->arm("verify.before", {.action = Failpoints::Action::kSleep, .argument = "800"});
  std::optional<Result<MoveResult>> moved;
  std::thread mover([&] { moved = reassign("32", name(other_than(from))); });
  await([&] { return ask(0, "SELECT state FROM collegedb.moves") == "verified"; }, "verified");
  EXPECT_FALSE(migration::Recovery(options()).needed().value());
  const Result<RecoveryResult> result = recover();
  mover.join();
  ASSERT_TRUE(result);
  EXPECT_EQ(result->examined, 1);
  EXPECT_EQ(result->skipped, 1);
  ASSERT_TRUE(*moved);
  EXPECT_EQ(ask(0, "SELECT token FROM collegedb.moves"), "1");
}

TEST_F(RecoveryTest, SeededStatesBeforeTheCutoverStartOverOrAbortWhenAsked) {
  open();
  int number = 40;
  for (const std::string state : {"claim", "prepared", "copied", "verified", "cutover_pending"}) {
    for (const bool cancelled : {false, true}) {
      const std::string key = std::to_string(number++);
      SCOPED_TRACE(state + (cancelled ? ", cancelled" : ""));
      const std::size_t from = add_key(key);
      const std::size_t to = other_than(from);
      const std::string before = rows(from, key);
      const std::string op = seed_operation(key, from, to, state);
      if (cancelled) tell(0, "UPDATE collegedb.moves SET cancel_requested = true");
      const Result<RecoveryResult> result = recover();
      ASSERT_TRUE(result) << result.error().message;
      // At the cutover without a digest in the journal the rows count as changed: aborted.
      const bool aborted = cancelled || state == "cutover_pending";
      EXPECT_EQ(result->aborted, aborted ? 1 : 0);
      EXPECT_EQ(result->committed, aborted ? 0 : 1);
      expect_owner(key, aborted ? from : to, before);
      expect_quiet();
    }
  }
}

// Real remains of a real mover, then altered by SQL.
TEST_F(RecoveryTest, SeededRemainsAtTheCutoverFollowTheTable) {
  open();
  const auto remains = [&](const std::string& point, const std::string& key) {
    const std::size_t from = add_key(key);
    EXPECT_TRUE(die_at(point, key, other_than(from)));
    await([&] { return migration::Recovery(options()).needed().value(); }, "the dead mover's lock");
    return from;
  };
  const auto halves = [&](std::size_t shard, const char* verb, const char* suffix) {
    const std::string gid = ask(shard,
                                "SELECT gid FROM pg_prepared_xacts WHERE database ="
                                " current_database() AND gid LIKE '%" +
                                    std::string(suffix) + "'");
    ASSERT_NE(gid, "");
    tell(shard, std::string(verb) + " PREPARED '" + gid + "'");
  };
  {
    SCOPED_TRACE("source rows changed, nothing prepared: aborted");
    const std::size_t from = remains("fence.before", "61");
    tell(from, "UPDATE users SET n = 5 WHERE id = 61");
    const Result<RecoveryResult> result = recover();
    EXPECT_EQ(result->aborted, 1);
    expect_owner("61", from, rows(from, "61"));
  }
  {
    SCOPED_TRACE("both prepared, then the destination's half lost to a restore: start over");
    const std::size_t from = remains("prepare_source.after", "62");
    const std::string before = rows(from, "62");
    halves(other_than(from), "ROLLBACK", ":dst");
    const Result<RecoveryResult> result = recover();
    EXPECT_EQ(result->committed, 1);
    expect_owner("62", other_than(from), before);
  }
  {
    SCOPED_TRACE("row 20: the destination is committed, the record of the decision was lost");
    const std::size_t from = remains("commit_destination.after", "63");
    const std::string before = rows(from, "63");
    tell(0, "UPDATE collegedb.moves SET state = 'cutover_pending' WHERE state = 'committed'");
    const Result<RecoveryResult> result = recover();
    EXPECT_EQ(result->committed, 1);
    expect_owner("63", other_than(from), before);
  }
  {
    SCOPED_TRACE("both committed, the record of the decision was lost");
    const std::size_t from = remains("clear_incoming.before", "64");
    const std::string before = rows(other_than(from), "64");
    tell(0, "UPDATE collegedb.moves SET state = 'cutover_pending' WHERE state = 'committed'");
    const Result<RecoveryResult> result = recover();
    EXPECT_EQ(result->committed, 1);
    expect_owner("64", other_than(from), before);
  }
  {
    SCOPED_TRACE("decided, and one half is nowhere: left alone, reported every time");
    const std::size_t from = remains("journal_committed.after", "65");
    halves(from, "ROLLBACK", ":src");
    for (int round = 0; round < 2; ++round) {
      const Result<RecoveryResult> result = recover();
      ASSERT_EQ(result->failed.size(), 1U);
      EXPECT_EQ(result->failed[0].key, "65");
    }
    EXPECT_EQ(ask(0,
                  "SELECT state FROM collegedb.moves m JOIN collegedb.move_keys k USING (op)"
                  " WHERE k.key = '65'"),
              "committed");
    tell(0,
         "DELETE FROM collegedb.claims; UPDATE collegedb.moves SET state = 'aborted'"
         " WHERE state = 'committed'");
    halves(other_than(from), "ROLLBACK", ":dst");
  }
  {
    SCOPED_TRACE("a copy that was left on the destination is dropped by proof");
    const std::size_t from = remains("fence.before", "66");
    const std::size_t to = other_than(from);
    const std::string before = rows(from, "66");
    tell(to,
         "INSERT INTO users (id, name) VALUES (66, 'user 66'); INSERT INTO orders SELECT 66, g,"
         " g * 1.10, 'note ' || g FROM generate_series(1, 3) g");
    const Result<RecoveryResult> result = recover();
    EXPECT_EQ(result->committed, 1);
    expect_owner("66", to, before);
  }
  {
    SCOPED_TRACE("rows of somebody else on the destination are not");
    const std::size_t from = remains("fence.before", "67");
    const std::size_t to = other_than(from);
    tell(to, "INSERT INTO users (id, name) VALUES (67, 'another')");
    const Result<RecoveryResult> result = recover();
    EXPECT_EQ(result->aborted, 1);
    EXPECT_EQ(ask(to, "SELECT name FROM users WHERE id = 67"), "another");
    EXPECT_EQ(ask(0,
                  "SELECT error FROM collegedb.moves m JOIN collegedb.move_keys k USING (op)"
                  " WHERE k.key = '67'")
                  .substr(0, 20),
              "DESTINATION_CONFLICT");
  }
  expect_quiet();
}

// Row 4: cut off from the journal, the mover goes on; recovery has been there in the meantime.
TEST_F(RecoveryTest, AMoverThatWasCutOffPreparesNothingAfterRecovery) {
  open();
  int number = 70;
  for (const std::string point :
       {"copy.middle", "verify.before", "compare.before", "retire_rows.before",
        "prepare_destination.before", "prepare_source.before"}) {
    const std::string key = std::to_string(number++);
    SCOPED_TRACE(point);
    const std::size_t from = add_key(key);
    const std::size_t to = other_than(from);
    const std::string before = rows(from, key);
    const std::string file = "/tmp/collegedb_" + config.journal.scope + key;
    const auto ready = child_options();
    const pid_t frozen = ::fork();
    if (frozen == 0) {
      ready.failpoints->arm(point, {.action = Failpoints::Action::kWait, .argument = file});
      migration::Runner runner(ready);
      (void)runner.reassign({.group = std::string(kGroup), .key = key, .shard = name(to)});
      ::_exit(0);
    }
    await([&] { return ::access((file + ".here").c_str(), F_OK) == 0; }, "its way to the point");
    // Its journal session dies; the sessions on the shards do not.
    tell(0,
         "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname ="
         " current_database() AND application_name = 'collegedb journal'");
    await([&] { return migration::Recovery(options()).needed().value(); }, "the lock");
    recover_all();
    expect_owner(key, to, before);
    std::ofstream{file};
    int status = 0;
    ::waitpid(frozen, &status, 0);
    ::unlink(file.c_str());
    ::unlink((file + ".here").c_str());
    expect_owner(key, to, before);
    expect_quiet();
    if (HasFailure()) return;
  }
}

TEST_F(RecoveryTest, WritesFlowAgainWithinTheIntervalAfterAKill) {
  open();
  constexpr std::chrono::milliseconds kInterval{500};
  migration::RecoveryLoop loop(options(), kInterval, {});
  int number = 80;
  for (const std::string point :
       {"fence.after", "prepare_destination.after", "prepare_source.after",
        "journal_committed.after", "commit_destination.after", "commit_source.after"}) {
    const std::string key = std::to_string(number++);
    SCOPED_TRACE(point);
    const std::size_t from = add_key(key);
    const std::size_t to = other_than(from);
    Writer writer(config, [this](auto&&... arguments) { return guarded(arguments...); }, key, from);
    // A machine that is too busy for its clients is too busy for recovery as well.
    const auto calm = std::chrono::steady_clock::now();
    const std::string yardstick = std::to_string(number + 900);
    const std::size_t there = add_key(yardstick);
    ASSERT_TRUE(reassign(yardstick, name(other_than(there))));
    const auto one_move = std::chrono::steady_clock::now() - calm;
    ASSERT_TRUE(die_at(point, key, to));
    const auto killed = std::chrono::steady_clock::now();
    const std::int64_t then = writer.acknowledged();
    await([&] { return writer.acknowledged() > then + 5; }, "no write gets through");
    EXPECT_LT(
        std::chrono::steady_clock::now() - killed,
        kInterval + std::max<std::chrono::nanoseconds>(std::chrono::seconds(2), 3 * one_move));
    await([&] { return ask(0, "SELECT count(*) FROM collegedb.claims") == "0"; }, "a claim");
    writer.stop();
    EXPECT_THAT(writer.errors(), ::testing::IsEmpty());
    std::int64_t sum = 0;
    for (std::size_t i = 0; i < 3; ++i) {
      sum += std::stoll("0" + ask(i, "SELECT n FROM users WHERE id = " + key));
    }
    EXPECT_EQ(sum, writer.acknowledged());
  }
  loop.stop();
  expect_quiet();
}

TEST_F(RecoveryTest, TheLoopCallsItsHooksAndStops) {
  open();
  std::atomic<int> rounds{0};
  std::atomic<int> failures{0};
  migration::RecoveryLoop loop(options(), std::chrono::milliseconds(20),
                               {.two_phase =
                                    [&] {
                                      if (++rounds == 1)
                                        throw std::runtime_error("first one fails");
                                    },
                                .finished = {},
                                .failed = [&](const SqlError&) { ++failures; }});
  await([&] { return rounds > 3; }, "rounds");
  loop.stop();
  const int at_stop = rounds;
  std::this_thread::sleep_for(std::chrono::milliseconds(80));
  EXPECT_EQ(rounds, at_stop);
  EXPECT_EQ(failures, 1);
}

}  // namespace
}  // namespace collegedb::pgtest
