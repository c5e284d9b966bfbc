#include "migration/move_meter.h"

#include <gtest/gtest.h>

namespace collegedb::migration {
namespace {

class MoveMeterTest : public ::testing::Test {
 protected:
  metrics::ProcessStats stats_{1};
  double now_ms_ = 1000;
  Clock clock_{.now_ms = [this] { return now_ms_; }, .sleep = [](std::chrono::milliseconds) {}};

  [[nodiscard]] std::int64_t active(metrics::MoveState state) const {
    return stats_.moves_active[state].value();
  }
  [[nodiscard]] double seconds(metrics::MovePhase phase) const {
    return static_cast<double>(stats_.move_time[phase].sum_ns()) / 1e9;
  }
};

TEST_F(MoveMeterTest, MeasuresPhasesAndTheEnd) {
  MoveMeter meter(&stats_, clock_, State::kClaim);
  meter.at(State::kPrepared);
  EXPECT_EQ(active(metrics::MoveState::kPrepared), 1);
  now_ms_ += 250;
  meter.at(State::kCopied);
  meter.at(State::kCopied);
  EXPECT_EQ(active(metrics::MoveState::kPrepared), 0);
  EXPECT_EQ(active(metrics::MoveState::kCopied), 1);
  now_ms_ += 1000;
  MoveRecord record;
  record.state = State::kRetired;
  record.digest.rows = 3;
  record.digest.bytes = 200;
  record.write_stall_ms = 7;
  meter.ended(Outcome::kRetired, record);
  EXPECT_EQ(active(metrics::MoveState::kCopied), 0);
  EXPECT_DOUBLE_EQ(seconds(metrics::MovePhase::kPrepare), 0.25);
  EXPECT_DOUBLE_EQ(seconds(metrics::MovePhase::kCopy), 1);
  EXPECT_DOUBLE_EQ(seconds(metrics::MovePhase::kTotal), 1.25);
  EXPECT_EQ(stats_.moves[metrics::MoveResult::kPublished].value(), 1U);
  EXPECT_EQ(stats_.move_rows.value(), 3U);
  EXPECT_EQ(stats_.move_bytes.value(), 200U);
  EXPECT_EQ(stats_.move_write_stall.sum_ns(), 7'000'000U);
}

TEST_F(MoveMeterTest, ALostRunLeavesNoActiveMove) {
  {
    MoveMeter meter(&stats_, clock_, State::kCommitted);
    EXPECT_EQ(active(metrics::MoveState::kCommitted), 1);
    MoveRecord record;
    record.state = State::kCommitted;
    meter.ended(Outcome::kLost, record);
  }
  EXPECT_EQ(active(metrics::MoveState::kCommitted), 0);
  for (const auto result : {metrics::MoveResult::kPublished, metrics::MoveResult::kAborted,
                            metrics::MoveResult::kFailed}) {
    EXPECT_EQ(stats_.moves[result].value(), 0U);
  }
}

TEST_F(MoveMeterTest, CountsAbortsAndUnclearOnes) {
  MoveRecord record;
  record.state = State::kAborted;
  MoveMeter(&stats_, clock_, State::kPrepared).ended(Outcome::kAborted, record);
  record.state = State::kCutoverPending;
  MoveMeter(&stats_, clock_, State::kCutoverPending).ended(Outcome::kUnclear, record);
  EXPECT_EQ(stats_.moves[metrics::MoveResult::kAborted].value(), 1U);
  EXPECT_EQ(stats_.moves[metrics::MoveResult::kFailed].value(), 1U);
  EXPECT_EQ(active(metrics::MoveState::kCutoverPending), 0);
}

TEST_F(MoveMeterTest, WithoutStatisticsNothingHappens) {
  MoveMeter meter(nullptr, clock_, State::kClaim);
  meter.at(State::kPrepared);
  meter.ended(Outcome::kRetired, MoveRecord{});
}

}  // namespace
}  // namespace collegedb::migration
