#include "proxy/wire/backend.h"

#include <gtest/gtest.h>

#include "tests/support/exact_buffer.h"
#include "tests/support/wire_cases.h"
#include "tests/support/wire_reencode.h"

namespace collegedb::wire {
namespace {

using test::ExactBuffer;
using test::i16;
using test::i32;
using test::i8;
using test::typed;
using test::z;
using namespace std::string_literals;

TEST(Backend, DecodesByTheGrammarAndEncodesTheSameBytes) {
  for (const auto& c : test::backend_cases()) {
    SCOPED_TRACE(c.name);
    const ExactBuffer payload(c.payload);
    const auto result = test::reencode_backend(c.tag, payload.view());
    ASSERT_TRUE(result.has_value());
    if (c.error.empty()) {
      ASSERT_TRUE(result->has_value()) << result->error().message;
      EXPECT_EQ(result->value(), typed(c.tag, c.payload));
    } else {
      ASSERT_TRUE(result->has_error());
      EXPECT_EQ(result->error().message, c.error);
      EXPECT_EQ(result->error().sqlstate, "08P01");
    }
  }
}

TEST(Backend, EveryShorterPayloadIsRefused) {
  for (const auto& c : test::backend_cases()) {
    // Those end in bytes of any number.
    const bool open_ended = c.name == "gss continue" || c.name.starts_with("sasl ") || c.tag == 'K';
    if (!c.error.empty() || open_ended) continue;
    for (std::size_t size = 0; size < c.payload.size(); ++size) {
      const ExactBuffer payload(std::string_view(c.payload).substr(0, size));
      EXPECT_TRUE(test::reencode_backend(c.tag, payload.view())->has_error())
          << c.name << ", cut to " << size;
    }
  }
}

TEST(Authentication, Fields) {
  const auto md5 = Authentication::decode(i32(5) + "salt");
  ASSERT_TRUE(md5.has_value());
  EXPECT_EQ(md5->kind, AuthenticationKind::kMd5Password);
  const std::string list = i32(10) + z("SCRAM-SHA-256-PLUS") + z("SCRAM-SHA-256") + i8(0);
  const auto sasl = Authentication::decode(list);
  ASSERT_TRUE(sasl.has_value());
  EXPECT_EQ(sasl->mechanisms,
            (std::vector<std::string_view>{"SCRAM-SHA-256-PLUS", "SCRAM-SHA-256"}));
}

TEST(RowDescription, Fields) {
  const std::string payload =
      i16(1) + z("id") + i32(16384) + i16(2) + i32(2950) + i16(16) + i32(-1) + i16(1);
  const auto row = RowDescription::decode(payload);
  ASSERT_TRUE(row.has_value());
  ASSERT_EQ(row->fields.size(), 1u);
  const auto& field = row->fields[0];
  EXPECT_EQ(field.name, "id");
  EXPECT_EQ(field.table_oid, 16384u);
  EXPECT_EQ(field.column, 2);
  EXPECT_EQ(field.type_oid, 2950u);
  EXPECT_EQ(field.type_size, 16);
  EXPECT_EQ(field.type_modifier, -1);
  EXPECT_EQ(field.format, 1);
}

TEST(ParameterDescription, CountIsUnsigned) {
  ParameterDescription message;
  message.types.assign(65535, 25);
  std::string out;
  message.encode(out);
  const auto decoded = ParameterDescription::decode(std::string_view(out).substr(5));
  ASSERT_TRUE(decoded.has_value());
  EXPECT_EQ(decoded->types.size(), 65535u);
}

TEST(DataRow, AssignReusesTheRow) {
  DataRow row;
  const std::string three = i16(3) + test::sized("1") + test::kNull + test::sized("");
  ASSERT_TRUE(row.assign(three));
  EXPECT_EQ(row.values, (std::vector<std::optional<std::string_view>>{"1", std::nullopt, ""}));
  const auto* memory = row.values.data();
  const std::string one = i16(1) + test::sized("2");
  ASSERT_TRUE(row.assign(one));
  EXPECT_EQ(row.values, (std::vector<std::optional<std::string_view>>{"2"}));
  EXPECT_EQ(row.values.data(), memory);
}

TEST(DataRow, AssignRefusesWhatDecodeRefuses) {
  for (const auto& c : test::backend_cases()) {
    if (c.tag != 'D') continue;
    SCOPED_TRACE(c.name);
    const ExactBuffer payload(c.payload);
    DataRow row;
    EXPECT_EQ(row.assign(payload.view()), c.error.empty());
  }
}

struct ErrorCase {
  const char* name;
  std::string fields;
  std::string severity;
  std::string sqlstate;
  std::string message;
  int position;
};

TEST(DecodeError, EveryFieldIsOptional) {
  const ErrorCase cases[] = {
      {"nothing", "", "ERROR", "XX000", "", 0},
      {"message alone", "M" + z("boo"), "ERROR", "XX000", "boo", 0},
      {"V before S", "V" + z("FATAL") + "S" + z("ERROR"), "FATAL", "XX000", "", 0},
      {"S before V", "S" + z("ERROR") + "V" + z("FATAL"), "FATAL", "XX000", "", 0},
      {"S alone", "S" + z("PANIC"), "PANIC", "XX000", "", 0},
      {"S in another language", "S" + z("FEHLER") + "V" + z("ERROR"), "ERROR", "XX000", "", 0},
      {"unknown V", "V" + z("CATASTROPHE"), "ERROR", "XX000", "", 0},
      {"short SQLSTATE", "C" + z("42"), "ERROR", "XX000", "", 0},
      {"long SQLSTATE", "C" + z("42P011"), "ERROR", "XX000", "", 0},
      {"SQLSTATE with a line feed", "C" + z("42\nP1"), "ERROR", "XX000", "", 0},
      {"SQLSTATE in lower case", "C" + z("42p01"), "ERROR", "XX000", "", 0},
      {"SQLSTATE", "C" + z("42P01"), "ERROR", "42P01", "", 0},
      {"position", "P" + z("15"), "ERROR", "XX000", "", 15},
      {"position not a number", "P" + z("15x"), "ERROR", "XX000", "", 0},
      {"position negative", "P" + z("-1"), "ERROR", "XX000", "", 0},
      {"position too great", "P" + z("99999999999999999999"), "ERROR", "XX000", "", 0},
      {"very long message", "M" + z(std::string(1 << 20, 'm')), "ERROR", "XX000",
       std::string(1 << 20, 'm'), 0},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.name);
    const ExactBuffer payload(c.fields + i8(0));
    const auto error = decode_error(payload.view());
    ASSERT_TRUE(error.has_value());
    EXPECT_EQ(error->severity, c.severity);
    EXPECT_EQ(error->sqlstate, c.sqlstate);
    EXPECT_EQ(error->message, c.message);
    EXPECT_EQ(error->position, c.position);
  }
}

TEST(DecodeError, FieldsOfDriversSurvive) {
  const std::string payload = "S" + z("ERROR") + "V" + z("ERROR") + "C" + z("23505") + "M" +
                              z("duplicate key") + "s" + z("public") + "t" + z("users") + "n" +
                              z("users_pkey") + i8(0);
  const auto error = decode_error(payload);
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->other_fields, "s" + z("public") + "t" + z("users") + "n" + z("users_pkey"));
  std::string out;
  encode_error(out, *error);
  EXPECT_EQ(out, typed('E', payload));
}

TEST(EncodeError, EmptyFieldsAreLeftOut) {
  SqlError error = make_error("42601", "syntax error");
  std::string out;
  encode_error(out, error);
  EXPECT_EQ(out, typed('E', "S" + z("ERROR") + "V" + z("ERROR") + "C" + z("42601") + "M" +
                                z("syntax error") + i8(0)));
}

TEST(EncodeError, NulInATextCannotStartAField) {
  SqlError error = make_error("42601", "key \"a\0Cevil\""s);
  std::string out;
  encode_error(out, error);
  const auto decoded = decode_error(std::string_view(out).substr(5));
  ASSERT_TRUE(decoded.has_value());
  EXPECT_EQ(decoded->sqlstate, "42601");
  EXPECT_EQ(decoded->message, "key \"a");
}

TEST(EncodeNotice, RoundTrip) {
  SqlError notice = make_error(ErrorCode::kPartialResult, "1 of 3 shards", "wait", "db-west");
  notice.position = 3;
  std::string out;
  encode_notice(out, notice);
  EXPECT_EQ(out.front(), 'N');
  const auto decoded = decode_error(std::string_view(out).substr(5));
  ASSERT_TRUE(decoded.has_value());
  EXPECT_EQ(*decoded, notice);
}

TEST(Backend, MessagesWithoutADecoder) {
  std::string out;
  encode_parse_complete(out);
  encode_bind_complete(out);
  encode_close_complete(out);
  encode_no_data(out);
  encode_empty_query_response(out);
  encode_portal_suspended(out);
  encode_function_call_response(out, "7");
  encode_function_call_response(out, std::nullopt);
  EXPECT_EQ(out, typed('1', "") + typed('2', "") + typed('3', "") + typed('n', "") +
                     typed('I', "") + typed('s', "") + typed('V', test::sized("7")) +
                     typed('V', test::kNull));
}

}  // namespace
}  // namespace collegedb::wire
