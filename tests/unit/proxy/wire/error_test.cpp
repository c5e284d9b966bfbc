#include "proxy/wire/error.h"

#include <gtest/gtest.h>

#include <set>
#include <stdexcept>

namespace collegedb {
namespace {

TEST(Error, CodeStandsBeforeTheText) {
  const SqlError error =
      make_error(ErrorCode::kKeyRequired, "INSERT names no key", "add the key", "table \"users\"");
  EXPECT_EQ(error.sqlstate, "0A000");
  EXPECT_EQ(error.message, "KEY_REQUIRED: INSERT names no key");
  EXPECT_EQ(error.hint, "add the key");
  EXPECT_EQ(error.detail, "table \"users\"");
  EXPECT_EQ(error.severity, "ERROR");
  EXPECT_EQ(error.position, 0);
}

TEST(Error, WhatAClientRetriesCarries40001) {
  for (const auto code :
       {ErrorCode::kMigrationCutoverPending, ErrorCode::kRecoveryFenced,
        ErrorCode::kPlacementConflict, ErrorCode::kPlacementUnverified, ErrorCode::kStaleTopology,
        ErrorCode::kWriteUnresolved, ErrorCode::kMovedInTransaction}) {
    EXPECT_EQ(sqlstate_of(code), "40001") << name_of(code);
  }
}

TEST(Error, SqlstatesOfTheInterface) {
  EXPECT_EQ(sqlstate_of(ErrorCode::kInvalidJournalShard), "F0000");
  EXPECT_EQ(sqlstate_of(ErrorCode::kRecoveryInProgress), "55P03");
  EXPECT_EQ(sqlstate_of(ErrorCode::kDestinationConflict), "23505");
  EXPECT_EQ(sqlstate_of(ErrorCode::kMappingNotFound), "02000");
  EXPECT_EQ(sqlstate_of(ErrorCode::kTooManyEpochs), "54000");
  EXPECT_EQ(sqlstate_of(ErrorCode::kShardUnavailable), "08006");
  EXPECT_EQ(sqlstate_of(ErrorCode::kPoolTimeout), "53300");
  EXPECT_EQ(sqlstate_of(ErrorCode::kUnknownTable), "42P01");
}

TEST(Error, NamesAreDistinct) {
  std::set<std::string_view> names;
  for (int code = 0; code <= static_cast<int>(ErrorCode::kUnknownTable); ++code) {
    EXPECT_TRUE(names.insert(name_of(static_cast<ErrorCode>(code))).second) << code;
  }
  EXPECT_EQ(name_of(ErrorCode::kOperationAlreadyApplied), "OPERATION_ALREADY_APPLIED");
}

TEST(Error, AValueOutsideTheEnumIsAnInternalError) {
  EXPECT_EQ(sqlstate_of(static_cast<ErrorCode>(255)), "XX000");
}

TEST(Error, ClassOneIsAWarning) {
  EXPECT_EQ(make_error(ErrorCode::kPartialResult, "1 of 3 shards").severity, "WARNING");
  EXPECT_EQ(make_error("01000", "x").severity, "WARNING");
}

TEST(Error, AnSqlstateHasFiveCharacters) {
  EXPECT_EQ(make_error("42P01", "x").sqlstate, "42P01");
  EXPECT_EQ(make_error("", "x").sqlstate, "XX000");
  EXPECT_EQ(make_error("42", "x").sqlstate, "XX000");
}

TEST(Error, FatalEndsTheConnection) {
  const SqlError error = make_fatal("57P01", "bye");
  EXPECT_EQ(error.severity, "FATAL");
  EXPECT_EQ(error.sqlstate, "57P01");
}

TEST(Error, ValueOfAnErrorThrows) {
  const Result<int> result = make_error("42601", "bad");
  EXPECT_THROW(static_cast<void>(result.value()), std::runtime_error);
}

TEST(Error, AStringIsAValueNotAnError) {
  const Result<std::string> result = std::string("42601");
  ASSERT_TRUE(result.has_value());
  EXPECT_EQ(*result, "42601");
}

}  // namespace
}  // namespace collegedb
