// A move finds the rows of a key whatever the type of its column, by the text that routing uses.
#include "routing/key.h"
#include "tests/pg/migration/move_fixture.h"

namespace collegedb::pgtest {
namespace {

using migration::MoveResult;
using migration::Runner;
using routing::KeyType;

struct TypeCase {
  std::string column;  // its type, with collation
  KeyType type;
  std::vector<std::string> values;  // SQL
};

const std::vector<TypeCase>& cases() {
  static const std::vector<TypeCase> all = {
      {"smallint", KeyType::kInt2, {"-32768", "0", "32767"}},
      {"integer", KeyType::kInt4, {"-2147483648", "-1", "2147483647"}},
      {"bigint", KeyType::kInt8, {"-9223372036854775808", "10", "9223372036854775807"}},
      {"whole", KeyType::kInt4, {"-7", "1000000"}},
      {"uuid",
       KeyType::kUuid,
       {"'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'", "'{00000000000000000000000000000000}'"}},
      {"text",
       KeyType::kText,
       {"''", "' '", "'it''s'", "E'a\\\\b'", "E'tab\\there'", "'{\"a\",NULL}'", "'NULL'", "'ключ'",
        "' x '"}},
      {"varchar(20)", KeyType::kVarchar, {"''", "'a '", "'\"quoted\"'", "'%_'"}},
      {"varchar", KeyType::kVarchar, {"'é'", "'\\x41'"}},
      {"char(5)", KeyType::kBpchar, {"''", "'ab'", "'  c'", "'12345'"}},
      {"name_of_key", KeyType::kVarchar, {"'in a domain'", "'\\'"}},
      {"bytea", KeyType::kBytea, {"'\\x0102'", "''", "'\\x00ff5c27'", "'\\x5c78303132'", "'abc'"}},
      {"raw", KeyType::kBytea, {"'\\x0102'", "'\\xDEADBEEF'"}},
      {"boolean", KeyType::kBool, {"true", "false"}},
      {"date",
       KeyType::kDate,
       {"'2024-02-29'", "'0044-03-15 BC'", "'infinity'", "'-infinity'", "'99999-12-31'"}},
      {"public.citext", KeyType::kCitext, {"'MiXed'", "''", "'lower'", "'IT''S \"x\"'"}},
      {"public.citext COLLATE \"C\"", KeyType::kCitext, {"'Ascii'", "'ÄB'"}},
      {"numeric(30,0)", KeyType::kNumeric0, {"0", "-5", "123456789012345678901234567890"}},
  };
  return all;
}

class KeyTypeTest : public MoveTest, public ::testing::WithParamInterface<std::size_t> {
 protected:
  [[nodiscard]] static const TypeCase& type_case() { return cases()[GetParam()]; }

  void open_keyed() {
    config.tables = {{.name = "keyed", .key = "Id", .colocate_with = ""},
                     {.name = "parts", .key = "of", .colocate_with = "keyed"}};
    const std::string& type = type_case().column;
    open(
        "CREATE EXTENSION citext SCHEMA public; CREATE DOMAIN whole AS integer;"
        "CREATE DOMAIN short_name AS varchar(30); CREATE DOMAIN name_of_key AS short_name;"
        "CREATE DOMAIN raw AS bytea;"
        "CREATE TABLE keyed (\"Id\" " +
        type + " PRIMARY KEY, v text); CREATE TABLE parts (of " + type + " NOT NULL, n int);");
  }
  // As the registry has it.
  std::string key_of(std::size_t shard, const std::string& value) {
    const std::string expression =
        ask(0, "SELECT key_expression FROM collegedb.tables WHERE table_name = 'keyed'");
    return ask(shard,
               "SELECT " + expression + " FROM keyed WHERE v = " + migration::quote_literal(value));
  }
  std::string rows_of(std::size_t shard, const std::string& value) {
    return ask(shard,
               "SELECT (SELECT count(*) FROM keyed WHERE v = " + migration::quote_literal(value) +
                   ") || '+' || (SELECT count(*) FROM parts WHERE n = 1)");
  }
};

TEST_P(KeyTypeTest, AMoveTakesExactlyTheRowsOfTheKey) {
  open_keyed();
  const TypeCase& each = type_case();
  for (const std::string& value : each.values) {
    SCOPED_TRACE(each.column + " " + value);
    const std::string mark = migration::quote_literal(value);
    tell(0, "INSERT INTO keyed VALUES (" + value + ", " + mark + "); INSERT INTO parts VALUES (" +
                value + ", 1)");
    const std::string key = key_of(0, value);
    const std::size_t home = owner(key);
    if (home != 0) {
      tell(0, "DELETE FROM keyed; DELETE FROM parts");
      tell(home, "INSERT INTO keyed VALUES (" + value + ", " + mark +
                     "); INSERT INTO parts VALUES (" + value + ", 1)");
    }
    const std::size_t to = other_than(home);
    Runner runner(options());
    const Result<MoveResult> moved =
        runner.reassign({.group = "public.keyed", .key = key, .shard = name(to)});
    ASSERT_TRUE(moved) << moved.error().message;
    EXPECT_EQ(moved->source, name(home));
    EXPECT_EQ(moved->rows, 2);
    EXPECT_EQ(rows_of(home, value), "0+0");
    EXPECT_EQ(rows_of(to, value), "1+1");
    EXPECT_EQ(key_of(to, value), key);
    EXPECT_EQ(
        ask(0, "SELECT shard FROM collegedb.exceptions WHERE grp = 'public.keyed' AND key = " +
                   migration::quote_literal(key)),
        name(to));
    tell(to, "DELETE FROM keyed; DELETE FROM parts");
  }
}

// All of them in one operation: another form of the condition.
TEST_P(KeyTypeTest, ManyKeysAtOnce) {
  open_keyed();
  const TypeCase& each = type_case();
  std::vector<std::string> keys;
  for (const std::string& value : each.values) {
    const std::string mark = migration::quote_literal(value);
    tell(1, "INSERT INTO keyed VALUES (" + value + ", " + mark + ")");
    keys.push_back(key_of(1, value));
  }
  Runner runner(options());
  const Result<MoveResult> moved = runner.reassign_keys("public.keyed", keys, name(1), name(2));
  ASSERT_TRUE(moved) << moved.error().message;
  EXPECT_EQ(moved->rows, static_cast<std::int64_t>(keys.size()));
  EXPECT_EQ(ask(1, "SELECT count(*) FROM keyed"), "0");
  EXPECT_EQ(ask(2, "SELECT count(*) FROM keyed"), std::to_string(keys.size()));
}

INSTANTIATE_TEST_SUITE_P(All, KeyTypeTest, ::testing::Range<std::size_t>(0, cases().size()),
                         [](const auto& info) {
                           return std::string(routing::name_of(cases()[info.param].type)) + "_" +
                                  std::to_string(info.param);
                         });

TEST(KeyTypes, EveryOneIsMoved) {
  for (int i = 0; i <= static_cast<int>(KeyType::kNumeric0); ++i) {
    const auto type = static_cast<KeyType>(i);
    EXPECT_TRUE(std::any_of(cases().begin(), cases().end(), [&](const TypeCase& each) {
      return each.type == type;
    })) << routing::name_of(type);
  }
}

// A key in another spelling than routing's would move nothing and leave the rows behind.
TEST_F(MoveTest, ATextThatIsNoCanonicalKeyIsRefused) {
  open();
  const std::size_t home = add_key("7");
  Runner runner(options());
  for (const std::string key : {"007", " 7", "+7"}) {
    const Result<MoveResult> moved =
        runner.reassign_keys(std::string(kGroup), {key}, name(home), name(other_than(home)));
    ASSERT_FALSE(moved) << key;
    EXPECT_THAT(moved.error().message, ::testing::HasSubstr("canonical")) << key;
  }
  EXPECT_EQ(ask(home, "SELECT count(*) FROM users"), "1");
  expect_quiet();
}

// The column's operator and the key's text disagree: nothing is found, and nothing may be left.
TEST_F(MoveTest, RowsThatTheMoveDoesNotFindAreNotLeftBehind) {
  config.tables = {{.name = "odd", .key = "id", .colocate_with = ""}};
  // An equality that never holds hides the rows from the move's condition.
  open("CREATE EXTENSION citext SCHEMA public; CREATE TABLE odd (id public.citext)");
  const std::size_t home = owner("k");
  tell(home,
       "INSERT INTO odd VALUES ('K');"
       "CREATE OR REPLACE FUNCTION public.citext_eq(public.citext, public.citext) RETURNS boolean"
       " LANGUAGE sql IMMUTABLE AS 'SELECT false'");
  Runner runner(options());
  for (const bool dry_run : {true, false}) {
    const Result<MoveResult> moved = runner.reassign(
        {.group = "public.odd", .key = "k", .shard = name(other_than(home)), .dry_run = dry_run});
    ASSERT_FALSE(moved);
    EXPECT_THAT(moved.error().message, ::testing::HasSubstr("does not find"));
  }
  EXPECT_EQ(ask(home, "SELECT count(*) FROM odd"), "1");
  expect_quiet();
}

}  // namespace
}  // namespace collegedb::pgtest
