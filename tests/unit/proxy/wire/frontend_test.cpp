#include "proxy/wire/frontend.h"

#include <gtest/gtest.h>

#include "tests/support/exact_buffer.h"
#include "tests/support/wire_cases.h"
#include "tests/support/wire_reencode.h"

namespace collegedb::wire {
namespace {

using test::ExactBuffer;
using test::i16;
using test::i32;
using test::typed;
using test::z;

TEST(Frontend, DecodesByTheGrammarAndEncodesTheSameBytes) {
  for (const auto& c : test::frontend_cases()) {
    SCOPED_TRACE(c.name);
    const ExactBuffer payload(c.payload);
    const auto result = test::reencode_frontend(c.tag, payload.view());
    ASSERT_TRUE(result.has_value());
    if (c.error.empty()) {
      ASSERT_TRUE(result->has_value()) << result->error().message;
      EXPECT_EQ(result->value(), typed(c.tag, c.payload));
    } else {
      ASSERT_TRUE(result->has_error());
      EXPECT_EQ(result->error().message, c.error);
      const bool at_login = c.tag == 'p';
      EXPECT_EQ(result->error().severity, at_login ? "FATAL" : "ERROR");
      EXPECT_EQ(result->error().sqlstate, "08P01");
    }
  }
}

TEST(Frontend, EveryShorterPayloadIsRefused) {
  for (const auto& c : test::frontend_cases()) {
    if (!c.error.empty()) continue;
    for (std::size_t size = 0; size < c.payload.size(); ++size) {
      const ExactBuffer payload(std::string_view(c.payload).substr(0, size));
      EXPECT_TRUE(test::reencode_frontend(c.tag, payload.view())->has_error())
          << c.name << ", cut to " << size;
    }
  }
}

TEST(Bind, FieldsAndFormats) {
  const std::string payload = z("p") + z("s") + i16(2) + i16(0) + i16(1) + i16(2) + test::kNull +
                              test::sized("bc") + i16(1) + i16(1);
  const auto bind = Bind::decode(payload);
  ASSERT_TRUE(bind.has_value());
  EXPECT_EQ(bind->portal, "p");
  EXPECT_EQ(bind->statement, "s");
  ASSERT_EQ(bind->parameters.size(), 2u);
  EXPECT_EQ(bind->parameters[0], std::nullopt);
  EXPECT_EQ(bind->parameters[1], "bc");
  EXPECT_FALSE(bind->parameter_is_binary(0));
  EXPECT_TRUE(bind->parameter_is_binary(1));
  EXPECT_FALSE(bind->parameter_is_binary(2));
  EXPECT_TRUE(bind->result_is_binary(0));
  EXPECT_TRUE(bind->result_is_binary(1664)) << "one format stands for all columns";
}

TEST(Bind, NoFormatsMeansText) {
  Bind bind;
  bind.parameters = {"1"};
  EXPECT_FALSE(bind.parameter_is_binary(0));
  EXPECT_FALSE(bind.result_is_binary(0));
}

TEST(Bind, CountsAreUnsigned) {
  Bind bind;
  bind.parameter_formats.assign(65535, 0);
  bind.parameters.assign(65535, "x");
  bind.result_formats.assign(65535, 1);
  std::string out;
  bind.encode(out);
  const auto decoded = Bind::decode(std::string_view(out).substr(5));
  ASSERT_TRUE(decoded.has_value());
  EXPECT_EQ(decoded->parameters.size(), 65535u);
  EXPECT_EQ(decoded->result_formats.size(), 65535u);
  bind.parameters.emplace_back("x");
  EXPECT_THROW(bind.encode(out), std::length_error);
}

TEST(Parse, CountsAreUnsigned) {
  Parse parse;
  parse.query = "select 1";
  parse.parameter_types.assign(65535, 23);
  std::string out;
  parse.encode(out);
  const auto decoded = Parse::decode(std::string_view(out).substr(5));
  ASSERT_TRUE(decoded.has_value());
  EXPECT_EQ(decoded->parameter_types.size(), 65535u);
}

// F7: with the context that PostgreSQL gives it.
TEST(Bind, AValueThatIsNotThereNamesItsParameter) {
  const auto context = [](std::string_view payload) {
    const auto bind = Bind::decode(payload);
    EXPECT_TRUE(bind.has_error());
    return bind.has_error() ? bind.error().other_fields : std::string();
  };
  using namespace std::string_literals;
  EXPECT_EQ(context("\0\0\0\0\0\1\0\0\0\x64"s + "1"), "Wunnamed portal parameter $1\0"s);
  EXPECT_EQ(context("p\0\0\0\0\0\2\xff\xff\xff\xff\xff\xff\xff\xfe"s),
            "Wportal \"p\" parameter $2\0"s);
  EXPECT_EQ(context("\0\0\0\1\0"s), "");  // not in the values yet
}

TEST(Bind, ReboundChangesTheNamesAlone) {
  for (const auto& c : test::frontend_cases()) {
    if (c.tag != 'B' || !c.error.empty()) continue;
    SCOPED_TRACE(c.name);
    const ExactBuffer payload(c.payload);
    std::string out;
    encode_rebound(out, payload.view(), "portal", "longer statement name");
    const auto before = Bind::decode(payload.view());
    const auto after = Bind::decode(std::string_view(out).substr(5));
    ASSERT_TRUE(after.has_value());
    EXPECT_EQ(after->portal, "portal");
    EXPECT_EQ(after->statement, "longer statement name");
    EXPECT_EQ(after->parameter_formats, before->parameter_formats);
    EXPECT_EQ(after->parameters, before->parameters);
    EXPECT_EQ(after->result_formats, before->result_formats);
  }
}

TEST(Bind, ReboundOfNoBindIsRefusedByTheServer) {
  std::string out;
  encode_rebound(out, "no NUL", "p", "s");
  EXPECT_EQ(out, typed('B', z("p") + z("s")));
  EXPECT_TRUE(Bind::decode(std::string_view(out).substr(5)).has_error());
}

TEST(Execute, NegativeLimitsAreKept) {
  const std::string payload = z("p") + i32(-1);
  const auto execute = Execute::decode(payload);
  ASSERT_TRUE(execute.has_value());
  EXPECT_EQ(execute->portal, "p");
  EXPECT_EQ(execute->max_rows, -1);
}

TEST(SaslInitialResponse, LengthTellsDataFromNone) {
  struct Case {
    const char* name;
    std::string payload;
    std::optional<std::string> data;
    std::string error;
  };
  const Case cases[] = {
      {"data", z("SCRAM-SHA-256") + test::sized("n,,n=,r=abc"), "n,,n=,r=abc", ""},
      {"empty data", z("SCRAM-SHA-256") + i32(0), "", ""},
      {"no data", z("SCRAM-SHA-256") + i32(-1), std::nullopt, ""},
      {"length lies",
       z("SCRAM-SHA-256") + i32(32) + "n,,",
       {},
       "insufficient data left in message"},
      {"length -2", z("SCRAM-SHA-256") + i32(-2), {}, "insufficient data left in message"},
      {"bytes after the data", z("SCRAM-SHA-256") + i32(1) + "nx", {}, "invalid message format"},
      {"no NUL", "SCRAM-SHA-256", {}, "invalid string in message"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.name);
    const ExactBuffer payload(c.payload);
    const auto message = SaslInitialResponse::decode(payload.view());
    ASSERT_EQ(message.has_error(), !c.error.empty());
    if (!c.error.empty()) {
      EXPECT_EQ(message.error().message, c.error);
      EXPECT_EQ(message.error().severity, "FATAL");
      EXPECT_EQ(message.error().sqlstate, "08P01");
      continue;
    }
    EXPECT_EQ(message->mechanism, "SCRAM-SHA-256");
    EXPECT_EQ(message->data, c.data);
    std::string out;
    message->encode(out);
    EXPECT_EQ(out, typed('p', c.payload));
  }
}

TEST(FunctionCall, Decodes) {
  const std::string args = i16(2) + test::sized("a") + test::kNull + i16(1);
  const std::string payload = i32(1598) + i16(1) + i16(1) + args;
  const auto call = FunctionCallMessage::decode(payload);
  ASSERT_TRUE(call.has_value());
  EXPECT_EQ(call->oid, 1598u);
  ASSERT_EQ(call->arguments.size(), 2u);
  EXPECT_EQ(call->arguments[0], "a");
  EXPECT_EQ(call->arguments[1], std::nullopt);
  EXPECT_EQ(call->result_format, 1);
  for (std::size_t size = 0; size < payload.size(); ++size) {
    const ExactBuffer cut(std::string_view(payload).substr(0, size));
    EXPECT_TRUE(FunctionCallMessage::decode(cut.view()).has_error()) << size;
  }
  const std::string three_formats = i32(1) + i16(3) + i16(0) + i16(0) + i16(0) + args;
  EXPECT_EQ(FunctionCallMessage::decode(three_formats).error().message,
            "function call message contains 3 argument formats but 2 arguments");
}

TEST(Frontend, MessagesWithoutABody) {
  std::string out;
  encode_sync(out);
  encode_flush(out);
  encode_terminate(out);
  encode_copy_done(out);
  encode_copy_data(out, "1\t2\n");
  SaslResponse{"c=biws"}.encode(out);
  EXPECT_EQ(out, typed('S', "") + typed('H', "") + typed('X', "") + typed('c', "") +
                     typed('d', "1\t2\n") + typed('p', "c=biws"));
}

}  // namespace
}  // namespace collegedb::wire
