// What a plan says of a statement beside its verdict, and what names mean.
#include "fixture.h"

namespace collegedb::routing::testing {
namespace {

TEST(PlanFacts, KeyedRead) {
  const auto plan = planned("SELECT * FROM orders o WHERE o.user_id = $1");
  EXPECT_EQ(plan->group, "public.users");
  EXPECT_EQ(plan->table, "orders");
  EXPECT_EQ(plan->key_column, "user_id");
  EXPECT_EQ(plan->key_type, KeyType::kInt8);
  EXPECT_EQ(plan->registry_version, 7);
  EXPECT_FALSE(plan->for_insert);
  EXPECT_FALSE(plan->writes);
  EXPECT_TRUE(plan->plain_read);
}

TEST(PlanFacts, PlainRead) {
  for (const char* sql :
       {"SELECT * FROM users WHERE id = 1", "SELECT lower(name) FROM users WHERE id = 1",
        "SELECT * FROM users WHERE id = 1 ORDER BY name LIMIT 1"}) {
    EXPECT_TRUE(planned(sql)->plain_read) << sql;
  }
  for (const char* sql :
       {"SELECT * FROM users WHERE id = 1 FOR UPDATE", "SELECT count(*) FROM users WHERE id = 1",
        "SELECT * FROM users u JOIN orders o ON o.user_id = u.id WHERE u.id = 1",
        "SELECT * FROM users u JOIN countries c ON true WHERE u.id = 1",
        "SELECT EXISTS (SELECT 1 FROM users WHERE id = 1)",
        "SELECT * FROM users WHERE id IN (1, 2)", "SELECT 1 FROM users WHERE id = 1 HAVING true",
        "SELECT f(name) FROM users WHERE id = 1",
        "SELECT * FROM generate_series(1, 2) LEFT JOIN users ON id = 1",
        "SELECT * FROM users WHERE id = 1 UNION ALL SELECT 'a', 1, 'b'",
        "SELECT * FROM (SELECT * FROM users WHERE id = 1) s", "DELETE FROM users WHERE id = 1",
        "EXPLAIN SELECT * FROM users WHERE id = 1",
        "DECLARE c CURSOR FOR SELECT * FROM users WHERE id = 1"}) {
    const auto plan = planned(sql);
    EXPECT_EQ(plan->kind, PlanKind::kKeyed) << sql;
    EXPECT_FALSE(plan->plain_read) << sql;
  }
}

TEST(PlanFacts, Writes) {
  for (const char* sql :
       {"DELETE FROM users WHERE id = 1", "UPDATE users SET name = 'x' WHERE id = 1",
        "INSERT INTO users (id) VALUES (1)", "SELECT * FROM users WHERE id = 1 FOR UPDATE",
        "SELECT f(name) FROM users WHERE id = 1", "EXPLAIN ANALYZE DELETE FROM users WHERE id = 1",
        "DELETE FROM users"}) {
    EXPECT_TRUE(planned(sql)->writes) << sql;
  }
  for (const char* sql :
       {"SELECT * FROM users WHERE id = 1", "EXPLAIN DELETE FROM users WHERE id = 1", "SELECT 1",
        "SELECT * FROM users"}) {
    EXPECT_FALSE(planned(sql)->writes) << sql;
  }
}

TEST(PlanFacts, KnownWrites) {
  for (const char* sql :
       {"DELETE FROM users WHERE id = 1", "UPDATE users SET name = 'x' WHERE id = 1",
        "INSERT INTO users (id) VALUES (1), (2)",
        "INSERT INTO users (id, name) VALUES (1, lower($1))"}) {
    EXPECT_TRUE(planned(sql)->known_writes) << sql;
  }
  for (const char* sql :
       {"DELETE FROM users WHERE id = 1 AND f(name)", "UPDATE users SET name = f() WHERE id = 1",
        "INSERT INTO users (id, name) VALUES (1, f())",
        "SELECT * FROM users WHERE id = 1 FOR UPDATE", "EXPLAIN DELETE FROM users WHERE id = 1",
        "INSERT INTO users (id) VALUES (1) ON CONFLICT (email) DO UPDATE SET id = EXCLUDED.id"}) {
    EXPECT_FALSE(planned(sql)->known_writes) << sql;
  }
  Snapshot snapshot = cluster();
  snapshot.tables[0].user_triggers = true;
  EXPECT_FALSE(planned("DELETE FROM users WHERE id = 1", snapshot)->known_writes);
  EXPECT_TRUE(planned("DELETE FROM orders WHERE user_id = 1", snapshot)->known_writes);
}

TEST(PlanFacts, Opaque) {
  for (const char* sql :
       {"SELECT f(name) FROM users WHERE id = 1", "SELECT 1 !!! 2 FROM users WHERE id = 1",
        "SELECT fullname(u) FROM users u WHERE id = 1", "EXPLAIN SELECT f(1)",
        "SELECT u.fullname FROM users u WHERE id = 1", "DECLARE c CURSOR FOR SELECT 1::posint"}) {
    EXPECT_TRUE(planned(sql)->opaque) << sql;
    EXPECT_FALSE(planned(sql)->plain_read) << sql;
  }
  Snapshot unsharded_only = cluster();
  unsharded_only.tables.clear();
  for (const char* sql : {"CALL p()", "DO 'x'", "SELECT f(1)", "SELECT * FROM calling_view",
                          "INSERT INTO audited VALUES (1)", "SELECT 1::posint"}) {
    const auto plan = planned(sql, unsharded_only);
    EXPECT_EQ(plan->kind, PlanKind::kJournal) << sql;
    EXPECT_TRUE(plan->opaque) << sql;
    EXPECT_TRUE(planned(sql, cluster({"only"}))->opaque) << sql;
  }
  for (const char* sql :
       {"SELECT name FROM users WHERE id = 1", "SELECT now()", "SELECT * FROM audited", "BEGIN",
        "SELECT * FROM users", "CREATE TABLE x (a posint)", "SELECT * FROM collegedb_pools()",
        "UPDATE users SET name = lower('X') WHERE id = 1"}) {
    EXPECT_FALSE(planned(sql)->opaque) << sql;
  }
}

TEST(PlanFacts, HiddenCodeIsNotKnown) {
  EXPECT_FALSE(planned("UPDATE users SET name = 1 !!! 2 WHERE id = 1")->known_writes);
  EXPECT_FALSE(planned("INSERT INTO users (id, name) VALUES (1, 2::posint)")->known_writes);
  EXPECT_TRUE(planned("SELECT 1 !!! 2 FROM users WHERE id = 1")->writes);
  Snapshot snapshot = cluster();
  snapshot.hidden.casts = true;
  EXPECT_EQ(planned("SELECT 1", snapshot)->kind, PlanKind::kRefuse);
  EXPECT_TRUE(planned("SELECT * FROM users WHERE id = 1", snapshot)->opaque);
}

// A row of a relation's own type is made with the checks of its columns.
TEST(PlanFacts, RecordsArePopulatedByTheRulesOfTheirType) {
  Snapshot snapshot = cluster();
  snapshot.hidden.types.insert("notes");
  snapshot.builtin_functions.insert("jsonb_populate_record");
  EXPECT_TRUE(planned("SELECT jsonb_populate_record(n, '{}') FROM notes n", snapshot)
                  ->error.message.find("notes") != std::string::npos);
  EXPECT_EQ(planned("SELECT * FROM notes n", snapshot)->kind, PlanKind::kJournal);
}

TEST(PlanFacts, DefaultsThatCallTheUsersFunctionsAreNotKnown) {
  const auto known = [](std::string expression) {
    Snapshot snapshot = cluster();
    snapshot.tables[0].columns[0].default_expression = std::move(expression);
    return planned("INSERT INTO users (id) VALUES (1)", snapshot)->known_writes;
  };
  EXPECT_TRUE(known("'x'::text"));
  EXPECT_TRUE(known("now()"));
  EXPECT_TRUE(known("(random() * (10)::double precision)"));
  EXPECT_TRUE(known("nextval('users_id_seq'::regclass)"));
  EXPECT_FALSE(known("audit()"));
  EXPECT_FALSE(known("lower(app.audit('x'::text))"));
  EXPECT_FALSE(known("\"Audit\"(1)"));
}

TEST(PlanFacts, FreeStanding) {
  EXPECT_TRUE(planned("SELECT 1")->free_standing);
  EXPECT_TRUE(planned("SELECT $1::int + 1")->free_standing);
  for (const char* sql :
       {"SELECT now()", "SELECT CURRENT_TIMESTAMP", "SELECT f(1)", "SELECT * FROM notes",
        "EXPLAIN SELECT 1", "SELECT set_config('app.user', 'b', true)", "UNLISTEN c"}) {
    EXPECT_FALSE(planned(sql)->free_standing) << sql;
  }
}

TEST(PlanFacts, CountStar) {
  EXPECT_TRUE(planned("SELECT count(*) AS n FROM users WHERE name = 'x'")->count_star);
  EXPECT_FALSE(planned("SELECT name FROM users")->count_star);
}

TEST(PlanFacts, DdlThatRefusesATransactionBlock) {
  EXPECT_TRUE(planned("CREATE TABLE x (a int)")->transactional_ddl);
  EXPECT_TRUE(planned("TRUNCATE users")->transactional_ddl);
  EXPECT_TRUE(planned("ANALYZE users")->transactional_ddl);
  EXPECT_FALSE(planned("VACUUM users")->transactional_ddl);
  EXPECT_FALSE(planned("CREATE INDEX CONCURRENTLY i ON users (name)")->transactional_ddl);
}

TEST(PlanFacts, OneCommonKeyIsPreferred) {
  const auto plan = planned(
      "SELECT * FROM users u JOIN orders o ON u.id = o.user_id WHERE u.id = $1 AND o.user_id = $2");
  ASSERT_EQ(plan->keys.size(), 1u);
  EXPECT_FALSE(plan->many_keys);
}

TEST(PlanFacts, RepeatedParametersAreMarked) {
  EXPECT_FALSE(planned("SELECT * FROM users WHERE id = $1")->keys[0].repeated);
  EXPECT_TRUE(planned("UPDATE users SET name = $1 WHERE id = $1")->keys[0].repeated);
}

// ---- clusters without sharding, or of one shard
// --------------------------------------------------

TEST(Unsharded, FunctionsRunOnTheJournalShard) {
  Snapshot snapshot = cluster();
  snapshot.tables.clear();
  for (const char* sql : {"SELECT f(1)", "SELECT f(a) FROM notes", "CALL p()", "DO $$ BEGIN END $$",
                          "SELECT query_to_xml('SELECT 1', true, true, '')"}) {
    EXPECT_EQ(verdict(*planned(sql, snapshot)), "journal") << sql;
  }
  EXPECT_EQ(planned("SELECT pg_advisory_lock(1)", snapshot)->kind, PlanKind::kRefuse);
}

TEST(OneShard, RefusalsByPlacementGoThere) {
  const Snapshot one = cluster({"only"});
  for (const char* sql :
       {"DELETE FROM users", "SELECT f(1)", "SELECT * FROM users ORDER BY 1",
        "INSERT INTO users SELECT 'a', 1", "UPDATE users SET id = id + 1",
        "SELECT * FROM users, notes", "COPY users TO STDOUT", "SELECT * FROM active_users",
        "INSERT INTO countries VALUES (1)", "CALL p()", "INSERT INTO users (id) VALUES (NULL)",
        "SELECT nextval('s') FROM users"}) {
    const auto plan = planned(sql, one);
    EXPECT_EQ(verdict(*plan), "journal") << sql;
    const Route routed = route(*plan, {}, one);
    EXPECT_EQ(routed.kind, RouteKind::kShard) << sql;
    EXPECT_EQ(routed.shard, 0) << sql;
    EXPECT_TRUE(routed.keys.empty()) << sql;
    // The plan outlives the day a second shard is added.
    EXPECT_EQ(route(*plan, {}, cluster()).kind, RouteKind::kRefuse) << sql;
  }
  for (const char* sql : {"SELECT pg_advisory_lock(1)", "LISTEN c", "CREATE TEMP TABLE x (a int)",
                          "PREPARE TRANSACTION 'x'"}) {
    const auto plan = planned(sql, one);
    EXPECT_EQ(plan->kind, PlanKind::kRefuse) << sql;
    EXPECT_EQ(route(*plan, {}, one).kind, RouteKind::kRefuse) << sql;
  }
}

TEST(SearchPath, DecidesWhatANameMeans) {
  const Snapshot snapshot = cluster();
  EXPECT_EQ(make_plan(analyzed("SELECT * FROM users WHERE id = 1"), snapshot, {"app"})->kind,
            PlanKind::kJournal);
  EXPECT_EQ(make_plan(analyzed("SELECT * FROM public.users WHERE id = 1"), snapshot, {"app"})->kind,
            PlanKind::kKeyed);
}

TEST(SearchPath, AnUnregisteredTableIsTakenForItself) {
  const Snapshot snapshot = cluster();
  const auto plan_in = [&](std::vector<std::string> path) {
    return make_plan(analyzed("SELECT name FROM users WHERE id = 1"), snapshot, path);
  };
  EXPECT_EQ(plan_in({"s", "public"})->kind, PlanKind::kJournal);
  EXPECT_EQ(plan_in({"public", "s"})->kind, PlanKind::kKeyed);
  EXPECT_EQ(make_plan(analyzed("DELETE FROM users"), snapshot, {"s", "public"})->kind,
            PlanKind::kJournal);
  EXPECT_EQ(make_plan(analyzed("SELECT * FROM calling_view"), snapshot, {"s", "public"})->kind,
            PlanKind::kJournal);
}

}  // namespace
}  // namespace collegedb::routing::testing
