// Which conditions are recorded, about which column, and whose rows they restrict.
#include "describe.h"

namespace collegedb::parser {
namespace {

struct Case {
  std::string_view name;
  std::string_view sql;
  std::string_view conditions;
};

class Conditions : public ::testing::TestWithParam<Case> {};

TEST_P(Conditions, AreExactly) {
  EXPECT_EQ(conditions(one(GetParam().sql)), GetParam().conditions) << GetParam().sql;
}

INSTANTIATE_TEST_SUITE_P(
    Forms, Conditions,
    ::testing::Values(
        Case{"column_is_literal", "SELECT * FROM t WHERE id = 'a'", "id@0 = 'a' {0}"},
        Case{"literal_is_column", "SELECT * FROM t WHERE 7 = id", "id@0 = 7 {0}"},
        Case{"parameter", "SELECT * FROM t WHERE id = $1", "id@0 = $1 {0}"},
        Case{"cast_literal", "SELECT * FROM t WHERE id = '7'::int8", "id@0 = '7'::int8 {0}"},
        Case{"cast_keyword_type", "SELECT * FROM t WHERE id = CAST($1 AS bigint)",
             "id@0 = $1::pg_catalog.int8 {0}"},
        Case{"cast_twice", "SELECT * FROM t WHERE id = '7'::text::int8", ""},
        Case{"cast_with_typmod", "SELECT * FROM t WHERE id = 'abc'::varchar(2)", ""},
        Case{"cast_to_char", "SELECT * FROM t WHERE id = 'abc'::char", ""},
        Case{"cast_of_column", "SELECT * FROM t WHERE id::text = '7'", ""},
        Case{"null", "SELECT * FROM t WHERE id = NULL", "id@0 = null {0}"},
        Case{"negative", "SELECT * FROM t WHERE id = -7", "id@0 = -7 {0}"},
        Case{"negative_cast", "SELECT * FROM t WHERE id = -7::int8", "id@0 = -7::int8 {0}"},
        Case{"negative_text_cast", "SELECT * FROM t WHERE id = -'7'::int8", ""},
        Case{"big_integer", "SELECT * FROM t WHERE id = 9223372036854775807",
             "id@0 = 9223372036854775807 {0}"},
        Case{"beyond_int8", "SELECT * FROM t WHERE id = 9223372036854775808",
             "id@0 = n9223372036854775808 {0}"},
        Case{"numeric", "SELECT * FROM t WHERE id = 4.20", "id@0 = n4.20 {0}"},
        Case{"boolean", "SELECT * FROM t WHERE id = true", "id@0 = t {0}"},
        Case{"bit_string", "SELECT * FROM t WHERE id = X'1F'", "id@0 = x1F {0}"},
        Case{"expression", "SELECT * FROM t WHERE id = 1 + 1", ""},
        Case{"function", "SELECT * FROM t WHERE id = lower('A')", ""},
        Case{"scalar_subselect", "SELECT * FROM t WHERE id = (SELECT 1)", ""},
        Case{"arithmetic_on_column", "SELECT * FROM t WHERE id + 0 = 1", ""},
        Case{"collated_value", "SELECT * FROM t WHERE id = 'a' COLLATE \"C\"", ""},
        Case{"collated_column", "SELECT * FROM t WHERE id COLLATE \"C\" = 'a'", ""},
        Case{"qualified_operator", "SELECT * FROM t WHERE id OPERATOR(pg_catalog.=) 1",
             "id@0 = 1 {0}"},
        Case{"foreign_operator", "SELECT * FROM t WHERE id OPERATOR(other.=) 1", ""},
        Case{"foreign_any_operator", "SELECT * FROM t WHERE id OPERATOR(other.=) ANY ($1)", ""},
        Case{"other_operator", "SELECT * FROM t WHERE id >= 1 AND id <= 1", ""},
        Case{"like", "SELECT * FROM t WHERE id LIKE 'a'", ""},
        Case{"between", "SELECT * FROM t WHERE id BETWEEN 1 AND 1", ""},
        Case{"in_list", "SELECT * FROM t WHERE id IN (1, $2, '3')", "id@0 in 1 $2 '3' {0}"},
        Case{"in_one", "SELECT * FROM t WHERE id IN ('x')", "id@0 in 'x' {0}"},
        Case{"not_in", "SELECT * FROM t WHERE id NOT IN (1)", ""},
        Case{"in_with_unknown_item", "SELECT * FROM t WHERE id IN (1, f(2), 3)", ""},
        Case{"in_subselect", "SELECT * FROM t WHERE id IN (SELECT 1)", ""},
        Case{"any_elements", "SELECT * FROM t WHERE id = ANY (ARRAY[1, $1])", "id@0 in 1 $1 {0}"},
        Case{"any_cast_elements", "SELECT * FROM t WHERE id = ANY (ARRAY['1','2']::int8[])",
             "id@0 in '1'::int8 '2'::int8 {0}"},
        Case{"any_doubly_cast_elements",
             "SELECT * FROM t WHERE id = ANY (ARRAY['1'::text]::int8[])", ""},
        Case{"any_unknown_element", "SELECT * FROM t WHERE id = ANY (ARRAY[1, f()])", ""},
        Case{"any_nested_array", "SELECT * FROM t WHERE id = ANY (ARRAY[ARRAY[1]])", ""},
        Case{"any_empty_array", "SELECT * FROM t WHERE id = ANY (ARRAY[]::int[])", ""},
        Case{"any_parameter", "SELECT * FROM t WHERE id = ANY ($1)", "id@0 any $1 {0}"},
        Case{"any_cast_parameter", "SELECT * FROM t WHERE id = ANY ($1::uuid[])",
             "id@0 any $1::uuid[] {0}"},
        Case{"any_literal", "SELECT * FROM t WHERE id = ANY ('{1,2}')", "id@0 any '{1,2}' {0}"},
        Case{"some", "SELECT * FROM t WHERE id = SOME ($1)", "id@0 any $1 {0}"},
        Case{"all", "SELECT * FROM t WHERE id = ALL ($1)", ""},
        Case{"any_of_column", "SELECT * FROM t WHERE 1 = ANY (ids)", ""},
        Case{"any_subselect", "SELECT * FROM t WHERE id = ANY (SELECT 1)", ""},
        Case{"any_of_function", "SELECT * FROM t WHERE id = ANY (string_to_array($1, ','))", ""},
        Case{"row", "SELECT * FROM t WHERE (a, id) = (1, $2)", "a@0 = 1 {0}, id@0 = $2 {0}"},
        Case{"row_with_unknown", "SELECT * FROM t WHERE (a, id) = (f(), 2)", "id@0 = 2 {0}"},
        Case{"row_keyword", "SELECT * FROM t WHERE ROW(a, 5) = ROW(1, id)",
             "a@0 = 1 {0}, id@0 = 5 {0}"},
        Case{"row_unequal_length", "SELECT * FROM t WHERE (a, id) = (1, 2, 3)", ""},
        Case{"row_star_shifts", "SELECT * FROM t, u WHERE (t.*, a, b) = (1, 2, u.*)", ""},
        Case{"row_field_star_shifts", "SELECT * FROM t WHERE (a, b, id) = ((f()).*, 2, 3)", ""},
        Case{"row_in", "SELECT * FROM t WHERE (a, id) IN ((1, 2), (f(), 4))", "id@0 in 2 4 {0}"},
        Case{"row_in_star", "SELECT * FROM t WHERE (t.*, id) IN ((1, 2))", ""},
        Case{"row_less", "SELECT * FROM t WHERE (a, id) < (1, 2)", ""},
        Case{"not_distinct", "SELECT * FROM t WHERE id IS NOT DISTINCT FROM 1", "id@0 = 1 {0}"},
        Case{"not_distinct_parameter", "SELECT * FROM t WHERE id IS NOT DISTINCT FROM $1",
             "id@0 = $1 {0}"},
        Case{"not_distinct_null", "SELECT * FROM t WHERE id IS NOT DISTINCT FROM NULL", ""},
        Case{"not_distinct_parameter_nullable",
             "SELECT * FROM a LEFT JOIN b ON true WHERE b.id IS NOT DISTINCT FROM $1", ""},
        Case{"not_distinct_literal_nullable",
             "SELECT * FROM a LEFT JOIN b ON true WHERE b.id IS NOT DISTINCT FROM 1",
             "t1.id = 1 {0 1}"},
        Case{"not_distinct_columns", "SELECT * FROM a, b WHERE a.id IS NOT DISTINCT FROM b.id", ""},
        Case{"distinct", "SELECT * FROM t WHERE id IS DISTINCT FROM 1", ""},
        Case{"same_table_columns", "SELECT * FROM t WHERE t.a = t.b", "t0.a == t0.b {0}"}),
    case_name<Case>);

INSTANTIATE_TEST_SUITE_P(
    Places, Conditions,
    ::testing::Values(
        Case{"and", "SELECT * FROM t WHERE a = 1 AND (b = 2 AND c = 3) AND d > 4",
             "a@0 = 1 {0}, b@0 = 2 {0}, c@0 = 3 {0}"},
        Case{"or", "SELECT * FROM t WHERE id = 1 OR id = 1", ""},
        Case{"and_of_or", "SELECT * FROM t WHERE (id = 1 OR a = 2) AND b = 3", "b@0 = 3 {0}"},
        Case{"not", "SELECT * FROM t WHERE NOT id = 1", ""},
        Case{"not_and", "SELECT * FROM t WHERE NOT (id = 1 AND id = 2)", ""},
        Case{"is_true", "SELECT * FROM t WHERE (id = 1) IS TRUE", ""},
        Case{"k05_is_not_true", "SELECT * FROM t WHERE (id = 1) IS NOT TRUE", ""},
        Case{"k05_is_false", "SELECT * FROM t WHERE (id = 1) IS FALSE", ""},
        Case{"equals_boolean", "SELECT * FROM t WHERE (id = 1) = false", ""},
        Case{"k01_target_list", "SELECT id, (user_id = $1) AS mine FROM t WHERE user_id = $2",
             "user_id@0 = $2 {0}"},
        Case{"k03_filter", "SELECT count(*) FILTER (WHERE user_id = 1), count(*) FROM t", ""},
        Case{"k03_case", "SELECT * FROM t WHERE CASE WHEN user_id = 1 THEN true END", ""},
        Case{"k03_order_by", "SELECT * FROM t ORDER BY user_id = 5 DESC", ""},
        Case{"k03_having", "SELECT a FROM t GROUP BY a HAVING min(user_id) = 1 AND a = 1", ""},
        Case{"k03_outer_join_on", "SELECT * FROM a LEFT JOIN b ON b.user_id = 1",
             "t1.user_id = 1 {1}"},
        Case{"coalesce", "SELECT * FROM t WHERE coalesce(id = 1, true)", ""},
        Case{"window", "SELECT sum(a) OVER (PARTITION BY id = 1) FROM t", ""},
        Case{"limit", "SELECT * FROM t LIMIT (SELECT 1 WHERE 1 = 1)", ""},
        Case{"no_table", "SELECT 1 WHERE a = 1", ""}),
    case_name<Case>);

INSTANTIATE_TEST_SUITE_P(
    Joins, Conditions,
    ::testing::Values(
        Case{"comma", "SELECT * FROM a, b WHERE a.id = b.id AND a.id = 1",
             "t0.id == t1.id {0 1}, t0.id = 1 {0 1}"},
        Case{"inner", "SELECT * FROM a JOIN b ON a.id = b.id AND b.id = 1, c",
             "t0.id == t1.id {0 1 2}, t1.id = 1 {0 1 2}"},
        Case{"inner_unqualified", "SELECT * FROM a JOIN b ON user_id = 1", "user_id@0 = 1 {0 1}"},
        Case{"inner_unqualified_beside_another", "SELECT * FROM a JOIN b ON user_id = 1, c", ""},
        Case{"left", "SELECT * FROM a LEFT JOIN b ON a.id = b.id AND a.id = 1",
             "t0.id == t1.id {1}, t0.id = 1 {1}"},
        Case{"right", "SELECT * FROM a RIGHT JOIN b ON a.id = b.id", "t0.id == t1.id {0}"},
        Case{"full", "SELECT * FROM a FULL JOIN b ON a.id = b.id AND a.id = 1", ""},
        Case{"cross", "SELECT * FROM a CROSS JOIN b WHERE b.id = 1", "t1.id = 1 {0 1}"},
        Case{"inner_below_left",
             "SELECT * FROM a LEFT JOIN (b JOIN c ON b.id = c.id) ON a.id = b.id",
             "t1.id == t2.id {1 2}, t0.id == t1.id {1 2}"},
        Case{"left_below_left", "SELECT * FROM a LEFT JOIN (b LEFT JOIN c ON c.id = 1) ON b.id = 2",
             "t2.id = 1 {2}, t1.id = 2 {1 2}"},
        Case{"inner_below_full", "SELECT * FROM (a JOIN b ON a.id = 1) FULL JOIN c ON true",
             "t0.id = 1 {0 1}"},
        Case{"inner_above_left", "SELECT * FROM a LEFT JOIN b ON a.x = b.x JOIN c ON c.id = a.id",
             "t0.x == t1.x {1}, t2.id == t0.id {0 1 2}"},
        Case{"using_two", "SELECT * FROM a JOIN b USING (id, k)",
             "t0.id == t1.id {0 1}, t0.k == t1.k {0 1}"},
        Case{"using_left", "SELECT * FROM a LEFT JOIN b USING (id)", "t0.id == t1.id {1}"},
        Case{"using_full", "SELECT * FROM a FULL JOIN b USING (id) JOIN c USING (id)", ""},
        Case{"using_chain", "SELECT * FROM a JOIN b USING (id) JOIN c USING (id)",
             "t0.id == t1.id {0 1 2}, t0.id == t2.id {0 1 2}"},
        Case{"using_after_right", "SELECT * FROM a RIGHT JOIN b USING (id) JOIN c USING (id)",
             "t0.id == t1.id {0}, t1.id == t2.id {0 1 2}"},
        Case{"using_unknown_side", "SELECT * FROM a JOIN b ON a.x = b.x JOIN c USING (id)",
             "t0.x == t1.x {0 1 2}"},
        Case{"using_subselect", "SELECT * FROM a JOIN (SELECT 1 AS id) s USING (id)", ""},
        Case{"natural", "SELECT * FROM a NATURAL JOIN b WHERE a.id = 1", "t0.id = 1 {0 1}"},
        Case{"on_sees_only_its_join", "SELECT * FROM c, a JOIN b ON c.id = 1", ""},
        Case{"update_from_join",
             "UPDATE t SET x = 1 FROM a JOIN b ON a.id = b.id WHERE t.id = a.id",
             "t1.id == t2.id {0 1 2}, t0.id == t1.id {0 1 2}"}),
    case_name<Case>);

INSTANTIATE_TEST_SUITE_P(
    Names, Conditions,
    ::testing::Values(
        Case{"table_name", "SELECT * FROM t WHERE t.id = 1", "t0.id = 1 {0}"},
        Case{"alias", "SELECT * FROM t AS x WHERE x.id = 1", "t0.id = 1 {0}"},
        Case{"alias_hides_table_name", "SELECT * FROM t AS x WHERE t.id = 1", ""},
        Case{"schema", "SELECT * FROM s.t WHERE s.t.id = 1", "t0.id = 1 {0}"},
        Case{"schema_left_out", "SELECT * FROM s.t WHERE t.id = 1", "t0.id = 1 {0}"},
        Case{"schema_only_in_reference", "SELECT * FROM t WHERE s.t.id = 1", ""},
        Case{"schema_of_aliased", "SELECT * FROM s.t AS t WHERE s.t.id = 1", ""},
        Case{"other_schema", "SELECT * FROM s.t WHERE r.t.id = 1", ""},
        Case{"database", "SELECT * FROM s.t WHERE d.s.t.id = 1", "t0.id = 1 {0}"},
        Case{"same_name_twice", "SELECT * FROM s.t, r.t WHERE t.id = 1 AND r.t.id = 2",
             "t1.id = 2 {0 1}"},
        Case{"quoted_case", "SELECT * FROM \"User\" WHERE \"User\".\"Id\" = 1", "t0.Id = 1 {0}"},
        Case{"unknown_qualifier", "SELECT * FROM t WHERE u.id = 1", ""},
        Case{"column_aliases", "SELECT * FROM t AS x (id) WHERE x.id = 1 AND id = 2", ""},
        Case{"column_aliases_of_function",
             "SELECT * FROM t, unnest(ARRAY[1, 2]) AS u (x) WHERE id = 1 AND u.x = 2",
             "id@0 = 1 {0}"},
        Case{"column_aliases_elsewhere", "SELECT * FROM t AS x (a), u WHERE u.id = 1 AND id = 2",
             "t1.id = 1 {0 1}"},
        Case{"join_alias_hides",
             "SELECT * FROM (a JOIN b ON a.id = b.id) AS j WHERE a.id = 1 AND j.id = 2",
             "t0.id == t1.id {0 1}"},
        Case{"join_alias_renames",
             "SELECT * FROM (a JOIN b ON a.id = b.id) AS j (x, y) WHERE x = 1",
             "t0.id == t1.id {0 1}"},
        Case{"subselect_alias", "SELECT * FROM (SELECT 1 AS id) t WHERE t.id = 1", ""},
        Case{"whole_row", "SELECT * FROM t WHERE t.* = $1", ""},
        Case{"field_of_column", "SELECT * FROM t WHERE (t.a).id = 1", ""},
        Case{"outer_qualifier_in_subselect",
             "SELECT * FROM t WHERE EXISTS (SELECT 1 FROM u WHERE t.id = 1 AND u.id = t.id)", ""},
        Case{"inner_alias_wins",
             "SELECT * FROM t x WHERE EXISTS (SELECT 1 FROM u x WHERE x.id = 1)", "t1.id = 1 {1}"},
        Case{"lateral", "SELECT * FROM t, LATERAL (SELECT * FROM u WHERE u.id = t.id) s", ""}),
    case_name<Case>);

INSTANTIATE_TEST_SUITE_P(
    Levels, Conditions,
    ::testing::Values(
        Case{"subselect_in_from", "SELECT * FROM (SELECT * FROM t WHERE id = 1) s WHERE s.id = 2",
             "id@1 = 1 {0}"},
        Case{"cte", "WITH c AS (SELECT * FROM t WHERE id = 1) SELECT * FROM c WHERE c.id = 2",
             "id@1 = 1 {0}"},
        Case{"union", "SELECT * FROM t WHERE id = 1 UNION SELECT * FROM t WHERE id = 2",
             "id@1 = 1 {0}, id@2 = 2 {1}"},
        Case{"exists", "SELECT * FROM t WHERE id = 1 AND EXISTS (SELECT 1 FROM u WHERE u.id = 2)",
             "id@0 = 1 {0}, t1.id = 2 {1}"},
        Case{"insert_select", "INSERT INTO t SELECT * FROM u WHERE id = 1", "id@1 = 1 {1}"},
        Case{"modifying_cte", "WITH d AS (DELETE FROM t WHERE id = 1 RETURNING *) SELECT * FROM d",
             "id@1 = 1 {0}"}),
    case_name<Case>);

INSTANTIATE_TEST_SUITE_P(
    Writes, Conditions,
    ::testing::Values(
        Case{"update", "UPDATE t SET a = 1 WHERE id = 2", "id@0 = 2 {0}"},
        Case{"update_alias", "UPDATE t AS x SET a = 1 WHERE x.id = 2 AND t.id = 3",
             "t0.id = 2 {0}"},
        Case{"update_current_of", "UPDATE t SET a = 1 WHERE CURRENT OF c", ""},
        Case{"delete_using", "DELETE FROM t USING u WHERE t.id = u.id AND u.id = $1",
             "t0.id == t1.id {0 1}, t1.id = $1 {0 1}"},
        Case{"on_conflict_where",
             "INSERT INTO t VALUES (1) ON CONFLICT (id) DO UPDATE SET a = 1 WHERE t.id = 2", ""},
        Case{"merge_inserting",
             "MERGE INTO t USING u ON t.id = u.id AND t.id = 1 "
             "WHEN NOT MATCHED THEN INSERT VALUES (1)",
             "t0.id == t1.id {0}, t0.id = 1 {0}"},
        Case{"merge_updating", "MERGE INTO t USING u ON t.id = u.id WHEN MATCHED THEN DELETE",
             "t0.id == t1.id {0 1}"},
        Case{"copy_where", "COPY t FROM STDIN WHERE id = 1", ""}),
    case_name<Case>);

// `restricts` grows with tables times conditions; a level of very many items records none.
TEST(Conditions, OfAVeryWideLevelAreLeftOut) {
  std::string sql = "SELECT * FROM t0";
  for (int i = 1; i < 64; ++i) sql += ", t" + std::to_string(i);
  EXPECT_EQ(one(sql + " WHERE t5.id = 1").conjuncts.size(), 1U);
  EXPECT_EQ(one(sql + ", t64 WHERE t5.id = 1").conjuncts.size(), 0U);
}

}  // namespace
}  // namespace collegedb::parser
