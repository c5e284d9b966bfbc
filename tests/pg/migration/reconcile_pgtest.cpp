// collegedb_reconcile on real servers: what is told is so, what is written is safe, and a key has
// one home whatever is pruned.
#include "migration/reconcile.h"

#include "migration/import.h"
#include "tests/pg/migration/move_fixture.h"

namespace collegedb::pgtest {
namespace {

using migration::reconcile;
using migration::ReconcileRequest;
using migration::ReconcileResult;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ReconcileTest : public MoveTest {
 protected:
  void SetUp() override {
    MoveTest::SetUp();
    config.routing.placement = "mapped";
  }

  ReconcileResult run(const ReconcileRequest& request = {}) {
    auto done = reconcile(config, request);
    if (!done) {
      ADD_FAILURE() << done.error().message << " " << done.error().detail;
      return {};
    }
    EXPECT_EQ(done->examined, done->routing_agreed + done->disagreeing);
    EXPECT_EQ(done->examined,
              done->record_verified + done->record_missing + done->record_unchecked);
    return *std::move(done);
  }
  SqlError refused(const ReconcileRequest& request) {
    const auto done = reconcile(config, request);
    if (done) {
      ADD_FAILURE() << "not refused";
      return {};
    }
    return done.error();
  }
  static ReconcileRequest verify() {
    ReconcileRequest out;
    out.verify_tables = "{users}";
    return out;
  }

  // A key that a strategy has put on `shard`, an hour ago.
  void allocate(const std::string& key, const std::string& shard, bool mapping = true) {
    tell(0,
         "INSERT INTO collegedb.allocations (scope, grp, key, shard, strategy, allocated_at)"
         " VALUES ('" +
             config.journal.scope + "', 'public.users', '" + key + "', '" + shard +
             "', 'hash', clock_timestamp() - interval '1 hour')");
    if (mapping) map(key, shard);
  }
  void map(const std::string& key, const std::string& shard) {
    tell(0, "INSERT INTO collegedb.mappings (scope, grp, key, shard) VALUES ('" +
                config.journal.scope + "', 'public.users', '" + key + "', '" + shard + "')");
  }
  void write(std::size_t shard, const std::string& key) {
    tell(shard, "INSERT INTO users (id, name) VALUES (" + key + ", 'x')");
  }
  std::string mapping(const std::string& key) {
    return ask(0, "SELECT shard FROM collegedb.mappings WHERE key = '" + key + "'");
  }
  bool in_ledger(const std::string& key) {
    return ask(0, "SELECT 1 FROM collegedb.allocations WHERE key = '" + key + "'") == "1";
  }
  // A journaled move of the key that has been published.
  void journal_move(const std::string& key, const std::string& to, const std::string& state,
                    const std::string& ago = "1 minute") {
    tell(0,
         "WITH m AS (INSERT INTO collegedb.moves (op, scope, state, grp, source, destination,"
         " started_at) VALUES (gen_random_uuid()::text, '" +
             config.journal.scope + "', '" + state + "', 'public.users', 'sa', '" + to +
             "', clock_timestamp() - interval '" + ago +
             "') RETURNING op, scope, grp) INSERT INTO collegedb.move_keys (op, scope, grp, key)"
             " SELECT op, scope, grp, '" +
             key + "' FROM m");
  }
  std::string state() {
    return ask(0,
               "SELECT (SELECT md5(coalesce(string_agg(a::text, ';' ORDER BY a.key), '')) FROM"
               " collegedb.allocations a) || (SELECT md5(coalesce(string_agg(m::text, ';' ORDER BY"
               " m.key), '')) FROM collegedb.mappings m) || (SELECT count(*) FROM"
               " collegedb.claims)");
  }
};

TEST_F(ReconcileTest, ComparesTheLedgerWithMappings) {
  open();
  allocate("1", "sa");
  allocate("2", "sb");
  allocate("3", "sa", false);
  map("3", "sc");  // nobody knows why
  allocate("4", "sa", false);
  map("4", "sb");  // by a move
  journal_move("4", "sc", "retired", "2 hours");
  journal_move("4", "sb", "retired");
  journal_move("4", "sa", "aborted", "1 second");
  allocate("5", "sa", false);  // lost
  allocate("6", "sa", false);
  map("6", "sb");  // the last move brought it elsewhere
  journal_move("6", "sb", "retired", "2 hours");
  journal_move("6", "sc", "published");
  const std::string before = state();
  const ReconcileResult done = run();
  EXPECT_EQ(done.examined, 6);
  EXPECT_EQ(done.routing_agreed, 3);
  EXPECT_EQ(done.disagreeing, 3);
  EXPECT_EQ(done.record_unchecked, 6);
  ASSERT_EQ(done.disagreeing_keys.size(), 3U);
  EXPECT_EQ(done.disagreeing_keys[0].key, "3");
  EXPECT_EQ(done.disagreeing_keys[0].ledger, "sa");
  EXPECT_EQ(done.disagreeing_keys[0].routing, "sc");
  EXPECT_EQ(done.disagreeing_keys[1].key, "5");
  EXPECT_EQ(done.disagreeing_keys[1].routing, std::nullopt);
  EXPECT_EQ(done.disagreeing_keys[2].key, "6");
  EXPECT_THAT(done.missing, IsEmpty());
  EXPECT_EQ(state(), before);
}

TEST_F(ReconcileTest, LooksForTheRecordWhereRoutingHasIt) {
  open();
  tell_all("ALTER TABLE orders DROP CONSTRAINT orders_user_id_fkey");
  allocate("1", "sa");
  write(0, "1");
  allocate("2", "sb");
  allocate("3", "sa");
  write(2, "3");  // elsewhere
  allocate("4", "sa");
  tell(0, "INSERT INTO orders VALUES (4, 1, 1)");  // in another table of the group
  ReconcileResult done = run(verify());
  EXPECT_EQ(done.record_verified, 1);
  EXPECT_EQ(done.record_missing, 3);
  EXPECT_EQ(done.record_unchecked, 0);
  EXPECT_EQ(done.routing_agreed, 4);
  ASSERT_EQ(done.missing.size(), 3U);
  EXPECT_EQ(done.missing[0].key, "2");
  ReconcileRequest both;
  both.verify_tables = "{public.users,orders}";
  EXPECT_EQ(run(both).record_verified, 2);
  both.verify_tables = "{orders}";
  EXPECT_EQ(run(both).record_verified, 1);
  both.verify_tables = "{}";
  EXPECT_EQ(run(both).record_unchecked, 4);
  expect_quiet();
}

TEST_F(ReconcileTest, BadCallsAreRefused) {
  open();
  ReconcileRequest request;
  request.repair = true;
  EXPECT_THAT(refused(request).message, HasSubstr("RECONCILE_VERIFY_REQUIRED"));
  EXPECT_EQ(refused(request).sqlstate, "22023");
  request.verify_tables = "{}";
  EXPECT_THAT(refused(request).message, HasSubstr("RECONCILE_VERIFY_REQUIRED"));
  request.verify_tables = "{users,NULL}";
  EXPECT_EQ(refused(request).sqlstate, "22004");
  request.verify_tables = "{nothing}";
  EXPECT_THAT(refused(request).message, HasSubstr("UNKNOWN_TABLE"));
  request.verify_tables = "users";
  EXPECT_EQ(refused(request).sqlstate, "22P02");
  ReconcileRequest none;
  none.max_rows = 0;
  EXPECT_EQ(refused(none).sqlstate, "22023");
  none.max_rows = -3;
  EXPECT_EQ(refused(none).sqlstate, "22023");
}

TEST_F(ReconcileTest, ComputedPlacementNeedsALedger) {
  config.routing.placement = "computed";
  open();
  const SqlError error = refused({});
  EXPECT_THAT(error.message, HasSubstr("COORDINATOR_NOT_CONFIGURED"));
  EXPECT_EQ(error.sqlstate, "55000");
  // A ledger from elsewhere is compared with epochs, exceptions and moves.
  const std::string key = "77";
  const std::size_t home = owner(key);
  allocate(key, name(home), false);
  allocate("78", name(other_than(owner("78"))), false);
  write(home, key);
  EXPECT_EQ(run(verify()).routing_agreed, 1);
  EXPECT_EQ(run(verify()).disagreeing_keys.front().routing, name(owner("78")));
  ASSERT_TRUE(reassign(key, name(other_than(home))));
  const ReconcileResult moved = run(verify());
  EXPECT_EQ(moved.routing_agreed, 1);
  EXPECT_EQ(moved.record_verified, 1);
  tell(0, "UPDATE collegedb.exceptions SET shard = '" + name(other_than(other_than(home))) + "'");
  EXPECT_EQ(run().routing_agreed, 0);
}

TEST_F(ReconcileTest, ALostMappingComesBackWhenItsRecordIsThere) {
  open();
  allocate("1", "sb", false);
  write(1, "1");
  allocate("2", "sb", false);  // no record
  allocate("3", "sb", false);
  write(1, "3");
  write(2, "3");  // and elsewhere
  allocate("4", "sb", false);
  write(1, "4");
  tell(1, "INSERT INTO collegedb.retired (scope, grp, key, op, moved_to) VALUES ('" +
              config.journal.scope + "', 'public.users', '4', 'x', 'sc')");
  allocate("5", "sb");
  write(1, "5");
  ReconcileRequest request = verify();
  const std::string before = state();
  EXPECT_EQ(run(request).repaired, 0);
  EXPECT_EQ(state(), before);
  request.repair = true;
  const ReconcileResult done = run(request);
  EXPECT_EQ(done.repaired, 1);
  EXPECT_EQ(done.routing_agreed, 2);
  EXPECT_EQ(done.disagreeing, 3);
  EXPECT_EQ(mapping("1"), "sb");
  for (const char* key : {"2", "3", "4"}) EXPECT_EQ(mapping(key), "") << key;
  EXPECT_EQ(run(request).repaired, 0);
  EXPECT_EQ(ask(0, "SELECT count(*) FROM collegedb.allocations"), "5");
  expect_quiet();
}

TEST_F(ReconcileTest, WhoeverAllocatesMeanwhileIsRight) {
  open();
  allocate("1", "sb", false);
  write(1, "1");
  ReconcileRequest request = verify();
  request.repair = true;
  request.step = [&](std::string_view step) {
    if (step == "held" && mapping("1").empty()) map("1", "sc");
  };
  const ReconcileResult done = run(request);
  EXPECT_EQ(done.repaired, 0);
  EXPECT_EQ(mapping("1"), "sc");
  ASSERT_EQ(done.disagreeing_keys.size(), 1U);
  EXPECT_EQ(done.disagreeing_keys.front().routing, "sc");
}

// A dangling allocation: the key was given a shard and never got a row, as after a failed INSERT.
TEST_F(ReconcileTest, PruningTakesTheLedgerAndLeavesTheMapping) {
  open();
  tell_all("ALTER TABLE orders DROP CONSTRAINT orders_user_id_fkey");
  allocate("1", "sb");  // dangling
  allocate("2", "sb");
  write(1, "2");  // verified
  allocate("3", "sb");
  tell(2, "INSERT INTO orders VALUES (3, 1, 1)");  // something, somewhere
  allocate("4", "sb", false);                      // does not agree
  allocate("5", "sb");
  tell(0, "UPDATE collegedb.allocations SET allocated_at = clock_timestamp() WHERE key = '5'");
  ReconcileRequest request;
  request.prune_verified = true;
  ReconcileResult done = run(request);
  EXPECT_EQ(done.pruned, 1) << "without tables to verify nothing is verified";
  EXPECT_FALSE(in_ledger("1"));
  EXPECT_EQ(mapping("1"), "sb") << "whoever has been told it may be writing there";
  request.verify_tables = "{users}";
  done = run(request);
  EXPECT_EQ(done.examined, 4);
  EXPECT_EQ(done.pruned, 1);
  EXPECT_FALSE(in_ledger("2"));
  EXPECT_EQ(mapping("2"), "sb");
  for (const char* key : {"3", "4", "5"}) EXPECT_TRUE(in_ledger(key)) << key;
  EXPECT_EQ(mapping("5"), "sb");
  EXPECT_EQ(run(request).pruned, 0);
  // The young one comes of age.
  tell(0, "UPDATE collegedb.allocations SET allocated_at = clock_timestamp() - interval '61 s'");
  EXPECT_EQ(run(request).pruned, 1);
  EXPECT_FALSE(in_ledger("5"));
  expect_quiet();
}

TEST_F(ReconcileTest, AKeyThatIsBeingMovedIsLeftAlone) {
  open();
  allocate("1", "sb");
  allocate("2", "sb");
  tell(0, "INSERT INTO collegedb.claims (scope, grp, key, op) VALUES ('" + config.journal.scope +
              "', 'public.users', '1', 'op-1')");
  ReconcileRequest request = verify();
  request.prune_verified = true;
  const ReconcileResult done = run(request);
  EXPECT_EQ(done.examined, 2);
  EXPECT_EQ(done.record_unchecked, 1);
  EXPECT_EQ(done.record_missing, 1);
  EXPECT_EQ(done.pruned, 1);
  EXPECT_TRUE(in_ledger("1"));
  tell(0, "DELETE FROM collegedb.claims");
}

TEST_F(ReconcileTest, PagesAndListsHaveEnds) {
  open();
  tell(0,
       "INSERT INTO collegedb.allocations (scope, grp, key, shard, strategy)"
       " SELECT '" +
           config.journal.scope +
           "', 'public.users', g::text, 'sa', 'hash'"
           " FROM generate_series(1, 2300) g");
  tell(0,
       "INSERT INTO collegedb.allocations (scope, grp, key, shard, strategy)"
       " SELECT '" +
           config.journal.scope +
           "', 'gone', g::text, 'sz', 'hash'"
           " FROM generate_series(1, 5) g");
  const ReconcileResult done = run(verify());
  EXPECT_EQ(done.examined, 2305);
  EXPECT_EQ(done.disagreeing, 2305);
  EXPECT_EQ(done.disagreeing_keys.size(), 1000U);
  EXPECT_EQ(done.record_missing, 2300);
  EXPECT_EQ(done.missing.size(), 1000U);
  EXPECT_EQ(done.record_unchecked, 5);
  ReconcileRequest some;
  some.max_rows = 1700;
  EXPECT_EQ(run(some).examined, 1700);
  some.max_rows = 3;
  EXPECT_EQ(run(some).examined, 3);
}

TEST_F(ReconcileTest, ACrashLosesNothing) {
  open();
  allocate("1", "sb", false);
  write(1, "1");
  allocate("2", "sb");
  for (const char* where : {"held", "settled"}) {
    const Config copy = config;
    EXPECT_EQ(in_child([&] {
                ReconcileRequest request = verify();
                request.repair = true;
                request.prune_verified = true;
                request.step = [&](std::string_view step) {
                  if (step == where) ::_exit(77);
                };
                (void)reconcile(copy, request);
              }),
              77);
    await(
        [&] {
          return ask(0,
                     "SELECT count(*) FROM pg_stat_activity WHERE application_name ="
                     " 'collegedb topology' AND datname = current_database()") == "0";
        },
        "sessions of the dead");
    const bool done = where == std::string("settled");
    EXPECT_EQ(mapping("1"), done ? "sb" : "");
    EXPECT_EQ(in_ledger("2"), !done);
    EXPECT_EQ(mapping("2"), "sb");
  }
  expect_quiet();
}

// Whoever has been told where a key is writes there, whatever is pruned meanwhile.
TEST_F(ReconcileTest, PruningAndWritersAgreeOnOneHome) {
  open();
  for (int i = 1; i <= 100; ++i) allocate(std::to_string(i), "sb");
  std::thread writer([&] {
    auto at = session(1);
    for (int i = 1; i <= 100; i += 2) {
      const std::string key = std::to_string(i);
      const SqlError error =
          guarded(*at, key, "INSERT INTO users (id, name) VALUES (" + key + ", 'x')");
      EXPECT_EQ(error.sqlstate, "");
    }
  });
  ReconcileRequest request = verify();
  request.prune_verified = true;
  std::int64_t pruned = 0;
  for (int i = 0; i < 20; ++i) pruned += run(request).pruned;
  writer.join();
  pruned += run(request).pruned;
  EXPECT_EQ(pruned, 100);
  EXPECT_EQ(ask(0, "SELECT count(*) FROM collegedb.mappings WHERE shard = 'sb'"), "100");
  EXPECT_EQ(ask(1, "SELECT count(*) FROM users"), "50");
}

}  // namespace
}  // namespace collegedb::pgtest
