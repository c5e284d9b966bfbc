// INSERT rows, assignments and the flags of writes.
#include "describe.h"

namespace collegedb::parser {
namespace {

struct RowsCase {
  std::string_view name;
  std::string_view sql;
  std::string_view columns;
  std::string_view rows;
};

class InsertRows : public ::testing::TestWithParam<RowsCase> {};

TEST_P(InsertRows, AreExactly) {
  const Statement statement = one(GetParam().sql);
  EXPECT_EQ(joined(statement.insert_columns), GetParam().columns);
  EXPECT_EQ(rows(statement), GetParam().rows);
  EXPECT_FALSE(statement.insert_select);
}

INSTANTIATE_TEST_SUITE_P(
    All, InsertRows,
    ::testing::Values(
        RowsCase{"literals", "INSERT INTO t (a, \"B\") VALUES (1, 'x')", "a B", "(1 'x')"},
        RowsCase{"no_columns", "INSERT INTO t VALUES ($1, NULL)", "", "($1 null)"},
        RowsCase{"k09_several_rows", "INSERT INTO t (user_id, v) VALUES (1, 'a'), (2, 'b')",
                 "user_id v", "(1 'a')(2 'b')"},
        RowsCase{"casts", "INSERT INTO t (a) VALUES ('1'::int8), ($1::uuid), ('x'::varchar(3))",
                 "a", "('1'::int8)($1::uuid)(?)"},
        RowsCase{"k11_default", "INSERT INTO t (a) VALUES (DEFAULT)", "a", "(default)"},
        RowsCase{"k11_computed", "INSERT INTO t (a) VALUES (nextval('s')), (lower($1)), ($1 + 1)",
                 "a", "(?)(?)(?)"},
        RowsCase{"element_of_column", "INSERT INTO t (a[1], b) VALUES (1, 2)", "a b", "(? 2)"},
        RowsCase{"field_of_column", "INSERT INTO t (a.x, a.y) VALUES (1, 2)", "a a", "(? ?)"},
        RowsCase{"subselect_value", "INSERT INTO t (a) VALUES ((SELECT 1))", "a", "(?)"},
        RowsCase{"with_above", "WITH c AS (SELECT 1) INSERT INTO t (a) VALUES (1)", "a", "(1)"},
        RowsCase{"overriding_system_value", "INSERT INTO t (id) OVERRIDING SYSTEM VALUE VALUES (5)",
                 "id", "(5)"},
        RowsCase{"merge",
                 "MERGE INTO t USING u ON true WHEN NOT MATCHED THEN INSERT (a, b) "
                 "VALUES (u.a, 1)",
                 "a b", "(? 1)"},
        RowsCase{"merge_twice",
                 "MERGE INTO t USING u ON true WHEN NOT MATCHED AND u.x THEN INSERT (a) VALUES (1) "
                 "WHEN NOT MATCHED THEN INSERT (a) VALUES (2)",
                 "a", "(1)(2)"},
        RowsCase{"copy_columns", "COPY t (a, b) FROM STDIN", "a b", ""}),
    case_name<RowsCase>);

struct SelectCase {
  std::string_view name;
  std::string_view sql;
};

class InsertSelect : public ::testing::TestWithParam<SelectCase> {};

TEST_P(InsertSelect, HasNoRows) {
  const Statement statement = one(GetParam().sql);
  EXPECT_TRUE(statement.insert_select);
  EXPECT_TRUE(statement.insert_rows.empty());
}

INSTANTIATE_TEST_SUITE_P(
    All, InsertSelect,
    ::testing::Values(
        SelectCase{"select", "INSERT INTO t (a) SELECT 1"},
        SelectCase{"table", "INSERT INTO t TABLE u"},
        SelectCase{"union_of_values", "INSERT INTO t VALUES (1) UNION VALUES (2)"},
        SelectCase{"values_limited", "INSERT INTO t VALUES (1), (2) LIMIT 1"},
        SelectCase{"values_ordered", "INSERT INTO t VALUES (1), (2) ORDER BY 1"},
        SelectCase{"values_with_cte", "INSERT INTO t WITH c AS (SELECT 1) VALUES (1)"},
        SelectCase{"star_shifts_columns", "INSERT INTO t (a, b, id) VALUES ((f()).*, 5)"},
        SelectCase{"overriding_user_value", "INSERT INTO t (id) OVERRIDING USER VALUE VALUES (5)"},
        SelectCase{"merge_overriding_user_value",
                   "MERGE INTO t USING u ON true WHEN NOT MATCHED THEN INSERT (id) OVERRIDING USER "
                   "VALUE VALUES (5)"},
        SelectCase{"merge_with_two_column_lists",
                   "MERGE INTO t USING u ON true WHEN NOT MATCHED AND u.x THEN INSERT (a) VALUES "
                   "(1) WHEN NOT MATCHED THEN INSERT (b) VALUES (2)"},
        SelectCase{"merge_default_values",
                   "MERGE INTO t USING u ON true WHEN NOT MATCHED THEN INSERT DEFAULT VALUES"}),
    case_name<SelectCase>);

struct SetCase {
  std::string_view name;
  std::string_view sql;
  std::string_view assignments;
};

class Assignments : public ::testing::TestWithParam<SetCase> {};

TEST_P(Assignments, AreExactly) {
  EXPECT_EQ(assignments(one(GetParam().sql)), GetParam().assignments);
}

INSTANTIATE_TEST_SUITE_P(
    All, Assignments,
    ::testing::Values(
        SetCase{"literal", "UPDATE t SET a = 1, b = $2", "a=1, b=$2"},
        SetCase{"default", "UPDATE t SET a = DEFAULT", "a=default"},
        SetCase{"expression", "UPDATE t SET a = a + 1", "a=?"},
        SetCase{"same", "UPDATE t SET a = a, b = t.b, c = a", "a=? same, b=? same, c=?"},
        SetCase{"same_by_alias", "UPDATE t AS x SET a = x.a, b = t.b", "a=? same, b=?"},
        SetCase{"other_table", "UPDATE t SET a = u.a FROM u", "a=?"},
        SetCase{"row", "UPDATE t SET (a, b) = (1, $1)", "a=1, b=$1"},
        SetCase{"row_keyword", "UPDATE t SET (a, b) = ROW(a, 2), c = 3", "a=? same, b=2, c=3"},
        SetCase{"row_star", "UPDATE t SET (a, b) = (1, u.*) FROM u", "a=?, b=?"},
        SetCase{"row_subselect", "UPDATE t SET (a, b) = (SELECT 1, 2)", "a=?, b=?"},
        SetCase{"element", "UPDATE t SET a[1] = 5, b.x = 6", "a=?, b=?"},
        SetCase{"on_conflict",
                "INSERT INTO t AS x VALUES (1) ON CONFLICT (id) DO UPDATE SET a = x.a, "
                "b = excluded.b, c = 7",
                "a=? same, b=? excluded, c=7"},
        SetCase{"merge", "MERGE INTO t USING u ON true WHEN MATCHED THEN UPDATE SET a = 1, b = t.b",
                "a=1, b=? same"},
        SetCase{"not_of_a_cte", "WITH c AS (UPDATE t SET a = 1 RETURNING *) SELECT * FROM c", ""}),
    case_name<SetCase>);

TEST(WriteFlags, OfInsert) {
  EXPECT_TRUE(one("INSERT INTO t DEFAULT VALUES").insert_default_values);
  EXPECT_FALSE(one("INSERT INTO t VALUES (DEFAULT)").insert_default_values);
  EXPECT_TRUE(one("INSERT INTO t VALUES (1) ON CONFLICT DO NOTHING").has_on_conflict);
  EXPECT_FALSE(one("INSERT INTO t VALUES (1)").has_on_conflict);
}

TEST(WriteFlags, Returning) {
  EXPECT_TRUE(one("INSERT INTO t VALUES (1) RETURNING a").has_returning);
  EXPECT_TRUE(one("UPDATE t SET a = 1 RETURNING *").has_returning);
  EXPECT_TRUE(one("DELETE FROM t RETURNING *").has_returning);
  EXPECT_FALSE(one("DELETE FROM t").has_returning);
  EXPECT_FALSE(one("WITH d AS (DELETE FROM t RETURNING *) SELECT * FROM d").has_returning);
}

}  // namespace
}  // namespace collegedb::parser
