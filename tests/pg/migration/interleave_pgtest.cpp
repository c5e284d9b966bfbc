// Writers and readers against a move, at three isolation levels: what the guard must let through,
// hold, and refuse.
#include <gmock/gmock.h>

#include "tests/pg/migration/move_fixture.h"

namespace collegedb::pgtest {
namespace {

using migration::ControlSession;
using migration::Failpoints;
using migration::MoveResult;
using migration::SqlFailure;
using migration::Transaction;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class InterleaveTest : public MoveTest {
 protected:
  // The state of `sql` in a session: empty, or the SQLSTATE it failed with.
  static std::string state_of(ControlSession& session, const std::string& sql) {
    try {
      session.run(sql);
      return {};
    } catch (const SqlFailure& failure) {
      return failure.error().sqlstate;
    }
  }
  std::string guard_state(ControlSession& session, const std::string& key) {
    try {
      take_guard(session, key);
      return {};
    } catch (const SqlFailure& failure) {
      return failure.error().sqlstate;
    }
  }
  // A move that stands at `point` for a while; join() gives its result.
  struct Standing {
    std::optional<Result<MoveResult>> result;
    std::thread thread;
    Result<MoveResult>& join() {
      thread.join();
      return *result;
    }
  };
  std::unique_ptr<Standing> stand(const std::string& point, const std::string& key, std::size_t to,
                                  int milliseconds) {
    const int before = failpoints->visits()[point];
    failpoints->arm(
        point, {.action = Failpoints::Action::kSleep, .argument = std::to_string(milliseconds)});
    auto out = std::make_unique<Standing>();
    out->thread =
        std::thread([this, raw = out.get(), key, to] { raw->result = reassign(key, name(to)); });
    await([&] { return failpoints->visits()[point] > before; }, point);
    return out;
  }
};

class Isolation : public InterleaveTest, public ::testing::WithParamInterface<const char*> {
 protected:
  [[nodiscard]] static std::string begin() {
    return std::string("BEGIN ISOLATION LEVEL ") + GetParam();
  }
  [[nodiscard]] static bool snapshots() { return std::string(GetParam()) != "READ COMMITTED"; }
};
INSTANTIATE_TEST_SUITE_P(
    Levels, Isolation, ::testing::Values("READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"),
    [](const auto& info) {
      return std::string(info.param).substr(0, std::string(info.param).find(' '));
    });

// Whatever a writer does at the former owner after it has waited at the fence, nothing is executed.
TEST_P(Isolation, AWriterThatWaitsAtTheFenceIsRefusedByTheFormerOwner) {
  open();
  int number = 100;
  for (const std::string sql :
       {"INSERT INTO orders VALUES ($, 50, 1)", "UPDATE users SET n = 9 WHERE id = $",
        "DELETE FROM orders WHERE user_id = $",
        "INSERT INTO users VALUES ($, 'u') ON CONFLICT (id) DO UPDATE SET n = 8",
        "SELECT * FROM users WHERE id = $ FOR UPDATE"}) {
    const std::string key = std::to_string(number++);
    SCOPED_TRACE(sql);
    const std::size_t from = add_key(key);
    const std::size_t to = other_than(from);
    const std::string before = rows(from, key);
    auto moving = stand("prepare_source.after", key, to, 300);
    auto writer = session(from);
    std::string statement = sql;
    statement.replace(statement.find('$'), 1, key);
    const SqlError error = guarded(*writer, key, statement, begin());
    // At READ COMMITTED the check sees the tombstone that the wait was for; with an older snapshot
    // the gate row itself refuses.
    EXPECT_EQ(error.sqlstate, snapshots() ? "40001" : std::string(guard::kMoved));
    ASSERT_TRUE(moving->join()) << moving->result->error().message;
    expect_owner(key, to, before);
    // A new transaction knows, whatever its level.
    EXPECT_EQ(guarded(*writer, key, statement, begin()).sqlstate, guard::kMoved);
  }
  expect_quiet();
}

// A transaction that was there first keeps the mover off; one that only read elsewhere does not
// write to the former owner afterwards.
TEST_P(Isolation, AnOpenGuardedTransactionHoldsTheCutoverAndIsNotLost) {
  open();
  config.migration.cutover_lock_timeout = std::chrono::milliseconds(2000);
  const std::size_t from = add_key("110");
  const std::size_t to = other_than(from);
  auto writer = session(from);
  Transaction transaction(*writer, begin());
  take_guard(*writer, "110");
  writer->run("UPDATE users SET n = 41 WHERE id = 110");
  auto moving = stand("fence.before", "110", to, 1);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_EQ(ask(0, "SELECT state FROM collegedb.moves"), "cutover_pending");
  take_guard(*writer, "110");
  writer->run("UPDATE users SET n = n + 1 WHERE id = 110");
  transaction.commit();
  ASSERT_TRUE(moving->join()) << moving->result->error().message;
  EXPECT_EQ(moving->result->value().copies, 2);
  EXPECT_EQ(ask(to, "SELECT n FROM users WHERE id = 110"), "42");
  expect_quiet();
}

// D1: the transaction read before the cutover and inserts after it.
TEST_P(Isolation, ASnapshotOlderThanTheCutoverWritesNothingAtTheFormerOwner) {
  open();
  const std::size_t from = add_key("111");
  const std::size_t to = other_than(from);
  const std::string before = rows(from, "111");
  auto writer = session(from);
  Transaction transaction(*writer, begin());
  writer->run("SELECT count(*) FROM users");  // fixes the snapshot; touches no key
  ASSERT_TRUE(reassign("111", name(to)));
  EXPECT_EQ(guard_state(*writer, "111"), snapshots() ? "40001" : std::string(guard::kMoved));
  expect_owner("111", to, before);
}

// Row 8: the same at the destination, whose older snapshot does not see the rows.
TEST_P(Isolation, ASnapshotOlderThanTheArrivalIsRefusedAtTheDestination) {
  open();
  const std::size_t from = add_key("112");
  const std::size_t to = other_than(from);
  auto writer = session(to);
  Transaction transaction(*writer, begin());
  writer->run("SELECT count(*) FROM users");
  ASSERT_TRUE(reassign("112", name(to)));
  const std::string state = guard_state(*writer, "112");
  if (snapshots()) {
    EXPECT_EQ(state, "40001");
    return;
  }
  EXPECT_EQ(state, "");
  EXPECT_EQ(writer->run("UPDATE users SET n = 1 WHERE id = 112").affected(), 1);
}

// Row 14: the guard itself may raise 40001 in a healthy move; a second try gets through. No other
// error ever reaches an autocommit writer.
TEST_P(Isolation, AutocommitWritersLoseNothingAndSeeNoErrorWhileTheKeyTravels) {
  open();
  const std::size_t home = add_key("113");
  std::vector<std::unique_ptr<Writer>> writers;
  const auto guarded_call = [this](auto&&... arguments) { return guarded(arguments...); };
  for (int i = 0; i < 4; ++i) {
    writers.push_back(std::make_unique<Writer>(config, guarded_call, "113", home, begin()));
  }
  std::size_t at = home;
  int moves = 0;
  for (int i = 0; i < 6; ++i) {
    const Result<MoveResult> moved = reassign("113", name(other_than(at)));
    ASSERT_TRUE(moved) << moved.error().message << moved.error().detail;
    at = other_than(at);
    ++moves;
  }
  std::int64_t acknowledged = 0;
  for (auto& writer : writers) {
    writer->stop();
    EXPECT_THAT(writer->errors(), IsEmpty());
    acknowledged += writer->acknowledged();
  }
  EXPECT_GT(acknowledged, moves);
  EXPECT_EQ(ask(at, "SELECT n FROM users WHERE id = 113"), std::to_string(acknowledged));
  expect_owner("113", at, rows(at, "113"));
  expect_quiet();
}

// Row 13: the gate in a READ ONLY transaction.
TEST_F(InterleaveTest, AReadOnlyTransactionReadsTheGateWithoutLockingIt) {
  open();
  const std::size_t from = add_key("120");
  const std::size_t to = other_than(from);
  ASSERT_TRUE(reassign("120", name(to)));
  for (const std::size_t at : {from, to}) {
    auto reader = session(at);
    Transaction transaction(*reader, "BEGIN READ ONLY");
    const std::string bucket = std::to_string(routing::gate_bucket(kGroup, "120"));
    reader->run(guard::kQueueSql, {bucket});
    const std::vector<std::string> keys = {"120"};
    std::string state;
    try {
      reader->run(guard::kGateReadOnlySql, {bucket, "1", config.journal.scope, std::string(kGroup),
                                            migration::array_text(keys), "off"});
    } catch (const SqlFailure& failure) {
      state = failure.error().sqlstate;
    }
    EXPECT_EQ(state, at == from ? std::string(guard::kMoved) : "");
  }
}

// Row 10: between the two commits nobody writes at the destination, and the source still reads.
TEST_F(InterleaveTest, BetweenTheCommitsTheDestinationHoldsItsWriters) {
  open();
  const std::size_t from = add_key("121");
  const std::size_t to = other_than(from);
  const std::string before = rows(from, "121");
  auto moving = stand("commit_source.before", "121", to, 500);
  auto early = session(to);
  EXPECT_EQ(guarded(*early, "121", "UPDATE users SET n = 1 WHERE id = 121").sqlstate,
            guard::kIncoming);
  EXPECT_EQ(rows(from, "121"), before) << "a read at the source finds the old rows";
  EXPECT_EQ(rows(to, "121"), before);
  ASSERT_TRUE(moving->join());
  EXPECT_EQ(guarded(*early, "121", "UPDATE users SET n = 1 WHERE id = 121").sqlstate, "");
}

// Row 1: a guard taken after a savepoint goes with it; the cutover may pass. Guarded again, the
// transaction is refused.
TEST_F(InterleaveTest, AGuardTakenAfterASavepointGoesWithIt) {
  open();
  const std::size_t from = add_key("122");
  const std::size_t to = other_than(from);
  auto writer = session(from);
  Transaction transaction(*writer);
  writer->run("SAVEPOINT s");
  take_guard(*writer, "122");
  writer->run("UPDATE users SET n = 5 WHERE id = 122");
  writer->run("ROLLBACK TO SAVEPOINT s");
  ASSERT_TRUE(reassign("122", name(to)));
  EXPECT_EQ(guard_state(*writer, "122"), guard::kMoved);
  EXPECT_EQ(ask(to, "SELECT n FROM users WHERE id = 122"), "0");
}

// Row 3: writers who do not come through a proxy meet the fence triggers.
TEST_F(InterleaveTest, ABypassingInsertAtTheFormerOwnerIsRefusedByTheShard) {
  open();
  const std::size_t from = add_key("123");
  ASSERT_TRUE(reassign("123", name(other_than(from))));
  auto psql = session(from);
  EXPECT_EQ(state_of(*psql, "INSERT INTO users VALUES (123, 'x')"), guard::kMoved);
  EXPECT_EQ(state_of(*psql, "INSERT INTO users VALUES (124, 'y')"), "");
  EXPECT_EQ(state_of(*psql, "UPDATE users SET id = 123 WHERE id = 124"), guard::kMoved);
}

// A bypassing UPDATE that was open at the fence: DELETE waits for its row and finds it changed, so
// what would be archived is not what was copied. The cutover is missed, the next copy has it.
TEST_F(InterleaveTest, ABypassingUpdateUnderTheFenceIsNotLost) {
  open();
  const std::size_t from = add_key("125");
  const std::size_t to = other_than(from);
  auto psql = session(from);
  std::optional<Transaction> transaction;
  transaction.emplace(*psql);
  psql->run("UPDATE users SET n = 33 WHERE id = 125");
  auto moving = stand("retire_rows.before", "125", to, 1);
  std::this_thread::sleep_for(std::chrono::milliseconds(60));
  transaction->commit();
  ASSERT_TRUE(moving->join()) << moving->result->error().message;
  EXPECT_GT(moving->result->value().copies, 1);
  EXPECT_EQ(ask(to, "SELECT n FROM users WHERE id = 125"), "33");
  expect_quiet();
}

// D53: a table altered during the move.
TEST_F(InterleaveTest, ATableAlteredDuringTheMoveAbortsIt) {
  open();
  const std::size_t from = add_key("126");
  auto moving = stand("verify.after", "126", other_than(from), 400);
  tell(from, "ALTER TABLE users ADD COLUMN extra text DEFAULT 'x'");
  const Result<MoveResult>& moved = moving->join();
  ASSERT_FALSE(moved);
  EXPECT_THAT(moved.error().message, HasSubstr("altered"));
  EXPECT_EQ(writable_at(from, "126"), from);
  expect_quiet();
}

// Row 18: the sweep locks come before the fence; a scatter that holds one shard and waits for
// another does not leave writers behind the fence.
TEST_F(InterleaveTest, AScatterKeepsTheCutoverOffAndWritersGoOn) {
  open();
  const std::size_t from = add_key("127");
  const std::size_t to = other_than(from);
  const std::string before = rows(from, "127");
  auto scatter = session(to);
  std::optional<Transaction> transaction;
  transaction.emplace(*scatter);
  scatter->run("LOCK TABLE collegedb.sweep IN SHARE MODE");
  const Result<MoveResult> missed = reassign("127", name(to));
  EXPECT_FALSE(missed);
  expect_owner("127", from, before);
  auto moving = stand("fence.before", "127", to, 1);
  auto writer = session(from);
  const auto begun = std::chrono::steady_clock::now();
  EXPECT_EQ(guarded(*writer, "127", "UPDATE users SET n = 1 WHERE id = 127").sqlstate, "");
  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::milliseconds(200));
  transaction->commit();
  ASSERT_TRUE(moving->join()) << moving->result->error().message;
  // And a cutover keeps scatters off.
  auto second = stand("compare.before", "127", from, 300);
  auto reader = session(to);
  EXPECT_EQ(state_of(*reader, "SET lock_timeout = 50"), "");
  Transaction sweep(*reader);
  EXPECT_EQ(state_of(*reader, "LOCK TABLE collegedb.sweep IN SHARE MODE"), "55P03");
  ASSERT_TRUE(second->join());
}

// Row 15: of several buckets only the first is waited for; on a miss all are given back.
TEST_F(InterleaveTest, ABusySecondBucketMakesTheMoverGiveEverythingBack) {
  open();
  config.migration.cutover_attempts = 1;
  std::vector<std::string> keys;
  for (int k = 2000; keys.size() < 2; ++k) {
    if (owner(std::to_string(k)) == 1) keys.push_back(std::to_string(k));
  }
  for (const std::string& key : keys) add_key(key);
  const auto last =
      std::max(routing::gate_bucket(kGroup, keys[0]), routing::gate_bucket(kGroup, keys[1]));
  auto holder = session(1);
  Transaction transaction(*holder);
  take_guard(*holder, routing::gate_bucket(kGroup, keys[0]) == last ? keys[0] : keys[1]);
  migration::Runner runner(options());
  const auto begun = std::chrono::steady_clock::now();
  EXPECT_FALSE(runner.reassign_keys(std::string(kGroup), keys, name(1), name(2)));
  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(5));
  auto writer = session(1);
  for (const std::string& key : keys) EXPECT_EQ(guarded(*writer, key, "SELECT 1").sqlstate, "");
  transaction.commit();
  expect_quiet();
}

// Row 9: both shards' counters move with each cutover, also for those who cannot see the rows.
TEST_F(InterleaveTest, TheCutoverCounterMovesOnBothShards) {
  open();
  const std::size_t from = add_key("128");
  const std::size_t to = other_than(from);
  const auto counter = [&](std::size_t shard) {
    return ask(shard, "SELECT last_value::text || is_called FROM collegedb.cutover_counter");
  };
  const std::string source = counter(from);
  const std::string destination = counter(to);
  ASSERT_TRUE(reassign("128", name(to)));
  EXPECT_NE(counter(from), source);
  EXPECT_NE(counter(to), destination);
}

// Fairness: 32 writers hammer one key without pause; the mover still gets its turn, and stalls
// them for milliseconds.
TEST_F(InterleaveTest, ThirtyTwoWritersOnOneKeyDoNotStarveTheMover) {
  open();
  const std::size_t home = add_key("129");
  config.migration.cutover_lock_timeout = std::chrono::milliseconds(900);
  std::vector<std::unique_ptr<Writer>> writers;
  for (int i = 0; i < 32; ++i) {
    writers.push_back(std::make_unique<Writer>(
        config, [this](auto&&... arguments) { return guarded(arguments...); }, "129", home));
  }
  await(
      [&] {
        return std::all_of(writers.begin(), writers.end(),
                           [](const auto& writer) { return writer->acknowledged() > 0; });
      },
      "writers");
  std::size_t at = home;
  for (int i = 0; i < 3; ++i) {
    const Result<MoveResult> moved = reassign("129", name(other_than(at)));
    ASSERT_TRUE(moved) << moved.error().message << moved.error().detail;
    at = other_than(at);
    RecordProperty("write_stall_ms", std::to_string(moved->write_stall_ms.value_or(-1)));
    EXPECT_LT(moved->write_stall_ms.value_or(1e9), 3000);
  }
  std::int64_t acknowledged = 0;
  for (auto& writer : writers) {
    writer->stop();
    EXPECT_THAT(writer->errors(), IsEmpty());
    acknowledged += writer->acknowledged();
  }
  EXPECT_EQ(ask(at, "SELECT n FROM users WHERE id = 129"), std::to_string(acknowledged));
  expect_quiet();
}

}  // namespace
}  // namespace collegedb::pgtest
