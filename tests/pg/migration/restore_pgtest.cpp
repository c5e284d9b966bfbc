// collegedb_restore: back to where a move took a key from, with what was written since; from the
// archive only what is nowhere else.
#include <gmock/gmock.h>

#include "tests/pg/migration/evidence_fixture.h"

namespace collegedb::pgtest {
namespace {

using ::testing::HasSubstr;

class RestoreTest : public EvidenceTest {
 protected:
  Result<std::vector<migration::MoveResult>> restore(const std::string& op,
                                                     const migration::StepHook& step = {}) {
    migration::Runner runner(options());
    return migration::restore(runner, op, step);
  }
  std::vector<migration::MoveResult> restored(const std::string& op) {
    auto out = restore(op);
    if (!out) {
      ADD_FAILURE() << out.error().message;
      return {};
    }
    return *std::move(out);
  }
};

TEST_F(RestoreTest, CarriesWhatWasWrittenSince) {
  open();
  const std::size_t home = add_key("1");
  const std::size_t to = other_than(home);
  const std::string op = moved("1", to);
  tell(to, "UPDATE users SET n = 41; DELETE FROM orders WHERE no = 2");
  const std::string now = rows(to, "1");
  const auto result = restored(op);
  ASSERT_EQ(result.size(), 1U);
  EXPECT_TRUE(result[0].op.has_value());
  EXPECT_NE(result[0].op, op);
  EXPECT_EQ(result[0].source, name(to));
  EXPECT_EQ(result[0].destination, name(home));
  EXPECT_EQ(result[0].rows, 3);
  expect_owner("1", home, now);
  EXPECT_EQ(ask(0, "SELECT state FROM collegedb.moves WHERE op = '" + *result[0].op + "'"),
            "retired");
  expect_clean();
  EXPECT_FALSE(restored(op)[0].op.has_value()) << "it is there already";
  expect_owner("1", home, now);
}

TEST_F(RestoreTest, PutsArchivedRowsBackWhenTheKeyHasNoneAnyMore) {
  open();
  const std::size_t home = add_key("1");
  const std::size_t to = other_than(home);
  const std::string before = rows(home, "1");
  const std::string op = moved("1", to);
  remove_rows(to, "1");
  const auto result = restored(op);
  ASSERT_EQ(result.size(), 1U);
  EXPECT_EQ(result[0].rows, 4);
  expect_owner("1", home, before);
  expect_clean();
  expect_quiet();
  EXPECT_THAT(ask(0, "SELECT note FROM collegedb.move_history WHERE op = '" + op +
                         "' AND note IS NOT NULL"),
              HasSubstr("4 archived rows were put back"));
  // Written since: never overwritten by what was archived.
  tell(home, "UPDATE users SET n = 8");
  const std::string now = rows(home, "1");
  EXPECT_FALSE(restored(op)[0].op.has_value());
  expect_owner("1", home, now);
}

TEST_F(RestoreTest, EveryValueComesBackAsItWas) {
  open(
      "CREATE TYPE mood AS ENUM ('sad', 'ok');"
      "CREATE TYPE pair AS (a int, b text);"
      "CREATE TABLE users (id bigint PRIMARY KEY, name text NOT NULL, n bigint NOT NULL DEFAULT 7,"
      " j json, jb jsonb, f float8, num numeric, nn numeric(9,3), b bytea, ts timestamptz,"
      " iv interval, arr text[], m mood, ms mood[], p pair, c char(5), v varchar(4), x xml,"
      " r int4range, bt bit(3), u uuid, mo money, ch \"char\", na name,"
      " \"Up Per\" text GENERATED ALWAYS AS (upper(name)) STORED,"
      " serial_no bigint GENERATED ALWAYS AS IDENTITY (START 500));"
      "CREATE TABLE orders (user_id bigint NOT NULL REFERENCES users (id), no int NOT NULL,"
      " total numeric(12,2) NOT NULL, note text, PRIMARY KEY (user_id, no))");
  const std::size_t home = owner("1");
  const std::size_t to = other_than(home);
  tell(
      home,
      "INSERT INTO users (id, name, n, j, jb, f, num, nn, b, ts, iv, arr, m, ms, p, c, v, x, r, bt,"
      " u, mo, ch, na) VALUES (1, E'a\\tb\\\\N\"\\n', DEFAULT, '{\"b\": 1, \"a\":  [1.10]}',"
      " '{\"b\": 1.10}', 'NaN', 'NaN', 1.100, '\\x00ff5c', '2024-02-29 12:00:00.123456+05',"
      " '1 mon -3 days 04:05:06.7', ARRAY[NULL, '', 'NULL', 'a,\"b'], 'ok', '{sad,ok}',"
      " ROW(1, NULL), 'ab', 'abcd', '<a>x</a>', '[1,5)', B'101',"
      " '6e1f0b0e-0000-4000-8000-000000000000', '12.34', 'c', 'name');"
      "INSERT INTO users (id, name, n) VALUES (2, 'x', 0); DELETE FROM users WHERE id = 2;"
      "INSERT INTO orders VALUES (1, 1, 0, NULL), (1, 2, 1.10, '')");
  const std::string before = rows(home, "1");
  const std::string op = moved("1", to);
  tell(to, "DELETE FROM orders; DELETE FROM users");
  EXPECT_EQ(restored(op)[0].rows, 3);
  EXPECT_EQ(rows(home, "1"), before);
  expect_clean();
}

TEST_F(RestoreTest, ChainsThereAndBack) {
  open();
  const std::size_t a = add_key("1");
  const std::size_t b = other_than(a);
  const std::size_t c = other_than(b);
  const std::string before = rows(a, "1");
  const std::string to_b = moved("1", b);
  const std::string to_c = moved("1", c);
  const std::string to_a = moved("1", a);
  EXPECT_FALSE(restored(to_b)[0].op.has_value()) << "it came from where it is";
  expect_owner("1", a, before);
  restored(to_c);
  expect_owner("1", b, before);
  restored(to_a);
  expect_owner("1", c, before);
  restored(to_b);
  expect_owner("1", a, before);
  expect_clean();
}

TEST_F(RestoreTest, AnOutdatedArchiveIsNotPutBack) {
  open();
  const std::size_t a = add_key("1");
  const std::size_t b = other_than(a);
  const std::size_t c = other_than(b);
  const std::string first = moved("1", b);
  tell(b, "UPDATE users SET n = 5");
  const std::string newest = rows(b, "1");
  const std::string second = moved("1", c);
  remove_rows(c, "1");
  const auto refused = restore(first);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().sqlstate, "55000");
  EXPECT_THAT(refused.error().hint, HasSubstr(second));
  restored(second);
  expect_owner("1", b, newest);
  restored(first);
  expect_owner("1", a, newest);
  expect_clean();
}

// A key that was deleted, of several that moved together, stays deleted.
TEST_F(RestoreTest, ABatchGoesBackKeyByKeyAndDeletedKeysStayDeleted) {
  open();
  std::vector<std::string> keys;
  for (int i = 1; keys.size() < 4; ++i) {
    if (owner(std::to_string(i)) == 1) keys.push_back(std::to_string(i));
  }
  std::vector<std::string> before;
  for (const std::string& key : keys) {
    add_key(key);
    before.push_back(rows(1, key));
  }
  migration::Runner runner(options());
  const auto batch = runner.reassign_keys(std::string(kGroup), keys, name(1), name(2));
  ASSERT_TRUE(batch);
  moved(keys[0], 0);
  remove_rows(2, keys[1]);
  ASSERT_EQ(restored(*batch->op).size(), 4U);
  expect_owner(keys[0], 1, before[0]);
  expect_owner(keys[1], 1, "|");
  expect_owner(keys[2], 1, before[2]);
  expect_owner(keys[3], 1, before[3]);
  // All of them gone: then they are what the archive has.
  for (const std::string& key : keys) remove_rows(1, key);
  const auto refused = restore(*batch->op);
  ASSERT_FALSE(refused) << "they have moved since, with rows";
  expect_clean();
}

TEST_F(RestoreTest, RefusesWhatIsNoFinishedMove) {
  open();
  EXPECT_EQ(restore("nothing").error().sqlstate, "42704");
  const std::size_t home = add_key("1");
  failpoints->arm("fence.before",
                  {.action = migration::Failpoints::Action::kError, .argument = {}});
  EXPECT_FALSE(reassign("1", name(other_than(home))));
  failpoints->disarm();
  const std::string op = ask(0, "SELECT op FROM collegedb.moves");
  EXPECT_THAT(restore(op).error().message, HasSubstr("was aborted"));
}

TEST_F(RestoreTest, RefusesAnArchiveThatIsDamagedOrDoesNotFit) {
  open();
  const std::size_t home = add_key("1");
  const std::size_t to = other_than(home);
  const std::string op = moved("1", to);
  remove_rows(to, "1");
  tell_all("ALTER TABLE users ADD COLUMN extra text DEFAULT 'x'");
  EXPECT_THAT(restore(op).error().message, HasSubstr("cannot take any more"));
  EXPECT_EQ(rows(home, "1"), "|");
  tell_all("ALTER TABLE users DROP COLUMN extra");
  tell(home,
       "UPDATE collegedb.archive SET row = row || '{\"total\": \"7.77\"}'"
       " WHERE table_name = 'public.orders' AND row ->> 'no' = '2'");
  EXPECT_THAT(restore(op).error().message, HasSubstr("has journaled"));
  EXPECT_EQ(rows(home, "1"), "|");
  tell(home, "DELETE FROM collegedb.archive WHERE table_name = 'public.orders'");
  EXPECT_THAT(restore(op).error().message, HasSubstr("the archive has 1 rows"));
  EXPECT_EQ(rows(home, "1"), "|");
  expect_quiet();
}

TEST_F(RestoreTest, OneThatDiesAnywhereIsFinishedByTheNext) {
  open();
  int number = 20;
  for (const std::string at : {"moved", "fenced", "changed", "committed"}) {
    SCOPED_TRACE(at);
    const std::string key = std::to_string(number++);
    const std::size_t home = add_key(key);
    const std::size_t to = other_than(home);
    const std::string before = rows(home, key);
    const std::string op = moved(key, to);
    remove_rows(to, key);
    const auto ready = child_options();
    ASSERT_EQ(in_child([&] {
                migration::Runner runner(ready);
                (void)migration::restore(runner, op, [&](std::string_view step) {
                  if (step == at) ::_exit(137);
                });
              }),
              137);
    EXPECT_EQ(rows(home, key), at == "committed" ? before : "|");
    restored(op);
    expect_owner(key, home, before);
    expect_quiet();
    expect_clean();
  }
}

// Both the writer and the restore want to make the key's first row.
TEST_F(RestoreTest, AWriterThatComesInBetweenWins) {
  open();
  const std::size_t home = add_key("1");
  const std::size_t to = other_than(home);
  const std::string op = moved("1", to);
  remove_rows(to, "1");
  const auto done = restore(op, [&](std::string_view step) {
    if (step != "moved") return;
    const auto writer = session(home);
    EXPECT_EQ(guarded(*writer, "1", "INSERT INTO users (id, name) VALUES (1, 'new')").sqlstate, "");
  });
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_EQ(ask(home, "SELECT name FROM users WHERE id = 1"), "new");
  EXPECT_EQ(ask(home, "SELECT count(*) FROM orders"), "0");
  expect_clean();
}

TEST_F(RestoreTest, AWriterWaitsForTheRowsThatAreBeingPutBack) {
  open();
  const std::size_t home = add_key("1");
  const std::string op = moved("1", other_than(home));
  remove_rows(other_than(home), "1");
  std::thread writer;
  SqlError error;
  const auto done = restore(op, [&](std::string_view step) {
    if (step != "fenced") return;
    writer = std::thread([&] {
      const auto own = session(home);
      error = guarded(*own, "1", "UPDATE users SET n = n + 1 WHERE id = 1");
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  });
  writer.join();
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_EQ(error.sqlstate, "");
  EXPECT_EQ(ask(home, "SELECT n FROM users WHERE id = 1"), "1") << "it saw the row";
}

TEST_F(RestoreTest, TwoAtOnceRestoreOnce) {
  open();
  const std::size_t home = add_key("1");
  const std::string before = rows(home, "1");
  const std::string op = moved("1", other_than(home));
  remove_rows(other_than(home), "1");
  const auto ready = options();
  std::vector<std::thread> callers;
  for (int i = 0; i < 2; ++i) {
    callers.emplace_back([&] {
      migration::Runner runner(ready);
      const auto done = migration::restore(runner, op);
      EXPECT_TRUE(done) << done.error().message;
    });
  }
  for (std::thread& caller : callers) caller.join();
  expect_owner("1", home, before);
  expect_quiet();
}

}  // namespace
}  // namespace collegedb::pgtest
