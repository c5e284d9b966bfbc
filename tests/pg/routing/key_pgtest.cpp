// The canonical text the proxy gives a value is that of exactly the rows the server finds with it.
//
// For each key type a table holds many values, some of which look alike. Every literal and
// parameter is then compared (WHERE k = value) and inserted on the server: a key the proxy names
// must be that of every row found or stored; "no match" must find nothing. "Unknown" claims
// nothing.
#include "routing/key.h"

#include <algorithm>
#include <set>

#include "parser/analyze.h"
#include "server_fixture.h"

namespace collegedb::routing {
namespace {

using pgtest::Argument;
using namespace std::string_literals;

struct Case {
  std::string name;
  KeyType type;
  std::string column_type;
  std::vector<std::string> stored;    // SQL literals
  std::vector<std::string> literals;  // SQL expressions
  std::vector<Argument> parameters;
};

const std::vector<std::string> kNumbers = {"42",
                                           "-42",
                                           "007",
                                           "4.0",
                                           "4.5",
                                           "1e3",
                                           "1.5e1",
                                           "1200e-2",
                                           "99999",
                                           "3000000000",
                                           "9223372036854775807",
                                           "9223372036854775808",
                                           "'042'",
                                           "' 42 '",
                                           "'42'::int2",
                                           "'42'::int8",
                                           "42::numeric",
                                           "'42.00'::numeric",
                                           "42.5::numeric",
                                           "'4.0'",
                                           "'x'",
                                           "NULL",
                                           "0.0",
                                           "-0.0",
                                           "true",
                                           "'42'::text",
                                           "42::text",
                                           "4.5::int4",
                                           "'99999'::int2"};
const std::vector<Argument> kNumberParameters = {
    {"042"},
    {" 42"},
    {"4.0"},
    {"42", false, 20},
    {"42", false, 21},
    {"42.0", false, 1700},
    {"42.5", false, 1700},
    {"42", false, 25},
    {"42", false, 705},
    {"3000000000"},
    {"4", false, 701},
    {"\0\0\0*"s, true, 23},
    {"\0\0\0\0\0\0\0*"s, true, 20},
    {"\0*"s, true, 21},
    {"\x00\x02\x00\x01\x00\x00\x00\x00\x00\x01\x09\x29"s, true, 1700},
    {"\x00\x02\x00\x00\x00\x00\x00\x00\x00\x04\x13\x88"s, true, 1700},
    {"\x00\x02\x00\x00\x00\x00\x00\x01\x00\x04\x13\x88"s, true, 1700},
    {std::nullopt}};
const std::vector<std::string> kNumbersStored = {"42",   "-42", "7",  "4", "5",
                                                 "1000", "15",  "12", "0", "12345"};

const std::vector<std::string> kTexts = {
    "'a'",       "'a '",       "'a  '",         "'A'",          "''",          "' '", "'42'",
    "'a'::text", "'a '::text", "'a '::varchar", "'a '::bpchar", "'a'::bpchar", "42",  "042",
    "42::text",  "'\xc3\xa4'", "'\xc3\x84'",    "'abc  '",      "NULL"};
const std::vector<std::string> kTextsStored = {"'a'", "'a '", "'A'",        "'A '",      "''",
                                               "' '", "'42'", "'\xc3\xa4'", "'\xc3\x84'"};
std::vector<Argument> text_parameters() {
  std::vector<Argument> out;
  for (const char* value : {"a", "a ", "A", "", "abc "}) {
    for (const Oid type : {0u, 25u, 1042u, 1043u, 705u}) {
      out.push_back({value, false, type});
      out.push_back({value, true, type});
    }
  }
  return out;
}

std::vector<Case> cases() {
  const std::string uuid = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11";
  return {
      {"int2", KeyType::kInt2, "int2", kNumbersStored, kNumbers, kNumberParameters},
      {"int4", KeyType::kInt4, "int4", kNumbersStored, kNumbers, kNumberParameters},
      {"int8", KeyType::kInt8, "int8", kNumbersStored, kNumbers, kNumberParameters},
      {"numeric", KeyType::kNumeric0, "numeric(30,0)", kNumbersStored, kNumbers, kNumberParameters},
      {"text", KeyType::kText, "text", kTextsStored, kTexts, text_parameters()},
      {"varchar", KeyType::kVarchar, "varchar(3)", kTextsStored, kTexts, text_parameters()},
      {"bpchar", KeyType::kBpchar, "char(4)", kTextsStored, kTexts, text_parameters()},
      {"citext", KeyType::kCitext, "citext", kTextsStored, kTexts, text_parameters()},
      {"uuid",
       KeyType::kUuid,
       "uuid",
       {"'" + uuid + "'"},
       {"'" + uuid + "'", "'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'::uuid",
        "'{a0eebc999c0b4ef8bb6d6bb9bd380a11}'", "'a0ee-bc99-9c0b-4ef8-bb6d-6bb9-bd38-0a11'",
        "'a0eebc999c0b4ef8bb6d6bb9bd380a11-'", "'x'", "NULL"},
       {{uuid},
        {uuid, false, 2950},
        {uuid, false, 25},
        {"x"},
        {"\xa0\xee\xbc\x99\x9c\x0b\x4e\xf8\xbb\x6d\x6b\xb9\xbd\x38\n\x11"s, true, 2950}}},
      {"bytea",
       KeyType::kBytea,
       "bytea",
       {"'\\xdead'", "'\\x'", "'abc'"},
       {"'\\xDE ad'", "'\\xdead'::bytea", "'\\336\\255'", "'abc'", "'a\\\\bc'", "'\\x'", "'\\xd'",
        "'\\'"},
       {{"\xde\xad"s, true, 17}, {"\\xdead"}, {"abc", true, 0}, {"abc", false, 0}}},
      {"bool",
       KeyType::kBool,
       "bool",
       {"true", "false"},
       {"true", "false", "'t'", "' TRUE '", "'of'", "'o'", "'1'", "'no'", "1", "'yes'::bool",
        "NULL"},
       {{"\x01"s, true, 16}, {"\0"s, true, 16}, {"off"}, {"on", false, 16}, {"maybe"}}},
      {"date",
       KeyType::kDate,
       "date",
       {"'2024-02-29'", "'0044-03-15 BC'", "'0001-12-31 BC'", "'infinity'", "'-infinity'",
        "'12024-01-31'", "'2000-01-01'", "'1999-12-31'", "'2024-02-01'", "'2024-01-02'"},
       {"'2024-02-29'", "' 2024-02-29 '", "'2024-02-29'::date", "'0044-03-15 BC'",
        "'0044-03-15 bc'", "'infinity'", "'-Infinity'", "'12024-01-31'", "'01/02/2024'",
        "'2023-02-29'", "'24-02-29'", "'0005-02-29 BC'", "'today'", "NULL"},
       {{"2024-02-29"},
        {"2024-02-29", false, 1082},
        {"\0\0\0\0"s, true, 1082},
        {"\xff\xff\xff\xff"s, true, 1082},
        {"\xff\xf4\xdb\xf8"s, true, 1082},
        {"\x7f\xff\xff\xff"s, true, 1082},
        {"\x80\0\0\0"s, true, 1082},
        {"01/02/2024"}}},
  };
}

class KeysOnServer : public pgtest::ServerTest {
 protected:
  // Canonical texts of the rows that `answer` has in its first column.
  static std::set<std::string> keys_of(const pgtest::Answer& answer) {
    std::set<std::string> out;
    for (const auto& row : answer.rows) out.insert(row[0].value_or("NULL"));
    return out;
  }

  void judge(const std::string& what, const KeyResult& key, const pgtest::Answer& found) {
    ++judged_;
    if (const auto* text = std::get_if<std::string>(&key)) {
      ++named_;
      if (!found.ok) return;  // the server refuses it: no row is read or written
      for (const std::string& row : keys_of(found)) EXPECT_EQ(row, *text) << what;
    } else if (!std::holds_alternative<Unknown>(key) && found.ok) {
      EXPECT_TRUE(found.rows.empty()) << what << ": " << *keys_of(found).begin();
    }
  }

  void judge_literal(const Case& c, const std::string& literal) {
    const std::string expression = sql_key_expression(c.type, "k");
    const std::string select = "SELECT " + expression + " FROM keys WHERE k = " + literal;
    const auto compared = parser::analyze(select);
    ASSERT_TRUE(compared.has_value()) << select;
    const auto& conjuncts = compared->front().conjuncts;
    if (!conjuncts.empty()) {
      judge(c.name + ": " + select, canonical_key(c.type, conjuncts[0].values[0], false),
            run(select));
    }
    const std::string insert =
        "INSERT INTO scratch VALUES (" + literal + ") RETURNING " + expression;
    const auto inserted = parser::analyze(insert);
    ASSERT_TRUE(inserted.has_value()) << insert;
    KeyResult key = canonical_key(c.type, inserted->front().insert_rows[0][0], true);
    if (std::holds_alternative<NullKey>(key)) return;
    judge(c.name + ": " + insert, key, run(insert));
  }

  void judge_parameter(const Case& c, const Argument& argument) {
    const Parameter parameter{argument.value, argument.binary, argument.type};
    const std::string what = c.name + ": parameter " + argument.value.value_or("NULL") +
                             " of type " + std::to_string(argument.type) +
                             (argument.binary ? " binary" : "");
    const std::string expression = sql_key_expression(c.type, "k");
    judge(what, canonical_key(c.type, parameter, false),
          run("SELECT " + expression + " FROM keys WHERE k = $1", {argument}));
    if (!argument.value) return;
    judge(what + " inserted", canonical_key(c.type, parameter, true),
          run("INSERT INTO scratch VALUES ($1) RETURNING " + expression, {argument}));
  }

  void create(const Case& c) {
    must("DROP TABLE IF EXISTS keys, scratch");
    must("CREATE TABLE keys (k " + c.column_type + "); CREATE TABLE scratch (k " + c.column_type +
         ")");
    for (const std::string& value : c.stored) {
      must("INSERT INTO keys VALUES (" + value + "::" + c.column_type + ")");
    }
  }

  int judged_ = 0;
  int named_ = 0;
};

TEST_F(KeysOnServer, CanonicalTextIsThatOfTheRows) {
  must("CREATE EXTENSION citext");
  for (const char* style : {"ISO, MDY", "SQL, DMY", "German", "Postgres, YMD"}) {
    must("SET DateStyle = '"s + style + "'");
    for (const Case& c : cases()) {
      create(c);
      for (const std::string& literal : c.literals) judge_literal(c, literal);
      for (const Argument& argument : c.parameters) judge_parameter(c, argument);
    }
  }
  EXPECT_GT(judged_, 1000);
  EXPECT_GT(named_, judged_ / 3);
}

TEST_F(KeysOnServer, ExpressionsWorkUnderAnySettings) {
  must("CREATE EXTENSION citext");
  for (const Case& c : cases()) {
    create(c);
    const std::string expression = sql_key_expression(c.type, "\"k\"");
    const std::set<std::string> expected = keys_of(must("SELECT " + expression + " FROM keys"));
    must(
        "SET search_path = pg_catalog, pg_temp; SET DateStyle = 'SQL, DMY'; SET bytea_output = "
        "'escape'");
    EXPECT_EQ(keys_of(must("SELECT " + expression + " FROM public.keys")), expected) << c.name;
    EXPECT_TRUE(
        keys_of(must("SELECT " + sql_key_expression(c.type, "k") +
                     " FROM (SELECT k FROM public.keys WHERE false UNION ALL SELECT NULL) s"))
            .contains("NULL"))
        << c.name;
    for (const std::string& key : expected) {
      const auto rows = run("SELECT " + expression + " FROM public.keys WHERE " +
                                sql_key_condition(c.type, "k", "$1"),
                            {{key, false, 25}});
      ASSERT_TRUE(rows.ok) << c.name << rows.error;
      EXPECT_EQ(keys_of(rows), std::set<std::string>{key}) << c.name << " " << key;
    }
    must("RESET ALL");
    must("SET client_encoding = 'UTF8'");
  }
}

}  // namespace
}  // namespace collegedb::routing
