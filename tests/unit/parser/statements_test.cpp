// Kinds, words and session facts; the split into statements.
#include "describe.h"

namespace collegedb::parser {
namespace {

using Kind = StatementKind;

struct KindCase {
  std::string_view name;
  std::string_view sql;
  Kind kind;
  std::string_view verb;
};

class Kinds : public ::testing::TestWithParam<KindCase> {};

TEST_P(Kinds, AreExactly) {
  const Statement statement = one(GetParam().sql);
  EXPECT_EQ(statement.kind, GetParam().kind) << GetParam().sql;
  EXPECT_EQ(statement.verb, GetParam().verb);
}

INSTANTIATE_TEST_SUITE_P(
    Statements, Kinds,
    ::testing::Values(
        KindCase{"select", "SELECT 1", Kind::kSelect, "SELECT"},
        KindCase{"values", "VALUES (1)", Kind::kSelect, "SELECT"},
        KindCase{"table", "TABLE t", Kind::kSelect, "SELECT"},
        KindCase{"select_writing", "WITH d AS (DELETE FROM t) SELECT 1", Kind::kSelect, "SELECT"},
        KindCase{"insert", "INSERT INTO t VALUES (1)", Kind::kInsert, "INSERT"},
        KindCase{"update", "UPDATE t SET a = 1", Kind::kUpdate, "UPDATE"},
        KindCase{"delete", "DELETE FROM t", Kind::kDelete, "DELETE"},
        KindCase{"merge", "MERGE INTO t USING u ON true WHEN MATCHED THEN DELETE", Kind::kMerge,
                 "MERGE"},
        KindCase{"copy_from", "COPY t FROM STDIN", Kind::kCopyFrom, "COPY"},
        KindCase{"copy_to", "COPY t TO STDOUT", Kind::kCopyTo, "COPY"},
        KindCase{"copy_query", "COPY (SELECT 1) TO STDOUT", Kind::kCopyTo, "COPY"},
        KindCase{"copy_from_file", "COPY t FROM '/x'", Kind::kCopyServer, "COPY"},
        KindCase{"copy_to_program", "COPY t TO PROGRAM 'x'", Kind::kCopyServer, "COPY"},
        KindCase{"select_into", "SELECT 1 INTO t", Kind::kSelectInto, "SELECT INTO"},
        KindCase{"select_into_in_union", "SELECT 1 INTO t UNION SELECT 2", Kind::kSelectInto,
                 "SELECT INTO"},
        KindCase{"select_into_temp", "SELECT 1 INTO TEMP t", Kind::kCreateTemp, "SELECT INTO"},
        KindCase{"create_table_as", "CREATE TABLE t AS SELECT 1", Kind::kSelectInto,
                 "CREATE TABLE AS"},
        KindCase{"create_temp_table_as", "CREATE TEMP TABLE t AS SELECT 1", Kind::kCreateTemp,
                 "CREATE TABLE AS"},
        KindCase{"create_table_as_execute", "CREATE TABLE t AS EXECUTE p", Kind::kSelectInto,
                 "CREATE TABLE AS"},
        KindCase{"begin", "BEGIN", Kind::kBegin, "BEGIN"},
        KindCase{"start", "START TRANSACTION", Kind::kBegin, "START TRANSACTION"},
        KindCase{"commit", "END", Kind::kCommit, "COMMIT"},
        KindCase{"rollback", "ABORT", Kind::kRollback, "ROLLBACK"},
        KindCase{"show", "SHOW ALL", Kind::kShow, "SHOW"},
        KindCase{"prepare", "PREPARE p AS SELECT 1", Kind::kPrepare, "PREPARE"},
        KindCase{"execute", "EXECUTE p", Kind::kExecute, "EXECUTE"},
        KindCase{"fetch", "FETCH c", Kind::kFetch, "FETCH"},
        KindCase{"move", "MOVE c", Kind::kFetch, "MOVE"},
        KindCase{"close", "CLOSE c", Kind::kCloseCursor, "CLOSE CURSOR"},
        KindCase{"listen", "LISTEN c", Kind::kListen, "LISTEN"},
        KindCase{"lock", "LOCK t", Kind::kLockTable, "LOCK TABLE"},
        KindCase{"truncate", "TRUNCATE t", Kind::kTruncate, "TRUNCATE TABLE"},
        KindCase{"call", "CALL p()", Kind::kCall, "CALL"},
        KindCase{"k15_do", "DO $$ BEGIN DELETE FROM t; END $$", Kind::kDo, "DO"},
        KindCase{"set_constraints", "SET CONSTRAINTS ALL DEFERRED", Kind::kOther,
                 "SET CONSTRAINTS"},
        KindCase{"set_from_current", "SET a FROM CURRENT", Kind::kOther, "SET FROM CURRENT"},
        KindCase{"load", "LOAD 'x'", Kind::kOther, "LOAD"}),
    case_name<KindCase>);

INSTANTIATE_TEST_SUITE_P(
    Definitions, Kinds,
    ::testing::Values(
        KindCase{"create_table", "CREATE TABLE t (a int)", Kind::kDdl, "CREATE TABLE"},
        KindCase{"create_temp_table", "CREATE TEMP TABLE t (a int)", Kind::kCreateTemp,
                 "CREATE TABLE"},
        KindCase{"create_in_pg_temp", "CREATE TABLE pg_temp.t (a int)", Kind::kCreateTemp,
                 "CREATE TABLE"},
        KindCase{"create_in_pg_temp_3", "CREATE TABLE pg_temp_3.t (a int)", Kind::kCreateTemp,
                 "CREATE TABLE"},
        KindCase{"create_temp_view", "CREATE TEMP VIEW v AS SELECT 1", Kind::kCreateTemp,
                 "CREATE VIEW"},
        KindCase{"create_temp_sequence", "CREATE TEMP SEQUENCE s", Kind::kCreateTemp,
                 "CREATE SEQUENCE"},
        KindCase{"create_temp_function",
                 "CREATE FUNCTION pg_temp.f() RETURNS int LANGUAGE sql AS ''", Kind::kCreateTemp,
                 "CREATE FUNCTION"},
        KindCase{"create_temp_type", "CREATE TYPE pg_temp.t AS ENUM ('a')", Kind::kCreateTemp,
                 "CREATE TYPE"},
        KindCase{"create_view", "CREATE OR REPLACE VIEW v AS SELECT 1", Kind::kDdl, "CREATE VIEW"},
        KindCase{"create_matview", "CREATE MATERIALIZED VIEW v AS SELECT 1", Kind::kDdl,
                 "CREATE MATERIALIZED VIEW"},
        KindCase{"refresh_concurrently", "REFRESH MATERIALIZED VIEW CONCURRENTLY v", Kind::kDdl,
                 "REFRESH MATERIALIZED VIEW"},
        KindCase{"create_index", "CREATE INDEX ON t (a)", Kind::kDdl, "CREATE INDEX"},
        KindCase{"create_index_concurrently", "CREATE INDEX CONCURRENTLY ON t (a)",
                 Kind::kDdlNoBlock, "CREATE INDEX"},
        KindCase{"drop_index", "DROP INDEX i", Kind::kDdl, "DROP INDEX"},
        KindCase{"drop_index_concurrently", "DROP INDEX CONCURRENTLY i", Kind::kDdlNoBlock,
                 "DROP INDEX"},
        KindCase{"reindex_table", "REINDEX TABLE t", Kind::kDdl, "REINDEX"},
        KindCase{"reindex_concurrently", "REINDEX TABLE CONCURRENTLY t", Kind::kDdlNoBlock,
                 "REINDEX"},
        KindCase{"reindex_option", "REINDEX (CONCURRENTLY) INDEX i", Kind::kDdlNoBlock, "REINDEX"},
        KindCase{"reindex_option_off", "REINDEX (CONCURRENTLY FALSE) INDEX i", Kind::kDdl,
                 "REINDEX"},
        KindCase{"reindex_schema", "REINDEX SCHEMA s", Kind::kDdlNoBlock, "REINDEX"},
        KindCase{"reindex_database", "REINDEX DATABASE d", Kind::kDdlNoBlock, "REINDEX"},
        KindCase{"alter_table", "ALTER TABLE t ADD a int", Kind::kDdl, "ALTER TABLE"},
        KindCase{"detach_concurrently", "ALTER TABLE t DETACH PARTITION p CONCURRENTLY",
                 Kind::kDdlNoBlock, "ALTER TABLE"},
        KindCase{"detach", "ALTER TABLE t DETACH PARTITION p", Kind::kDdl, "ALTER TABLE"},
        KindCase{"rename_column", "ALTER VIEW v RENAME COLUMN a TO b", Kind::kDdl, "ALTER VIEW"},
        KindCase{"rename_function", "ALTER FUNCTION f() RENAME TO g", Kind::kDdl, "ALTER FUNCTION"},
        KindCase{"owner", "ALTER SCHEMA s OWNER TO bob", Kind::kDdl, "ALTER SCHEMA"},
        KindCase{"set_schema", "ALTER DOMAIN d SET SCHEMA s", Kind::kDdl, "ALTER DOMAIN"},
        KindCase{"drop_table", "DROP TABLE t", Kind::kDdl, "DROP TABLE"},
        KindCase{"drop_type", "DROP TYPE t", Kind::kDdl, "DROP TYPE"},
        KindCase{"create_aggregate", "CREATE AGGREGATE a (int) (SFUNC = f, STYPE = int)",
                 Kind::kDdl, "CREATE AGGREGATE"},
        KindCase{"create_procedure", "CREATE PROCEDURE p() LANGUAGE sql AS ''", Kind::kDdl,
                 "CREATE PROCEDURE"},
        KindCase{"enum_value", "ALTER TYPE t ADD VALUE 'a'", Kind::kDdl, "ALTER TYPE"},
        KindCase{"grant", "GRANT SELECT ON t TO bob", Kind::kDdl, "GRANT"},
        KindCase{"revoke", "REVOKE SELECT ON t FROM bob", Kind::kDdl, "REVOKE"},
        KindCase{"grant_role", "GRANT a TO bob", Kind::kDdl, "GRANT ROLE"},
        KindCase{"comment", "COMMENT ON TABLE t IS 'x'", Kind::kDdl, "COMMENT"},
        KindCase{"create_role", "CREATE ROLE r", Kind::kDdl, "CREATE ROLE"},
        KindCase{"alter_role_set", "ALTER ROLE r SET a = 1", Kind::kDdl, "ALTER ROLE"},
        KindCase{"create_extension", "CREATE EXTENSION e", Kind::kDdl, "CREATE EXTENSION"},
        KindCase{"create_schema", "CREATE SCHEMA s", Kind::kDdl, "CREATE SCHEMA"},
        KindCase{"create_database", "CREATE DATABASE d", Kind::kDdlNoBlock, "CREATE DATABASE"},
        KindCase{"drop_database", "DROP DATABASE d", Kind::kDdlNoBlock, "DROP DATABASE"},
        KindCase{"alter_database", "ALTER DATABASE d CONNECTION LIMIT 1", Kind::kDdl,
                 "ALTER DATABASE"},
        KindCase{"move_database", "ALTER DATABASE d SET TABLESPACE s", Kind::kDdlNoBlock,
                 "ALTER DATABASE"},
        KindCase{"create_tablespace", "CREATE TABLESPACE s LOCATION '/x'", Kind::kDdlNoBlock,
                 "CREATE TABLESPACE"},
        KindCase{"drop_tablespace", "DROP TABLESPACE s", Kind::kDdlNoBlock, "DROP TABLESPACE"},
        KindCase{"alter_system", "ALTER SYSTEM SET a = 1", Kind::kDdlNoBlock, "ALTER SYSTEM"},
        KindCase{"vacuum", "VACUUM", Kind::kDdlNoBlock, "VACUUM"},
        KindCase{"vacuum_analyze", "VACUUM ANALYZE t", Kind::kDdlNoBlock, "VACUUM"},
        KindCase{"analyze", "ANALYZE t", Kind::kAnalyze, "ANALYZE"},
        KindCase{"cluster", "CLUSTER t", Kind::kDdl, "CLUSTER"},
        KindCase{"cluster_all", "CLUSTER", Kind::kDdlNoBlock, "CLUSTER"},
        KindCase{"checkpoint", "CHECKPOINT", Kind::kDdl, "CHECKPOINT"},
        KindCase{"subscription", "CREATE SUBSCRIPTION s CONNECTION '' PUBLICATION p",
                 Kind::kDdlNoBlock, "CREATE SUBSCRIPTION"},
        KindCase{"subscription_no_slot",
                 "CREATE SUBSCRIPTION s CONNECTION '' PUBLICATION p WITH (create_slot = false)",
                 Kind::kDdl, "CREATE SUBSCRIPTION"},
        KindCase{"subscription_no_connect",
                 "CREATE SUBSCRIPTION s CONNECTION '' PUBLICATION p WITH (connect = false)",
                 Kind::kDdl, "CREATE SUBSCRIPTION"},
        KindCase{"subscription_refresh", "ALTER SUBSCRIPTION s REFRESH PUBLICATION",
                 Kind::kDdlNoBlock, "ALTER SUBSCRIPTION"},
        KindCase{"subscription_set", "ALTER SUBSCRIPTION s SET PUBLICATION p", Kind::kDdlNoBlock,
                 "ALTER SUBSCRIPTION"},
        KindCase{"subscription_set_quietly",
                 "ALTER SUBSCRIPTION s SET PUBLICATION p WITH (refresh = false)", Kind::kDdl,
                 "ALTER SUBSCRIPTION"},
        KindCase{"subscription_disable", "ALTER SUBSCRIPTION s DISABLE", Kind::kDdl,
                 "ALTER SUBSCRIPTION"},
        KindCase{"drop_subscription", "DROP SUBSCRIPTION s", Kind::kDdlNoBlock,
                 "DROP SUBSCRIPTION"}),
    case_name<KindCase>);

struct NameCase {
  std::string_view name;
  std::string_view sql;
  Kind kind;
  std::string_view object;
  std::string_view value = {};
};

class Names : public ::testing::TestWithParam<NameCase> {};

TEST_P(Names, AreExactly) {
  const Statement statement = one(GetParam().sql);
  EXPECT_EQ(statement.kind, GetParam().kind) << GetParam().sql;
  EXPECT_EQ(statement.name, GetParam().object);
  EXPECT_EQ(statement.value, GetParam().value);
}

INSTANTIATE_TEST_SUITE_P(
    Settings, Names,
    ::testing::Values(
        NameCase{"word", "SET a = on", Kind::kSet, "a", "on"},
        NameCase{"to", "SET a TO 'x y'", Kind::kSet, "a", "x y"},
        NameCase{"d61_upper_case", "set COLLEGEDB.Key = 'U'", Kind::kSet, "collegedb.key", "U"},
        NameCase{"quoted_name", "SET \"TimeZone\" = 'UTC'", Kind::kSet, "timezone", "UTC"},
        NameCase{"integer", "SET a = -5", Kind::kSet, "a", "-5"},
        NameCase{"float", "SET a = 0.50", Kind::kSet, "a", "0.50"},
        NameCase{"true_word", "SET a = TRUE", Kind::kSet, "a", "true"},
        NameCase{"list", "SET DateStyle = ISO, 'Y z', 3", Kind::kSet, "datestyle", "iso, Y z, 3"},
        NameCase{"identifier_list", "SET search_path = \"$user\", public, 'My Schema'", Kind::kSet,
                 "search_path", "\"$user\", public, \"My Schema\""},
        NameCase{"identifier_with_quote", "SET search_path = 'a\"b'", Kind::kSet, "search_path",
                 "\"a\"\"b\""},
        NameCase{"empty_string", "SET search_path = ''", Kind::kSet, "search_path", "\"\""},
        NameCase{"schema", "SET SCHEMA 'X'", Kind::kSet, "search_path", "\"X\""},
        NameCase{"names", "SET NAMES 'LATIN1'", Kind::kSet, "client_encoding", "LATIN1"},
        NameCase{"time_zone", "SET TIME ZONE 'UTC'", Kind::kSet, "timezone", "UTC"},
        NameCase{"time_zone_hours", "SET TIME ZONE -7.5", Kind::kSet, "timezone", "-7.5"},
        NameCase{"time_zone_interval", "SET TIME ZONE INTERVAL '-08:00' HOUR TO MINUTE", Kind::kSet,
                 "timezone", "INTERVAL '-08:00'"},
        NameCase{"time_zone_interval_hour", "SET TIME ZONE INTERVAL '-8' HOUR", Kind::kSet,
                 "timezone", "INTERVAL '-8 hours'"},
        NameCase{"role", "SET ROLE bob", Kind::kSet, "role", "bob"},
        NameCase{"role_none", "SET ROLE NONE", Kind::kSet, "role", "none"},
        NameCase{"session_authorization", "SET SESSION AUTHORIZATION bob", Kind::kSet,
                 "session_authorization", "bob"},
        NameCase{"xml_option", "SET XML OPTION DOCUMENT", Kind::kSet, "xmloption", "DOCUMENT"},
        NameCase{"characteristics", "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY",
                 Kind::kSetTransaction, "session characteristics"},
        NameCase{"transaction", "SET TRANSACTION READ ONLY", Kind::kSetTransaction, "transaction"},
        NameCase{"snapshot", "SET TRANSACTION SNAPSHOT '0-1'", Kind::kSetTransaction,
                 "transaction snapshot", "0-1"},
        NameCase{"reset", "RESET Work_Mem", Kind::kReset, "work_mem"},
        NameCase{"reset_all", "RESET ALL", Kind::kReset, "all"},
        NameCase{"reset_time_zone", "RESET TIME ZONE", Kind::kReset, "timezone"},
        NameCase{"reset_role", "RESET ROLE", Kind::kReset, "role"},
        NameCase{"reset_session_authorization", "RESET SESSION AUTHORIZATION", Kind::kReset,
                 "session_authorization"},
        NameCase{"reset_isolation", "RESET TRANSACTION ISOLATION LEVEL", Kind::kReset,
                 "transaction_isolation"},
        NameCase{"show", "SHOW Search_Path", Kind::kShow, "search_path"},
        NameCase{"show_all", "SHOW ALL", Kind::kShow, "all"},
        NameCase{"show_time_zone", "SHOW TIME ZONE", Kind::kShow, "timezone"},
        NameCase{"show_isolation", "SHOW TRANSACTION ISOLATION LEVEL", Kind::kShow,
                 "transaction_isolation"},
        NameCase{"discard_all", "DISCARD ALL", Kind::kDiscard, "all"},
        NameCase{"discard_plans", "DISCARD PLANS", Kind::kDiscard, "plans"},
        NameCase{"discard_sequences", "DISCARD SEQUENCES", Kind::kDiscard, "sequences"},
        NameCase{"discard_temp", "DISCARD TEMPORARY", Kind::kDiscard, "temp"}),
    case_name<NameCase>);

INSTANTIATE_TEST_SUITE_P(
    Objects, Names,
    ::testing::Values(
        NameCase{"savepoint", "SAVEPOINT \"A\"", Kind::kSavepoint, "A"},
        NameCase{"release", "RELEASE SAVEPOINT a", Kind::kRelease, "a"},
        NameCase{"rollback_to", "ROLLBACK TRANSACTION TO SAVEPOINT a", Kind::kRollbackTo, "a"},
        NameCase{"prepare_transaction", "PREPARE TRANSACTION 'g'", Kind::kPrepareTransaction, "g"},
        NameCase{"commit_prepared", "COMMIT PREPARED 'g'", Kind::kCommitPrepared, "g"},
        NameCase{"rollback_prepared", "ROLLBACK PREPARED 'g'", Kind::kRollbackPrepared, "g"},
        NameCase{"prepare", "PREPARE p (int) AS SELECT $1", Kind::kPrepare, "p"},
        NameCase{"execute", "EXECUTE p (1)", Kind::kExecute, "p"},
        NameCase{"deallocate", "DEALLOCATE PREPARE p", Kind::kDeallocate, "p"},
        NameCase{"deallocate_all", "DEALLOCATE ALL", Kind::kDeallocate, ""},
        NameCase{"declare", "DECLARE c CURSOR FOR SELECT 1", Kind::kDeclareCursor, "c"},
        NameCase{"fetch", "FETCH ALL FROM c", Kind::kFetch, "c"},
        NameCase{"close", "CLOSE c", Kind::kCloseCursor, "c"},
        NameCase{"close_all", "CLOSE ALL", Kind::kCloseCursor, ""},
        NameCase{"listen", "LISTEN ch", Kind::kListen, "ch"},
        NameCase{"unlisten", "UNLISTEN ch", Kind::kUnlisten, "ch"},
        NameCase{"unlisten_all", "UNLISTEN *", Kind::kUnlisten, ""},
        NameCase{"notify", "NOTIFY ch, 'payload'", Kind::kNotify, "ch", "payload"}),
    case_name<NameCase>);

TEST(Set, Scope) {
  EXPECT_TRUE(one("SET LOCAL a = 1").local);
  EXPECT_FALSE(one("SET SESSION a = 1").local);
  EXPECT_FALSE(one("SET a = 1").local);
}

TEST(Set, Default) {
  for (const std::string_view sql : {"SET a TO DEFAULT", "SET TIME ZONE LOCAL", "SET NAMES",
                                     "SET SESSION AUTHORIZATION DEFAULT"}) {
    EXPECT_TRUE(one(sql).value_default) << sql;
    EXPECT_EQ(one(sql).kind, Kind::kSet) << sql;
  }
  EXPECT_FALSE(one("SET a = 'default'").value_default);
}

TEST(Set, OnlyListsTakeSeveralValues) {
  const auto statements = analyze("SET application_name = a, b");
  ASSERT_TRUE(statements.has_error());
  EXPECT_EQ(statements.error().sqlstate, "22023");
  EXPECT_EQ(statements.error().message, "SET application_name takes only one argument");
  EXPECT_EQ(one("SET my.list = a, b").value, "a, b");
}

TEST(Set, IntervalThatNeedsAServerIsRefused) {
  EXPECT_EQ(analyze("SET TIME ZONE INTERVAL 'x y' HOUR").error().sqlstate, "0A000");
}

TEST(Transactions, Options) {
  const Statement begin = one("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY, DEFERRABLE");
  EXPECT_EQ(begin.isolation, "repeatable read");
  EXPECT_TRUE(begin.read_only);
  const Statement plain = one("START TRANSACTION READ WRITE");
  EXPECT_EQ(plain.isolation, "");
  EXPECT_FALSE(plain.read_only);
  EXPECT_EQ(one("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE").isolation, "serializable");
  EXPECT_TRUE(one("SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY").read_only);
}

TEST(Transactions, Chain) {
  EXPECT_TRUE(one("COMMIT AND CHAIN").and_chain);
  EXPECT_TRUE(one("ROLLBACK AND CHAIN").and_chain);
  EXPECT_FALSE(one("COMMIT AND NO CHAIN").and_chain);
}

TEST(Cursors, Hold) {
  EXPECT_TRUE(one("DECLARE c CURSOR WITH HOLD FOR SELECT 1").cursor_hold);
  EXPECT_FALSE(one("DECLARE c CURSOR WITHOUT HOLD FOR SELECT 1").cursor_hold);
}

TEST(Inner, FactsAreThoseOfTheInnerStatement) {
  const Statement explain = one("EXPLAIN (ANALYZE, VERBOSE) UPDATE t SET a = 1 WHERE id = 2");
  EXPECT_EQ(explain.kind, Kind::kExplain);
  EXPECT_EQ(explain.verb, "EXPLAIN");
  EXPECT_EQ(explain.explained, Kind::kUpdate);
  EXPECT_TRUE(explain.explain_analyze);
  EXPECT_EQ(tables(explain), "t@0 written");
  EXPECT_EQ(conditions(explain), "id@0 = 2 {0}");
  EXPECT_TRUE(one("EXPLAIN ANALYZE SELECT 1").explain_analyze);
  EXPECT_FALSE(one("EXPLAIN (ANALYZE off) SELECT 1").explain_analyze);
  EXPECT_FALSE(one("EXPLAIN SELECT 1").explain_analyze);

  const Statement prepare = one("PREPARE p AS DELETE FROM t WHERE id = $1");
  EXPECT_EQ(prepare.explained, Kind::kDelete);
  EXPECT_EQ(conditions(prepare), "id@0 = $1 {0}");
  EXPECT_EQ(prepare.max_param, 1);
  EXPECT_EQ(one("DECLARE c CURSOR FOR SELECT 1").explained, Kind::kSelect);

  const Statement copied = one("COPY (DELETE FROM t RETURNING a) TO STDOUT");
  EXPECT_EQ(copied.explained, Kind::kDelete);
  EXPECT_EQ(tables(copied), "t@0 written");
}

TEST(Split, EmptyTextHasNoStatement) {
  for (const std::string_view sql : {"", " ", ";", ";;", "-- x", "/* x /* y */ */", " ; /* */ ;"}) {
    const auto statements = analyze(sql);
    ASSERT_TRUE(statements.has_value()) << sql;
    EXPECT_TRUE(statements->empty()) << sql;
  }
}

TEST(Split, RangesAreBytesWithoutSemicolons) {
  const std::string_view sql = "/* é */ SELECT 'é;' ;;SET a = $$;$$; \nCOMMIT -- ;";
  const auto statements = analyze(sql);
  ASSERT_TRUE(statements.has_value());
  ASSERT_EQ(statements->size(), 3U);
  const auto text = [&](std::size_t i) {
    return sql.substr((*statements)[i].location, (*statements)[i].length);
  };
  EXPECT_EQ(text(0), "/* é */ SELECT 'é;' ");
  EXPECT_EQ(text(1), "SET a = $$;$$");
  EXPECT_EQ(text(2), " \nCOMMIT -- ;");
}

TEST(Split, EachStatementHasItsOwnFacts) {
  const auto statements = analyze("SELECT $1 FROM a; SET x = 1; DELETE FROM b WHERE id = $2");
  ASSERT_TRUE(statements.has_value());
  ASSERT_EQ(statements->size(), 3U);
  EXPECT_EQ(tables((*statements)[0]), "a@0");
  EXPECT_EQ((*statements)[0].max_param, 1);
  EXPECT_EQ((*statements)[1].kind, Kind::kSet);
  EXPECT_EQ(tables((*statements)[2]), "b@0 written");
  EXPECT_EQ((*statements)[2].max_param, 2);
}

TEST(SelfTest, Passes) {
  EXPECT_EQ(self_test(), "");
}

}  // namespace
}  // namespace collegedb::parser
