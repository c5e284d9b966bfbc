#include "routing/key.h"

#include <gtest/gtest.h>

namespace collegedb::routing {
namespace {

using parser::Value;
using Kind = Value::Kind;
using namespace std::string_literals;

std::string show(const KeyResult& result) {
  if (const auto* key = std::get_if<std::string>(&result)) return "=" + *key;
  if (std::holds_alternative<NullKey>(result)) return "null";
  return std::holds_alternative<NoMatch>(result) ? "no match" : "unknown";
}

Value literal(Kind kind, std::string text, std::string cast = "") {
  Value value;
  value.kind = kind;
  value.text = std::move(text);
  value.cast.name = std::move(cast);
  return value;
}

struct LiteralRow {
  KeyType type;
  Kind kind;
  std::string text;
  std::string cast;
  std::string compared;
  std::string assigned;
};

class Literals : public testing::TestWithParam<LiteralRow> {};

TEST_P(Literals, GiveTheCanonicalText) {
  const LiteralRow& row = GetParam();
  const Value value = literal(row.kind, row.text, row.cast);
  EXPECT_EQ(show(canonical_key(row.type, value, false)), row.compared);
  EXPECT_EQ(show(canonical_key(row.type, value, true)), row.assigned);
}

INSTANTIATE_TEST_SUITE_P(
    Integers, Literals,
    testing::Values(
        LiteralRow{KeyType::kInt8, Kind::kInteger, "42", "", "=42", "=42"},
        LiteralRow{KeyType::kInt8, Kind::kInteger, "-42", "", "=-42", "=-42"},
        LiteralRow{KeyType::kInt8, Kind::kInteger, "007", "", "=7", "=7"},
        LiteralRow{KeyType::kInt8, Kind::kInteger, "-0", "", "=0", "=0"},
        LiteralRow{KeyType::kInt8, Kind::kString, "042", "", "=42", "=42"},
        LiteralRow{KeyType::kInt8, Kind::kString, "042", "int8", "=42", "=42"},
        LiteralRow{KeyType::kInt8, Kind::kString, " \t+42\n", "", "=42", "=42"},
        LiteralRow{KeyType::kInt8, Kind::kString, "4 2", "", "unknown", "unknown"},
        LiteralRow{KeyType::kInt8, Kind::kString, "", "", "unknown", "unknown"},
        LiteralRow{KeyType::kInt8, Kind::kString, "-", "", "unknown", "unknown"},
        LiteralRow{KeyType::kInt8, Kind::kString, "0x1f", "", "unknown", "unknown"},
        LiteralRow{KeyType::kInt8, Kind::kString, "1_000", "", "unknown", "unknown"},
        LiteralRow{KeyType::kInt8, Kind::kString, "4.0", "", "unknown", "unknown"},
        LiteralRow{KeyType::kInt8, Kind::kNumeric, "4.0", "", "=4", "=4"},
        LiteralRow{KeyType::kInt8, Kind::kNumeric, "4.5", "", "no match", "unknown"},
        LiteralRow{KeyType::kInt8, Kind::kNumeric, "1e3", "", "=1000", "=1000"},
        LiteralRow{KeyType::kInt8, Kind::kNumeric, "1.5e1", "", "=15", "=15"},
        LiteralRow{KeyType::kInt8, Kind::kNumeric, "1200e-2", "", "=12", "=12"},
        LiteralRow{KeyType::kInt8, Kind::kNumeric, "1e-2", "", "no match", "unknown"},
        LiteralRow{KeyType::kInt8, Kind::kNumeric, "0e5", "", "=0", "=0"},
        LiteralRow{KeyType::kInt8, Kind::kNumeric, "1e999999999", "", "unknown", "unknown"},
        LiteralRow{KeyType::kInt8, Kind::kNumeric, "9223372036854775808", "", "no match",
                   "unknown"},
        LiteralRow{KeyType::kInt8, Kind::kNumeric, "-9223372036854775808", "",
                   "=-9223372036854775808", "=-9223372036854775808"},
        LiteralRow{KeyType::kInt8, Kind::kString, "9223372036854775808", "", "no match", "unknown"},
        LiteralRow{KeyType::kInt8, Kind::kString, "42", "numeric", "=42", "=42"},
        LiteralRow{KeyType::kInt8, Kind::kInteger, "42", "numeric", "=42", "=42"},
        LiteralRow{KeyType::kInt8, Kind::kString, "42.50", "numeric", "no match", "unknown"},
        LiteralRow{KeyType::kInt8, Kind::kString, "42", "text", "unknown", "unknown"},
        LiteralRow{KeyType::kInt8, Kind::kString, "42", "float8", "unknown", "unknown"},
        LiteralRow{KeyType::kInt8, Kind::kNumeric, "4.5", "int4", "unknown", "unknown"},
        LiteralRow{KeyType::kInt8, Kind::kBool, "t", "", "unknown", "unknown"},
        LiteralRow{KeyType::kInt8, Kind::kBit, "101", "", "unknown", "unknown"},
        LiteralRow{KeyType::kInt8, Kind::kNull, "", "", "null", "null"},
        LiteralRow{KeyType::kInt8, Kind::kNull, "", "int8", "null", "null"},
        LiteralRow{KeyType::kInt8, Kind::kOpaque, "", "", "unknown", "unknown"},
        LiteralRow{KeyType::kInt8, Kind::kDefault, "", "", "unknown", "unknown"},
        LiteralRow{KeyType::kInt4, Kind::kInteger, "2147483647", "", "=2147483647", "=2147483647"},
        LiteralRow{KeyType::kInt4, Kind::kInteger, "2147483648", "", "no match", "unknown"},
        LiteralRow{KeyType::kInt4, Kind::kInteger, "-2147483648", "", "=-2147483648",
                   "=-2147483648"},
        LiteralRow{KeyType::kInt4, Kind::kString, "42", "int8", "=42", "=42"},
        LiteralRow{KeyType::kInt4, Kind::kString, "99999", "int2", "no match", "unknown"},
        LiteralRow{KeyType::kInt2, Kind::kInteger, "32768", "", "no match", "unknown"},
        LiteralRow{KeyType::kInt2, Kind::kInteger, "-32768", "", "=-32768", "=-32768"}));

INSTANTIATE_TEST_SUITE_P(
    Numerics, Literals,
    testing::Values(
        LiteralRow{KeyType::kNumeric0, Kind::kInteger, "042", "", "=42", "=42"},
        LiteralRow{KeyType::kNumeric0, Kind::kString, " 42.00 ", "", "=42", "=42"},
        LiteralRow{KeyType::kNumeric0, Kind::kString, "-0.0", "", "=0", "=0"},
        LiteralRow{KeyType::kNumeric0, Kind::kNumeric, "123456789012345678901234567890", "",
                   "=123456789012345678901234567890", "=123456789012345678901234567890"},
        LiteralRow{KeyType::kNumeric0, Kind::kNumeric, "4.5", "", "no match", "unknown"},
        LiteralRow{KeyType::kNumeric0, Kind::kString, "NaN", "", "unknown", "unknown"},
        LiteralRow{KeyType::kNumeric0, Kind::kString, "Infinity", "", "unknown", "unknown"},
        LiteralRow{KeyType::kNumeric0, Kind::kString, ".", "", "unknown", "unknown"},
        LiteralRow{KeyType::kNumeric0, Kind::kString, "1e", "", "unknown", "unknown"},
        LiteralRow{KeyType::kNumeric0, Kind::kString, ".5e1", "", "=5", "=5"}));

INSTANTIATE_TEST_SUITE_P(
    Texts, Literals,
    testing::Values(
        LiteralRow{KeyType::kText, Kind::kString, "Ab ", "", "=Ab ", "=Ab "},
        LiteralRow{KeyType::kText, Kind::kString, "", "", "=", "="},
        LiteralRow{KeyType::kText, Kind::kString, "Ab ", "varchar", "=Ab ", "=Ab "},
        LiteralRow{KeyType::kText, Kind::kString, "Ab ", "bpchar", "=Ab", "=Ab"},
        LiteralRow{KeyType::kText, Kind::kString, "Ab", "citext", "unknown", "unknown"},
        LiteralRow{KeyType::kText, Kind::kInteger, "042", "", "unknown", "=42"},
        LiteralRow{KeyType::kText, Kind::kInteger, "042", "text", "=42", "=42"},
        LiteralRow{KeyType::kText, Kind::kNumeric, "4.20", "", "unknown", "unknown"},
        LiteralRow{KeyType::kText, Kind::kNumeric, "4.20", "text", "unknown", "unknown"},
        LiteralRow{KeyType::kText, Kind::kString, "x", "name", "unknown", "unknown"},
        LiteralRow{KeyType::kVarchar, Kind::kString, "Ab", "", "=Ab", "=Ab"},
        LiteralRow{KeyType::kVarchar, Kind::kString, "Ab ", "", "=Ab ", "unknown"},
        LiteralRow{KeyType::kVarchar, Kind::kString, "Ab", "bpchar", "unknown", "=Ab"},
        LiteralRow{KeyType::kBpchar, Kind::kString, "Ab  ", "", "=Ab", "=Ab"},
        LiteralRow{KeyType::kBpchar, Kind::kString, "Ab  ", "bpchar", "=Ab", "=Ab"},
        LiteralRow{KeyType::kBpchar, Kind::kString, "Ab  ", "varchar", "=Ab", "=Ab"},
        LiteralRow{KeyType::kBpchar, Kind::kString, "Ab  ", "text", "no match", "=Ab"},
        LiteralRow{KeyType::kBpchar, Kind::kString, "Ab", "text", "=Ab", "=Ab"},
        LiteralRow{KeyType::kBpchar, Kind::kString, "   ", "", "=", "="},
        LiteralRow{KeyType::kBpchar, Kind::kString, "Ab\t", "", "=Ab\t", "=Ab\t"},
        LiteralRow{KeyType::kCitext, Kind::kString, "USER-1", "", "=user-1", "=user-1"},
        LiteralRow{KeyType::kCitext, Kind::kString, "USER-1", "citext", "=user-1", "=user-1"},
        LiteralRow{KeyType::kCitext, Kind::kString, "USER-1", "text", "=user-1", "=user-1"},
        LiteralRow{KeyType::kCitext, Kind::kString, "\xc3\x84", "", "unknown", "unknown"},
        LiteralRow{KeyType::kCitext, Kind::kString, "a", "bpchar", "unknown", "unknown"}));

INSTANTIATE_TEST_SUITE_P(
    Uuids, Literals,
    testing::Values(LiteralRow{KeyType::kUuid, Kind::kString,
                               "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11", "",
                               "=a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
                               "=a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"},
                    LiteralRow{KeyType::kUuid, Kind::kString, "{a0eebc999c0b4ef8bb6d6bb9bd380a11}",
                               "uuid", "=a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
                               "=a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"},
                    LiteralRow{KeyType::kUuid, Kind::kString,
                               "a0ee-bc99-9c0b-4ef8-bb6d-6bb9-bd38-0a11", "",
                               "=a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
                               "=a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"},
                    LiteralRow{KeyType::kUuid, Kind::kString, "{a0eebc999c0b4ef8bb6d6bb9bd380a11",
                               "", "unknown", "unknown"},
                    LiteralRow{KeyType::kUuid, Kind::kString, "a0eebc999c0b4ef8bb6d6bb9bd380a1", "",
                               "unknown", "unknown"},
                    LiteralRow{KeyType::kUuid, Kind::kString, "a0eebc999c0b4ef8bb6d6bb9bd380a11-",
                               "", "unknown", "unknown"},
                    LiteralRow{KeyType::kUuid, Kind::kString, " a0eebc999c0b4ef8bb6d6bb9bd380a11",
                               "", "unknown", "unknown"},
                    LiteralRow{KeyType::kUuid, Kind::kString, "{", "", "unknown", "unknown"},
                    LiteralRow{KeyType::kUuid, Kind::kString, "user-1", "", "unknown", "unknown"}));

INSTANTIATE_TEST_SUITE_P(
    Byteas, Literals,
    testing::Values(
        LiteralRow{KeyType::kBytea, Kind::kString, "\\xDEADbeef", "", "=deadbeef", "=deadbeef"},
        LiteralRow{KeyType::kBytea, Kind::kString, "\\xde ad\nbe ef", "bytea", "=deadbeef",
                   "=deadbeef"},
        LiteralRow{KeyType::kBytea, Kind::kString, "\\x", "", "=", "="},
        LiteralRow{KeyType::kBytea, Kind::kString, "\\xd ea", "", "unknown", "unknown"},
        LiteralRow{KeyType::kBytea, Kind::kString, "\\xdea", "", "unknown", "unknown"},
        LiteralRow{KeyType::kBytea, Kind::kString, "\\xzz", "", "unknown", "unknown"},
        LiteralRow{KeyType::kBytea, Kind::kString, "a\\\\b\\001\\377", "", "=615c6201ff",
                   "=615c6201ff"},
        LiteralRow{KeyType::kBytea, Kind::kString, "\\400", "", "unknown", "unknown"},
        LiteralRow{KeyType::kBytea, Kind::kString, "\\07", "", "unknown", "unknown"},
        LiteralRow{KeyType::kBytea, Kind::kString, "a\\", "", "unknown", "unknown"},
        LiteralRow{KeyType::kBytea, Kind::kString, "abc", "text", "unknown", "unknown"}));

INSTANTIATE_TEST_SUITE_P(
    Bools, Literals,
    testing::Values(LiteralRow{KeyType::kBool, Kind::kBool, "t", "", "=t", "=t"},
                    LiteralRow{KeyType::kBool, Kind::kBool, "f", "bool", "=f", "=f"},
                    LiteralRow{KeyType::kBool, Kind::kString, " TRUE ", "", "=t", "=t"},
                    LiteralRow{KeyType::kBool, Kind::kString, "tr", "", "=t", "=t"},
                    LiteralRow{KeyType::kBool, Kind::kString, "Y", "", "=t", "=t"},
                    LiteralRow{KeyType::kBool, Kind::kString, "on", "bool", "=t", "=t"},
                    LiteralRow{KeyType::kBool, Kind::kString, "1", "", "=t", "=t"},
                    LiteralRow{KeyType::kBool, Kind::kString, "fals", "", "=f", "=f"},
                    LiteralRow{KeyType::kBool, Kind::kString, "no", "", "=f", "=f"},
                    LiteralRow{KeyType::kBool, Kind::kString, "of", "", "=f", "=f"},
                    LiteralRow{KeyType::kBool, Kind::kString, "0", "", "=f", "=f"},
                    LiteralRow{KeyType::kBool, Kind::kString, "o", "", "unknown", "unknown"},
                    LiteralRow{KeyType::kBool, Kind::kString, "truex", "", "unknown", "unknown"},
                    LiteralRow{KeyType::kBool, Kind::kString, "10", "", "unknown", "unknown"},
                    LiteralRow{KeyType::kBool, Kind::kString, "", "", "unknown", "unknown"},
                    LiteralRow{KeyType::kBool, Kind::kInteger, "1", "", "unknown", "unknown"}));

INSTANTIATE_TEST_SUITE_P(
    Dates, Literals,
    testing::Values(
        LiteralRow{KeyType::kDate, Kind::kString, "2024-02-29", "", "=2024-02-29", "=2024-02-29"},
        LiteralRow{KeyType::kDate, Kind::kString, " 2024-02-29 ", "date", "=2024-02-29",
                   "=2024-02-29"},
        LiteralRow{KeyType::kDate, Kind::kString, "2023-02-29", "", "unknown", "unknown"},
        LiteralRow{KeyType::kDate, Kind::kString, "1900-02-29", "", "unknown", "unknown"},
        LiteralRow{KeyType::kDate, Kind::kString, "0044-03-15 BC", "", "=0044-03-15 BC",
                   "=0044-03-15 BC"},
        LiteralRow{KeyType::kDate, Kind::kString, "0005-02-29 bc", "", "=0005-02-29 BC",
                   "=0005-02-29 BC"},
        LiteralRow{KeyType::kDate, Kind::kString, "12024-01-31", "", "=12024-01-31",
                   "=12024-01-31"},
        LiteralRow{KeyType::kDate, Kind::kString, "012024-01-31", "", "unknown", "unknown"},
        LiteralRow{KeyType::kDate, Kind::kString, "294277-01-01", "", "unknown", "unknown"},
        LiteralRow{KeyType::kDate, Kind::kString, "4714-12-01 BC", "", "unknown", "unknown"},
        LiteralRow{KeyType::kDate, Kind::kString, "Infinity", "", "=infinity", "=infinity"},
        LiteralRow{KeyType::kDate, Kind::kString, "-infinity", "", "=-infinity", "=-infinity"},
        LiteralRow{KeyType::kDate, Kind::kString, "0000-01-01", "", "unknown", "unknown"},
        LiteralRow{KeyType::kDate, Kind::kString, "2024-13-01", "", "unknown", "unknown"},
        LiteralRow{KeyType::kDate, Kind::kString, "2024-04-31", "", "unknown", "unknown"},
        // These depend on DateStyle, on the clock, or on more than a date.
        LiteralRow{KeyType::kDate, Kind::kString, "01/02/2024", "", "unknown", "unknown"},
        LiteralRow{KeyType::kDate, Kind::kString, "24-02-03", "", "unknown", "unknown"},
        LiteralRow{KeyType::kDate, Kind::kString, "today", "", "unknown", "unknown"},
        LiteralRow{KeyType::kDate, Kind::kString, "2024-02-29 12:00", "", "unknown", "unknown"},
        LiteralRow{KeyType::kDate, Kind::kString, "2024-02-29", "timestamp", "unknown",
                   "unknown"}));

// ---- parameters --------------------------------------------------------------------------------

struct ParameterRow {
  KeyType type;
  std::string value;
  bool binary;
  std::uint32_t oid;
  std::string compared;
  std::string assigned;
};

class Parameters : public testing::TestWithParam<ParameterRow> {};

TEST_P(Parameters, GiveTheCanonicalText) {
  const ParameterRow& row = GetParam();
  const Parameter parameter{row.value, row.binary, row.oid};
  EXPECT_EQ(show(canonical_key(row.type, parameter, false)), row.compared);
  EXPECT_EQ(show(canonical_key(row.type, parameter, true)), row.assigned);
}

// numeric 12345 = digits 1, 2345 of base 10000; weight 1.
const std::string kNumeric12345 = "\x00\x02\x00\x01\x00\x00\x00\x00\x00\x01\x09\x29"s;
const std::string kNumericMinus40000 = "\x00\x01\x00\x01\x40\x00\x00\x00\x00\x04"s;
const std::string kNumeric4Point5 = "\x00\x02\x00\x00\x00\x00\x00\x01\x00\x04\x13\x88"s;
const std::string kNumeric4Hidden5 = "\x00\x02\x00\x00\x00\x00\x00\x00\x00\x04\x13\x88"s;
const std::string kNumericZero = "\x00\x00\x00\x00\x00\x00\x00\x02"s;
const std::string kNumericNan = "\x00\x00\x00\x00\xc0\x00\x00\x00"s;

INSTANTIATE_TEST_SUITE_P(
    Integers, Parameters,
    testing::Values(
        ParameterRow{KeyType::kInt8, "042", false, 0, "=42", "=42"},
        ParameterRow{KeyType::kInt8, "042", false, 23, "=42", "=42"},
        ParameterRow{KeyType::kInt8, "3000000000", false, 23, "no match", "unknown"},
        ParameterRow{KeyType::kInt8, "42.0", false, 1700, "=42", "=42"},
        ParameterRow{KeyType::kInt8, "42.5", false, 1700, "no match", "unknown"},
        ParameterRow{KeyType::kInt8, "42.0", false, 0, "unknown", "unknown"},
        ParameterRow{KeyType::kInt8, "42", false, 25, "unknown", "unknown"},
        ParameterRow{KeyType::kInt8, "42", false, 705, "=42", "=42"},
        ParameterRow{KeyType::kInt8, "42", false, 701, "unknown", "unknown"},
        ParameterRow{KeyType::kInt8, "\0\0\0\0\0\0\0*"s, true, 0, "=42", "=42"},
        ParameterRow{KeyType::kInt8, "\0\0\0\0\0\0\0*"s, true, 20, "=42", "=42"},
        ParameterRow{KeyType::kInt8, "\xff\xff\xff\xff\xff\xff\xff\xfe"s, true, 20, "=-2", "=-2"},
        ParameterRow{KeyType::kInt8, "\0\0\0*"s, true, 23, "=42", "=42"},
        ParameterRow{KeyType::kInt8, "\0*"s, true, 21, "=42", "=42"},
        ParameterRow{KeyType::kInt8, "\0\0\0*"s, true, 0, "unknown", "unknown"},
        ParameterRow{KeyType::kInt8, "\0\0\0*"s, true, 20, "unknown", "unknown"},
        ParameterRow{KeyType::kInt8, "\x40\x45\0\0\0\0\0\0"s, true, 701, "unknown", "unknown"},
        ParameterRow{KeyType::kInt8, kNumeric12345, true, 1700, "=12345", "=12345"},
        ParameterRow{KeyType::kInt8, kNumericMinus40000, true, 1700, "=-40000", "=-40000"},
        ParameterRow{KeyType::kInt8, kNumeric4Point5, true, 1700, "no match", "unknown"},
        ParameterRow{KeyType::kInt8, kNumeric4Hidden5, true, 1700, "=4", "=4"},
        ParameterRow{KeyType::kInt8, kNumericZero, true, 1700, "=0", "=0"},
        ParameterRow{KeyType::kInt8, kNumericNan, true, 1700, "unknown", "unknown"},
        ParameterRow{KeyType::kInt8, kNumeric12345.substr(0, 11), true, 1700, "unknown", "unknown"},
        ParameterRow{KeyType::kInt2, "\0\0\x80\0"s, true, 23, "no match", "unknown"},
        ParameterRow{KeyType::kInt4, "\0\0\0\0\0\0\0*"s, true, 20, "=42", "=42"},
        ParameterRow{KeyType::kNumeric0, kNumeric12345, true, 0, "=12345", "=12345"}));

INSTANTIATE_TEST_SUITE_P(
    Others, Parameters,
    testing::Values(
        ParameterRow{KeyType::kText, "a ", false, 0, "=a ", "=a "},
        ParameterRow{KeyType::kText, "a ", true, 0, "=a ", "=a "},
        ParameterRow{KeyType::kText, "a ", true, 1043, "=a ", "=a "},
        ParameterRow{KeyType::kText, "a ", false, 1042, "=a", "=a"},
        ParameterRow{KeyType::kText, "a", false, 19, "unknown", "unknown"},
        ParameterRow{KeyType::kVarchar, "a ", false, 1043, "=a ", "unknown"},
        ParameterRow{KeyType::kBpchar, "a ", false, 0, "=a", "=a"},
        ParameterRow{KeyType::kBpchar, "a ", false, 1043, "=a", "=a"},
        ParameterRow{KeyType::kBpchar, "a ", false, 25, "no match", "=a"},
        ParameterRow{KeyType::kCitext, "ABC", false, 0, "=abc", "=abc"},
        ParameterRow{KeyType::kUuid, "A0EEBC999C0B4EF8BB6D6BB9BD380A11", false, 2950,
                     "=a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
                     "=a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"},
        ParameterRow{
            KeyType::kUuid, "\xa0\xee\xbc\x99\x9c\x0b\x4e\xf8\xbb\x6d\x6b\xb9\xbd\x38\n\x11", true,
            0, "=a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "=a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"},
        ParameterRow{KeyType::kUuid, "\xa0\xee", true, 2950, "unknown", "unknown"},
        ParameterRow{KeyType::kUuid, "a0eebc999c0b4ef8bb6d6bb9bd380a11", false, 25, "unknown",
                     "unknown"},
        ParameterRow{KeyType::kBytea, "\xde\xad\0"s, true, 17, "=dead00", "=dead00"},
        ParameterRow{KeyType::kBytea, "\\xdead", false, 0, "=dead", "=dead"},
        ParameterRow{KeyType::kBool, "\x01", true, 16, "=t", "=t"},
        ParameterRow{KeyType::kBool, "\0"s, true, 0, "=f", "=f"},
        ParameterRow{KeyType::kBool, "", true, 16, "unknown", "unknown"},
        ParameterRow{KeyType::kBool, "off", false, 16, "=f", "=f"},
        ParameterRow{KeyType::kDate, "\0\0\0\0"s, true, 1082, "=2000-01-01", "=2000-01-01"},
        ParameterRow{KeyType::kDate, "\0\0\0\x3b"s, true, 0, "=2000-02-29", "=2000-02-29"},
        ParameterRow{KeyType::kDate, "\xff\xff\xff\xff"s, true, 0, "=1999-12-31", "=1999-12-31"},
        // 730120 days before 2000-01-01 is the last day of 1 BC.
        ParameterRow{KeyType::kDate, "\xff\xf4\xdb\xf8"s, true, 0, "=0001-12-31 BC",
                     "=0001-12-31 BC"},
        ParameterRow{KeyType::kDate, "\x7f\xff\xff\xff"s, true, 0, "=infinity", "=infinity"},
        ParameterRow{KeyType::kDate, "\x80\0\0\0"s, true, 0, "=-infinity", "=-infinity"},
        ParameterRow{KeyType::kDate, "\x7f\xff\xff\0"s, true, 0, "unknown", "unknown"},
        ParameterRow{KeyType::kDate, "2024-01-01", false, 1114, "unknown", "unknown"}));

TEST(Parameter, NullIsNull) {
  EXPECT_EQ(show(canonical_key(KeyType::kInt8, Parameter{}, false)), "null");
  EXPECT_EQ(show(canonical_key(KeyType::kInt8, Parameter{std::nullopt, true, 25}, true)), "null");
}

TEST(Parameter, CastDecidesAnOpenType) {
  const auto key = [](KeyType type, Parameter parameter, std::string cast) {
    return show(canonical_key(type, parameter, {"", std::move(cast)}, false, false));
  };
  EXPECT_EQ(key(KeyType::kInt8, {"42.0", false, 0}, "numeric"), "=42");
  EXPECT_EQ(key(KeyType::kInt8, {"\0\0\0*"s, true, 0}, "int4"), "=42");
  EXPECT_EQ(key(KeyType::kUuid, {"A0EEBC999C0B4EF8BB6D6BB9BD380A11", false, 0}, "uuid"),
            "=a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11");
  EXPECT_EQ(key(KeyType::kUuid, {"A0EEBC999C0B4EF8BB6D6BB9BD380A11", false, 25}, "uuid"),
            "=a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11");
  EXPECT_EQ(key(KeyType::kInt8, {"42", false, 1043}, "int8"), "=42");
  EXPECT_EQ(key(KeyType::kInt4, {"99999", false, 23}, "int2"), "no match");
  EXPECT_EQ(key(KeyType::kText, {"\0\0\0*"s, true, 23}, "text"), "=42");
  EXPECT_EQ(key(KeyType::kText, {"x", false, 0}, "mood"), "unknown");
  EXPECT_EQ(
      show(canonical_key(KeyType::kInt8, Parameter{"42", false, 0}, {"app", "int8"}, false, false)),
      "unknown");
}

TEST(Parameter, OpenTypeOfARepeatedParameterMustNotMatter) {
  const auto key = [](KeyType type, Parameter parameter) {
    return show(canonical_key(type, parameter, {}, true, false));
  };
  // Elsewhere in the statement $1 may have become a float8 or a char(n).
  EXPECT_EQ(key(KeyType::kInt8, {"\0\0\0\0\0\0\0*"s, true, 0}), "unknown");
  EXPECT_EQ(key(KeyType::kInt8, {"42", false, 0}), "=42");
  EXPECT_EQ(key(KeyType::kInt8, {"9007199254740993", false, 0}), "unknown");
  EXPECT_EQ(key(KeyType::kText, {"a", false, 0}), "=a");
  EXPECT_EQ(key(KeyType::kText, {"a ", false, 0}), "unknown");
  // A declared type is what it is.
  EXPECT_EQ(key(KeyType::kInt8, {"\0\0\0\0\0\0\0*"s, true, 20}), "=42");
  EXPECT_EQ(key(KeyType::kText, {"a ", false, 25}), "=a ");
}

TEST(KeyTypes, OfColumns) {
  const auto type = [](std::uint32_t oid, std::string_view name, std::int32_t typmod = -1) {
    const auto found = key_type_of(oid, name, typmod);
    return found ? std::string(name_of(*found)) : "none";
  };
  EXPECT_EQ(type(20, "int8"), "int8");
  EXPECT_EQ(type(21, "int2"), "int2");
  EXPECT_EQ(type(23, "int4"), "int4");
  EXPECT_EQ(type(2950, "uuid"), "uuid");
  EXPECT_EQ(type(25, "text"), "text");
  EXPECT_EQ(type(1043, "varchar", 24), "varchar");
  EXPECT_EQ(type(1042, "bpchar", 8), "bpchar");
  EXPECT_EQ(type(17, "bytea"), "bytea");
  EXPECT_EQ(type(16, "bool"), "bool");
  EXPECT_EQ(type(1082, "date"), "date");
  EXPECT_EQ(type(16385, "citext"), "citext");
  EXPECT_EQ(type(1700, "numeric", (10 << 16) + 4), "numeric");  // numeric(10,0)
  EXPECT_EQ(type(1700, "numeric", ((10 << 16) | 2) + 4), "none");
  EXPECT_EQ(type(1700, "numeric"), "none");
  for (const std::uint32_t oid :
       {700u, 701u, 1184u, 1114u, 114u, 3802u, 1007u, 19u, 18u, 705u, 0u}) {
    EXPECT_EQ(type(oid, "other"), "none") << oid;
  }
}

TEST(KeyFromText, IsReadAsTheColumnsType) {
  EXPECT_EQ(canonical_key_from_text(KeyType::kInt8, " 042 ").value(), "42");
  EXPECT_EQ(canonical_key_from_text(KeyType::kText, " 042 ").value(), " 042 ");
  EXPECT_EQ(canonical_key_from_text(KeyType::kDate, "2024-01-02").value(), "2024-01-02");
  const auto bad = canonical_key_from_text(KeyType::kUuid, "user-1");
  EXPECT_EQ(bad.error().sqlstate, "22P02");
  EXPECT_EQ(bad.error().message, "invalid input syntax for type uuid: \"user-1\"");
  EXPECT_EQ(canonical_key_from_text(KeyType::kInt2, "40000").error().sqlstate, "22003");
  EXPECT_EQ(canonical_key_from_text(KeyType::kCitext, "\xc3\x84").error().sqlstate, "0A000");
}

TEST(KeySql, EverythingIsQualified) {
  EXPECT_EQ(sql_key_expression(KeyType::kInt8, "\"Id\""), "(\"Id\")::pg_catalog.text");
  EXPECT_EQ(sql_key_expression(KeyType::kBytea, "k"), "pg_catalog.encode(k, 'hex')");
  EXPECT_EQ(sql_key_expression(KeyType::kCitext, "k"), "pg_catalog.lower((k)::pg_catalog.text)");
  EXPECT_EQ(sql_key_from_text(KeyType::kInt2, "$1"), "($1)::pg_catalog.int2");
  EXPECT_EQ(sql_key_from_text(KeyType::kBytea, "$1"), "pg_catalog.decode($1, 'hex')");
  EXPECT_EQ(sql_key_condition(KeyType::kUuid, "k", "$1"),
            "k OPERATOR(pg_catalog.=) ($1)::pg_catalog.uuid");
}

}  // namespace
}  // namespace collegedb::routing
