#include "proxy/admin/broadcast.h"

#include <thread>

#include "migration/registry.h"
#include "proxy/admin/two_phase.h"
#include "tests/pg/migration/cluster_fixture.h"

namespace collegedb {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

class BroadcastTest : public pgtest::ClusterTest {
 protected:
  void SetUp() override {
    ClusterTest::SetUp();
    install();
  }
  void TearDown() override {
    EXPECT_EQ(leftovers(), "") << "nothing may stay prepared";
    EXPECT_EQ(ask(0, "SELECT count(*) FROM collegedb.two_phase"), rows_left);
    EXPECT_EQ(ask(0,
                  "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND database ="
                  " (SELECT oid FROM pg_database WHERE datname = current_database())"),
              "0");
    ClusterTest::TearDown();
  }

  Result<session::BroadcastDone> ddl(const std::string& sql, bool transactional = true) {
    return admin::broadcast(config, {sql, transactional}, context);
  }
  void done(const std::string& sql) {
    const auto result = ddl(sql);
    ASSERT_FALSE(result.has_error()) << result.error().message << result.error().detail;
  }
  std::string leftovers() {
    std::string out;
    for (std::size_t i = 0; i < 3; ++i) {
      out += ask(i,
                 "SELECT string_agg(gid, ',') FROM pg_prepared_xacts"
                 " WHERE database = current_database()");
    }
    return out;
  }
  std::string everywhere(std::string_view sql) { return ask(0, sql) + ask(1, sql) + ask(2, sql); }
  std::string gid(const std::string& uuid) {
    return "collegedb:" + config.journal.scope + ":ddl:" + uuid;
  }
  // What a coordinator leaves behind that died at some point.
  void plant(std::size_t shard, const std::string& gid, const std::string& sql) {
    auto open = session(shard);
    open->run("BEGIN");
    open->run(sql);
    open->run("PREPARE TRANSACTION " + migration::quote_literal(gid));
  }
  void plant_row(const std::string& gid, const std::string& state) {
    session(0)->run(
        "INSERT INTO collegedb.two_phase (gid, scope, kind, state, shards)"
        " VALUES ($1, $2, 'ddl', $3, '{sa,sb,sc}')",
        {gid, config.journal.scope, state});
  }

  session::SessionContext context;
  std::string rows_left = "0";
};

constexpr auto kUuid = "11111111-2222-3333-4444-555555555555";

TEST_F(BroadcastTest, RunsOnAllShards) {
  const auto result = ddl("CREATE TABLE t (id int)");
  ASSERT_FALSE(result.has_error()) << result.error().message;
  EXPECT_EQ(result->tag, "CREATE TABLE");
  EXPECT_EQ(everywhere("SELECT to_regclass('public.t') IS NOT NULL"), "ttt");
  const auto again = ddl("CREATE TABLE IF NOT EXISTS t (id int)");
  ASSERT_EQ(again->notices.size(), 1U);
  EXPECT_THAT(again->notices[0].message, HasSubstr("already exists, skipping"));
}

TEST_F(BroadcastTest, AnErrorOnOneShardRollsAllBack) {
  tell(2, "CREATE TABLE t (x int)");
  const auto result = ddl("CREATE TABLE t (id int)");
  ASSERT_TRUE(result.has_error());
  EXPECT_EQ(result.error().sqlstate, "42P07");
  EXPECT_EQ(result.error().message, "relation \"t\" already exists");
  EXPECT_THAT(result.error().detail, HasSubstr("On shard \"sc\"."));
  EXPECT_EQ(everywhere("SELECT to_regclass('public.t') IS NOT NULL"), "fft");
}

TEST_F(BroadcastTest, AnErrorOfPrepareRollsAllBack) {
  tell_all("CREATE TABLE p (id int PRIMARY KEY); CREATE TABLE f (id int)");
  tell(1, "INSERT INTO f VALUES (7)");
  const auto result = ddl(
      "ALTER TABLE f ADD CONSTRAINT c FOREIGN KEY (id) REFERENCES p DEFERRABLE INITIALLY DEFERRED");
  ASSERT_TRUE(result.has_error());
  EXPECT_EQ(result.error().sqlstate, "23503");
  const auto temporary = ddl("CREATE TEMP TABLE x (id int)");
  ASSERT_TRUE(temporary.has_error());
  EXPECT_EQ(temporary.error().sqlstate, "0A000");
  EXPECT_THAT(temporary.error().detail, HasSubstr("Nothing has been changed on any shard."));
}

TEST_F(BroadcastTest, RefusesSeveralStatementsAndCopy) {
  EXPECT_EQ(ddl("CREATE TABLE t (id int); COMMIT").error().sqlstate, "42601");
  EXPECT_EQ(ddl("COPY (SELECT 1) TO STDOUT").error().sqlstate, "0A000");
  EXPECT_EQ(everywhere("SELECT to_regclass('public.t') IS NOT NULL"), "fff");
}

TEST_F(BroadcastTest, RunsUnderTheSettingsOfTheClient) {
  tell_all("CREATE SCHEMA app; CREATE ROLE " + config.journal.scope +
           "_r;"
           "GRANT CREATE, USAGE ON SCHEMA app TO " +
           config.journal.scope + "_r");
  context.settings = {{"search_path", "app"}, {"role", config.journal.scope + "_r"}};
  done("CREATE TABLE mine (id int)");
  EXPECT_EQ(
      everywhere("SELECT pg_get_userbyid(relowner) FROM pg_class"
                 " WHERE oid = 'app.mine'::regclass"),
      config.journal.scope + "_r" + config.journal.scope + "_r" + config.journal.scope + "_r");
  tell_all("DROP SCHEMA app CASCADE; DROP ROLE " + config.journal.scope + "_r");
}

TEST_F(BroadcastTest, WithoutATransactionItGoesShardByShardAndSaysHowFar) {
  done("CREATE TABLE t (id int)");
  ASSERT_FALSE(ddl("CREATE INDEX CONCURRENTLY i ON t (id)", false).has_error());
  EXPECT_EQ(everywhere("SELECT to_regclass('public.i') IS NOT NULL"), "ttt");
  tell(1, "CREATE INDEX j ON t (id)");
  const auto result = ddl("CREATE INDEX CONCURRENTLY j ON t (id)", false);
  ASSERT_TRUE(result.has_error());
  EXPECT_EQ(result.error().sqlstate, "42P07");
  EXPECT_EQ(result.error().detail,
            "On shard \"sb\". It has been done on \"sa\". It has not been tried on \"sc\".");
}

TEST_F(BroadcastTest, AShardThatIsDownLeavesTheOthersUnchanged) {
  Config cut = config;
  cut.shards[2].conninfo = "host=127.0.0.1 port=1 connect_timeout=2";
  const auto result = admin::broadcast(cut, {"CREATE TABLE t (id int)", true}, context);
  ASSERT_TRUE(result.has_error());
  EXPECT_EQ(result.error().sqlstate, "08006");
  EXPECT_EQ(everywhere("SELECT to_regclass('public.t') IS NULL"), "ttt");
}

TEST_F(BroadcastTest, OneShardNeedsNoTwoPhaseCommit) {
  Config one = config;
  one.shards.resize(1);
  // The cluster has more shards than that: nothing is done on a part of them.
  EXPECT_EQ(admin::broadcast(one, {"CREATE TABLE t (id int)", true}, context).error().sqlstate,
            "40001");
  tell(0, "DELETE FROM collegedb.shards WHERE shard <> 'sa'");
  ASSERT_FALSE(admin::broadcast(one, {"CREATE TABLE t (id int)", true}, context).has_error());
  EXPECT_EQ(everywhere("SELECT to_regclass('public.t') IS NOT NULL"), "tff");
  EXPECT_EQ(admin::broadcast(one, {"CREATE TABLE t (id int)", true}, context).error().sqlstate,
            "42P07");
}

TEST_F(BroadcastTest, WithoutAJournalErrorsStillRollAllBack) {
  config.journal.shard.clear();
  tell(1, "CREATE TABLE t (id int)");
  EXPECT_EQ(ddl("CREATE TABLE t (id int)").error().sqlstate, "42P07");
  EXPECT_EQ(everywhere("SELECT to_regclass('public.t') IS NOT NULL"), "ftf");
  done("CREATE TABLE u (id int)");
  EXPECT_EQ(everywhere("SELECT to_regclass('public.u') IS NOT NULL"), "ttt");
}

// What a schema change means for registered tables.

class RegisteredTest : public BroadcastTest {
 protected:
  void SetUp() override {
    BroadcastTest::SetUp();
    done("CREATE TABLE users (id bigint, name text) PARTITION BY RANGE (id)");
    ASSERT_FALSE(migration::shard_table(config, {.table = "users"}).has_error());
  }
  std::string fences(const std::string& table) {
    return everywhere("SELECT count(*) FROM pg_trigger WHERE tgrelid = 'public." + table +
                      "'::regclass AND tgname LIKE 'collegedb_fence%' AND tgenabled = 'A'");
  }
  std::string registry(const std::string& columns) {
    return ask(0, "SELECT string_agg(concat_ws(' ', " + columns + "), ', ') FROM collegedb.tables");
  }
};

TEST_F(RegisteredTest, NewPartitionsAreFencedAtOnce) {
  EXPECT_EQ(fences("users"), "222");
  done("CREATE TABLE users_1 PARTITION OF users FOR VALUES FROM (0) TO (100)");
  EXPECT_EQ(fences("users_1"), "222");
  done("CREATE TABLE users_2 (id bigint, name text)");
  done("ALTER TABLE users ATTACH PARTITION users_2 FOR VALUES FROM (100) TO (200)");
  EXPECT_EQ(fences("users_2"), "222");
}

TEST_F(RegisteredTest, RenamesAreFollowed) {
  done("ALTER TABLE users RENAME TO members");
  EXPECT_EQ(registry("table_name, grp, key_column"), "members public.users id");
  done("ALTER TABLE members RENAME COLUMN name TO nick");
  EXPECT_THAT(ddl("ALTER TABLE members RENAME COLUMN id TO uid").has_error(), false);
  EXPECT_EQ(registry("table_name, key_column"), "members uid");
  EXPECT_EQ(fences("members"), "222");
}

TEST_F(RegisteredTest, TheKeyColumnCannotGo) {
  done("CREATE TABLE orders (id bigint, user_id bigint)");
  ASSERT_FALSE(migration::shard_table(
                   config, {.table = "orders", .key = "user_id", .colocate_with = "users"})
                   .has_error());
  const auto result = ddl("ALTER TABLE orders DROP COLUMN user_id CASCADE");
  ASSERT_TRUE(result.has_error());
  EXPECT_EQ(result.error().sqlstate, "0A000");
  EXPECT_THAT(result.error().message, HasSubstr("because it is its key column"));
  EXPECT_EQ(everywhere("SELECT count(*) FROM information_schema.columns"
                       " WHERE table_name = 'orders'"),
            "222");
}

TEST_F(RegisteredTest, ADroppedTableIsForgotten) {
  const auto dropped = ddl("DROP TABLE users");
  ASSERT_FALSE(dropped.has_error()) << dropped.error().message;
  ASSERT_EQ(dropped->notices.size(), 1U);
  EXPECT_EQ(dropped->notices[0].message, "table public.users is not registered any more");
  EXPECT_EQ(registry("table_name"), "");
  done("CREATE TABLE users (a int)");
  EXPECT_EQ(registry("table_name"), "");
  EXPECT_EQ(fences("users"), "000");
}

TEST_F(RegisteredTest, WhateverDropsATable) {
  done("CREATE SCHEMA zy");
  done("CREATE TABLE zy.ss (id int)");
  ASSERT_FALSE(migration::shard_table(config, {.table = "zy.ss"}).has_error());
  done("DROP SCHEMA zy CASCADE");
  EXPECT_EQ(registry("schema_name, table_name"), "public users");
  done("CREATE SCHEMA zy");
  done("CREATE TABLE zy.ss (a int)");
  EXPECT_EQ(registry("schema_name, table_name"), "public users");
}

TEST_F(RegisteredTest, ATableThatIsWaitedForMustHaveAKey) {
  ASSERT_FALSE(
      migration::shard_table(config, {.table = "later", .may_be_missing = true}).has_error());
  EXPECT_THAT(ddl("CREATE TABLE later (name text)").error().message,
              HasSubstr("column \"id\" of relation \"later\" does not exist"));
  EXPECT_THAT(ddl("CREATE TABLE later (id float8)").error().message,
              HasSubstr("cannot be a key column"));
  EXPECT_EQ(everywhere("SELECT to_regclass('public.later') IS NULL"), "ttt");
  done("DROP TABLE IF EXISTS later");
  done("CREATE TABLE later (id uuid PRIMARY KEY)");
  EXPECT_EQ(fences("later"), "222");
  done("DROP TABLE later");
  done("CREATE TABLE later (id uuid PRIMARY KEY)");
  EXPECT_EQ(fences("later"), "000");
}

TEST_F(RegisteredTest, ShardsMayNotDrift) {
  tell(1, "ALTER TABLE users ADD COLUMN extra int");
  EXPECT_THAT(ddl("CREATE TABLE other (id int)").error().message,
              HasSubstr("table public.users differs between shards \"sa\" and \"sb\""));
}

TEST_F(RegisteredTest, NewSequencesAreStrided) {
  done("CREATE TABLE notes (no serial, user_id bigint)");
  ASSERT_FALSE(
      migration::shard_table(config, {.table = "notes", .key = "user_id", .colocate_with = "users"})
          .has_error());
  EXPECT_EQ(everywhere("SELECT nextval('notes_no_seq') || ','"), "1,2,3,");
  EXPECT_EQ(everywhere("SELECT nextval('notes_no_seq') || ','"), "65,66,67,");
  done("ALTER TABLE notes ADD COLUMN rank int GENERATED BY DEFAULT AS IDENTITY");
  EXPECT_EQ(everywhere("SELECT seqincrement || ',' FROM pg_sequence"
                       " WHERE seqrelid = 'notes_rank_seq'::regclass"),
            "64,64,64,");
}

// Recovery.

class TwoPhaseRecoveryTest : public BroadcastTest {};

TEST_F(TwoPhaseRecoveryTest, PresumesAbortWithoutADecision) {
  plant_row(gid(kUuid), "preparing");
  plant(0, gid(kUuid), "CREATE TABLE t (id int)");
  plant(2, gid(kUuid), "CREATE TABLE t (id int)");
  EXPECT_EQ(admin::finish_two_phase(config), 1);
  EXPECT_EQ(everywhere("SELECT to_regclass('public.t') IS NOT NULL"), "fff");
}

TEST_F(TwoPhaseRecoveryTest, FinishesWhatWasDecided) {
  const std::string before = ask(0, "SELECT registry_version FROM collegedb.manifest");
  plant_row(gid(kUuid), "committed");
  tell(0, "CREATE TABLE t (id int)");
  plant(1, gid(kUuid), "CREATE TABLE t (id int)");
  plant(2, gid(kUuid), "CREATE TABLE t (id int)");
  EXPECT_EQ(admin::finish_two_phase(config), 1);
  EXPECT_EQ(everywhere("SELECT to_regclass('public.t') IS NOT NULL"), "ttt");
  EXPECT_NE(ask(0, "SELECT registry_version FROM collegedb.manifest"), before);
  EXPECT_EQ(admin::finish_two_phase(config), 0);
}

TEST_F(TwoPhaseRecoveryTest, LeavesALiveCoordinatorAlone) {
  plant_row(gid(kUuid), "preparing");
  plant(1, gid(kUuid), "CREATE TABLE t (id int)");
  {
    auto coordinator = session(0);
    coordinator->run("SELECT pg_advisory_lock(hashtextextended($1, 0))", {gid(kUuid)});
    EXPECT_EQ(admin::finish_two_phase(config), 0);
    EXPECT_EQ(leftovers(), gid(kUuid));
    EXPECT_EQ(ask(0, "SELECT state FROM collegedb.two_phase"), "preparing");
  }
  std::this_thread::sleep_for(200ms);
  EXPECT_EQ(admin::finish_two_phase(config), 1);
}

TEST_F(TwoPhaseRecoveryTest, ADecisionAfterPresumedAbortIsLost) {
  auto journal = std::make_unique<migration::ControlSession>(config.shards[0]);
  admin::TwoPhase commit(config, *journal);
  session(0)->run("UPDATE collegedb.two_phase SET state = 'aborted' WHERE gid = $1",
                  {commit.gid()});
  EXPECT_EQ(commit.commit({}), admin::TwoPhase::Outcome::kAborted);
  EXPECT_TRUE(commit.finish(admin::TwoPhase::Outcome::kAborted).empty());
}

TEST_F(TwoPhaseRecoveryTest, ALostAnswerToTheDecisionIsReadAgain) {
  auto journal = std::make_unique<migration::ControlSession>(config.shards[0]);
  admin::TwoPhase commit(config, *journal);
  tell(0,
       "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
       " WHERE application_name = 'collegedb control' AND datname = current_database()"
       " AND pid <> pg_backend_pid()");
  EXPECT_EQ(commit.commit({}), admin::TwoPhase::Outcome::kAborted);
  EXPECT_TRUE(commit.finish(admin::TwoPhase::Outcome::kAborted).empty());
}

TEST_F(TwoPhaseRecoveryTest, RollsBackALateHalfAndTouchesNothingForeign) {
  plant(1, gid(kUuid), "CREATE TABLE t (id int)");
  const std::string other = "collegedb:other" + config.journal.scope + ":ddl:" + kUuid;
  const std::string odd = gid("not-a-uuid");
  const std::string app = "app-" + config.journal.scope;
  plant(1, other, "CREATE TABLE a (id int)");
  plant(1, odd, "CREATE TABLE b (id int)");
  plant(1, app, "CREATE TABLE c (id int)");
  EXPECT_EQ(admin::finish_two_phase(config), 1);
  EXPECT_EQ(ask(1, "SELECT count(*) FROM pg_prepared_xacts WHERE database = current_database()"),
            "3");
  for (const std::string& each : {other, odd, app}) {
    session(1)->run("ROLLBACK PREPARED " + migration::quote_literal(each));
  }
}

TEST_F(TwoPhaseRecoveryTest, AShardOutOfReachIsFinishedLater) {
  plant_row(gid(kUuid), "committed");
  for (std::size_t i = 0; i < 3; ++i) {
    plant(i, gid(kUuid), "CREATE TABLE t (id int)");
  }
  Config cut = config;
  cut.shards[1].conninfo = "host=127.0.0.1 port=1 connect_timeout=2";
  EXPECT_EQ(admin::finish_two_phase(cut), 0);
  EXPECT_EQ(everywhere("SELECT to_regclass('public.t') IS NOT NULL"), "tft");
  EXPECT_EQ(admin::finish_two_phase(config), 1);
  EXPECT_EQ(everywhere("SELECT to_regclass('public.t') IS NOT NULL"), "ttt");
}

}  // namespace
}  // namespace collegedb
