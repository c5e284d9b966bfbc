// Errors in PostgreSQL's words, and any text without a crash.
#include <pthread.h>

#include <thread>

#include "describe.h"

namespace collegedb::parser {
namespace {

struct ErrorCase {
  std::string_view name;
  std::string_view sql;
  std::string_view sqlstate;
  std::string_view message;
  int position;
};

class Errors : public ::testing::TestWithParam<ErrorCase> {};

TEST_P(Errors, AreThoseOfTheServer) {
  const auto statements = analyze(GetParam().sql);
  ASSERT_TRUE(statements.has_error()) << GetParam().sql;
  EXPECT_EQ(statements.error().sqlstate, GetParam().sqlstate);
  EXPECT_EQ(statements.error().message, GetParam().message);
  EXPECT_EQ(statements.error().position, GetParam().position);
  EXPECT_EQ(statements.error().severity, "ERROR");
}

// Texts, states and positions as PostgreSQL 15 gives them.
INSTANTIATE_TEST_SUITE_P(
    All, Errors,
    ::testing::Values(
        ErrorCase{"misspelt", "SELEC 1", "42601", "syntax error at or near \"SELEC\"", 1},
        ErrorCase{"at_end", "SELECT * FROM", "42601", "syntax error at end of input", 14},
        ErrorCase{"position_counts_characters", "SELECT 'éé' frm t x y", "42601",
                  "syntax error at or near \"t\"", 17},
        ErrorCase{"later_statement", "SELECT 1; SELECT 1 1", "42601",
                  "syntax error at or near \"1\"", 20},
        ErrorCase{"open_string", "SELECT 'x", "42601",
                  "unterminated quoted string at or near \"'x\"", 8},
        ErrorCase{"open_dollar", "SELECT $a$x", "42601",
                  "unterminated dollar-quoted string at or near \"$a$x\"", 8},
        ErrorCase{"open_comment", "SELECT 1 /* x /* y */", "42601",
                  "unterminated /* comment at or near \"/* x /* y */\"", 10},
        ErrorCase{"open_identifier", "SELECT \"x", "42601",
                  "unterminated quoted identifier at or near \"\"x\"", 8},
        ErrorCase{"empty_identifier", "SELECT \"\"", "42601",
                  "zero-length delimited identifier at or near \"\"\"\"", 8},
        ErrorCase{"junk_after_number", "SELECT 12abc", "42601",
                  "trailing junk after numeric literal at or near \"12abc\"", 8},
        ErrorCase{"junk_after_parameter", "SELECT 'é', $1abc", "42601",
                  "trailing junk after parameter at or near \"$1abc\"", 13},
        ErrorCase{"question_mark_parameter", "SELECT * FROM t WHERE a = ?", "42601",
                  "syntax error at end of input", 28},
        ErrorCase{"parameter_in_set", "SET a = $1", "42601", "syntax error at or near \"$1\"", 9},
        ErrorCase{"parameter_as_typed_literal", "SELECT interval $1", "42601",
                  "syntax error at or near \"$1\"", 17},
        ErrorCase{"unicode_escape", "SELECT E'\\u12'", "22025", "invalid Unicode escape", 10},
        ErrorCase{"unicode_string", "SELECT U&'\\zz'", "42601", "invalid Unicode escape", 11},
        ErrorCase{"not_implemented", "CREATE ASSERTION a CHECK (true)", "0A000",
                  "CREATE ASSERTION is not yet implemented", 0},
        ErrorCase{"set_catalog", "SET CATALOG 'x'", "0A000", "current database cannot be changed",
                  13},
        ErrorCase{"reserved_role", "CREATE ROLE public", "42939",
                  "role name \"public\" is reserved", 13},
        ErrorCase{"frame", "SELECT sum(a) OVER (ROWS BETWEEN UNBOUNDED FOLLOWING AND CURRENT ROW)",
                  "42P20", "frame start cannot be UNBOUNDED FOLLOWING", 34},
        ErrorCase{"zero_byte", std::string_view("SELECT 1\0;", 10), "42601",
                  "a statement must not contain a zero byte", 0}),
    case_name<ErrorCase>);

std::string repeat(std::string_view text, int times) {
  std::string result;
  for (int i = 0; i < times; ++i) result += text;
  return result;
}

// Runs `work` on a thread with a stack of 256 KiB.
template <class Work>
void on_small_stack(Work work) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, std::size_t{256} * 1024);
  pthread_t thread{};
  const auto enter = [](void* argument) -> void* {
    (*static_cast<Work*>(argument))();
    return nullptr;
  };
  ASSERT_EQ(pthread_create(&thread, &attributes, enter, &work), 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
}

// Every chain the grammar accepts must be walked in constant stack.
TEST(Nesting, NeedsNoStack) {
  constexpr int kMany = 6000;
  const std::vector<std::string> accepted{
      "SELECT 1" + repeat("+1", kMany),
      "SELECT 1" + repeat("::int", kMany),
      "SELECT a" + repeat("[1]", kMany),
      "SELECT 'x'" + repeat(" COLLATE \"C\"", kMany),
      "SELECT now()" + repeat(" AT TIME ZONE 'UTC'", kMany),
      "SELECT 1 WHERE a = 1" + repeat(" OR a = 1", kMany),
      "SELECT 1 FROM t WHERE a = 1" + repeat(" AND a = 1", kMany),
      "SELECT 1" + repeat(" UNION SELECT 1", kMany),
      "SELECT 1 FROM t" + repeat(" JOIN t ON true", kMany),
      "SELECT 1 FROM t" + repeat(" LEFT JOIN t USING (a)", kMany),
      "SELECT 1 FROM t" + repeat(", t", kMany),
      "SELECT " + repeat("(", 2000) + "1" + repeat(")", 2000),
      "SELECT " + repeat("NOT ", 5000) + "true",
      "SELECT " + repeat("(SELECT ", 1500) + "1" + repeat(")", 1500),
      "SELECT * FROM " + repeat("(SELECT * FROM ", 1000) + "t" + repeat(") s", 1000),
      repeat("WITH a AS (", 1000) + "SELECT 1" + repeat(") SELECT 1 FROM a", 1000),
      repeat("(", 1500) + "SELECT 1" + repeat(" UNION SELECT 1)", 1500),
      "SELECT 1 FROM " + repeat("t JOIN (", 1000) + "t JOIN t ON true" + repeat(") ON true", 1000),
      "SELECT " + repeat("CASE WHEN ", 1000) + "true" + repeat(" THEN true END", 1000),
      "SELECT " + repeat("f(", 1500) + repeat(")", 1500),
      repeat("SELECT 1;", kMany),
      "SELECT '" + repeat("x", 1 << 20) + "'"};
  on_small_stack([&] {
    for (const std::string& sql : accepted) {
      EXPECT_TRUE(analyze(sql).has_value()) << sql.substr(0, 80);
    }
  });
}

TEST(Nesting, BeyondTheGrammarIsAnError) {
  const auto statements = analyze("SELECT " + repeat("(", 10000) + "1" + repeat(")", 10000));
  ASSERT_TRUE(statements.has_error());
  EXPECT_EQ(statements.error().sqlstate, "42601");
  EXPECT_EQ(statements.error().message, "memory exhausted at or near \"(\"");
}

TEST(Size, AllParametersInOneList) {
  std::string sql = "SELECT 1 FROM t WHERE id IN ($1";
  for (int i = 2; i <= 65535; ++i) sql += ",$" + std::to_string(i);
  const Statement statement = one(sql + ")");
  EXPECT_EQ(statement.max_param, 65535);
  ASSERT_EQ(statement.conjuncts.size(), 1U);
  EXPECT_EQ(statement.conjuncts.front().values.size(), 65535U);
}

TEST(Bytes, InvalidUtf8IsAccepted) {
  const Statement statement = one("SELECT '\xff\xfe' FROM t\xff WHERE \"\xc3\" = '\x80'");
  EXPECT_EQ(tables(statement), "t\xff@0");
  EXPECT_EQ(conditions(statement), "\xc3@0 = '\x80' {0}");
}

TEST(Bytes, StringsAreUnescaped) {
  EXPECT_EQ(conditions(one("SELECT 1 FROM t WHERE a = 'it''s' AND b = E'\\n\\'' AND c = $x$'$x$ "
                           "AND d = U&'\\00e9' AND e = '\\n' AND f = 'a'\n'b'")),
            "a@0 = 'it's' {0}, b@0 = '\n'' {0}, c@0 = ''' {0}, d@0 = 'é' {0}, e@0 = '\\n' {0}, "
            "f@0 = 'ab' {0}");
}

TEST(Bytes, LongIdentifiersAreCutAsTheServerDoes) {
  EXPECT_EQ(tables(one("SELECT 1 FROM " + repeat("x", 70))), repeat("x", 63) + "@0");
  // 62 bytes and half of a two-byte character: cut before it.
  EXPECT_EQ(tables(one("SELECT 1 FROM " + repeat("x", 62) + "éy")), repeat("x", 62) + "@0");
}

TEST(Threads, EachParsesAlone) {
  const auto work = [] {
    for (int i = 0; i < 200; ++i) {
      const std::string number = std::to_string(i);
      EXPECT_EQ(conditions(one("SELECT * FROM t WHERE id = " + number)),
                "id@0 = " + number + " {0}");
      EXPECT_TRUE(analyze("SELECT FROM WHERE " + number).has_error());
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back(work);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace collegedb::parser
