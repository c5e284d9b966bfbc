#include "proxy/logging.h"

#include <gmock/gmock.h>
#include <spdlog/spdlog.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "proxy/signals.h"

namespace collegedb {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

class LoggingTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = std::filesystem::temp_directory_path() / "logging_test.XXXXXX";
    directory_ = ::mkdtemp(pattern.data());
  }
  void TearDown() override {
    set_up_logging(Config::Proxy{});
    std::filesystem::remove_all(directory_);
  }
  [[nodiscard]] std::string log() const {
    std::ostringstream text;
    text << std::ifstream(directory_ / "log").rdbuf();
    return text.str();
  }

  std::filesystem::path directory_;
};

TEST_F(LoggingTest, WritesText) {
  set_up_logging_to_file(Config::Proxy{}, directory_ / "log");
  spdlog::info("hello");
  EXPECT_THAT(log(), MatchesRegex("[-0-9]+ [:.0-9]+ info hello\n"));
}

TEST_F(LoggingTest, WritesOneJsonObjectALine) {
  Config::Proxy config;
  config.log_format = "json";
  set_up_logging_to_file(config, directory_ / "log");
  spdlog::warn("a \"b\"\n\x01\\");
  EXPECT_THAT(log(), MatchesRegex(".\"time\":\"[-+:.T0-9]+\",\"level\":\"warning\","
                                  "\"message\":\"a .\"b.\".u000a.u0001..\".\n"));
}

TEST_F(LoggingTest, LevelCanBeChanged) {
  Config::Proxy config;
  config.log_level = "error";
  set_up_logging_to_file(config, directory_ / "log");
  spdlog::info("unseen");
  set_log_level("debug");
  spdlog::debug("seen");
  spdlog::default_logger()->flush();
  EXPECT_THAT(log(), Not(HasSubstr("unseen")));
  EXPECT_THAT(log(), HasSubstr("debug seen"));
}

TEST(SignalsTest, GivesSignalsAsValues) {
  const Signals signals;
  EXPECT_EQ(signals.wait(std::chrono::milliseconds(0)), std::nullopt);
  ::raise(SIGHUP);
  EXPECT_EQ(signals.wait(std::chrono::milliseconds(0)), SIGHUP);
  EXPECT_EQ(signals.wait(std::chrono::milliseconds(1)), std::nullopt);
}

}  // namespace
}  // namespace collegedb
