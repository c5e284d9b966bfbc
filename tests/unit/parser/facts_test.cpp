// Relations, functions, parameters, shapes: what is named anywhere in a statement.
#include "describe.h"

namespace collegedb::parser {
namespace {

struct Case {
  std::string_view name;
  std::string_view sql;
  std::string_view expected;
};

class Tables : public ::testing::TestWithParam<Case> {};
class Functions : public ::testing::TestWithParam<Case> {};
class Shape : public ::testing::TestWithParam<Case> {};
class Call : public ::testing::TestWithParam<Case> {};

TEST_P(Tables, AreExactly) {
  EXPECT_EQ(tables(one(GetParam().sql)), GetParam().expected) << GetParam().sql;
}
TEST_P(Functions, AreExactly) {
  EXPECT_EQ(functions(one(GetParam().sql)), GetParam().expected) << GetParam().sql;
}
TEST_P(Shape, IsExactly) {
  EXPECT_EQ(text_of(one(GetParam().sql).select), GetParam().expected) << GetParam().sql;
}
TEST_P(Call, IsExactly) {
  const Statement statement = one(GetParam().sql);
  EXPECT_EQ(statement.lone_call ? text_of(*statement.lone_call) : "", GetParam().expected)
      << GetParam().sql;
}

INSTANTIATE_TEST_SUITE_P(
    Queries, Tables,
    ::testing::Values(
        Case{"folded", "SELECT * FROM Users", "users@0"},
        Case{"quoted", "SELECT * FROM \"Users\"", "Users@0"},
        Case{"schema_and_alias", "SELECT * FROM s.users AS u", "s.users u@0"},
        Case{"database", "SELECT * FROM d.s.users", "s.users@0"},
        Case{"only", "SELECT * FROM ONLY users", "users@0"},
        Case{"table_command", "TABLE s.users", "s.users@0"},
        Case{"sample", "SELECT * FROM users TABLESAMPLE system (10)", "users@0"},
        Case{"values", "VALUES (1), (2)", ""},
        Case{"function_is_no_table", "SELECT * FROM generate_series(1, 2) g", ""},
        Case{"self_join", "SELECT * FROM t a, t b", "t a@0, t b@0"},
        Case{"left_join", "SELECT * FROM a LEFT JOIN b ON true", "a@0, b@0 nullable"},
        Case{"right_join", "SELECT * FROM a RIGHT JOIN b ON true", "a@0 nullable, b@0"},
        Case{"full_join", "SELECT * FROM a FULL JOIN b ON true", "a@0 nullable, b@0 nullable"},
        Case{"inner_below_left",
             "SELECT * FROM a LEFT JOIN (b JOIN c ON true) ON true JOIN d ON true",
             "a@0, b@0 nullable, c@0 nullable, d@0"},
        Case{"subselect_in_from", "SELECT * FROM (SELECT * FROM b) s, a", "a@0, b@1"},
        Case{"exists", "SELECT 1 FROM a WHERE EXISTS (SELECT 1 FROM b)", "a@0, b@1"},
        Case{"in_subselect", "SELECT 1 FROM a WHERE x IN (SELECT y FROM b)", "a@0, b@1"},
        Case{"scalar_subselect", "SELECT (SELECT y FROM b) FROM a", "a@0, b@1"},
        Case{"array_subselect", "SELECT ARRAY(SELECT y FROM b)", "b@1"},
        Case{"subselect_in_order_by", "SELECT 1 FROM a ORDER BY (SELECT 1 FROM b)", "a@0, b@1"},
        Case{"subselect_in_limit", "SELECT 1 FROM a LIMIT (SELECT 1 FROM b)", "a@0, b@1"},
        Case{"subselect_in_on", "SELECT 1 FROM a JOIN b ON EXISTS (SELECT 1 FROM c)",
             "a@0, b@0, c@1"},
        Case{"subselect_in_function_argument", "SELECT * FROM f((SELECT 1 FROM b))", "b@1"},
        Case{"subselect_in_case", "SELECT CASE WHEN EXISTS (SELECT 1 FROM b) THEN 1 END", "b@1"},
        Case{"subselect_in_filter", "SELECT count(*) FILTER (WHERE EXISTS (SELECT 1 FROM b))",
             "b@1"},
        Case{"lateral", "SELECT * FROM a, LATERAL (SELECT * FROM b) s", "a@0, b@1"},
        Case{"union_arms", "SELECT 1 FROM a UNION ALL SELECT 1 FROM b UNION SELECT 1 FROM c",
             "a@1, b@2, c@3"},
        Case{"for_update_names_no_new_table", "SELECT * FROM a x FOR UPDATE OF x", "a x@0"},
        Case{"cte", "WITH c AS (SELECT * FROM a) SELECT * FROM c, b", "b@0, a@1"},
        Case{"cte_qualified_name_is_a_table", "WITH c AS (SELECT 1) SELECT * FROM s.c", "s.c@0"},
        Case{"cte_not_in_itself", "WITH a AS (SELECT * FROM a) SELECT * FROM a", "a@1"},
        Case{"cte_recursive_sees_itself",
             "WITH RECURSIVE a AS (SELECT 1 UNION ALL SELECT * FROM a) SELECT * FROM a", ""},
        Case{"cte_recursive_sees_later",
             "WITH RECURSIVE a AS (SELECT * FROM b), b AS (SELECT 1) "
             "SELECT * FROM a",
             ""},
        Case{"cte_sees_only_earlier",
             "WITH a AS (SELECT * FROM b), b AS (SELECT * FROM a) SELECT * FROM a, b", "b@1"},
        Case{"cte_seen_in_subselect",
             "WITH a AS (SELECT 1) SELECT 1 WHERE EXISTS (SELECT 1 FROM a, b)", "b@2"},
        Case{"cte_ends_with_its_query", "SELECT * FROM (WITH a AS (SELECT 1) SELECT * FROM a) s, a",
             "a@0"},
        Case{"cte_over_union", "WITH a AS (SELECT 1) SELECT * FROM a UNION SELECT * FROM a, b",
             "b@3"},
        Case{"cte_of_one_union_arm", "(WITH a AS (SELECT 1) SELECT * FROM a) UNION SELECT * FROM a",
             "a@3"},
        Case{"cte_many",
             "WITH a AS (SELECT 1), b AS (SELECT 1), c AS (SELECT 1), d AS (SELECT 1), "
             "e AS (SELECT 1), f AS (SELECT 1), g AS (SELECT 1), h AS (SELECT * FROM i), "
             "i AS (SELECT * FROM a) SELECT * FROM i, h, j",
             "j@0, i@8"}),
    case_name<Case>);

INSTANTIATE_TEST_SUITE_P(
    Writes, Tables,
    ::testing::Values(
        Case{"insert", "INSERT INTO t AS x VALUES (1)", "t x@0 written"},
        Case{"insert_values_subselect", "INSERT INTO t VALUES ((SELECT 1 FROM u))",
             "t@0 written, u@1"},
        Case{"insert_select", "INSERT INTO t SELECT * FROM u", "t@0 written, u@1"},
        Case{"insert_with", "WITH c AS (SELECT * FROM u) INSERT INTO t SELECT * FROM c",
             "t@0 written, u@1"},
        Case{"insert_target_is_no_cte", "WITH t AS (SELECT 1) INSERT INTO t SELECT * FROM t",
             "t@0 written"},
        Case{"update_from", "UPDATE t SET a = 1 FROM u LEFT JOIN v ON true",
             "t@0 written, u@0, v@0 nullable"},
        Case{"delete_using", "DELETE FROM ONLY t AS x USING u", "t x@0 written, u@0"},
        Case{"delete_target_is_no_cte", "WITH t AS (SELECT 1) DELETE FROM t", "t@0 written"},
        Case{"merge", "MERGE INTO t USING (SELECT * FROM u) s ON true WHEN MATCHED THEN DELETE",
             "t@0 written, u@1"},
        Case{"merge_join_source",
             "MERGE INTO t USING (u LEFT JOIN v ON true) ON true WHEN MATCHED THEN DELETE",
             "t@0 written, u@0, v@0 nullable"},
        Case{"modifying_cte", "WITH d AS (DELETE FROM t RETURNING *) INSERT INTO u SELECT * FROM d",
             "u@0 written, t@1 written"},
        Case{"copy_from", "COPY s.t FROM STDIN", "s.t@0 written"},
        Case{"copy_to", "COPY s.t TO STDOUT", "s.t@0"},
        Case{"copy_query", "COPY (SELECT * FROM t) TO STDOUT", "t@0"},
        Case{"truncate", "TRUNCATE a, s.b", "a@0 written, s.b@0 written"},
        Case{"lock", "LOCK TABLE a, b", "a@0 written, b@0 written"},
        Case{"select_into", "SELECT * INTO n FROM t", "n@0 written, t@0"},
        Case{"create_table_as", "CREATE TABLE n AS SELECT * FROM t", "n@0 written, t@0"}),
    case_name<Case>);

INSTANTIATE_TEST_SUITE_P(
    Definitions, Tables,
    ::testing::Values(
        Case{"create_table", "CREATE TABLE t (a int REFERENCES u, LIKE v) INHERITS (w)",
             "t@0, u@0, v@0, w@0"},
        Case{"create_partition", "CREATE TABLE p PARTITION OF t FOR VALUES FROM (1) TO (2)",
             "p@0, t@0"},
        Case{"create_foreign_table", "CREATE FOREIGN TABLE t (a int) SERVER s", "t@0"},
        Case{"alter_table", "ALTER TABLE s.t ADD FOREIGN KEY (a) REFERENCES u", "s.t@0, u@0"},
        Case{"attach_partition", "ALTER TABLE t ATTACH PARTITION p DEFAULT", "t@0, p@0"},
        Case{"alter_index", "ALTER INDEX i RENAME TO j", ""},
        Case{"rename_column", "ALTER TABLE t RENAME COLUMN a TO b", "t@0"},
        Case{"set_schema", "ALTER TABLE t SET SCHEMA s", "t@0"},
        Case{"alter_type", "ALTER TYPE t ADD ATTRIBUTE a int", ""},
        Case{"drop_table", "DROP TABLE IF EXISTS a, s.b", "a@0, s.b@0"},
        Case{"drop_view", "DROP VIEW v", "v@0"}, Case{"drop_index", "DROP INDEX i", ""},
        Case{"drop_function", "DROP FUNCTION f(int)", ""},
        Case{"drop_trigger", "DROP TRIGGER g ON s.t", "s.t@0"},
        Case{"comment_on_table", "COMMENT ON TABLE s.t IS 'x'", "s.t@0"},
        Case{"comment_on_column", "COMMENT ON COLUMN s.t.c IS 'x'", "s.t@0"},
        Case{"comment_on_constraint", "COMMENT ON CONSTRAINT c ON t IS 'x'", "t@0"},
        Case{"comment_on_type", "COMMENT ON TYPE t IS 'x'", ""},
        Case{"grant", "GRANT SELECT ON a, s.b TO c", "a@0, s.b@0"},
        Case{"grant_on_function", "GRANT EXECUTE ON FUNCTION f(int) TO c", ""},
        Case{"create_index", "CREATE INDEX i ON t (a)", "t@0"},
        Case{"create_view", "CREATE VIEW v AS SELECT * FROM t", "v@0, t@1"},
        Case{"create_rule", "CREATE RULE r AS ON INSERT TO t DO ALSO INSERT INTO u VALUES (1)",
             "t@0, u@1 written"},
        Case{"create_trigger", "CREATE TRIGGER g AFTER INSERT ON t EXECUTE FUNCTION f()", "t@0"},
        Case{"create_policy", "CREATE POLICY p ON t USING (EXISTS (SELECT 1 FROM u))", "t@0, u@1"},
        Case{"create_function_body",
             "CREATE FUNCTION f() RETURNS int BEGIN ATOMIC SELECT a FROM t; END", "t@1"},
        Case{"create_schema_elements", "CREATE SCHEMA s CREATE TABLE t (a int)", "t@0"},
        Case{"create_publication", "CREATE PUBLICATION p FOR TABLE t WHERE (a > 1)", "t@0"},
        Case{"create_statistics", "CREATE STATISTICS x ON a, b FROM t", "t@0"},
        Case{"create_sequence", "CREATE SEQUENCE q OWNED BY t.a", "q@0"},
        Case{"vacuum", "VACUUM a, b (c)", "a@0, b@0"}, Case{"analyze", "ANALYZE a", "a@0"},
        Case{"cluster", "CLUSTER t USING i", "t@0"},
        Case{"reindex_table", "REINDEX TABLE t", "t@0"},
        Case{"reindex_index", "REINDEX INDEX i", ""},
        Case{"refresh", "REFRESH MATERIALIZED VIEW v", "v@0"}),
    case_name<Case>);

INSTANTIATE_TEST_SUITE_P(
    Everywhere, Functions,
    ::testing::Values(
        Case{"target", "SELECT s.f(1), g(h(2))", "s.f@0 g@0 h@0"},
        Case{"from", "SELECT * FROM f(g(1)) x", "f@0 g@0"},
        Case{"rows_from", "SELECT * FROM ROWS FROM (f(1), g(2)) x", "f@0 g@0"},
        Case{"where", "SELECT 1 FROM t WHERE f(a) = g(1)", "f@0 g@0"},
        Case{"in_list", "SELECT 1 FROM t WHERE a IN (1, f(2), 3)", "f@0"},
        Case{"order_and_limit", "SELECT 1 FROM t ORDER BY f(1) LIMIT g(1)", "f@0 g@0"},
        Case{"window", "SELECT f(1) OVER (PARTITION BY g(1) ORDER BY h(1)) FROM t", "f@0 g@0 h@0"},
        Case{"named_window", "SELECT f(1) OVER w FROM t WINDOW w AS (ORDER BY g(1))", "f@0 g@0"},
        Case{"aggregate_parts",
             "SELECT a(x ORDER BY f(1)) FILTER (WHERE g(1)), p(0.5) WITHIN GROUP (ORDER BY h(1))",
             "a@0 f@0 g@0 p@0 h@0"},
        Case{"grouping_sets", "SELECT 1 FROM t GROUP BY ROLLUP (f(a)), g(b)", "f@0 g@0"},
        Case{"subselect", "SELECT (SELECT f(1))", "f@1"},
        Case{"cte", "WITH c AS (SELECT f(1)) SELECT * FROM c", "f@1"},
        Case{"insert_values", "INSERT INTO t VALUES (f(1), -g(2)) RETURNING h(3)", "f@0 g@0 h@0"},
        Case{"on_conflict",
             "INSERT INTO t VALUES (1) ON CONFLICT (f(a)) WHERE g(a) DO UPDATE SET a = h(1) "
             "WHERE i(1)",
             "f@0 g@0 h@0 i@0"},
        Case{"multi_assignment_once", "UPDATE t SET (a, b) = (f(1), g(1))", "f@0 g@0"},
        Case{"merge",
             "MERGE INTO t USING u ON f(1) WHEN MATCHED AND g(1) THEN UPDATE SET a = h(1) "
             "WHEN NOT MATCHED THEN INSERT VALUES (i(1))",
             "f@0 g@0 h@0 i@0"},
        Case{"call", "CALL s.p(f(1))", "s.p@0 f@0"}, Case{"execute", "EXECUTE p (f(1))", "f@0"},
        Case{"prepare", "PREPARE p AS SELECT f(1)", "f@0"},
        Case{"explain", "EXPLAIN SELECT f(1)", "f@0"},
        Case{"declare", "DECLARE c CURSOR FOR SELECT f(1)", "f@0"},
        Case{"copy_where", "COPY t FROM STDIN WHERE f(a)", "f@0"},
        Case{"column_default", "CREATE TABLE t (a int DEFAULT f(1), CHECK (g(a)))", "f@0 g@0"},
        Case{"generated", "CREATE TABLE t (a int GENERATED ALWAYS AS (f(1)) STORED)", "f@0"},
        Case{"alter_default", "ALTER TABLE t ALTER a SET DEFAULT f(1)", "f@0"},
        Case{"alter_type_using", "ALTER TABLE t ALTER a TYPE int USING f(a)", "f@0"},
        Case{"index", "CREATE INDEX ON t (f(a)) WHERE g(a)", "f@0 g@0"},
        Case{"exclusion", "CREATE TABLE t (EXCLUDE USING gist (f(a) WITH =))", "f@0"},
        Case{"domain", "CREATE DOMAIN d AS int CHECK (f(VALUE))", "f@0"},
        Case{"policy", "CREATE POLICY p ON t USING (f(a)) WITH CHECK (g(a))", "f@0 g@0"},
        Case{
            "trigger_when",
            "CREATE TRIGGER g BEFORE UPDATE ON t FOR EACH ROW WHEN (f(NEW.a)) EXECUTE FUNCTION h()",
            "f@0"},
        Case{"parameter_default", "CREATE FUNCTION f(a int DEFAULT g(1)) RETURNS int RETURN h(1)",
             "g@0 h@0"},
        Case{"partition_bound", "CREATE TABLE p PARTITION OF t FOR VALUES IN (f(1))", "f@0"},
        Case{"grammar_calls", "SELECT EXTRACT(year FROM a), a AT TIME ZONE 'x', TRIM(a)",
             "pg_catalog.extract@0 pg_catalog.timezone@0 pg_catalog.btrim@0"},
        Case{"no_function_syntax", "SELECT coalesce(a), greatest(a), nullif(a, b), current_date",
             ""},
        Case{"below_odd_syntax",
             "SELECT coalesce(f(1)), greatest(g(1)), nullif(h(1), 1), ARRAY[i(1)], (j(1)).x, "
             "a[k(1)], CASE l(1) WHEN m(1) THEN n(1) ELSE o(1) END, xmlforest(p(1) AS q), "
             "r(1) IS NULL, s(1) IS TRUE, t(1)::int, u(1) COLLATE \"C\", ROW(v(1)), w(1) = "
             "ANY(x(1))",
             "f@0 g@0 h@0 i@0 j@0 k@0 l@0 m@0 n@0 o@0 p@0 r@0 s@0 t@0 u@0 v@0 w@0 x@0"},
        Case{"xmltable",
             "SELECT * FROM XMLTABLE('/a' PASSING f(1) COLUMNS a int PATH g(1) DEFAULT h(1))",
             "f@0 g@0 h@0"},
        Case{"table_sample", "SELECT * FROM t TABLESAMPLE system (f(1)) REPEATABLE (g(1))",
             "f@0 g@0"}),
    case_name<Case>);

INSTANTIATE_TEST_SUITE_P(
    Selects, Shape,
    ::testing::Values(
        Case{"plain", "SELECT a FROM t WHERE b = 1", ""},
        Case{"order_by", "SELECT a FROM t ORDER BY a", "order_by"},
        Case{"limit", "SELECT a FROM t LIMIT 1", "limit"},
        Case{"offset", "SELECT a FROM t OFFSET 1", "limit"},
        Case{"fetch_first", "SELECT a FROM t FETCH FIRST ROW ONLY", "limit"},
        Case{"limit_all", "SELECT a FROM t LIMIT ALL", ""},
        Case{"group_by", "SELECT a FROM t GROUP BY a", "group_by"},
        Case{"having", "SELECT 1 FROM t HAVING true", "having"},
        Case{"distinct", "SELECT DISTINCT a FROM t", "distinct"},
        Case{"distinct_on", "SELECT DISTINCT ON (a) a FROM t", "distinct"},
        Case{"aggregate", "SELECT max(a) FROM t", "aggregate"},
        Case{"aggregate_nested", "SELECT 1 + f(pg_catalog.sum(a)) FROM t", "aggregate"},
        Case{"aggregate_in_order_by", "SELECT 1 FROM t ORDER BY count(a)", "order_by aggregate"},
        Case{"aggregate_of_other_schema", "SELECT s.max(a) FROM t", ""},
        Case{"aggregate_by_syntax", "SELECT f(DISTINCT a) FROM t", "aggregate"},
        Case{"aggregate_by_filter", "SELECT f(a) FILTER (WHERE true) FROM t", "aggregate"},
        Case{"aggregate_in_where_of_subselect", "SELECT a FROM t WHERE b = (SELECT max(c) FROM u)",
             "sublink"},
        Case{"aggregate_in_target_subselect", "SELECT (SELECT max(t.c)) FROM t",
             "aggregate sublink"},
        Case{"window", "SELECT sum(a) OVER () FROM t", "window"},
        Case{"union", "SELECT 1 UNION SELECT 2 ORDER BY 1", "order_by set_operation"},
        Case{"locking", "SELECT a FROM t FOR SHARE", "locking"},
        Case{"locking_below", "SELECT a FROM (SELECT a FROM t FOR UPDATE) s", "locking subquery"},
        Case{"sublink", "SELECT a FROM t WHERE EXISTS (SELECT 1)", "sublink"},
        Case{"cte", "WITH c AS (SELECT 1) SELECT * FROM c", "cte"},
        Case{"subquery", "SELECT * FROM (SELECT 1) s", "subquery"},
        Case{"count_star", "SELECT count(*) FROM t", "aggregate count_star:count"},
        Case{"count_star_label", "SELECT pg_catalog.count(*) AS \"N\" FROM t",
             "aggregate count_star:N"},
        Case{"count_star_of_other_schema", "SELECT s.count(*) FROM t", "aggregate"},
        Case{"count_column", "SELECT count(a) FROM t", "aggregate"},
        Case{"count_star_filter", "SELECT count(*) FILTER (WHERE a) FROM t", "aggregate"},
        Case{"count_star_over", "SELECT count(*) OVER () FROM t", "window"},
        Case{"count_star_and_more", "SELECT count(*), a FROM t", "aggregate"},
        Case{"count_star_plus", "SELECT count(*) + 1 FROM t", "aggregate"},
        Case{"explained", "EXPLAIN SELECT count(*) FROM t ORDER BY 1",
             "order_by aggregate count_star:count"},
        Case{"copied", "COPY (SELECT a FROM t ORDER BY a) TO STDOUT", "order_by"},
        Case{"cursor", "DECLARE c CURSOR FOR SELECT a FROM t LIMIT 1", "limit"}),
    case_name<Case>);

INSTANTIATE_TEST_SUITE_P(
    Lone, Call,
    ::testing::Values(
        Case{"select", "SELECT f('a', 2, $3)", "f('a' 2 $3)"},
        Case{"select_label", "SELECT f() AS x", "f() as:x"},
        Case{"schema", "SELECT s.f()", "s.f()"},
        Case{"from_all", "SELECT * FROM f('a')", "from f('a')"},
        Case{"from_alias_all", "SELECT x.* FROM f('a') AS x", "from f('a')"},
        Case{"from_columns", "SELECT a, f.b AS c FROM f(1)", "from f(1) a b as:a as:c"},
        Case{"from_alias_column", "SELECT x.a FROM f(1) x", "from f(1) a as:a"},
        Case{"named", "SELECT f('k', shard => 'w', dry := true)", "f('k' shard=>'w' dry=>t)"},
        Case{"interval", "SELECT f(retire_after => interval '7 days')",
             "f(retire_after=>'7 days'::pg_catalog.interval)"},
        Case{"array", "SELECT f(ARRAY['a', 'b\"c', NULL, '4'])",
             "f('{\"a\",\"b\\\"c\",NULL,\"4\"}')"},
        Case{"array_cast", "SELECT f(ARRAY['a']::text[])", "f('{\"a\"}'::text[])"},
        Case{"array_of_parameters", "SELECT f(ARRAY[$1])", "f(?)"},
        Case{"opaque_argument", "SELECT f(g(1))", "f(?)"},
        Case{"where", "SELECT * FROM f(1) WHERE true", ""},
        Case{"order_by", "SELECT * FROM f(1) ORDER BY 1", ""},
        Case{"limit", "SELECT f(1) LIMIT 1", ""},
        Case{"with", "WITH c AS (SELECT 1) SELECT f(1)", ""},
        Case{"into", "SELECT f(1) INTO t", ""}, Case{"join", "SELECT * FROM f(1), t", ""},
        Case{"two_targets", "SELECT f(1), 2", ""},
        Case{"star_and_column", "SELECT *, a FROM f(1)", ""},
        Case{"expression_over_call", "SELECT f(1) + 1", ""},
        Case{"expression_target", "SELECT a + 1 FROM f(1)", ""},
        Case{"other_qualifier", "SELECT g.a FROM f(1)", ""},
        Case{"column_aliases", "SELECT a FROM f(1) AS x (a)", ""},
        Case{"ordinality", "SELECT * FROM f(1) WITH ORDINALITY", ""},
        Case{"column_definitions", "SELECT * FROM f(1) AS (a int)", ""},
        Case{"rows_from", "SELECT * FROM ROWS FROM (f(1))", ""},
        Case{"star_call", "SELECT f(*)", ""}, Case{"variadic", "SELECT f(VARIADIC '{1}')", ""},
        Case{"distinct", "SELECT f(DISTINCT 1)", ""},
        Case{"union", "SELECT f(1) UNION SELECT f(2)", ""},
        Case{"positional_after_named", "SELECT f(a => 1, 2)", ""},
        Case{"not_a_call", "SELECT 1", ""}),
    case_name<Case>);

TEST(Parameters, HighestIsCounted) {
  EXPECT_EQ(one("SELECT 1").max_param, 0);
  EXPECT_EQ(one("SELECT $2 FROM t WHERE a = $1").max_param, 2);
  EXPECT_EQ(one("SELECT * FROM t WHERE a = $1 LIMIT $5 OFFSET $3").max_param, 5);
  EXPECT_EQ(one("INSERT INTO t VALUES ($1, $2), ($3, f($4)) ON CONFLICT DO NOTHING").max_param, 4);
  EXPECT_EQ(one("UPDATE t SET (a, b) = ($1, $7) WHERE c = $2").max_param, 7);
  EXPECT_EQ(one("SELECT a FROM t JOIN u ON t.a = $4, LATERAL (SELECT $6) s").max_param, 6);
  EXPECT_EQ(one("WITH c AS (SELECT $9) SELECT * FROM c").max_param, 9);
  EXPECT_EQ(one("SELECT $65535").max_param, 65535);
}

TEST(Parameters, RepeatedAreListed) {
  EXPECT_EQ(joined(one("SELECT $1, $2 FROM t WHERE a = $3").repeated_params), "");
  EXPECT_EQ(joined(one("SELECT $2 FROM t WHERE a = $1 AND b = $2 AND c = $2").repeated_params),
            "2");
  EXPECT_EQ(joined(one("UPDATE t SET (a, b) = ($1, $2) WHERE c = $1").repeated_params), "1");
}

TEST(Parameters, BeyondTheProtocolAreRefusedByTheirText) {
  for (const std::string_view number : {"0", "65536", "4294967297", "99999999999999999999"}) {
    const auto statements = analyze("SELECT 'é', $" + std::string(number));
    ASSERT_TRUE(statements.has_error()) << number;
    EXPECT_EQ(statements.error().sqlstate, "42P02");
    EXPECT_EQ(statements.error().message, "there is no parameter $" + std::string(number));
    EXPECT_EQ(statements.error().position, 13);
  }
}

TEST(CurrentValue, IsNoticed) {
  EXPECT_TRUE(one("SELECT current_timestamp").uses_current_value);
  EXPECT_TRUE(one("INSERT INTO t VALUES (current_user)").uses_current_value);
  EXPECT_TRUE(one("SELECT 1 FROM t WHERE a < (SELECT localtime)").uses_current_value);
  EXPECT_FALSE(one("SELECT now()").uses_current_value);
}

std::string hidden(std::string_view sql) {
  const Statement statement = one(sql);
  std::string text = joined(statement.operators) + " | " + joined(statement.types) + " |";
  for (const Attribute& attribute : statement.attributes) {
    text += " " + attribute.qualifier + "." + attribute.name;
  }
  return text + " | " + joined(statement.row_aliases);
}

TEST(HiddenCalls, OperatorsOfEveryForm) {
  EXPECT_EQ(hidden("SELECT 1 @@@ 2, - a, a OPERATOR(s.+) b"), "@@@ - + |  | | ");
  EXPECT_EQ(hidden("SELECT 1 FROM t WHERE a IN (1, 2) AND b LIKE 'x' AND c IN (1)"),
            "= ~~ |  | | ");
  EXPECT_EQ(hidden("SELECT 1 FROM t WHERE a BETWEEN 1 AND 2"), ">= <= < > |  | | ");
  EXPECT_EQ(hidden("SELECT 1 FROM t WHERE a <-> ALL (SELECT 1) AND b IN (SELECT 2)"),
            "<-> = |  | | ");
  EXPECT_EQ(hidden("SELECT CASE a WHEN 1 THEN 2 END FROM t ORDER BY a USING @<"), "= @< |  | | ");
  EXPECT_EQ(hidden("SELECT 1 FROM t JOIN u USING (a)"), "= |  | | ");
  EXPECT_EQ(hidden("SELECT NULLIF(a, 1), a IS DISTINCT FROM 1 FROM t"), "= |  | | ");
  EXPECT_EQ(hidden("UPDATE t SET a = 1 !!! 2 WHERE b = 1"), "!!! = |  | | ");
  EXPECT_EQ(hidden("INSERT INTO t VALUES (1 !!! 2) ON CONFLICT (a) DO UPDATE SET b = 1 @@@ 2"),
            "!!! @@@ |  | | ");
}

TEST(HiddenCalls, TypesOfEveryForm) {
  EXPECT_EQ(hidden("SELECT 1::posint, CAST(2 AS s.even), posint '3', '{4}'::arr[], 5::int"),
            " | posint even arr int4 | | ");
  EXPECT_EQ(hidden("SELECT * FROM f() AS g(a posint)"), " | posint | | g");
  EXPECT_EQ(hidden("SELECT * FROM xmltable('/a' PASSING x COLUMNS b posint PATH 'b') y"),
            " | posint | | y");
}

TEST(HiddenCalls, AttributesAndWhatTheyMayMean) {
  EXPECT_EQ(hidden("SELECT u.fullname, v FROM s.users u WHERE u.id = 1"),
            "= |  | u.id u.fullname | ");
  EXPECT_EQ(hidden("SELECT (u).fullname, (f()).a.b, s.t.c FROM t u"),
            " |  | .fullname .a .b t.c | ");
  EXPECT_EQ(hidden("SELECT u.*, u.a[1] FROM u"), " |  | u.a | ");
  EXPECT_EQ(hidden("SELECT x.a FROM (SELECT 1) x, f() g, t AS r (a), (a JOIN b ON true) AS j"),
            " |  | x.a | x g r j");
  EXPECT_EQ(hidden("WITH c AS (SELECT 1) SELECT * FROM c, c d"), " |  | | c d");
  EXPECT_EQ(hidden("INSERT INTO t VALUES (1) ON CONFLICT (a) DO UPDATE SET b = excluded.slug"),
            " |  | excluded.slug | ");
}

TEST(Definition, StoredSettingsAreNamed) {
  EXPECT_EQ(one("ALTER ROLE bob SET Search_Path = s").name, "search_path");
  EXPECT_EQ(one("ALTER ROLE bob IN DATABASE d SET search_path TO DEFAULT").name, "");
  EXPECT_EQ(one("ALTER DATABASE d SET role FROM CURRENT").name, "role");
  EXPECT_EQ(one("ALTER SYSTEM SET search_path = s").name, "search_path");
  EXPECT_EQ(one("ALTER ROLE bob RESET search_path").name, "");
}

TEST(Definition, ChangesOfInheritanceAreNoticed) {
  for (const auto* sql :
       {"ALTER TABLE t DETACH PARTITION p", "ALTER TABLE t INHERIT p",
        "ALTER TABLE t DETACH PARTITION p CONCURRENTLY",
        "ALTER TABLE t DETACH PARTITION p FINALIZE", "ALTER TABLE t ADD a int, NO INHERIT p"}) {
    EXPECT_TRUE(one(sql).changes_inheritance) << sql;
  }
  EXPECT_FALSE(one("ALTER TABLE t ATTACH PARTITION p DEFAULT").changes_inheritance);
  EXPECT_EQ(tables(one("ALTER TABLE t DETACH PARTITION p")), "t@0, p@0");
  EXPECT_EQ(tables(one("ALTER TABLE t NO INHERIT s.p")), "t@0, s.p@0");
}

TEST(Definition, AMaterializedViewHasAQuery) {
  const Statement view = one("CREATE MATERIALIZED VIEW m AS SELECT * FROM t");
  EXPECT_EQ(view.kind, StatementKind::kDdl);
  EXPECT_EQ(view.explained, StatementKind::kSelect);
  EXPECT_EQ(tables(view), "m@0 written, t@0");
}

TEST(Levels, AreCounted) {
  EXPECT_EQ(one("SELECT 1").levels, 1);
  EXPECT_EQ(one("SELECT (SELECT 1), (SELECT (SELECT 2))").levels, 4);
  EXPECT_EQ(one("SELECT 1 UNION SELECT 2 UNION SELECT 3").levels, 4);
  EXPECT_EQ(one("INSERT INTO t VALUES (1)").levels, 1);
}

TEST(ModifyingCte, IsNoticed) {
  EXPECT_TRUE(one("WITH d AS (DELETE FROM t) SELECT 1").has_modifying_cte);
  EXPECT_TRUE(one("WITH d AS (UPDATE t SET a = 1) SELECT 1").has_modifying_cte);
  EXPECT_TRUE(one("WITH d AS (INSERT INTO t VALUES (1)) DELETE FROM u").has_modifying_cte);
  EXPECT_FALSE(one("WITH d AS (SELECT 1) DELETE FROM u").has_modifying_cte);
}

}  // namespace
}  // namespace collegedb::parser
