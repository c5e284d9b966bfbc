// Dropping epochs: which rows need which, what comes into being meanwhile, crashes.
#include "migration/prune.h"

#include <array>
#include <atomic>
#include <map>
#include <mutex>
#include <thread>

#include "migration/runner.h"
#include "routing/route.h"
#include "store/snapshot_reader.h"
#include "tests/pg/migration/topology_fixture.h"

namespace collegedb::pgtest {
namespace {

namespace guard = session::guard;
using migration::ControlSession;
using migration::PruneRequest;
using migration::SqlFailure;
using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class PruneTest : public TopologyTest {
 protected:
  static constexpr int kKeys = 300;

  // Epochs 1 (sa), 2 (sa, sb), 3 (sa, sb, sc); all rows are still on sa.
  void open_three() {
    open();
    ASSERT_TRUE(add("sb").has_value());
    ASSERT_TRUE(add("sc").has_value());
  }

  PruneRequest request(bool dry_run = false) {
    PruneRequest out;
    out.dry_run = dry_run;
    out.page_size = 70;
    out.patience = milliseconds(20000);
    return out;
  }
  Result<migration::PruneResult> prune(bool dry_run = false) {
    return migration::prune_epochs(config, request(dry_run));
  }

  // Index of the owner among the first `shards` shards.
  std::size_t owner_of(const std::string& key, std::size_t shards) const {
    std::size_t best = 0;
    for (std::size_t i = 1; i < shards; ++i) {
      if (routing::hrw_score(config.shards[i].name, key) >
          routing::hrw_score(config.shards[best].name, key)) {
        best = i;
      }
    }
    return best;
  }
  // A key whose owners under the newest epochs are these.
  std::string key_with(std::size_t of_three, std::size_t of_two, int from = 1) const {
    for (int key = from;; ++key) {
      const std::string text = std::to_string(key);
      if (owner_of(text, 3) == of_three && owner_of(text, 2) == of_two) return text;
    }
  }
  // Every row to its newest owner, as a rebalance would bring it.
  void settle() {
    std::array<std::string, 3> scripts;
    for (int key = 1; key <= kKeys; ++key) {
      const std::string text = std::to_string(key);
      const std::size_t home = owner_of(text, 3);
      if (home == 0) continue;
      scripts[0] += "DELETE FROM orders WHERE user_id = " + text +
                    "; DELETE FROM users WHERE id = " + text + ";";
      scripts[home] += "INSERT INTO users VALUES (" + text + ", 'moved');";
    }
    for (std::size_t i = 0; i < scripts.size(); ++i) tell(i, scripts[i]);
  }
  void expect_normal() {
    EXPECT_EQ(ask(0, "SELECT count(*) FROM collegedb.prunes"), "0");
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(ask(i,
                    "SELECT (SELECT count(*) FROM collegedb.pruning)"
                    " + (SELECT count(*) FROM collegedb.pruning_exempt)"
                    " + (SELECT count(*) FROM collegedb.pruning_probes)"),
                "0");
    }
    expect_raised(3);
    expect_no_locks();
  }
  std::string plant(std::size_t at, const std::string& key, const std::string& to) {
    tell(at, "INSERT INTO collegedb.retired (scope, grp, key, op, moved_to) VALUES (" +
                 migration::quote_literal(config.journal.scope) + ", 'public.users', '" + key +
                 "', 'epoch:1', '" + to + "')");
    return key;
  }
  std::string directory(const std::string& key, const std::string& shard, const std::string& kind) {
    tell(0, "INSERT INTO collegedb.exceptions (scope, grp, key, shard, kind) VALUES (" +
                migration::quote_literal(config.journal.scope) + ", 'public.users', '" + key +
                "', '" + shard + "', '" + kind + "')");
    return key;
  }
};

TEST_F(PruneTest, CountsExactlyWhatDependsOnEachEpochAndADryRunChangesNothing) {
  open_three();
  std::map<int, std::int64_t> expected;
  for (int key = 1; key <= kKeys; ++key) {
    const std::string text = std::to_string(key);
    // Two rows each: users and orders.
    expected[owner_of(text, 3) == 0 ? 3 : owner_of(text, 2) == 0 ? 2 : 1] += 2;
  }
  ASSERT_EQ(expected.size(), 3U);
  const std::string before = state_of_all();
  const auto counted = prune(true);
  ASSERT_TRUE(counted.has_value()) << counted.error().message;
  EXPECT_EQ(counted->dependents, expected);
  EXPECT_EQ(counted->scanned, 2 * kKeys);
  EXPECT_THAT(counted->removed, IsEmpty());
  EXPECT_THAT(counted->retained, ElementsAre(3, 2, 1));
  EXPECT_EQ(state_of_all(), before);

  const auto kept = prune();
  ASSERT_TRUE(kept.has_value()) << kept.error().message << " " << kept.error().detail;
  EXPECT_EQ(kept->dependents, expected);
  EXPECT_THAT(kept->removed, IsEmpty());
  EXPECT_EQ(epochs(), "1 active sa; 2 active sa,sb; 3 active sa,sb,sc");
  expect_normal();
}

TEST_F(PruneTest, DropsWhatNobodyNeedsAndKeepsWhatOneRowNeeds) {
  open_three();
  settle();
  // One row of a key that epoch 2 alone explains.
  const std::string old = key_with(2, 1);
  tell(2, "DELETE FROM users WHERE id = " + old);
  tell(1, "INSERT INTO users VALUES (" + old + ", 'late')");
  const auto first = prune();
  ASSERT_TRUE(first.has_value()) << first.error().message << " " << first.error().detail;
  EXPECT_THAT(first->removed, ElementsAre(1));
  EXPECT_THAT(first->retained, ElementsAre(3, 2));
  EXPECT_EQ(first->dependents.at(2), 1);
  EXPECT_EQ(epochs(), "2 active sa,sb; 3 active sa,sb,sc");
  expect_normal();
  // The directory has it there for good: then no epoch needs it.
  directory(old, "sb", "move");
  const auto dry = prune(true);
  EXPECT_THAT(dry->removed, ElementsAre(2));
  const auto second = prune();
  ASSERT_TRUE(second.has_value()) << second.error().message;
  EXPECT_THAT(second->removed, ElementsAre(2));
  EXPECT_EQ(epochs(), "3 active sa,sb,sc");
  expect_normal();
  // Nothing is left to drop, and that is a success.
  const auto third = prune();
  ASSERT_TRUE(third.has_value());
  EXPECT_THAT(third->retained, ElementsAre(3));
}

TEST_F(PruneTest, WhatWasFoundThroughAnEpochKeepsIt) {
  open_three();
  settle();
  const std::string old = key_with(2, 1);
  tell(2, "DELETE FROM users WHERE id = " + old);
  tell(1, "INSERT INTO users VALUES (" + old + ", 'late')");
  directory(old, "sb", "epoch-hit");
  EXPECT_THAT(prune()->retained, ElementsAre(3, 2));
  EXPECT_EQ(ask(0, "SELECT count(*) FROM collegedb.exceptions"), "1");
  // An entry alone, without a row, does not; a mapping neither.
  tell(1, "DELETE FROM users WHERE id = " + old);
  tell(0,
       "INSERT INTO collegedb.mappings (scope, grp, key, shard) SELECT scope, grp, key, shard"
       " FROM collegedb.exceptions");
  EXPECT_THAT(prune()->removed, ElementsAre(2));
  EXPECT_EQ(ask(0, "SELECT count(*) FROM collegedb.exceptions"), "0");
}

TEST_F(PruneTest, ForgetsTombstonesOfKeysThatHaveOneOwnerLeft) {
  open_three();
  settle();
  tell(0, "DELETE FROM orders; DELETE FROM users");
  const std::string planted = plant(0, key_with(0, 0, 1000), "sb");
  const std::string elsewhere = plant(0, key_with(1, 1, 1000), "sb");
  const std::string moved = plant(0, key_with(0, 0, std::stoi(planted) + 1), "sc");
  directory(moved, "sc", "move");
  ASSERT_TRUE(prune().has_value());
  EXPECT_EQ(epochs(), "3 active sa,sb,sc");
  EXPECT_EQ(
      ask(0, "SELECT string_agg(key, ' ' ORDER BY key::int) FROM collegedb.retired"),
      std::stoi(elsewhere) < std::stoi(moved) ? elsewhere + " " + moved : moved + " " + elsewhere);
}

// While epochs are dropped, a key that has no row gets its first one only from the newest epoch's
// owner; what is there can be written.
TEST_F(PruneTest, NoKeyComesIntoBeingBehindTheCensus) {
  open_three();
  settle();
  const std::string absent = key_with(2, 1, 1000);
  const std::string present = key_with(2, 1);
  const std::string exempt = directory(key_with(2, 1, 2000), "sb", "move");
  tell(1, "INSERT INTO users VALUES (" + present + ", 'here')");
  int looked = 0;
  auto wanted = request();
  wanted.step = [&](std::string_view step) {
    if (step != "raised") return;
    ++looked;
    const std::int64_t now = generation();
    auto own = session(1);
    const auto guarded = [&](const std::string& key, std::string_view begin = "BEGIN") {
      SqlError none;
      none.sqlstate.clear();
      try {
        migration::Transaction transaction(*own, begin);
        take_guard(*own, key, now);
        transaction.commit();
      } catch (const SqlFailure& failure) {
        return failure.error();
      }
      return none;
    };
    const SqlError refused = guarded(absent);
    EXPECT_EQ(refused.sqlstate, guard::kMoved);
    EXPECT_THAT(refused.detail, HasSubstr("sc\nprune:"));
    EXPECT_EQ(guarded(present).sqlstate, "");
    EXPECT_EQ(guarded(exempt).sqlstate, "");
    EXPECT_EQ(guarded(key_with(1, 1, 1000)).sqlstate, "");
    EXPECT_EQ(guarded(absent, "BEGIN ISOLATION LEVEL REPEATABLE READ").sqlstate, guard::kMoved);

    // Its last row goes and another comes in one transaction; a second writer waits for that.
    migration::Transaction first(*own);
    take_guard(*own, present, now);
    own->run("DELETE FROM users WHERE id = " + present);
    std::atomic<bool> passed = false;
    std::jthread second([&] {
      auto other = session(1);
      migration::Transaction transaction(*other);
      take_guard(*other, present, now);
      passed = true;
    });
    std::this_thread::sleep_for(milliseconds(200));
    EXPECT_FALSE(passed);
    own->run("INSERT INTO users VALUES (" + present + ", 'again')");
    first.commit();
    second.join();
    EXPECT_TRUE(passed);

    // The last row goes for good: the one who waited must go to the newest owner.
    migration::Transaction last(*own);
    take_guard(*own, present, now);
    own->run("DELETE FROM users WHERE id = " + present);
    std::string state;
    std::jthread third([&] {
      auto other = session(1);
      try {
        migration::Transaction transaction(*other);
        take_guard(*other, present, now);
      } catch (const SqlFailure& failure) {
        state = failure.error().sqlstate;
      }
    });
    std::this_thread::sleep_for(milliseconds(200));
    last.commit();
    third.join();
    EXPECT_EQ(state, guard::kMoved);
  };
  const auto done = migration::prune_epochs(config, wanted);
  ASSERT_TRUE(done.has_value()) << done.error().message << " " << done.error().detail;
  EXPECT_EQ(looked, 1);
  EXPECT_THAT(done->retained, ElementsAre(3));
  expect_normal();
}

// Writers that know the older epochs delete and insert keys at their older owners all the time, and
// go where they are sent. Afterwards every row is where the epochs that are left look for it.
TEST_F(PruneTest, EveryRowIsWhereTheEpochsThatAreLeftLookForIt) {
  open_three();
  settle();
  tell(0, "DELETE FROM orders");
  std::vector<std::string> keys;
  for (int i = 0; i < 8; ++i) {
    keys.push_back(key_with(2, 1, keys.empty() ? 1 : std::stoi(keys.back()) + 1));
    tell(2, "DELETE FROM users WHERE id = " + keys.back());
    tell(1, "INSERT INTO users VALUES (" + keys.back() + ", 'old')");
  }
  std::atomic<bool> stopping = false;
  std::atomic<int> sent_away = 0;
  std::vector<std::string> errors;
  std::mutex mutex;
  std::vector<std::jthread> writers;
  // One per key; it finds the key by its rows, remembers that, and makes the key anew.
  for (std::size_t w = 0; w < keys.size(); ++w) {
    writers.emplace_back([&, w] {
      const std::string& key = keys[w];
      std::array<std::unique_ptr<ControlSession>, 3> own = {session(0), session(1), session(2)};
      auto journal = session(0);
      std::size_t at = 1;
      std::int64_t known = 3;
      for (int i = 0; !stopping; ++i) {
        const std::string sql = i % 2 == 0 ? "DELETE FROM users WHERE id = " + key
                                           : "INSERT INTO users VALUES (" + key +
                                                 ", 'new')"
                                                 " ON CONFLICT DO NOTHING";
        try {
          migration::Transaction transaction(*own[at]);
          take_guard(*own[at], key, known);
          own[at]->run(sql);
          transaction.commit();
        } catch (const SqlFailure& failure) {
          if (failure.error().sqlstate == guard::kStale) {
            known = journal->run("SELECT generation FROM collegedb.manifest").int8(0, 0);
            // Knowledge of an older generation is worth nothing: look again.
            const bool three = own[1]->run("SELECT 1 FROM users WHERE id = " + key).empty();
            if (three) at = 2;
          } else if (failure.error().sqlstate == guard::kMoved) {
            ++sent_away;
            at = failure.error().detail.starts_with("sc") ? 2 : 1;
          } else {
            const std::lock_guard lock(mutex);
            errors.push_back(failure.what());
          }
        }
      }
    });
  }
  auto wanted = request();
  wanted.step = [](std::string_view step) {
    if (step == "raised") std::this_thread::sleep_for(milliseconds(500));
  };
  std::vector<int> retained;
  for (int round = 0; round < 5 && retained != std::vector<int>{3}; ++round) {
    const auto done = migration::prune_epochs(config, wanted);
    ASSERT_TRUE(done.has_value()) << done.error().message << " " << done.error().detail;
    retained = done->retained;
  }
  stopping = true;
  writers.clear();
  EXPECT_THAT(errors, IsEmpty());
  EXPECT_GT(sent_away, 0);
  EXPECT_THAT(retained, ElementsAre(3));
  const std::string strays =
      "SELECT count(*) FROM users WHERE collegedb.owner('{sa,sb,sc}', id::text) <> '";
  EXPECT_EQ(ask(0, strays + "sa'"), "0");
  EXPECT_EQ(ask(1, strays + "sb'"), "0");
  EXPECT_EQ(ask(2, strays + "sc'"), "0");
  expect_normal();
}

TEST_F(PruneTest, EveryCrashPointIsRecovered) {
  open_three();
  settle();
  for (const std::string point : {"announced", "raised", "counted", "dropped"}) {
    SCOPED_TRACE(point);
    auto wanted = request();
    wanted.step = [&](std::string_view name) {
      if (name == point) ::_exit(137);
    };
    ASSERT_EQ(137, in_child([&] { return migration::prune_epochs(config, wanted).has_value(); }));
    EXPECT_EQ(ask(0, "SELECT count(*) FROM collegedb.prunes"), "1");
    EXPECT_EQ(epochs(), point == "dropped" ? "3 active sa,sb,sc"
                                           : "1 active sa; 2 active sa,sb; 3 active sa,sb,sc");
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (ask(0, "SELECT count(*) FROM collegedb.prunes") != "0") {
      ASSERT_LT(std::chrono::steady_clock::now(), deadline);
      migration::resume_topology(config, milliseconds(5000));
    }
    expect_normal();
  }
  EXPECT_THAT(prune()->retained, ElementsAre(3));
}

TEST_F(PruneTest, NoMoveAndNoPruneAtTheSameTime) {
  open_three();
  const auto scope = migration::quote_literal(config.journal.scope);
  tell(0, "INSERT INTO collegedb.claims (scope, grp, key, op) VALUES (" + scope +
              ", 'public.users', '1', 'op-7')");
  EXPECT_EQ(prune().error().sqlstate, "55006");
  EXPECT_THAT(prune().error().detail, HasSubstr("op-7"));
  EXPECT_TRUE(prune(true).has_value());
  tell(0, "DELETE FROM collegedb.claims");
  tell(0, "INSERT INTO collegedb.prunes (scope, generation) VALUES (" + scope + ", 1)");
  auto journal = session(0);
  const auto snapshot = std::make_shared<const routing::Snapshot>(
      store::read_snapshot(*journal, config, nullptr).snapshot);
  migration::Runner runner({.shards = config.shards,
                            .journal = 0,
                            .scope = config.journal.scope,
                            .limits = config.migration,
                            .snapshot = [snapshot] { return snapshot; }});
  const auto refused = runner.reassign_keys(kGroup, {"1"}, "sa", "sb");
  ASSERT_TRUE(refused.has_error());
  EXPECT_EQ(refused.error().sqlstate, "55006") << refused.error().message;
  EXPECT_EQ(ask(0, "SELECT count(*) FROM collegedb.claims"), "0");
  expect_no_locks();
  // A prune that nobody finishes is finished by the next one.
  EXPECT_TRUE(prune().has_value());
  // Nor does a key move to a shard that is no member (any more).
  tell(0, "UPDATE collegedb.shards SET state = 'removed' WHERE shard = 'sc'");
  EXPECT_THAT(runner.reassign_keys(kGroup, {"1"}, "sa", "sc").error().message,
              HasSubstr("no part of the cluster"));
}

TEST_F(PruneTest, RefusesWhatItCannotKnow) {
  open_three();
  const std::string before = state_of_all();
  const auto with = [&](std::optional<std::string> tables, std::optional<std::string> keys = {}) {
    auto wanted = request();
    wanted.tables = std::move(tables);
    wanted.key_columns = std::move(keys);
    return migration::prune_epochs(config, wanted);
  };
  EXPECT_THAT(with("{users}").error().message, HasSubstr("public.orders"));
  EXPECT_THAT(with("{users,orders,countries}").error().message, HasSubstr("countries"));
  EXPECT_THAT(with("{users,orders}", R"({"orders": "id"})").error().message,
              HasSubstr("\"user_id\", not \"id\""));
  EXPECT_EQ(state_of_all(), before);
  tell(0, "ALTER TABLE collegedb.exceptions RENAME TO hidden");
  for (const bool dry_run : {true, false}) {
    const SqlError error = prune(dry_run).error();
    EXPECT_THAT(error.message, HasSubstr("PRUNE_REFUSED"));
    EXPECT_EQ(error.sqlstate, "55000");
  }
  tell(0, "ALTER TABLE collegedb.hidden RENAME TO exceptions");
  EXPECT_EQ(state_of_all(), before);
  ASSERT_TRUE(with("{users,public.orders}", R"({"orders": "user_id"})").has_value());
  config.journal.shard.clear();
  EXPECT_THAT(prune().error().message, HasSubstr("JOURNAL_NOT_CONFIGURED"));
}

TEST_F(PruneTest, OwnersByModuloInSqlAndInCppAgree) {
  open();
  auto sql = session(0);
  EXPECT_EQ(ask(0,
                "SELECT string_agg(collegedb.college_hash(k)::text, ' ') FROM"
                " unnest('{user-1,user-123,\"\",polygenelubricants}'::text[]) k"),
            "-836031825 -267697872 0 -2147483648");
  routing::Snapshot snapshot;
  snapshot.shards = {{"sc"}, {"sa"}, {"sb"}};
  routing::Epoch epoch;
  epoch.algorithm = routing::Algorithm::kModulo;
  epoch.shards = {0, 1, 2};
  const auto rows = sql->run(
      "SELECT k, collegedb.epoch_owner('modulo', '{sc,sa,sb}', k) FROM (SELECT CASE g % 3"
      " WHEN 0 THEN g::text WHEN 1 THEN 'user-' || md5(g::text)"
      " ELSE g || E'\\u00e4\\u4e2d' || chr(128512 + g % 50) END AS k"
      " FROM generate_series(1, 20000) g UNION ALL SELECT '' UNION ALL SELECT"
      " 'polygenelubricants') s");
  for (int i = 0; i < rows.size(); ++i) {
    const auto owner = routing::computed_owner(snapshot, epoch, rows.view(i, 0));
    ASSERT_EQ(snapshot.shards[owner].name, rows.view(i, 1)) << rows.view(i, 0);
  }
}

}  // namespace
}  // namespace collegedb::pgtest
