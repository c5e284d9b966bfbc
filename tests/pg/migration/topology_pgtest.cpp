// Shards join, are drained and leave: publication of epochs among guarded writers, through crashes
// and lost swaps, and what each call refuses.
#include "migration/topology.h"

#include <array>
#include <atomic>
#include <mutex>
#include <thread>

#include "migration/fence_raise.h"
#include "proxy/admin/broadcast.h"
#include "routing/route.h"
#include "store/snapshot_reader.h"
#include "tests/pg/migration/topology_fixture.h"

namespace collegedb::pgtest {
namespace {

namespace guard = session::guard;
using migration::ControlSession;
using migration::SqlFailure;
using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST_F(TopologyTest, AnEmptyShardGetsAllItNeedsAndAnEpoch) {
  open();
  const auto done = add("sb");
  ASSERT_TRUE(done.has_value()) << done.error().message << " " << done.error().detail;
  EXPECT_EQ(done->shard, "sb");
  EXPECT_EQ(done->epoch, 2);
  EXPECT_EQ(done->generation, 2);
  EXPECT_EQ(done->state, "active");
  EXPECT_FALSE(done->steps.empty());
  EXPECT_EQ(epochs(), "1 active sa; 2 active sa,sb");
  EXPECT_EQ(ask(0,
                "SELECT string_agg(shard || slot || state, ' ' ORDER BY slot)"
                " FROM collegedb.shards"),
            "sa0active sb1active");
  expect_raised(2);
  expect_no_locks();

  // Schema and objects that are no tables came along; rows only of the reference table.
  EXPECT_EQ(ask(1, "SELECT twice(21)"), "42");
  EXPECT_EQ(ask(1, "SELECT (SELECT count(*) FROM users) + (SELECT count(*) FROM orders)"), "0");
  const std::string countries = "SELECT string_agg(c::text, '|' ORDER BY code) FROM countries c";
  EXPECT_EQ(ask(1, countries), ask(0, countries));
  EXPECT_THAT(ask(1, countries), HasSubstr("GERMANY"));
  EXPECT_EQ(ask(1, "SELECT count(*) FROM pg_proc WHERE proname = 'collegedb_locate'"), "1");
  EXPECT_EQ(ask(1, "SELECT count(*) FROM collegedb.schema_version WHERE component = 'functions'"),
            "1");
  // Its fence, for this scope; its numbers, apart from those of the first shard.
  EXPECT_EQ(ask(1,
                "SELECT string_agg(tgname || tgenabled::text, ' ' ORDER BY tgname) FROM pg_trigger"
                " WHERE tgrelid = 'users'::regclass AND NOT tgisinternal"),
            "collegedb_fence_insertA collegedb_fence_updateA");
  tell(1, "INSERT INTO users VALUES (1000, 'new', 'happy')");
  const int here = std::stoi(ask(0, "SELECT nextval('orders_id_seq')"));
  const int there = std::stoi(ask(1, "SELECT nextval('orders_id_seq')"));
  EXPECT_GT(here, 300);
  EXPECT_GT(there, 300);
  EXPECT_EQ(here % 64, 1);
  EXPECT_EQ(there % 64, 2);

  // A third one, from a cluster that is strided already.
  const auto third = add("sc");
  ASSERT_TRUE(third.has_value()) << third.error().message << " " << third.error().detail;
  EXPECT_EQ(epochs(), "1 active sa; 2 active sa,sb; 3 active sa,sb,sc");
  EXPECT_EQ(std::stoi(ask(2, "SELECT nextval('orders_id_seq')")) % 64, 3);
  EXPECT_GT(std::stoi(ask(2, "SELECT nextval('orders_id_seq')")), here);
  EXPECT_EQ(std::stoi(ask(1, "SELECT nextval('orders_id_seq')")), there + 64);
  expect_raised(3);

  // Once more is a success that changes nothing.
  const std::string before = state_of_all();
  const auto again = add("sc");
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(again->epoch, 3);
  EXPECT_TRUE(again->steps.empty());
  EXPECT_EQ(state_of_all(), before);
}

TEST_F(TopologyTest, ADryRunTellsTheStepsAndChangesNothing) {
  open();
  const std::string before = state_of_all();
  const auto done = add("sb", true);
  ASSERT_TRUE(done.has_value()) << done.error().message;
  EXPECT_EQ(done->state, "dry_run");
  EXPECT_EQ(done->epoch, 2);
  EXPECT_THAT(done->steps, ::testing::Contains(HasSubstr("copy the schema")));
  EXPECT_THAT(done->steps, ::testing::Contains(HasSubstr("countries")));
  EXPECT_EQ(state_of_all(), before);
  ASSERT_TRUE(add("sb").has_value());
  const std::string after = state_of_all();
  EXPECT_EQ(drain("sb", true)->state, "dry_run");
  EXPECT_EQ(state_of_all(), after);
}

TEST_F(TopologyTest, RefusesWhatCannotBecomeAShard) {
  open();
  EXPECT_EQ(add("sz").error().sqlstate, "22023");
  // A running proxy does not know it.
  tell(0,
       "INSERT INTO collegedb.proxies (scope, id, address, version, shards) SELECT scope,"
       " gen_random_uuid(), 'proxy-a:6432', '1', '{sa,sc}' FROM collegedb.manifest");
  EXPECT_THAT(add("sb").error().detail, HasSubstr("proxy-a:6432"));
  tell(0, "UPDATE collegedb.proxies SET heartbeat_at = now() - interval '1 minute'");
  // Tables that are not like ours.
  tell(1, "CREATE TABLE users (id bigint PRIMARY KEY)");
  EXPECT_THAT(add("sb").error().message, HasSubstr("differs"));
  tell(1, "DROP TABLE users");
  tell(1, kTables);
  tell(1, "ALTER TABLE users ADD CHECK (id > 0)");
  EXPECT_THAT(add("sb").error().detail, HasSubstr("CHECK"));
  tell(1, "ALTER TABLE users DROP CONSTRAINT users_id_check");
  // Rows of nobody.
  tell(1, "INSERT INTO users VALUES (1, 'stray')");
  EXPECT_THAT(add("sb").error().message, HasSubstr("has rows on shard \"sb\""));
  tell(1, "DELETE FROM users; INSERT INTO countries VALUES ('zz', 'Other')");
  EXPECT_THAT(add("sb").error().message, HasSubstr("has other rows"));
  tell(1, "DELETE FROM countries");
  EXPECT_EQ(epochs(), "1 active sa");
  ASSERT_TRUE(add("sb").has_value());
  // A copy of another shard, or the same database under another name.
  config.shards[2].conninfo = config.shards[1].conninfo;
  EXPECT_THAT(add("sc").error().message, HasSubstr("is shard \"sb\""));
  // Nobody answers.
  config.shards[2].conninfo = "host=127.0.0.1 port=1 dbname=x connect_timeout=2";
  EXPECT_EQ(add("sc").error().sqlstate, "08006");
  EXPECT_EQ(epochs(), "1 active sa; 2 active sa,sb");
  config.journal.shard.clear();
  EXPECT_THAT(add("sc").error().message, HasSubstr("JOURNAL_NOT_CONFIGURED"));
}

TEST_F(TopologyTest, ASchemaThatCannotBeCopiedLeavesNothingBehind) {
  open();
  tell(0, "CREATE EXTENSION IF NOT EXISTS plpgsql; CREATE SCHEMA apart");
  tell(0, "CREATE TABLE apart.t (a int)");
  // Not empty, so it is not copied; and a name in the way where it is.
  tell(1, "CREATE SCHEMA apart");
  EXPECT_THAT(add("sb").error().message, HasSubstr("differs"));
  tell(1, "DROP SCHEMA apart");
  ASSERT_TRUE(add("sb").has_value());
  EXPECT_EQ(ask(1, "SELECT count(*) FROM apart.t"), "0");
}

// Writers of all keys go on while two shards are added and one is drained; one transaction stays
// open in a bucket for a while.
TEST_F(TopologyTest, GuardedWritersGoOnAndNoneOutlivesItsGeneration) {
  open();
  constexpr int kKeys = 40;
  std::atomic<bool> stopping = false;
  std::atomic<int> written = 0;
  std::atomic<int> stale = 0;
  std::atomic<int> behind = 0;
  std::vector<std::string> errors;
  std::mutex mutex;
  std::vector<std::jthread> writers;
  for (int w = 0; w < 3; ++w) {
    writers.emplace_back([&, w] {
      auto own = session(0);
      auto journal = session(0);
      std::int64_t known = 1;
      for (int i = w; !stopping; ++i) {
        const std::string key = std::to_string(1 + i % kKeys);
        try {
          migration::Transaction transaction(*own);
          take_guard(*own, key, known);
          // From here on no fence may pass us: the manifest may be ahead, the gate may not.
          own->run("UPDATE users SET name = name || '.' WHERE id = " + key);
          const auto row = own->run("SELECT min_generation FROM collegedb.gate WHERE bucket = " +
                                    std::to_string(routing::gate_bucket(kGroup, key)));
          if (row.int8(0, 0) > known) ++behind;
          transaction.commit();
          ++written;
        } catch (const SqlFailure& failure) {
          if (failure.error().sqlstate == guard::kStale) {
            ++stale;
            known = journal->run("SELECT generation FROM collegedb.manifest").int8(0, 0);
          } else {
            const std::lock_guard lock(mutex);
            errors.push_back(failure.what());
          }
        }
      }
    });
  }
  // Idle in a transaction of key 7, and then of a sweep.
  auto idle = session(0);
  idle->run("BEGIN");
  take_guard(*idle, "7", 1);
  auto sweep = session(0);
  sweep->script("BEGIN; LOCK TABLE collegedb.sweep IN SHARE MODE");
  std::jthread ends;
  const auto published = [&](std::string_view step) {
    if (step != "published") return;
    ends = std::jthread([&] {
      std::this_thread::sleep_for(milliseconds(700));
      EXPECT_EQ(epochs(), "1 active sa; 2 publishing sa,sb");
      sweep->run("COMMIT");
      std::this_thread::sleep_for(milliseconds(700));
      EXPECT_EQ(epochs(), "1 active sa; 2 publishing sa,sb");
      idle->run("COMMIT");
    });
  };
  const auto first = migration::add_shard(config, "sb", false, options(published));
  ASSERT_TRUE(first.has_value()) << first.error().message;
  EXPECT_EQ(first->state, "active");
  ends.join();
  const auto second = add("sc");
  ASSERT_TRUE(second.has_value()) << second.error().message;
  const auto third = drain("sb");
  ASSERT_TRUE(third.has_value()) << third.error().message;
  stopping = true;
  writers.clear();
  EXPECT_THAT(errors, ElementsAre());
  EXPECT_EQ(behind, 0);
  EXPECT_GT(written, 100);
  EXPECT_GE(stale, 3);
  EXPECT_EQ(epochs(), "1 active sa; 2 active sa,sb; 3 active sa,sb,sc; 4 active sa,sc");
  EXPECT_EQ(ask(0, "SELECT sum(length(name) - length('user ' || id)) FROM users"),
            std::to_string(written));
  expect_raised(3);
  expect_no_locks();
}

// 4b row 16: the raise waits for an idle transaction, the writers of its bucket do not.
TEST_F(TopologyTest, AnIdleTransactionDoesNotBlockTheWritersOfItsBucket) {
  open();
  auto idle = session(0);
  idle->run("BEGIN");
  take_guard(*idle, "7", 1);
  std::atomic<bool> stopping = false;
  std::atomic<int> done = 0;
  milliseconds longest{0};
  std::jthread writer([&] {
    auto own = session(0);
    while (!stopping) {
      const auto begun = std::chrono::steady_clock::now();
      migration::Transaction transaction(*own);
      own->run(guard::kQueueSql, {std::to_string(routing::gate_bucket(kGroup, "7"))});
      transaction.commit();
      longest = std::max(longest, std::chrono::duration_cast<milliseconds>(
                                      std::chrono::steady_clock::now() - begun));
      ++done;
    }
  });
  auto raising = session(0);
  const auto raise = migration::raise_fence(*raising, config.journal.scope, 5, milliseconds(3000));
  stopping = true;
  writer.join();
  EXPECT_FALSE(raise.done);
  EXPECT_TRUE(raise.bulk_raised);
  EXPECT_EQ(raise.buckets_left, 1);
  ASSERT_EQ(raise.waiting_for.size(), 1U);
  EXPECT_THAT(raise.waiting_for[0], HasSubstr("idle in transaction"));
  EXPECT_GT(done, 50);
  EXPECT_LT(longest, milliseconds(1000));
  idle->run("COMMIT");
  EXPECT_TRUE(migration::raise_fence(*raising, config.journal.scope, 5, milliseconds(3000)).done);
}

// A process that dies after any step leaves what another process finishes or what the next call
// begins anew.
TEST_F(TopologyTest, EveryCrashPointIsRecovered) {
  open();
  for (const std::string point : {"prepared", "published", "raised", "active"}) {
    for (const bool adding : {true, false}) {
      SCOPED_TRACE(point + (adding ? " add" : " drain"));
      if (!adding && point == "prepared") {
        ASSERT_TRUE(drain("sb").has_value());
        continue;
      }
      const std::string before = epochs();
      const auto step = [&](std::string_view name) {
        if (name == point) ::_exit(137);
      };
      ASSERT_EQ(137, in_child([&] {
                  return (adding ? migration::add_shard(config, "sb", false, options(step))
                                 : migration::drain_shard(config, "sb", false, options(step)))
                      .has_value();
                }));
      if (point == "prepared") {
        EXPECT_EQ(epochs(), before);
      } else {
        EXPECT_THAT(epochs(), HasSubstr(point == "active" ? "active sa" : "publishing"));
      }
      // The dead session's lock may live on for a moment.
      const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
      while (ask(0, "SELECT count(*) FROM collegedb.epochs WHERE state = 'publishing'") != "0") {
        ASSERT_LT(std::chrono::steady_clock::now(), deadline);
        migration::resume_topology(config, milliseconds(5000));
      }
      if (point != "prepared") expect_raised(2);
      const auto again = adding ? add("sb") : drain("sb");
      ASSERT_TRUE(again.has_value()) << again.error().message << " " << again.error().detail;
      EXPECT_EQ(ask(0, "SELECT count(*) FROM collegedb.epochs WHERE state = 'publishing'"), "0");
      expect_raised(2);
      expect_no_locks();
    }
    // Only the newest two are of interest to the next round.
    tell(0, "DELETE FROM collegedb.epochs WHERE id < (SELECT max(id) FROM collegedb.epochs)");
  }
}

TEST_F(TopologyTest, ALostSwapIsTriedAgainAndTheFifthIsAConflict) {
  open();
  int losses = 0;
  int wanted = 4;
  const auto interfere = [&](std::string_view step) {
    if (step != "manifest read" || losses == wanted) return;
    ++losses;
    tell(0, "UPDATE collegedb.manifest SET revision = revision + 1");
  };
  const auto done = migration::add_shard(config, "sb", false, options(interfere));
  ASSERT_TRUE(done.has_value()) << done.error().message;
  EXPECT_EQ(losses, 4);
  EXPECT_EQ(done->state, "active");
  losses = 0;
  wanted = 1000;
  const auto lost = migration::drain_shard(config, "sb", false, options(interfere));
  ASSERT_TRUE(lost.has_error());
  EXPECT_THAT(lost.error().message, HasSubstr("PLACEMENT_CONFLICT"));
  EXPECT_EQ(lost.error().sqlstate, "40001");
  EXPECT_EQ(losses, 5);
  EXPECT_EQ(epochs(), "1 active sa; 2 active sa,sb");
  EXPECT_EQ(ask(0, "SELECT state FROM collegedb.shards WHERE shard = 'sb'"), "active");
}

TEST_F(TopologyTest, ANinthEpochIsRefusedAndNoneIsDropped) {
  open();
  ASSERT_TRUE(add("sb").has_value());
  for (int i = 3; i <= 8; ++i) {
    const auto done = i % 2 == 1 ? drain("sb") : add("sb");
    ASSERT_TRUE(done.has_value()) << done.error().message;
    EXPECT_EQ(done->epoch, i);
  }
  const std::string before = state_of_all();
  for (const auto& ninth : {drain("sb"), add("sc"), drain("sb", true)}) {
    ASSERT_TRUE(ninth.has_error());
    EXPECT_THAT(ninth.error().message, HasSubstr("TOO_MANY_EPOCHS"));
    EXPECT_EQ(ninth.error().sqlstate, "54000");
  }
  EXPECT_EQ(state_of_all(), before);
}

TEST_F(TopologyTest, APublishingEpochPlacesNothingAndHoldsUpTheNextChange) {
  open();
  auto idle = session(0);
  idle->run("BEGIN");
  take_guard(*idle, "7", 1);
  auto hasty = options();
  hasty.patience = milliseconds(500);
  const auto begun = migration::add_shard(config, "sb", false, hasty);
  ASSERT_TRUE(begun.has_value()) << begun.error().message;
  EXPECT_EQ(begun->state, "publishing");
  EXPECT_THAT(begun->steps, ::testing::Contains(HasSubstr("idle in transaction")));
  auto journal = session(0);
  const auto loaded = store::read_snapshot(*journal, config, nullptr);
  EXPECT_EQ(loaded.snapshot.generation, 2);
  for (int key = 1; key < 50; ++key) {
    EXPECT_EQ(routing::locate(loaded.snapshot, kGroup, std::to_string(key)).shard, 0);
  }
  const auto next = migration::add_shard(config, "sc", false, hasty);
  EXPECT_EQ(next.error().sqlstate, "55006");
  EXPECT_FALSE(migration::resume_topology(config, milliseconds(200)));
  idle->run("COMMIT");
  EXPECT_TRUE(migration::resume_topology(config, milliseconds(10000)));
  EXPECT_EQ(epochs(), "1 active sa; 2 active sa,sb");
  expect_raised(2);
}

// A proxy that does not know the new shard yet writes a reference table past it.
TEST_F(TopologyTest, ReferenceRowsWrittenDuringPublicationReachTheNewShard) {
  open();
  const auto late = [&](std::string_view step) {
    if (step == "published") tell(0, "UPDATE countries SET name = 'Deutschland' WHERE code = 'de'");
  };
  ASSERT_TRUE(migration::add_shard(config, "sb", false, options(late)).has_value());
  EXPECT_EQ(ask(1, "SELECT name || upper_name FROM countries WHERE code = 'de'"),
            "DeutschlandDEUTSCHLAND");
}

TEST_F(TopologyTest, DrainingAndRemoving) {
  open();
  EXPECT_THAT(drain("sa").error().message, HasSubstr("the only one"));
  EXPECT_THAT(drain("sb").error().message, HasSubstr("no part of the cluster"));
  ASSERT_TRUE(add("sb").has_value());
  EXPECT_THAT(remove("sb").error().message, HasSubstr("epochs name shard \"sb\""));
  const auto drained = drain("sb");
  ASSERT_TRUE(drained.has_value()) << drained.error().message;
  EXPECT_EQ(ask(0, "SELECT state FROM collegedb.shards WHERE shard = 'sb'"), "draining");
  EXPECT_EQ(drain("sb")->epoch, 3);  // once more
  EXPECT_EQ(generation(), 3);
  const auto hint = remove("sb").error();
  EXPECT_THAT(hint.detail, HasSubstr("Epochs: 2."));
  EXPECT_THAT(hint.hint, HasSubstr("collegedb_prune_epochs"));
  tell(0, "DELETE FROM collegedb.epochs WHERE id < 3");
  // Everything that still needs it, one after the other.
  tell(1, "INSERT INTO users VALUES (5000, 'there', NULL)");
  EXPECT_THAT(remove("sb").error().message, HasSubstr("public.users has rows on shard \"sb\""));
  tell(1, "DELETE FROM users");
  tell(0,
       "INSERT INTO collegedb.exceptions (scope, grp, key, shard) SELECT scope, 'public.users',"
       " '1', 'sb' FROM collegedb.manifest");
  EXPECT_THAT(remove("sb").error().message, HasSubstr("1 exceptions"));
  tell(0,
       "DELETE FROM collegedb.exceptions;"
       "INSERT INTO collegedb.moves (op, scope, state, grp, source, destination)"
       " SELECT 'op-1', scope, 'copied', 'public.users', 'sa', 'sb' FROM collegedb.manifest");
  EXPECT_THAT(remove("sb").error().detail, HasSubstr("op-1"));
  tell(0, "UPDATE collegedb.moves SET state = 'aborted'");
  EXPECT_THAT(remove("sa").error().message, HasSubstr("holds the journal"));
  // A way of the past that leads there.
  tell(0,
       "INSERT INTO collegedb.retired (scope, grp, key, op, moved_to) SELECT scope,"
       " 'public.users', '9', 'op-0', 'sb' FROM collegedb.manifest");
  const std::string before = state_of_all();
  EXPECT_EQ(remove("sb", true)->state, "dry_run");
  EXPECT_EQ(state_of_all(), before);
  const auto gone = remove("sb");
  ASSERT_TRUE(gone.has_value()) << gone.error().message;
  EXPECT_EQ(gone->state, "removed");
  EXPECT_EQ(ask(0, "SELECT count(*) FROM collegedb.retired"), "0");
  EXPECT_EQ(ask(0, "SELECT state FROM collegedb.shards WHERE shard = 'sb'"), "removed");
  EXPECT_EQ(remove("sb")->state, "removed");
  expect_raised(2);  // the removed one too: nobody writes there by old knowledge
  // It keeps its slot for the day it comes back.
  ASSERT_TRUE(add("sc").has_value());
  const auto back = add("sb");
  ASSERT_TRUE(back.has_value()) << back.error().message << " " << back.error().detail;
  EXPECT_EQ(ask(0,
                "SELECT string_agg(shard || slot || state, ' ' ORDER BY slot)"
                " FROM collegedb.shards"),
            "sa0active sb1active sc2active");
  // The journal shard can be drained, and stays a member.
  ASSERT_TRUE(drain("sa").has_value());
  EXPECT_THAT(remove("sa").error().message, HasSubstr("holds the journal"));
}

TEST_F(TopologyTest, ACheckComparesMembersAlone) {
  open();
  const auto found = [this](std::string_view text) {
    std::string shards;
    for (const migration::Finding& each : migration::preflight(config)) {
      if (each.text.find(text) != std::string::npos) shards += each.shard + " ";
    }
    return shards;
  };
  EXPECT_EQ(found("no part of the cluster"), "sb sc ");
  EXPECT_EQ(found("differs from"), "");
  ASSERT_TRUE(add("sb").has_value());
  EXPECT_EQ(found("no part of the cluster"), "sc ");
  tell(1, "ALTER TABLE users ADD COLUMN past_the_proxy int");
  tell(2, "CREATE TABLE users (other text)");
  EXPECT_EQ(found("differs from"), "sb ");
}

TEST_F(TopologyTest, ANewShardMissesNoIndexThatIsBeingBuilt) {
  open();
  auto holder = session(0);
  holder->run("BEGIN");
  holder->run("UPDATE users SET name = name WHERE id = 1");  // the index waits for it
  std::thread builder([this] {
    Config alone = config;
    alone.shards.resize(1);
    const auto done = admin::broadcast(
        alone, {.sql = "CREATE INDEX CONCURRENTLY late ON users (name)", .transactional = false},
        {}, nullptr);
    EXPECT_TRUE(done.has_value()) << done.error().message;
  });
  while (ask(0, "SELECT to_regclass('late') IS NULL") == "t") {
    std::this_thread::sleep_for(milliseconds(20));
  }
  std::atomic<bool> added = false;
  std::thread adder([this, &added] {
    const auto done = add("sb");
    EXPECT_TRUE(done.has_value()) << done.error().message;
    added = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  EXPECT_FALSE(added);
  holder->run("COMMIT");
  builder.join();
  adder.join();
  EXPECT_EQ(ask(1, "SELECT count(*) FROM pg_catalog.pg_indexes WHERE indexname = 'late'"), "1");
}

TEST_F(TopologyTest, OnlyOneChangeAtATime) {
  open();
  std::string other;
  const auto meanwhile = [&](std::string_view step) {
    if (step != "published" || !other.empty()) return;
    EXPECT_FALSE(migration::resume_topology(config, milliseconds(100)));
    other = "tried";
  };
  ASSERT_TRUE(migration::add_shard(config, "sb", false, options(meanwhile)).has_value());
  EXPECT_EQ(other, "tried");
}

TEST_F(TopologyTest, OwnersInSqlAndInCppAgree) {
  open();
  auto sql = session(0);
  routing::Snapshot snapshot;
  snapshot.shards = {{"sa"}, {"sb"}, {"sc"}, {"db-west"}, {"\xC3\xA4"}};
  routing::Epoch epoch;
  epoch.shards = {0, 1, 2, 3, 4};
  constexpr int kKeys = 1'000'000;
  constexpr int kBatch = 100'000;
  std::array<int, 5> counts{};
  for (int done = 0; done < kKeys; done += kBatch) {
    const auto rows = sql->run(
        "SELECT k, collegedb.owner('{sa,sb,sc,db-west,\xC3\xA4}', k) FROM (SELECT CASE g % 4"
        " WHEN 0 THEN g::text WHEN 1 THEN 'user-' || g WHEN 2 THEN md5(g::text)"
        " ELSE E'\\u00e4' || g || repeat('x', g % 40) END AS k"
        " FROM generate_series($1::int + 1, $1::int + $2::int) g) s",
        {std::to_string(done), std::to_string(kBatch)});
    for (int i = 0; i < rows.size(); ++i) {
      const auto owner = routing::computed_owner(snapshot, epoch, rows.view(i, 0));
      ASSERT_EQ(snapshot.shards[owner].name, rows.view(i, 1)) << rows.view(i, 0);
      ++counts[owner];
    }
  }
  for (const int count : counts) EXPECT_NEAR(count, kKeys / 5, kKeys / 50);
}

}  // namespace
}  // namespace collegedb::pgtest
