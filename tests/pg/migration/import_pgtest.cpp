// collegedb_import on real servers: every key is looked at, what is adopted has one home for every
// writer, whatever it knows, and what cannot be settled is told.
#include "migration/import.h"

#include <optional>

#include "migration/prune.h"
#include "tests/pg/migration/import_fixture.h"

namespace collegedb::pgtest {
namespace {

using migration::import_group;
using migration::ImportRequest;
using migration::ImportResult;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST_F(ImportTest, KeysAtHomeNeedNothing) {
  open();
  for (int i = 1; i <= 40; ++i) add_key(std::to_string(i));
  const std::string before = state();
  const ImportResult done = run();
  EXPECT_EQ(done.examined, 40);
  EXPECT_EQ(done.mapped, 0);
  EXPECT_EQ(done.conflicts, 0);
  EXPECT_EQ(state(), before);
}

TEST_F(ImportTest, AStrayIsAdoptedWhereItIs) {
  open();
  const std::string key = stray(1, 2);
  tell(0, "ALTER TABLE orders DROP CONSTRAINT orders_user_id_fkey");
  // A row of another table of the group counts alike.
  const std::string other = key_of(2);
  tell(0, "INSERT INTO orders VALUES (" + other + ", 1, 1)");
  const std::string before = state();
  EXPECT_EQ(rehearse().mapped, 2);
  EXPECT_EQ(state(), before) << "a rehearsal has written";

  const ImportResult done = run();
  EXPECT_EQ(done.examined, 2);
  EXPECT_EQ(done.mapped, 2);
  EXPECT_EQ(done.conflicts, 0);
  EXPECT_EQ(entry(key), "move sc");
  EXPECT_EQ(tombstone(1, key), "sc");
  EXPECT_EQ(ask(1, "SELECT op LIKE 'epoch:import:%' FROM collegedb.retired"), "t");
  EXPECT_EQ(writable_at(1, key), 2U);
  EXPECT_EQ(entry(other), "move sa");
  EXPECT_EQ(writable_at(2, other), 0U);

  const std::string settled = state();
  EXPECT_EQ(run().mapped, 0) << "once more";
  EXPECT_EQ(state(), settled);
  expect_quiet();
}

TEST_F(ImportTest, AnAdoptedKeyMovesLikeAnyOther) {
  open();
  const std::string key = stray(1, 2);
  const std::string rows_before = rows(2, key);
  ASSERT_EQ(run().mapped, 1);
  ASSERT_TRUE(reassign(key, "sa"));
  expect_owner(key, 0, rows_before);
  ASSERT_TRUE(reassign(key, "sb"));
  expect_owner(key, 1, rows_before);
  EXPECT_EQ(run().conflicts, 0);
}

TEST_F(ImportTest, WhatIsNotCertainIsToldAndLeft) {
  open();
  const std::string doubled = stray(1, 2);
  tell(1, insert(doubled));
  const std::string twice_astray = stray(1, 2);
  tell(0, insert(twice_astray));
  const std::string ghost = key_of(0);
  tell(0, insert(ghost));
  ASSERT_TRUE(reassign(ghost, "sb"));
  tell(1, "DELETE FROM users WHERE id = " + ghost);
  tell(2, insert(ghost));  // the directory has it on sb
  const std::string left = stray(0, 2);
  tell(2, "INSERT INTO collegedb.retired (scope, grp, key, op, moved_to) VALUES ('" +
              config.journal.scope + "', 'public.users', '" + left + "', 'x', 'sb')");
  const std::string led_away = stray(0, 2);
  tell(0, "INSERT INTO collegedb.retired (scope, grp, key, op, moved_to) VALUES ('" +
              config.journal.scope + "', 'public.users', '" + led_away + "', 'x', 'sb')");
  const std::string before = state();
  for (const ImportResult& done : {rehearse(), run()}) {
    EXPECT_EQ(done.examined, 5);
    EXPECT_EQ(done.mapped, 0);
    EXPECT_EQ(done.conflicts, 5);
    expect_conflict(done, doubled, "rows on several shards");
    expect_conflict(done, twice_astray, "rows on several shards");
    expect_conflict(done, ghost, "the directory has it on shard \"sb\"");
    expect_conflict(done, left, "has moved away to shard \"sb\"");
    expect_conflict(done, led_away, "its owner, shard \"sa\", says that it has moved");
    for (const auto& each : done.listed) {
      if (each.key == doubled) EXPECT_THAT(each.shards, ElementsAre("sb", "sc"));
      if (each.key == ghost) EXPECT_EQ(each.directory, "sb");
    }
  }
  EXPECT_EQ(state(), before);
}

TEST_F(ImportTest, TheListEndsAndTheCountDoesNot) {
  open();
  tell_all("INSERT INTO users (id, name) SELECT g, 'x' FROM generate_series(1, 1200) g");
  for (const ImportResult& done : {rehearse(), run()}) {
    EXPECT_EQ(done.examined, 1200);
    EXPECT_EQ(done.conflicts, 1200);
    EXPECT_EQ(done.listed.size(), 1000U);
    EXPECT_EQ(done.mapped, 0);
  }
}

// More rows than one look holds: the planner's word is enough.
TEST_F(ImportTest, SlicesMissNoKey) {
  open();
  for (std::size_t i = 0; i < 3; ++i) {
    tell(i, "INSERT INTO users (id, name) SELECT g, 'x' FROM generate_series(" +
                std::to_string(i * 1000 + 1) + ", " + std::to_string(i * 1000 + 1000) + ") g");
    tell(i, "UPDATE pg_class SET reltuples = 1e9 WHERE oid = 'users'::regclass");
  }
  int away = 0;
  for (int i = 1; i <= 3000; ++i) {
    away += owner(std::to_string(i)) != static_cast<std::size_t>((i - 1) / 1000) ? 1 : 0;
  }
  ASSERT_GT(away, 1500);
  EXPECT_EQ(rehearse().mapped, away);
  const ImportResult done = run();
  EXPECT_EQ(done.examined, 3000);
  EXPECT_EQ(done.mapped, away);
  EXPECT_EQ(done.conflicts, 0);
  EXPECT_EQ(ask(0, "SELECT count(*) FROM collegedb.exceptions"), std::to_string(away));
  EXPECT_EQ(run().mapped, 0);
  expect_quiet();
}

TEST_F(ImportTest, RowsWithoutAKeyAreTold) {
  config.tables = {{.name = "notes", .key = "author", .colocate_with = ""}};
  open("CREATE TABLE notes (author text, body text)");
  tell(1, "INSERT INTO notes VALUES (NULL, 'lost'), (NULL, 'lost too')");
  const ImportResult done = run({.group = "public.notes"});
  EXPECT_EQ(done.examined, 0);
  ASSERT_EQ(done.conflicts, 1);
  EXPECT_EQ(done.listed.front().key, std::nullopt);
  EXPECT_THAT(done.listed.front().shards, ElementsAre("sb"));
  EXPECT_THAT(done.listed.front().reason, HasSubstr("rows without a key"));
}

TEST_F(ImportTest, KeysAreTakenAsTheyAre) {
  config.tables = {{.name = "notes", .key = "author", .colocate_with = ""}};
  open("CREATE TABLE notes (author text PRIMARY KEY, body text)");
  const std::vector<std::string> keys = {"",
                                         "NULL",
                                         "a,b",
                                         "\"quoted\"",
                                         "back\\slash",
                                         "{brace}",
                                         "it's",
                                         "\xc3\xa4 \xf0\x9f\x98\x80",
                                         " ",
                                         "\n"};
  std::int64_t away = 0;
  auto at = session(2);
  for (const std::string& key : keys) {
    at->run("INSERT INTO notes VALUES ($1, 'x')", {key});
    away += owner(key) != 2 ? 1 : 0;
  }
  ASSERT_GT(away, 2);
  const ImportResult done = run({.group = "public.notes"});
  EXPECT_EQ(done.examined, static_cast<std::int64_t>(keys.size()));
  EXPECT_EQ(done.mapped, away);
  EXPECT_EQ(done.conflicts, 0);
  EXPECT_EQ(run({.group = "public.notes"}).mapped, 0);
}

TEST_F(ImportTest, SeveralEpochsLeaveAStrayToTheRebalance) {
  open();
  tell(0,
       "INSERT INTO collegedb.epochs (scope, id, algorithm, state, shards, generation)"
       " SELECT scope, 2, 'hrw', 'active', '{sb}', 1 FROM collegedb.epochs");
  const std::string older = key_of(2);  // now of sb, before of sc
  tell(2, insert(older));
  const std::string agreed = key_of(1);  // of sb under both
  tell(0, insert(agreed));
  const std::string astray = stray(2, 0);
  const ImportResult done = run();
  EXPECT_EQ(done.examined, 3);
  EXPECT_EQ(done.mapped, 1);
  EXPECT_EQ(entry(agreed), "move sa");
  EXPECT_EQ(entry(older), "");
  EXPECT_EQ(done.conflicts, 1);
  expect_conflict(done, astray, "collegedb_rebalance brings it to shard \"sb\"");
  EXPECT_EQ(tombstone(1, astray), "");
  EXPECT_EQ(tombstone(2, astray), "");
}

// The first row at the owner, written by somebody who knows nothing of the stray, is not yet
// committed when the import comes.
TEST_F(ImportTest, AnOpenWriterAtTheOwnerIsWaitedFor) {
  open();
  const std::string key = stray(1, 2);
  auto writer = session(1);
  writer->run("BEGIN");
  take_guard(*writer, key);
  writer->run(insert(key));
  std::optional<ImportResult> done;
  std::thread importer([&] { done = run(); });
  std::this_thread::sleep_for(std::chrono::milliseconds(900));
  EXPECT_FALSE(done.has_value()) << "decided while a writer was at it";
  writer->run("COMMIT");
  importer.join();
  EXPECT_EQ(done->mapped, 0);
  expect_conflict(*done, key, "rows on several shards");
  EXPECT_EQ(entry(key), "");
  EXPECT_EQ(tombstone(1, key), "");
  expect_quiet();
}

TEST_F(ImportTest, AWriterThatNeverEndsIsNamed) {
  open();
  const std::string key = stray(1, 2);
  const std::string free = stray(1, 0);
  auto writer = session(1);
  writer->run("BEGIN");
  take_guard(*writer, key);
  const ImportResult done = run();
  EXPECT_EQ(done.mapped, 1) << free;
  EXPECT_EQ(done.conflicts, 1);
  expect_conflict(done, key, "transactions on shard \"sb\" hold the fence");
  writer->run("ROLLBACK");
  EXPECT_EQ(run().mapped, 1);
  EXPECT_EQ(writable_at(1, key), 2U);
}

// REPEATABLE READ: a snapshot from before the import must not write at the owner behind it.
TEST_F(ImportTest, AnOlderSnapshotIsRefusedAtTheOwner) {
  open();
  const std::string key = stray(1, 2);
  auto writer = session(1);
  writer->run("BEGIN ISOLATION LEVEL REPEATABLE READ");
  writer->run("SELECT 1 FROM users");
  ASSERT_EQ(run().mapped, 1);
  try {
    take_guard(*writer, key);
    ADD_FAILURE() << "the guard let it pass";
  } catch (const migration::SqlFailure& failure) {
    EXPECT_EQ(failure.error().sqlstate, "40001");
  }
}

// Writers that know only the owner race with the import; whatever the order, a key that was adopted
// has rows on its shard alone.
TEST_F(ImportTest, WritersWithOldKnowledgeAndImportsAgreeOnOneHome) {
  open();
  std::vector<std::string> keys;
  for (int i = 0; i < 120; ++i) keys.push_back(stray(1, i % 2 == 0 ? 0 : 2));
  std::atomic<int> led{0};
  std::mutex mutex;
  std::vector<std::string> errors;
  std::vector<std::thread> threads;
  for (int writer = 0; writer < 2; ++writer) {
    threads.emplace_back([&, writer] {
      std::map<std::size_t, std::unique_ptr<migration::ControlSession>> sessions;
      for (std::size_t i = 0; i < keys.size(); ++i) {
        const std::string& key = keys[writer == 0 ? i : keys.size() - 1 - i];
        for (std::size_t at = 1, hops = 0; hops < 5; ++hops) {
          if (!sessions[at]) sessions[at] = session(at);
          const SqlError error = guarded(
              *sessions[at], key, insert(key) + " ON CONFLICT (id) DO UPDATE SET n = users.n + 1");
          if (error.sqlstate == guard::kMoved) {
            ++led;
            at = index(error.detail.substr(0, error.detail.find('\n')));
            continue;
          }
          if (!error.sqlstate.empty()) {
            const std::lock_guard lock(mutex);
            errors.push_back(error.sqlstate + " " + error.message);
          }
          break;
        }
      }
    });
  }
  std::vector<ImportResult> results(2);
  for (ImportResult& result : results) {
    threads.emplace_back([&] { result = run(); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(errors, IsEmpty());
  const std::int64_t mapped = results[0].mapped + results[1].mapped;
  std::int64_t adopted = 0;
  for (const std::string& key : keys) {
    const bool has_entry = !entry(key).empty();
    adopted += has_entry ? 1 : 0;
    if (has_entry) {
      EXPECT_EQ(holders(key).size(), 1U) << "key " << key;
      EXPECT_EQ(writable_at(1, key), holders(key).front());
    } else {
      EXPECT_EQ(holders(key).size(), 2U) << "key " << key;
      EXPECT_EQ(tombstone(1, key), "");
    }
  }
  EXPECT_EQ(adopted, mapped) << "led " << led;
  EXPECT_EQ(run().conflicts, static_cast<std::int64_t>(keys.size()) - adopted);
  expect_quiet();
}

TEST_F(ImportTest, ACrashAnywhereIsMadeGoodByTheNextCall) {
  open();
  for (const char* where : {"held", "planted", "recorded"}) {
    SCOPED_TRACE(where);
    const std::string key = stray(1, 2);
    const Config copy = config;
    EXPECT_EQ(in_child([&] {
                ImportRequest request{.group = std::string(kGroup)};
                request.step = [&](std::string_view step) {
                  if (step == where) ::_exit(77);
                };
                (void)import_group(copy, request);
              }),
              77);
    // Whatever has been done: one home for every writer, and it can be moved or imported.
    await([&] { return ask(0, "SELECT count(*) FROM collegedb.claims") == "0"; }, "claims");
    EXPECT_EQ(writable_at(1, key), where == std::string("held") ? 1U : 2U);
    const ImportResult done = run();
    EXPECT_EQ(done.mapped, where == std::string("recorded") ? 0 : 1);
    EXPECT_EQ(done.conflicts, 0);
    EXPECT_EQ(entry(key), "move sc");
    EXPECT_EQ(writable_at(1, key), 2U);
  }
  expect_quiet();
}

// What was acknowledged by way of the tombstone must not go out of sight with the epochs.
TEST_F(ImportTest, APruneLeavesWhatACrashedImportHasPlanted) {
  open();
  tell(0,
       "INSERT INTO collegedb.epochs (scope, id, algorithm, state, shards, generation)"
       " SELECT scope, 2, 'hrw', 'active', '{sb}', 1 FROM collegedb.epochs");
  const std::string key = stray(1, 0);  // of sb under both
  const Config copy = config;
  EXPECT_EQ(in_child([&] {
              ImportRequest request{.group = std::string(kGroup)};
              request.step = [](std::string_view step) {
                if (step == "planted") ::_exit(77);
              };
              (void)import_group(copy, request);
            }),
            77);
  await([&] { return ask(0, "SELECT count(*) FROM collegedb.claims") == "0"; }, "claims");
  ASSERT_EQ(entry(key), "");
  ASSERT_EQ(tombstone(1, key), "sa");
  const auto pruned = migration::prune_epochs(config, {});
  ASSERT_TRUE(pruned) << pruned.error().message;
  EXPECT_THAT(pruned->removed, ElementsAre(1));
  EXPECT_EQ(tombstone(1, key), "sa");
  EXPECT_EQ(run().mapped, 1);
  EXPECT_EQ(entry(key), "move sa");
}

TEST_F(ImportTest, AKeyThatIsBeingMovedIsNotAdopted) {
  open();
  const std::string key = stray(1, 2);
  tell(0, "INSERT INTO collegedb.claims (scope, grp, key, op) VALUES ('" + config.journal.scope +
              "', 'public.users', '" + key + "', 'op-1')");
  expect_conflict(rehearse(), key, "is being moved by operation op-1");
  const ImportResult done = run();
  EXPECT_EQ(done.mapped, 0);
  expect_conflict(done, key, "is being moved by operation op-1");
  EXPECT_EQ(tombstone(1, key), "");
  tell(0, "DELETE FROM collegedb.claims");
  EXPECT_EQ(run().mapped, 1);
}

// A key on two shards for the moment of its cutover, or seen on its former one, is no conflict.
TEST_F(ImportTest, MovesMeanwhileAreNeitherConflictsNorAdopted) {
  open();
  std::vector<std::string> keys;
  for (int i = 0; i < 30; ++i) {
    keys.push_back(key_of(1));
    tell(1, insert(keys.back()));
  }
  std::atomic<bool> stop{false};
  std::thread mover([&] {
    for (int round = 0; !stop; ++round) {
      for (const std::string& key : keys) {
        const auto moved = reassign(key, round % 2 == 0 ? "sc" : "sb");
        if (!moved) ADD_FAILURE() << moved.error().message;
        if (stop) return;
      }
    }
  });
  for (int i = 0; i < 15; ++i) {
    const ImportResult done = run();
    EXPECT_EQ(done.mapped, 0);
    EXPECT_EQ(done.conflicts, 0) << done.listed.front().reason;
  }
  stop = true;
  mover.join();
  for (const std::string& key : keys) EXPECT_EQ(holders(key).size(), 1U);
  expect_quiet();
}

TEST_F(ImportTest, NothingIsAdoptedWhileEpochsAreDropped) {
  open();
  const std::string key = stray(1, 2);
  tell(0,
       "INSERT INTO collegedb.prunes (scope, generation) SELECT scope, 1 FROM collegedb.manifest");
  const auto done = import_group(config, {.group = std::string(kGroup)});
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().sqlstate, "55006");
  EXPECT_EQ(entry(key), "");
  tell(0, "DELETE FROM collegedb.prunes");
  EXPECT_EQ(run().mapped, 1);
}

// The owner has a newer topology than the journal says: whatever is known of owners may be wrong.
TEST_F(ImportTest, AnOlderTopologyThanTheOwnersIsRefused) {
  open();
  const std::string key = stray(1, 2);
  tell(1, "UPDATE collegedb.gate SET min_generation = 9");
  const auto done = import_group(config, {.group = std::string(kGroup)});
  ASSERT_FALSE(done);
  EXPECT_THAT(done.error().message, HasSubstr("STALE_TOPOLOGY"));
  EXPECT_EQ(tombstone(1, key), "");
  EXPECT_EQ(entry(key), "");
  expect_quiet();
}

TEST_F(ImportTest, AShardThatIsDownEndsIt) {
  open();
  stray(1, 2);
  config.shards[1].conninfo = "host=127.0.0.1 port=1 dbname=nowhere connect_timeout=2";
  const auto done = import_group(config, {.group = std::string(kGroup)});
  ASSERT_FALSE(done);
  EXPECT_THAT(done.error().message, HasSubstr("SHARD_UNAVAILABLE"));
}

}  // namespace
}  // namespace collegedb::pgtest
