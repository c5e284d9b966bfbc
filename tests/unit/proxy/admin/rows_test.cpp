#include "proxy/admin/rows.h"

#include <gtest/gtest.h>

#include "proxy/admin/functions.h"

namespace collegedb::admin {
namespace {

using session::AdminCall;

AdminCall reassign_call() {
  AdminCall call;
  for (const auto& function : functions()) {
    if (function.name == "collegedb_reassign") {
      call.function = &function;
    }
  }
  call.arguments.resize(5);
  return call;
}

TEST(Arguments, NullAndMissingAreNotGiven) {
  AdminCall call = reassign_call();
  call.arguments[0] = std::optional<std::string>{"k"};
  call.arguments[1] = std::optional<std::string>{};
  const Arguments arguments(call);
  EXPECT_EQ(arguments.text(0), "k");
  EXPECT_FALSE(arguments.given(1));
  EXPECT_FALSE(arguments.given(2));
  EXPECT_FALSE(arguments.given(99));
  EXPECT_EQ(arguments.required(0).value(), "k");
  EXPECT_EQ(arguments.required(1).error().sqlstate, "22004");
  EXPECT_EQ(arguments.required(1).error().message,
            "argument \"shard\" of collegedb_reassign must not be null");
}

TEST(Arguments, BooleansAreReadAsPostgresReadsThem) {
  struct Case {
    const char* text;
    bool value;
  };
  for (const Case& each :
       {Case{"t", true}, Case{"TRUE", true}, Case{" yes ", true}, Case{"on", true}, Case{"1", true},
        Case{"f", false}, Case{"No", false}, Case{"of", false}, Case{"0", false}}) {
    AdminCall call = reassign_call();
    call.arguments[4] = std::optional<std::string>{each.text};
    EXPECT_EQ(Arguments(call).boolean(4, !each.value).value(), each.value) << each.text;
  }
  for (const char* text : {"", "o", "2", "truex", "null"}) {
    AdminCall call = reassign_call();
    call.arguments[4] = std::optional<std::string>{text};
    EXPECT_EQ(Arguments(call).boolean(4, true).error().sqlstate, "22P02") << text;
  }
  EXPECT_TRUE(Arguments(reassign_call()).boolean(4, true).value());
}

TEST(Rows, ValuesHavePostgresTextForm) {
  session::AdminRows rows;
  add_row(rows, "a", true, 7, -1.5, std::vector<std::string>{"x", "say \"y\""},
          std::optional<std::string>{}, std::optional<double>{0.125}, non_empty(""));
  ASSERT_EQ(rows.rows.size(), 1U);
  EXPECT_EQ(rows.rows[0], (std::vector<Cell>{"a", "t", "7", "-1.5", R"({"x","say \"y\""})",
                                             std::nullopt, "0.125", std::nullopt}));
}

TEST(Json, StringsAreEscaped) {
  EXPECT_EQ(json_string("a\"b\\c\n\x01"), R"("a\"b\\c\u000a\u0001")");
  EXPECT_EQ(json_string("gr\xc3\xbc\xc3\x9f"), "\"gr\xc3\xbc\xc3\x9f\"");
}

}  // namespace
}  // namespace collegedb::admin
