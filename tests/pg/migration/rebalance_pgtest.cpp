// Rebalance on real servers: what goes, what stays, and what is left after trouble.
#include "migration/rebalance.h"

#include <gmock/gmock.h>

#include "migration/journal.h"
#include "migration/misplaced.h"
#include "migration/pg_shard.h"
#include "migration/shard_sizes.h"
#include "routing/route.h"
#include "tests/pg/migration/move_fixture.h"

namespace collegedb::pgtest {
namespace {

using migration::RebalanceRequest;
using migration::RebalanceResult;
using ::testing::HasSubstr;

class RebalanceTest : public MoveTest {
 protected:
  // Keys 1 to `count` where one epoch with shard sa alone has put them; then an epoch with all
  // three, or with those given.
  void fill(int count, const std::string& shards = "{sa,sb,sc}") {
    open();
    tell(0, "UPDATE collegedb.epochs SET shards = '{sa}'");
    tell(0, "INSERT INTO users SELECT g, 'user ' || g FROM generate_series(1, " +
                std::to_string(count) +
                ") g; INSERT INTO orders SELECT g, 1, g, 'x' FROM"
                " generate_series(1, " +
                std::to_string(count) + ", 2) g");
    add_epoch(shards);
  }
  void add_epoch(const std::string& shards) {
    tell(0,
         "INSERT INTO collegedb.epochs (scope, id, algorithm, state, shards, generation)"
         " SELECT scope, max(id) + 1, 'hrw', 'active', '" +
             shards +
             "', 1 FROM collegedb.epochs GROUP BY scope;"
             "UPDATE collegedb.manifest SET revision = revision + 1");
  }

  // A runner that knows the epochs there are now.
  migration::RunnerOptions newest() {
    auto out = options();
    out.snapshot = [now = snapshot()] { return now; };
    return out;
  }
  RebalanceResult run(RebalanceRequest request = {}) {
    migration::Runner runner(newest());
    const Result<RebalanceResult> done = migration::rebalance(runner, request);
    EXPECT_TRUE(done) << done.error().message << " " << done.error().detail;
    return done ? *done : RebalanceResult{};
  }
  SqlError refusal(const RebalanceRequest& request = {}) {
    migration::Runner runner(newest());
    const Result<RebalanceResult> done = migration::rebalance(runner, request);
    EXPECT_FALSE(done);
    return done ? SqlError{} : done.error();
  }

  Result<migration::MoveResult> put(const std::string& key, const std::string& shard) {
    migration::Runner runner(newest());
    return runner.reassign({.group = std::string(kGroup), .key = key, .shard = shard});
  }

  std::int64_t number(std::size_t shard, const std::string& sql) {
    return std::stoll(ask(shard, sql));
  }
  // Every row is on the shard that the newest epoch computes, and none is lost or doubled.
  void expect_placed(int count, const std::string& shards = "{sa,sb,sc}") {
    std::int64_t users = 0;
    std::int64_t orders = 0;
    for (std::size_t i = 0; i < 3; ++i) {
      SCOPED_TRACE(name(i));
      users += number(i, "SELECT count(*) FROM users");
      orders += number(i, "SELECT count(*) FROM orders");
      for (const char* column : {"id FROM users", "user_id FROM orders"}) {
        EXPECT_EQ(ask(i, "SELECT count(*) FROM (SELECT " + std::string(column) +
                             ") t (k) WHERE collegedb.owner('" + shards + "', k::text) <> '" +
                             name(i) + "'"),
                  "0");
      }
    }
    EXPECT_EQ(users, count);
    EXPECT_EQ(orders, (count + 1) / 2);
  }
};

TEST_F(RebalanceTest, MovesWhatTheNewestEpochHasElsewhereAndNothingElse) {
  fill(3000);
  const std::int64_t away =
      number(0, "SELECT count(*) FROM users WHERE collegedb.owner('{sa,sb,sc}', id::text) <> 'sa'");
  const RebalanceResult done = run();
  EXPECT_EQ(done.examined, 3000);
  EXPECT_EQ(done.moved, away);
  EXPECT_EQ(done.agreed, 3000 - away);
  EXPECT_EQ(done.failed, 0);
  expect_placed(3000);
  // Batches, not keys; and nothing that placement says anyway is in the directory.
  EXPECT_LT(number(0, "SELECT count(*) FROM collegedb.moves"), away / 2);
  EXPECT_EQ(ask(0, "SELECT count(*) FROM collegedb.exceptions"), "0");
  EXPECT_EQ(ask(0, "SELECT exception_version FROM collegedb.manifest"), "0");
  EXPECT_EQ(ask(0, "SELECT state || ' ' || moved FROM collegedb.rebalances"),
            "done " + std::to_string(away));
  expect_quiet();
  const RebalanceResult again = run();
  EXPECT_EQ(again.examined, 3000);
  EXPECT_EQ(again.agreed, 3000);
  EXPECT_EQ(again.moved, 0);
}

TEST_F(RebalanceTest, WhatAnOperatorHasPinnedStays) {
  fill(400);
  const std::string pinned =
      ask(0, "SELECT min(id) FROM users WHERE collegedb.owner('{sa,sb,sc}', id::text) = 'sb'");
  tell(0,
       "INSERT INTO collegedb.exceptions (scope, grp, key, shard, kind, version) SELECT scope,"
       " 'public.users', '" +
           pinned + "', 'sa', 'move', 1 FROM collegedb.manifest");
  const RebalanceResult done = run();
  EXPECT_EQ(done.examined, done.agreed + done.moved);
  EXPECT_EQ(ask(0, "SELECT count(*) FROM users WHERE id = " + pinned), "1");
  EXPECT_EQ(ask(0,
                "SELECT count(*) FROM users WHERE collegedb.owner('{sa,sb,sc}', id::text)"
                " <> 'sa' AND id <> " +
                    pinned),
            "0");
  EXPECT_EQ(ask(0, "SELECT shard FROM collegedb.exceptions"), "sa");
}

TEST_F(RebalanceTest, AKeyFoundThroughAnOlderEpochLosesItsEntry) {
  fill(50);
  const std::string key =
      ask(0, "SELECT min(id) FROM users WHERE collegedb.owner('{sa,sb,sc}', id::text) = 'sc'");
  tell(0,
       "INSERT INTO collegedb.exceptions (scope, grp, key, shard, kind, version) SELECT scope,"
       " 'public.users', '" +
           key + "', 'sa', 'epoch-hit', 1 FROM collegedb.manifest");
  run();
  EXPECT_EQ(ask(2, "SELECT count(*) FROM users WHERE id = " + key), "1");
  EXPECT_EQ(ask(0, "SELECT count(*) FROM collegedb.exceptions"), "0");
  EXPECT_EQ(ask(0, "SELECT exception_version FROM collegedb.manifest"), "1");
}

TEST_F(RebalanceTest, ADryRunPlansAndChangesNothing) {
  fill(1000);
  const RebalanceResult plan = run({.dry_run = true});
  EXPECT_EQ(plan.examined, 1000);
  EXPECT_EQ(plan.agreed + plan.moved, 1000);
  std::int64_t planned = 0;
  for (const auto& share : plan.plan) {
    EXPECT_EQ(share.source, "sa");
    EXPECT_EQ(
        std::to_string(share.keys),
        ask(0, "SELECT count(*) FROM users WHERE collegedb.owner('{sa,sb,sc}', id::text) = '" +
                   share.destination + "'"));
    planned += share.keys;
  }
  EXPECT_EQ(planned, plan.moved);
  EXPECT_EQ(ask(0, "SELECT count(*) FROM users"), "1000");
  EXPECT_EQ(ask(0, "SELECT count(*) FROM collegedb.moves"), "0");
  EXPECT_EQ(ask(0,
                "SELECT sum((e ->> 'keys')::int) FROM collegedb.rebalances,"
                " jsonb_array_elements(plan) e"),
            std::to_string(planned));
  // Without a journal the plan is the snapshot's.
  const auto rehearsed =
      migration::rehearse_rebalance(config.shards, *snapshot(), {.dry_run = true});
  ASSERT_TRUE(rehearsed) << rehearsed.error().message;
  EXPECT_EQ(rehearsed->moved, plan.moved);
  EXPECT_EQ(rehearsed->examined, plan.examined);
}

TEST_F(RebalanceTest, MaxKeysAndFiltersBoundIt) {
  fill(1000);
  const RebalanceResult some = run({.max_keys = 10});
  EXPECT_EQ(some.moved, 10);
  EXPECT_EQ(number(1, "SELECT count(*) FROM users") + number(2, "SELECT count(*) FROM users"), 10);
  const std::int64_t at_c = number(2, "SELECT count(*) FROM users");
  run({.destination = "sb"});
  EXPECT_EQ(number(2, "SELECT count(*) FROM users"), at_c);
  EXPECT_EQ(ask(0,
                "SELECT count(*) FROM users WHERE collegedb.owner('{sa,sb,sc}', id::text)"
                " = 'sb'"),
            "0");
  const RebalanceResult none = run({.source = "sb"});
  EXPECT_EQ(none.moved, 0);
  EXPECT_EQ(none.examined, number(1, "SELECT count(*) FROM users"));
  run();
  expect_placed(1000);
  EXPECT_EQ(refusal({.source = "nowhere"}).sqlstate, "22023");
  EXPECT_EQ(refusal({.concurrency = 0}).sqlstate, "22023");
}

TEST_F(RebalanceTest, EmptiesADrainedShard) {
  fill(600);
  run();
  add_epoch("{sa,sc}");
  const RebalanceResult done = run({.source = "sb"});
  EXPECT_GT(done.moved, 0);
  EXPECT_EQ(ask(1, "SELECT count(*) FROM users"), "0");
  expect_placed(600, "{sa,sc}");
}

TEST_F(RebalanceTest, OneKeysTroubleIsNotItsNeighbours) {
  fill(600);
  const std::string bad =
      ask(0, "SELECT min(id) FROM users WHERE collegedb.owner('{sa,sb,sc}', id::text) = 'sb'");
  tell(1, "INSERT INTO users VALUES (" + bad + ", 'a stranger')");
  const RebalanceResult done = run();
  EXPECT_EQ(done.failed, 1);
  ASSERT_EQ(done.failures.size(), 1U);
  EXPECT_EQ(done.failures[0].key, bad);
  EXPECT_THAT(done.failures[0].error, HasSubstr("DESTINATION_CONFLICT"));
  EXPECT_EQ(done.examined, done.agreed + done.moved + 1);
  EXPECT_EQ(ask(0,
                "SELECT string_agg(id::text, ',') FROM users WHERE"
                " collegedb.owner('{sa,sb,sc}', id::text) <> 'sa'"),
            bad);
  expect_quiet();
}

TEST_F(RebalanceTest, GivesUpARouteThatCannotWork) {
  fill(4000);
  tell(1, "ALTER TABLE users ADD COLUMN more int");
  const RebalanceResult done = run();
  EXPECT_EQ(std::to_string(done.failed),
            ask(0,
                "SELECT count(*) FROM users WHERE collegedb.owner('{sa,sb,sc}', id::text) ="
                " 'sb'"));
  EXPECT_LT(number(0, "SELECT count(*) FROM collegedb.moves WHERE state = 'aborted'"), 60);
  EXPECT_EQ(ask(0,
                "SELECT count(*) FROM users WHERE collegedb.owner('{sa,sb,sc}', id::text) ="
                " 'sc'"),
            "0");
}

TEST_F(RebalanceTest, AClaimedKeyIsWaitedForAndThenLeftOut) {
  fill(200);
  const std::string key =
      ask(0, "SELECT min(id) FROM users WHERE collegedb.owner('{sa,sb,sc}', id::text) = 'sb'");
  failpoints->arm("copy.middle",
                  {.action = migration::Failpoints::Action::kSleep, .argument = "1500"});
  migration::Runner mover(newest());
  std::thread other([&] {
    const auto moved = mover.reassign({.group = std::string(kGroup), .key = key, .shard = "sc"});
    EXPECT_TRUE(moved) << moved.error().message;
  });
  await([&] { return ask(0, "SELECT count(*) FROM collegedb.claims") == "1"; }, "a claim");
  const RebalanceResult done = run();
  other.join();
  EXPECT_EQ(done.failed, 0);
  EXPECT_EQ(ask(2, "SELECT count(*) FROM users WHERE id = " + key), "1");
  EXPECT_EQ(ask(0, "SELECT shard FROM collegedb.exceptions"), "sc");
}

TEST_F(RebalanceTest, PauseHoldsItBackAndCancelEndsIt) {
  fill(3000);
  migration::Runner runner(options());
  failpoints->arm(
      "snapshot.before",
      {.action = migration::Failpoints::Action::kSleep, .argument = "100", .count = -1});
  Result<RebalanceResult> done = RebalanceResult{};
  std::thread thread([&] { done = migration::rebalance(runner, {.concurrency = 1}); });
  const auto retired = [&] {
    return number(0, "SELECT count(*) FROM collegedb.moves WHERE state = 'retired'");
  };
  await([&] { return retired() > 0; }, "the first operation");
  EXPECT_EQ(refusal().sqlstate, "55006");
  auto journal = session(0);
  EXPECT_TRUE(migration::pause_moves(*journal, config.journal.scope));
  EXPECT_FALSE(migration::pause_moves(*journal, config.journal.scope));
  await([&] { return ask(0, "SELECT state FROM collegedb.rebalances") == "paused"; }, "running");
  await([&] { return ask(0, "SELECT count(*) FROM collegedb.claims") == "0"; }, "claims");
  const std::int64_t then = retired();
  EXPECT_THAT(put("1", "sc").error().message, HasSubstr("MOVES_PAUSED"));
  std::this_thread::sleep_for(std::chrono::milliseconds(700));
  EXPECT_EQ(retired(), then);
  EXPECT_TRUE(migration::resume_moves(*journal, config.journal.scope));
  await([&] { return retired() > then; }, "paused");
  const std::string id = ask(0, "SELECT id FROM collegedb.rebalances");
  EXPECT_TRUE(migration::cancel_rebalance(*journal, id));
  thread.join();
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().sqlstate, "57014");
  EXPECT_EQ(ask(0, "SELECT state FROM collegedb.rebalances"), "cancelled");
  expect_quiet();
  failpoints->disarm();
  run();
  expect_placed(3000);
}

class RebalanceCrashTest : public RebalanceTest,
                           public ::testing::WithParamInterface<const char*> {};

TEST_P(RebalanceCrashTest, CallingItAgainIsAllThatIsNeeded) {
  fill(1500);
  auto in_the_child = newest();
  in_the_child.sessions.reset();
  failpoints->arm(GetParam(), {.action = migration::Failpoints::Action::kCrash});
  EXPECT_EQ(in_child([&] {
              migration::Runner runner(in_the_child);
              (void)migration::rebalance(runner, {});
            }),
            137);
  failpoints->disarm();
  const auto recovered = recover();
  ASSERT_TRUE(recovered) << recovered.error().message;
  EXPECT_TRUE(recovered->failed.empty());
  const RebalanceResult done = run();
  EXPECT_EQ(done.failed, 0);
  expect_placed(1500);
  EXPECT_EQ(ask(0, "SELECT string_agg(state, ' ' ORDER BY started_at) FROM collegedb.rebalances"),
            "interrupted done");
  EXPECT_EQ(ask(0, "SELECT count(*) FROM collegedb.exceptions"), "0");
  expect_quiet();
}
INSTANTIATE_TEST_SUITE_P(Points, RebalanceCrashTest,
                         ::testing::Values("claim.after", "copy.middle", "prepare_source.after",
                                           "journal_committed.after", "commit_destination.after",
                                           "publish.before"));

TEST_F(RebalanceTest, WritersLoseNothing) {
  fill(2000);
  const std::string key =
      ask(0, "SELECT min(id) FROM users WHERE collegedb.owner('{sa,sb,sc}', id::text) = 'sb'");
  Writer writer(
      config,
      [&](migration::ControlSession& session, const std::string& of, const std::string& sql,
          std::string_view begin) { return guarded(session, of, sql, begin); },
      key, 0);
  const RebalanceResult done = run();
  writer.stop();
  EXPECT_EQ(done.failed, 0);
  EXPECT_THAT(writer.errors(), ::testing::IsEmpty());
  EXPECT_EQ(ask(1, "SELECT n FROM users WHERE id = " + key), std::to_string(writer.acknowledged()));
  expect_placed(2000);
}

TEST_F(RebalanceTest, TheShardsComputeTheSameOwners) {
  open();
  for (const char* weights : {"NULL", "'{1,1,1}'", "'{1,2,3}'"}) {
    SCOPED_TRACE(weights);
    tell(0, std::string("UPDATE collegedb.epochs SET shards = '{sc,sa,sb}', weights = ") + weights);
    tell(0,
         "TRUNCATE users, orders; INSERT INTO users SELECT g, 'x' FROM generate_series(1, 5000)"
         " g");
    auto journal = session(0);
    auto shard = session(0);
    const auto epochs = migration::read_epochs(*journal, config.journal.scope);
    std::vector<migration::RegisteredTable> tables;
    for (auto& table : migration::read_registry(*journal, config.journal.scope)) {
      tables.push_back(std::move(table));
    }
    migration::MisplacedScan scan(epochs, std::string(kGroup), tables);
    const auto now = snapshot();
    std::map<std::string, std::string> found;
    for (auto page = scan.next(*shard); !page.empty(); page = scan.next(*shard)) {
      for (const auto& each : page) {
        EXPECT_EQ(each.bucket, routing::gate_bucket(kGroup, each.key));
        EXPECT_TRUE(found.emplace(each.key, each.destination).second);
      }
    }
    for (int i = 1; i <= 5000; ++i) {
      const std::string key = std::to_string(i);
      const auto owner = routing::computed_owner(*now, now->epochs.front(), key);
      const auto at = found.find(key);
      ASSERT_EQ(at == found.end() ? "sa" : at->second, now->shards[owner].name) << key;
    }
    EXPECT_EQ(scan.examined(), 5000);
    EXPECT_EQ(scan.agreed(), 5000 - static_cast<std::int64_t>(found.size()));
  }
}

TEST_F(RebalanceTest, ShardsTellTheirSizes) {
  fill(1000);
  tell(0, "ANALYZE users; ANALYZE orders");
  migration::ShardSizes(config).refresh();
  EXPECT_EQ(ask(0,
                "SELECT rows_estimate || ' ' || keys_estimate || ' ' || (database_bytes > 1000000)"
                " FROM collegedb.shards WHERE shard = 'sa'"),
            "1500 1000 true");
  EXPECT_EQ(ask(0,
                "SELECT count(*) FROM collegedb.shards WHERE measured_at > now() - interval"
                " '1 minute'"),
            "3");
  // Not again at once.
  const std::string then = ask(0, "SELECT max(measured_at) FROM collegedb.shards");
  migration::ShardSizes(config).refresh();
  EXPECT_EQ(ask(0, "SELECT max(measured_at) FROM collegedb.shards"), then);
}

// Predicates of an operation with hundreds of keys must not read the table.
TEST_F(RebalanceTest, StatementsOfABatchUseTheKeysIndex) {
  open();
  tell(0,
       "INSERT INTO users SELECT g, 'user ' || g FROM generate_series(1, 200000) g;"
       "ANALYZE users");
  std::vector<std::string> keys;
  for (int i = 1; i <= 1000; ++i) keys.push_back(std::to_string(i * 150));
  migration::TablePlan table{
      .table = {"public", "users", "id"}, .qualified = "public.users", .label = "public.users"};
  table.columns = {{.name = "id", .type = "bigint"}, {.name = "name", .type = "text"}};
  migration::Unit unit{.scope = config.journal.scope,
                       .op = "x",
                       .group = std::string(kGroup),
                       .source = "sa",
                       .destination = "sb",
                       .keys = keys,
                       .tables = {table.table}};
  auto shard = session(0);
  migration::SessionPool pool;
  migration::PgShard source(pool, config.shards[0], "x");
  const migration::MovePlan plan = migration::plan_of(unit, source.describe(unit));
  for (const std::string& sql : {migration::digest_sql(plan), migration::retire_sql(plan, "x"),
                                 migration::count_sql(plan)}) {
    std::string text;
    const migration::Rows rows = shard->run("EXPLAIN " + sql);
    for (int i = 0; i < rows.size(); ++i) text += rows.text(i, 0) + "\n";
    EXPECT_THAT(text, Not(HasSubstr("Seq Scan on users"))) << text;
  }
}

}  // namespace
}  // namespace collegedb::pgtest
