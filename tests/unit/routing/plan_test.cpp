// Every rule of planning: one row per statement.
#include "fixture.h"

namespace collegedb::routing::testing {
namespace {

struct Row {
  std::string sql;
  std::string verdict;        // what verdict() begins with
  std::string sqlstate = "";  // of a refusal
};

void PrintTo(const Row& row, std::ostream* out) {
  *out << row.sql;
}

class Planned : public ::testing::TestWithParam<Row> {};

TEST_P(Planned, Verdict) {
  const Row& row = GetParam();
  const auto plan = planned(row.sql);
  EXPECT_TRUE(verdict(*plan).starts_with(row.verdict)) << row.sql << "\n" << verdict(*plan);
  if (plan->kind == PlanKind::kRefuse) {
    EXPECT_EQ(plan->error.sqlstate, row.sqlstate.empty() ? "0A000" : row.sqlstate) << row.sql;
    // 23502 is PostgreSQL's own and has no hint.
    EXPECT_EQ(plan->error.hint.empty(), row.sqlstate == "23502") << row.sql;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Keyed, Planned,
    ::testing::Values(
        Row{"SELECT * FROM users WHERE id = 1", "keyed"},
        Row{"SELECT * FROM users WHERE 1 = id", "keyed"},
        Row{"SELECT * FROM public.users u WHERE u.id = $1 AND u.name = 'x'", "keyed"},
        Row{"SELECT * FROM users WHERE id = '1'::int8", "keyed"},
        Row{"SELECT * FROM users WHERE id IN ($1)", "keyed"},
        Row{"SELECT * FROM users WHERE id IN (1, 2, 3)", "keyed"},
        Row{"SELECT * FROM users WHERE id = ANY(ARRAY[1])", "keyed"},
        Row{"SELECT * FROM users WHERE id IS NOT DISTINCT FROM 1", "keyed"},
        Row{"SELECT * FROM users WHERE (name, id) = ('x', 1)", "keyed"},
        Row{"SELECT * FROM users u JOIN orders o ON o.user_id = u.id WHERE u.id = 1", "keyed"},
        Row{"SELECT * FROM users u, orders o WHERE o.user_id = u.id AND o.user_id = $1", "keyed"},
        Row{"SELECT * FROM users u, orders o WHERE u.id = $1 AND o.user_id = $2", "keyed"},
        Row{"SELECT * FROM users u LEFT JOIN orders o ON o.user_id = u.id WHERE u.id = 1", "keyed"},
        Row{"SELECT * FROM users a JOIN users b USING (id) WHERE a.id = 1", "keyed"},
        Row{"SELECT * FROM users a JOIN users b USING (id) WHERE id = 1", "keyed"},
        Row{"SELECT * FROM users u JOIN countries c ON c.code = u.name WHERE u.id = 1", "keyed"},
        Row{"SELECT * FROM users WHERE id = (1) AND lower(name) = 'x' ORDER BY name LIMIT 3",
            "keyed"},
        Row{"SELECT count(*), max(name) FROM users WHERE id = 1 GROUP BY name", "keyed"},
        Row{"SELECT * FROM (SELECT * FROM users WHERE id = 3) s", "keyed"},
        Row{"WITH x AS (SELECT * FROM users WHERE id = 3) SELECT * FROM x", "keyed"},
        Row{"SELECT id FROM users WHERE id = 1 UNION SELECT user_id FROM orders WHERE user_id = 1",
            "keyed"},
        Row{"SELECT 1 WHERE EXISTS (SELECT 1 FROM users WHERE id = 1)", "keyed"},
        Row{"SELECT f(name) FROM users WHERE id = 1", "keyed"},
        Row{"SELECT * FROM users WHERE id = 1 FOR UPDATE", "keyed"},
        Row{"DELETE FROM users WHERE id = 1", "keyed"},
        Row{"UPDATE orders SET total = 1 FROM users WHERE users.id = orders.user_id AND id = 1",
            "keyed"},
        Row{"DELETE FROM orders USING users WHERE user_id = users.id AND users.id = $1", "keyed"},
        Row{"UPDATE users SET id = 1, name = 'x' WHERE id = 1", "keyed"},
        Row{"UPDATE users SET id = id WHERE id = 1", "keyed"},
        Row{"UPDATE users SET id = $1 WHERE id = $2", "keyed"},
        Row{"INSERT INTO users (id, name) VALUES (1, 'x'), ($1, 'y')", "keyed"},
        Row{"INSERT INTO users VALUES ('x', 1)", "keyed"},
        Row{"INSERT INTO users (id, name) VALUES (1, (SELECT name FROM users WHERE id = 1))",
            "keyed"},
        Row{"INSERT INTO users (id) VALUES (1) ON CONFLICT DO NOTHING", "keyed"},
        Row{"INSERT INTO users (id) VALUES (1) ON CONFLICT (id) DO UPDATE SET id = users.id",
            "keyed"},
        Row{"INSERT INTO users (id) VALUES (1) ON CONFLICT (id) DO UPDATE SET id = EXCLUDED.id",
            "keyed"},
        Row{"DECLARE c CURSOR FOR SELECT * FROM users WHERE id = 1", "keyed"},
        Row{"EXPLAIN SELECT * FROM users WHERE id = 1", "keyed"},
        Row{"EXPLAIN ANALYZE DELETE FROM users WHERE id = 1", "keyed"}));

INSTANTIATE_TEST_SUITE_P(
    Elsewhere, Planned,
    ::testing::Values(
        Row{"SELECT 1", "no table"}, Row{"VALUES (1), (2)", "no table"},
        Row{"SELECT now(), version()", "no table"},
        Row{"SELECT set_config('app.user', 'b', true)", "no table"},
        Row{"SELECT set_config('Lock_Timeout', '1s', true)", "no table"},
        Row{"SELECT pg_advisory_unlock_all()", "no table"}, Row{"UNLISTEN *", "no table"},
        Row{"SELECT * FROM countries", "reference"},
        Row{"SELECT * FROM countries a, countries b ORDER BY 1", "reference"},
        Row{"COPY countries TO STDOUT", "reference"}, Row{"SELECT * FROM notes", "journal"},
        Row{"SELECT * FROM unheard_of", "journal"},
        Row{"SELECT * FROM pg_catalog.pg_class WHERE pg_table_is_visible(oid)", "journal"},
        Row{"SELECT * FROM information_schema.tables", "journal"},
        Row{"SELECT (information_schema._pg_expandarray(indkey)).n FROM pg_index", "journal"},
        Row{"SELECT * FROM collegedb.shards", "journal"},
        Row{"SELECT * FROM notes JOIN countries ON true", "journal"},
        Row{"INSERT INTO notes SELECT * FROM countries", "journal"},
        Row{"WITH d AS (DELETE FROM notes RETURNING *) SELECT * FROM d", "journal"},
        Row{"SELECT * FROM app.users", "journal"}, Row{"COPY notes FROM STDIN", "journal"},
        Row{"LOCK TABLE notes", "journal"}, Row{"NOTIFY c, 'x'", "journal"},
        Row{"SELECT nextval('s')", "journal"}, Row{"SELECT pg_notify('c', 'x')", "journal"},
        Row{"SELECT pg_advisory_xact_lock(1)", "journal"},
        Row{"MERGE INTO notes USING countries c ON true WHEN MATCHED THEN DELETE", "journal"},
        Row{"SELECT * FROM users", "scatter"}, Row{"TABLE users", "scatter"},
        Row{"SELECT name FROM users WHERE name = 'x' OR id = 1", "scatter"},
        Row{"SELECT * FROM users WHERE id = ANY($1)", "scatter"},
        Row{"SELECT count(*) FROM users", "scatter"},
        Row{"SELECT count(*) AS n FROM users u JOIN countries c ON c.code = u.name WHERE c.code = "
            "'x'",
            "scatter"},
        Row{"SELECT u.* FROM users u LEFT JOIN countries c ON c.code = u.name", "scatter"},
        Row{"SELECT lower(name) FROM users, generate_series(1, 3)", "scatter"},
        Row{"TRUNCATE users", "broadcast"}, Row{"CREATE TABLE x (a int)", "broadcast"},
        Row{"ALTER TABLE users ADD COLUMN a int", "broadcast"}, Row{"VACUUM users", "broadcast"},
        Row{"ANALYZE users", "broadcast"}, Row{"GRANT SELECT ON users TO x", "broadcast"},
        Row{"COMMENT ON TABLE users IS 'x'", "broadcast"},
        Row{"CREATE INDEX CONCURRENTLY i ON users (name)", "broadcast"},
        Row{"CREATE TABLE x AS SELECT * FROM countries", "broadcast"},
        Row{"SELECT 1 AS a INTO x", "broadcast"}, Row{"BEGIN", "session"},
        Row{"COMMIT AND CHAIN", "session"}, Row{"SAVEPOINT s", "session"},
        Row{"SET a.b = 1", "session"}, Row{"SHOW a.b", "session"}, Row{"RESET ALL", "session"},
        Row{"DISCARD ALL", "session"}, Row{"DEALLOCATE ALL", "session"},
        Row{"FETCH ALL FROM c", "session"}, Row{"CLOSE c", "session"},
        Row{"SET TRANSACTION ISOLATION LEVEL SERIALIZABLE", "session"},
        Row{"SELECT collegedb_reassign('1', $1)", "admin"},
        Row{"SELECT op, state FROM collegedb_reassign(key => '1', shard => 'a')", "admin"},
        Row{"SELECT * FROM collegedb_pools()", "admin"}));

INSTANTIATE_TEST_SUITE_P(
    RefusedReads, Planned,
    ::testing::Values(
        Row{"SELECT * FROM users ORDER BY id", "refuse: UNROUTABLE_QUERY: ORDER BY"},
        Row{"SELECT * FROM users LIMIT 1", "refuse: UNROUTABLE_QUERY: LIMIT or OFFSET"},
        Row{"SELECT * FROM users OFFSET 1", "refuse: UNROUTABLE_QUERY: LIMIT or OFFSET"},
        Row{"SELECT DISTINCT name FROM users", "refuse: UNROUTABLE_QUERY: DISTINCT"},
        Row{"SELECT name FROM users GROUP BY name", "refuse: UNROUTABLE_QUERY: GROUP BY"},
        Row{"SELECT 1 FROM users HAVING true", "refuse: UNROUTABLE_QUERY: HAVING"},
        Row{"SELECT sum(id) FROM users", "refuse: UNROUTABLE_QUERY: an aggregate"},
        Row{"SELECT count(*), 1 FROM users", "refuse: UNROUTABLE_QUERY: an aggregate"},
        Row{"SELECT count(*) + 1 FROM users", "refuse: UNROUTABLE_QUERY: an aggregate"},
        Row{"SELECT count(DISTINCT name) FROM users", "refuse: UNROUTABLE_QUERY: an aggregate"},
        Row{"SELECT count(*) FILTER (WHERE id = 1) FROM users",
            "refuse: UNROUTABLE_QUERY: an aggregate"},
        Row{"SELECT count(*) FROM users HAVING count(*) > 1", "refuse: UNROUTABLE_QUERY: HAVING"},
        Row{"SELECT count(*) FROM users ORDER BY 1", "refuse: UNROUTABLE_QUERY: ORDER BY"},
        Row{"SELECT row_number() OVER () FROM users",
            "refuse: UNROUTABLE_QUERY: a window function"},
        Row{"SELECT id FROM users UNION ALL SELECT 1", "refuse: UNROUTABLE_QUERY: UNION"},
        Row{"SELECT * FROM users FOR SHARE", "refuse: UNROUTABLE_QUERY: FOR UPDATE or FOR SHARE"},
        Row{"SELECT * FROM users WHERE name IN (SELECT 'x')",
            "refuse: UNROUTABLE_QUERY: a sub-select in an expression"},
        Row{"SELECT * FROM (SELECT * FROM users) s", "refuse: UNROUTABLE_QUERY: a sub-select"},
        Row{"WITH x AS (SELECT 1) SELECT * FROM users", "refuse: UNROUTABLE_QUERY: WITH"},
        Row{"SELECT now(), * FROM users", "refuse: UNROUTABLE_QUERY: now()"},
        Row{"SELECT * FROM users WHERE name = CURRENT_USER",
            "refuse: UNROUTABLE_QUERY: CURRENT_TIMESTAMP or another value"},
        Row{"SELECT * FROM users, orders", "refuse: UNROUTABLE_QUERY: a join of sharded tables"},
        Row{"SELECT * FROM users u JOIN orders o ON o.user_id = u.id",
            "refuse: UNROUTABLE_QUERY: a join of sharded tables"},
        Row{"SELECT * FROM users u JOIN orders o ON o.id = u.id WHERE u.id = 1",
            "refuse: UNROUTABLE_QUERY: a join of sharded tables"},
        Row{"SELECT * FROM users u JOIN orders o ON o.user_id = u.id WHERE u.id IN (1, 2)",
            "refuse: UNROUTABLE_QUERY: table \"users\" is restricted to several keys"},
        Row{"SELECT * FROM countries c LEFT JOIN users u ON u.name = c.code",
            "refuse: UNROUTABLE_QUERY: an outer join"},
        Row{"SELECT * FROM users u FULL JOIN countries c ON u.name = c.code",
            "refuse: UNROUTABLE_QUERY: an outer join"},
        Row{"SELECT * FROM users, notes WHERE id = 1",
            "refuse: UNROUTABLE_QUERY: sharded table \"users\" cannot be combined"},
        Row{"SELECT * FROM users, pg_class WHERE id = 1",
            "refuse: UNROUTABLE_QUERY: sharded table \"users\" cannot be combined"},
        Row{"SELECT * FROM users, accounts WHERE id = 1 AND code = '1'",
            "refuse: UNROUTABLE_QUERY: tables \"users\" and \"accounts\" belong to different"},
        Row{"SELECT nextval('s') FROM users WHERE id = 1", "refuse: UNROUTABLE_QUERY: nextval()"},
        Row{"SELECT pg_advisory_xact_lock(id) FROM users WHERE id = 1",
            "refuse: UNROUTABLE_QUERY: pg_advisory_xact_lock()"},
        Row{"SELECT * FROM active_users", "refuse: UNROUTABLE_QUERY: relation \"active_users\""},
        Row{"SELECT f(id) FROM users", "refuse: KEY_REQUIRED: function f()"},
        Row{"SELECT app.lower(name) FROM users", "refuse: KEY_REQUIRED: function app.lower()"},
        Row{"SELECT f(1)", "refuse: KEY_REQUIRED: function f()"},
        Row{"SELECT f(1) FROM countries", "refuse: KEY_REQUIRED: function f()"},
        Row{"SELECT f(1) FROM notes", "refuse: KEY_REQUIRED: function f()"},
        Row{"SELECT query_to_xml('SELECT 1', true, true, '')",
            "refuse: KEY_REQUIRED: function query_to_xml()"},
        Row{"SELECT * FROM countries FOR UPDATE",
            "refuse: UNROUTABLE_QUERY: statements that write or lock reference table"},
        Row{"SELECT * FROM users, countries WHERE id = 1 FOR UPDATE",
            "refuse: UNROUTABLE_QUERY: statements that write or lock reference table"},
        Row{"COPY users TO STDOUT", "refuse: UNROUTABLE_QUERY: COPY"},
        Row{"COPY (SELECT * FROM users WHERE id = 1) TO STDOUT", "refuse: UNROUTABLE_QUERY: COPY"},
        Row{"COPY users TO '/tmp/x'", "refuse: UNROUTABLE_QUERY: COPY"},
        Row{"COPY countries TO '/tmp/x'",
            "refuse: UNROUTABLE_QUERY: statements that write or lock reference table"},
        Row{"DECLARE c CURSOR FOR SELECT * FROM users", "refuse: UNROUTABLE_QUERY: DECLARE CURSOR"},
        Row{"EXPLAIN SELECT * FROM users", "refuse: UNROUTABLE_QUERY: EXPLAIN"}));

INSTANTIATE_TEST_SUITE_P(
    RefusedWrites, Planned,
    ::testing::Values(
        Row{"UPDATE users SET name = 'x'", "refuse: KEY_REQUIRED: UPDATE on table \"users\""},
        Row{"UPDATE users SET name = 'x' WHERE id = ANY($1)", "refuse: KEY_REQUIRED: UPDATE"},
        Row{"UPDATE users SET name = 'x' WHERE id > 1", "refuse: KEY_REQUIRED: UPDATE"},
        Row{"DELETE FROM users", "refuse: KEY_REQUIRED: DELETE on table \"users\""},
        Row{"DELETE FROM users WHERE id = lower('1')::int8", "refuse: KEY_REQUIRED: DELETE"},
        Row{"EXPLAIN UPDATE users SET name = 'x'", "refuse: KEY_REQUIRED: EXPLAIN"},
        Row{"UPDATE users SET name = 'x' FROM orders WHERE id = 1",
            "refuse: KEY_REQUIRED: UPDATE on table \"orders\""},
        Row{"UPDATE users SET id = id + 1 WHERE id = 1", "refuse: KEY_UPDATE"},
        Row{"UPDATE users SET id = DEFAULT WHERE id = 1", "refuse: KEY_UPDATE"},
        Row{"UPDATE users SET id = NULL WHERE id = 1", "refuse: KEY_UPDATE"},
        Row{"UPDATE users SET (id, name) = (SELECT 1, 'x') WHERE id = 1", "refuse: KEY_UPDATE"},
        Row{"UPDATE users SET id = orders.id FROM orders WHERE users.id = 1 AND user_id = 1",
            "refuse: KEY_UPDATE"},
        Row{"INSERT INTO users (name) VALUES ('x')", "refuse: KEY_REQUIRED: INSERT into table"},
        Row{"INSERT INTO users VALUES ('x')", "refuse: KEY_REQUIRED: INSERT into table"},
        Row{"INSERT INTO users DEFAULT VALUES", "refuse: KEY_REQUIRED: INSERT into table"},
        Row{"INSERT INTO users (id) VALUES (DEFAULT)", "refuse: KEY_REQUIRED"},
        Row{"INSERT INTO users (id) VALUES (1), (DEFAULT)", "refuse: KEY_REQUIRED"},
        Row{"INSERT INTO users (id) VALUES ($1 + 1)",
            "refuse: KEY_REQUIRED: INSERT into table \"users\" computes the value"},
        Row{"INSERT INTO users (id) VALUES (NULL)",
            "refuse: null value in column \"id\" of relation \"users\" violates not-null "
            "constraint",
            "23502"},
        Row{"INSERT INTO users SELECT * FROM users WHERE id = 1",
            "refuse: UNROUTABLE_QUERY: INSERT ... SELECT"},
        Row{"INSERT INTO notes SELECT * FROM users WHERE id = 1",
            "refuse: UNROUTABLE_QUERY: sharded table \"users\" cannot be combined"},
        Row{"INSERT INTO users (id, name) VALUES (1, (SELECT max(name) FROM users))",
            "refuse: UNROUTABLE_QUERY: table \"users\", which this INSERT reads"},
        Row{"INSERT INTO users (id) VALUES (1) ON CONFLICT (id) DO UPDATE SET id = 2",
            "refuse: KEY_UPDATE"},
        Row{"INSERT INTO countries VALUES (1)",
            "refuse: UNROUTABLE_QUERY: statements that write or lock reference table"},
        Row{"UPDATE countries SET code = 'x'",
            "refuse: UNROUTABLE_QUERY: statements that write or lock reference table"},
        Row{"INSERT INTO countries SELECT * FROM notes",
            "refuse: UNROUTABLE_QUERY: statements that write or lock reference table"},
        Row{"COPY countries FROM STDIN",
            "refuse: UNROUTABLE_QUERY: statements that write or lock reference table"},
        Row{"LOCK TABLE countries",
            "refuse: UNROUTABLE_QUERY: statements that write or lock reference table"},
        Row{"UPDATE countries SET code = 'x' FROM users WHERE users.id = 1",
            "refuse: UNROUTABLE_QUERY: statements that write or lock reference table"},
        Row{"MERGE INTO users USING countries c ON id = 1 WHEN MATCHED THEN DELETE",
            "refuse: UNROUTABLE_QUERY: MERGE"},
        Row{"COPY users FROM STDIN", "refuse: UNROUTABLE_QUERY: COPY"},
        Row{"LOCK TABLE users", "refuse: UNROUTABLE_QUERY: LOCK TABLE"},
        Row{"WITH d AS (DELETE FROM users WHERE id = 1 RETURNING *) SELECT * FROM d",
            "refuse: UNROUTABLE_QUERY: a write to sharded table \"users\" inside WITH"},
        Row{"WITH u AS (UPDATE users SET id = 2 WHERE id = 1) SELECT * FROM users WHERE id = 1",
            "refuse: UNROUTABLE_QUERY: a write to sharded table \"users\" inside WITH"},
        Row{"CALL p(1)", "refuse: KEY_REQUIRED: CALL"},
        Row{"DO $$ BEGIN END $$", "refuse: KEY_REQUIRED: DO"}));

INSTANTIATE_TEST_SUITE_P(
    RefusedByName, Planned,
    ::testing::Values(
        Row{"SELECT pg_advisory_lock(1)", "refuse: pg_advisory_lock() is not supported"},
        Row{"SELECT lastval()", "refuse: lastval() is not supported"},
        Row{"SELECT setseed(0.5) FROM users WHERE id = 1", "refuse: setseed() is not supported"},
        Row{"SELECT set_config('app.user', 'b', false)", "refuse: set_config()"},
        Row{"SELECT set_config('search_path', 's', true)", "refuse: set_config()"},
        Row{"SELECT set_config('collegedb.guarded', 'on', true)", "refuse: set_config()"},
        Row{"SELECT set_config($1, 'b', true)", "refuse: set_config()"},
        Row{"SELECT set_config('app.user', 'b', $1)", "refuse: set_config()"},
        Row{"SELECT set_config('app.user', 'b', true) FROM users WHERE id = 1",
            "refuse: set_config()"},
        Row{"CREATE TEMP TABLE x (a int)", "refuse: CREATE TABLE of a temporary object"},
        Row{"CREATE TEMP TABLE x AS SELECT 1", "refuse: CREATE TABLE AS of a temporary object"},
        Row{"SELECT * INTO TEMP x FROM users", "refuse: SELECT INTO of a temporary object"},
        Row{"SELECT * INTO x FROM users", "refuse: SELECT INTO over sharded table"},
        Row{"CREATE TABLE x AS SELECT * FROM users WHERE id = 1",
            "refuse: CREATE TABLE AS over sharded table"},
        Row{"LISTEN c", "refuse: LISTEN"},
        Row{"DECLARE c CURSOR WITH HOLD FOR SELECT 1", "refuse: DECLARE CURSOR WITH HOLD"},
        Row{"PREPARE p AS SELECT 1", "refuse: PREPARE"}, Row{"EXECUTE p (1)", "refuse: EXECUTE"},
        Row{"EXPLAIN EXECUTE p", "refuse: EXPLAIN of this statement"},
        Row{"PREPARE TRANSACTION 'x'", "refuse: PREPARE TRANSACTION"},
        Row{"COMMIT PREPARED 'collegedb:default:1:1:dst'", "refuse: COMMIT PREPARED"},
        Row{"ROLLBACK PREPARED 'x'", "refuse: ROLLBACK PREPARED"}, Row{"LOAD 'x'", "refuse: LOAD"},
        Row{"SELECT collegedb_pools() FROM users", "refuse: function collegedb_pools"},
        Row{"SELECT * FROM collegedb_pools() ORDER BY 1", "refuse: function collegedb_pools"},
        Row{"SELECT collegedb_locate(lower('1'), 'users')", "refuse: the arguments of"},
        Row{"SELECT public.collegedb_pools()", "refuse: function collegedb_pools"},
        Row{"EXPLAIN SELECT collegedb_pools()", "refuse: function collegedb_pools"},
        Row{"CALL collegedb_recover()", "refuse: collegedb_recover cannot be called by CALL"}));

INSTANTIATE_TEST_SUITE_P(
    HiddenCode, Planned,
    ::testing::Values(
        Row{"SELECT 1 !!! 2", "refuse: KEY_REQUIRED: operator !!! may read"},
        Row{"SELECT a FROM notes WHERE a OPERATOR(public.!!!) 2", "refuse: KEY_REQUIRED: operator"},
        Row{"UPDATE notes SET a = 1 !!! 2", "refuse: KEY_REQUIRED: operator"},
        Row{"SELECT 1::posint", "refuse: KEY_REQUIRED: type \"posint\""},
        Row{"SELECT '{1}'::public.posint[] FROM countries", "refuse: KEY_REQUIRED: type"},
        Row{"SELECT u.fullname FROM users u", "refuse: KEY_REQUIRED: attribute \"fullname\""},
        Row{"SELECT (u).fullname FROM notes u", "refuse: KEY_REQUIRED: attribute"},
        Row{"SELECT c.fullname FROM countries c", "refuse: KEY_REQUIRED: attribute"},
        Row{"SELECT s.fullname FROM (SELECT 1) s", "refuse: KEY_REQUIRED: attribute"},
        Row{"SELECT (SELECT notes.fullname FROM f AS notes) FROM notes",
            "refuse: KEY_REQUIRED: attribute"},
        Row{"SELECT notes.fullname FROM notes AS notes (a)", "refuse: KEY_REQUIRED: attribute"},
        Row{"SELECT ('SELECT 1'::text).query_to_xml", "refuse: KEY_REQUIRED: attribute"},
        Row{"SELECT (1::int8).pg_advisory_lock", "refuse: KEY_REQUIRED: attribute"},
        Row{"SELECT n.fullname FROM notes n", "journal"},
        Row{"SELECT notes.fullname FROM public.notes", "journal"},
        Row{"SELECT u.name FROM users u", "scatter"},
        Row{"SELECT u.name FROM users u WHERE u.id = 1", "keyed"},
        Row{"INSERT INTO users (id) VALUES (1) ON CONFLICT (id) DO UPDATE SET name = excluded.name",
            "keyed"},
        Row{"SELECT u.count FROM users u", "refuse: UNROUTABLE_QUERY: an aggregate"},
        Row{"SELECT (u).max FROM users u", "refuse: UNROUTABLE_QUERY: an aggregate"},
        Row{"SELECT * FROM calling_view",
            "refuse: KEY_REQUIRED: code of relation \"calling_view\""},
        Row{"SELECT * FROM s.calling_view", "journal"}, Row{"SELECT * FROM audited", "journal"},
        Row{"INSERT INTO audited VALUES (1)", "refuse: KEY_REQUIRED: code of relation"},
        Row{"WITH d AS (DELETE FROM audited RETURNING *) SELECT * FROM d",
            "refuse: KEY_REQUIRED: code of relation"},
        Row{"SELECT 1 !!! 2 FROM users WHERE id = 1", "keyed"},
        Row{"UPDATE users SET name = (1::posint)::text WHERE id = 1", "keyed"}));

INSTANTIATE_TEST_SUITE_P(
    RefusedDefinitions, Planned,
    ::testing::Values(
        Row{"UPDATE pg_settings SET setting = 's' WHERE name = 'search_path'",
            "refuse: writing to system relation \"pg_settings\""},
        Row{"DELETE FROM pg_catalog.pg_class", "refuse: writing to system relation"},
        Row{"WITH d AS (INSERT INTO pg_catalog.pg_am VALUES (1) RETURNING 1) SELECT * FROM d",
            "refuse: writing to system relation"},
        Row{"COPY pg_catalog.pg_am FROM STDIN", "refuse: writing to system relation"},
        Row{"SELECT * FROM pg_settings", "journal"},
        Row{"ALTER ROLE bob SET search_path = s", "refuse: ALTER ROLE ... SET search_path"},
        Row{"ALTER DATABASE d SET role = bob", "refuse: ALTER DATABASE ... SET role"},
        Row{"ALTER ROLE ALL IN DATABASE d SET client_encoding = 'SJIS'", "refuse: ALTER ROLE"},
        Row{"ALTER SYSTEM SET standard_conforming_strings = off", "refuse: ALTER SYSTEM"},
        Row{"ALTER ROLE bob SET collegedb.guarded = on", "refuse: ALTER ROLE"},
        Row{"ALTER ROLE bob SET work_mem = '8MB'", "broadcast"},
        Row{"ALTER ROLE bob RESET search_path", "broadcast"},
        Row{"CREATE MATERIALIZED VIEW m AS SELECT * FROM users",
            "refuse: CREATE MATERIALIZED VIEW over sharded table"},
        Row{"CREATE MATERIALIZED VIEW m AS SELECT * FROM users WHERE id = 1 WITH NO DATA",
            "refuse: CREATE MATERIALIZED VIEW over sharded table"},
        Row{"CREATE MATERIALIZED VIEW m AS SELECT * FROM active_users",
            "refuse: UNROUTABLE_QUERY: relation \"active_users\""},
        Row{"CREATE MATERIALIZED VIEW m AS SELECT f()", "refuse: KEY_REQUIRED: function f()"},
        Row{"CREATE MATERIALIZED VIEW m AS SELECT * FROM countries", "broadcast"},
        Row{"ALTER TABLE users DETACH PARTITION users_1", "refuse: changing the inheritance"},
        Row{"ALTER TABLE users DETACH PARTITION users_1 CONCURRENTLY",
            "refuse: changing the inheritance"},
        Row{"ALTER TABLE notes INHERIT users", "refuse: changing the inheritance"},
        Row{"ALTER TABLE active_users NO INHERIT notes", "refuse: changing the inheritance"},
        Row{"ALTER TABLE notes INHERIT notes2", "broadcast"},
        Row{"ALTER TABLE users ATTACH PARTITION users_1 DEFAULT", "broadcast"}));

// ---- the case lists: soundness of key extraction
// -------------------------------------------------

TEST(Soundness, K1TargetListGivesNoKey) {
  const auto plan = planned("SELECT id, (user_id = $1) AS mine FROM t WHERE user_id = $2");
  ASSERT_EQ(plan->keys.size(), 1u);
  EXPECT_EQ(plan->keys[0].value.param, 2);
}

TEST(Soundness, K3OnlyConditionsOfEveryRowCount) {
  for (const char* sql :
       {"SELECT count(*) FILTER (WHERE user_id=1), count(*) FROM t",
        "SELECT CASE WHEN user_id=1 THEN v END FROM t", "SELECT * FROM t ORDER BY user_id = 5 DESC",
        "SELECT v FROM t GROUP BY v HAVING max(user_id) = 1",
        "SELECT * FROM t a LEFT JOIN t b ON b.user_id=1",
        "SELECT * FROM t a RIGHT JOIN t b ON b.user_id=1 AND a.user_id=1",
        "SELECT * FROM t a FULL JOIN t b ON a.user_id=1 AND b.user_id=1"}) {
    EXPECT_NE(planned(sql)->kind, PlanKind::kKeyed) << sql;
  }
}

TEST(Soundness, K5NegatedConditionsGiveNoKey) {
  for (const char* sql :
       {"SELECT * FROM t WHERE (user_id = 1) IS NOT TRUE",
        "SELECT * FROM t WHERE (user_id = 1) IS FALSE", "SELECT * FROM t WHERE NOT user_id = 1",
        "SELECT * FROM t WHERE user_id <> 1", "SELECT * FROM t WHERE user_id = 1 OR v = 'x'",
        "SELECT * FROM t WHERE (user_id = 1) = false", "SELECT * FROM t WHERE user_id NOT IN (1)",
        "SELECT * FROM t WHERE user_id = ALL(ARRAY[1])", "SELECT * FROM t WHERE user_id + 0 = 1",
        "SELECT * FROM t WHERE user_id::text LIKE '1'"}) {
    EXPECT_EQ(planned(sql)->kind, PlanKind::kScatter) << sql;
  }
}

TEST(Soundness, K7AListWithAnUnknownItemIsNoKey) {
  EXPECT_EQ(planned("SELECT * FROM t WHERE user_id IN (1, lower('2')::int, 3)")->kind,
            PlanKind::kScatter);
  EXPECT_EQ(planned("DELETE FROM t WHERE user_id IN (1, f(2), 3)")->kind, PlanKind::kRefuse);
}

TEST(Soundness, K11KeysThatCannotBeKnownAreRequired) {
  for (const char* sql :
       {"INSERT INTO t(v) VALUES ('x')", "INSERT INTO t(user_id) VALUES (DEFAULT)",
        "INSERT INTO accounts(code) VALUES (lower($1))", "INSERT INTO t(user_id) VALUES ($1+1)"}) {
    const auto plan = planned(sql);
    EXPECT_TRUE(verdict(*plan).starts_with("refuse: KEY_REQUIRED")) << sql << verdict(*plan);
  }
  Snapshot snapshot = cluster();
  for (TableInfo& table : snapshot.tables) table.columns.clear();
  EXPECT_TRUE(verdict(*planned("INSERT INTO t VALUES (1, 2, 'x')", snapshot))
                  .starts_with("refuse: KEY_REQUIRED"));
}

TEST(Soundness, NameInAJoinConditionMeansWhatTheJoinSees) {
  // `id` is a column of the countries; users stands beside that join.
  EXPECT_NE(planned("SELECT * FROM countries a JOIN countries b ON id = 5 "
                    "JOIN users u ON u.name = a.code")
                ->kind,
            PlanKind::kKeyed);
  EXPECT_EQ(planned("SELECT * FROM countries a JOIN users u ON id = 5")->kind, PlanKind::kKeyed);
}

TEST(Soundness, RenamedColumnsAreNotTheTablesOwn) {
  EXPECT_NE(planned("SELECT * FROM users AS u (id, name) WHERE id = 1")->kind, PlanKind::kKeyed);
  EXPECT_NE(planned("SELECT * FROM users AS u (id, name) WHERE u.id = 1")->kind, PlanKind::kKeyed);
}

TEST(Soundness, NullableSideHandsNothingOn) {
  // Orders without a user of key 1 are rows of the result too.
  EXPECT_NE(
      planned("SELECT * FROM orders o LEFT JOIN users u ON u.id = o.user_id AND u.id = 1")->kind,
      PlanKind::kKeyed);
  EXPECT_NE(planned("SELECT * FROM orders o LEFT JOIN users u ON o.user_id = 1 AND u.id = 1")->kind,
            PlanKind::kKeyed);
}

TEST(Soundness, OuterQueryDoesNotRestrictTheInner) {
  EXPECT_NE(planned("SELECT (SELECT count(*) FROM orders) FROM users WHERE id = 1")->kind,
            PlanKind::kKeyed);
  EXPECT_NE(
      planned("SELECT * FROM users WHERE id IN (SELECT user_id FROM orders WHERE user_id = 1)")
          ->kind,
      PlanKind::kKeyed);
  EXPECT_NE(planned("WITH x AS (SELECT * FROM users) SELECT * FROM x WHERE id = 1")->kind,
            PlanKind::kKeyed);
}

TEST(Soundness, ArmsOfAUnionAreEachRestricted) {
  EXPECT_NE(planned("SELECT id FROM users WHERE id = 1 UNION SELECT id FROM users")->kind,
            PlanKind::kKeyed);
}

}  // namespace
}  // namespace collegedb::routing::testing
