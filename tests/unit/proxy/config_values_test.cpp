#include "proxy/config_values.h"

#include <gtest/gtest.h>

#include <array>

#include "proxy/conninfo.h"

namespace collegedb {
namespace {

TEST(DurationTest, ReadsUnits) {
  const std::pair<const char*, long long> cases[] = {
      {"0", 0},          {"250ms", 250},    {"10s", 10'000},     {"5m", 300'000},
      {"5min", 300'000}, {"1h", 3'600'000}, {"7d", 604'800'000}, {"10 s", 10'000},
  };
  for (const auto& [text, ms] : cases) {
    const auto parsed = parse_duration(text);
    ASSERT_TRUE(parsed.has_value()) << text;
    EXPECT_EQ(parsed->count(), ms) << text;
  }
}

TEST(DurationTest, RefusesTheRest) {
  for (const char* text : {"", "10", "s", "-1s", "1.5s", "10 parsecs", "10s ", "99999999999999d"}) {
    EXPECT_FALSE(parse_duration(text).has_value()) << text;
  }
}

TEST(SizeTest, ReadsUnits) {
  EXPECT_EQ(parse_size("50MB/s", true), 50'000'000U);
  EXPECT_EQ(parse_size("64MiB", false), 64U << 20);
  EXPECT_EQ(parse_size("2kB", false), 2000U);
  EXPECT_EQ(parse_size("17", false), 17U);
  EXPECT_EQ(parse_size("3TB", false), 3'000'000'000'000U);
}

TEST(SizeTest, RefusesTheRest) {
  for (const char* text : {"", "MB", "5MB/s", "1XB", "-3", "99999999999TB"}) {
    EXPECT_FALSE(parse_size(text, false).has_value()) << text;
  }
}

TEST(ListenTest, ReadsAddresses) {
  const auto tcp = parse_listen("127.0.0.1:6432");
  ASSERT_TRUE(tcp.has_value());
  EXPECT_EQ(tcp->host, "127.0.0.1");
  EXPECT_EQ(tcp->port, 6432);
  const auto v6 = parse_listen("[::1]:5");
  ASSERT_TRUE(v6.has_value());
  EXPECT_EQ(v6->host, "::1");
  const auto socket = parse_listen("/run/db");
  ASSERT_TRUE(socket.has_value());
  EXPECT_EQ(socket->directory, "/run/db");
  EXPECT_EQ(socket->port, 0);
  const auto named = parse_listen("/run/db:7000");
  ASSERT_TRUE(named.has_value());
  EXPECT_EQ(named->directory, "/run/db");
  EXPECT_EQ(named->port, 7000);
}

TEST(ListenTest, RefusesTheRest) {
  for (const char* text : {"", "localhost", ":5432", "::1:5432", "h:", "h:99999", "h:5x", "[]:1",
                           "[::1:5", "/run/db:0", "/run/db:x"}) {
    EXPECT_FALSE(parse_listen(text).has_value()) << text;
  }
}

TEST(ListenTest, UnixSocketsShareThePortOfTheFirstTcpAddress) {
  const std::vector<std::string> texts = {"/a", "/b:9", "h:7000", "h:7001"};
  const auto addresses = listen_addresses(texts);
  ASSERT_EQ(addresses.size(), 4U);
  EXPECT_EQ(addresses[0].port, 7000);
  EXPECT_EQ(addresses[1].port, 9);
  EXPECT_EQ(addresses[3].port, 7001);
  const std::vector<std::string> alone = {"/a"};
  EXPECT_EQ(listen_addresses(alone).at(0).port, kDefaultPort);
}

TEST(NearestTest, FindsTypingMistakesOnly) {
  constexpr std::array<std::string_view, 3> kWords = {"listen", "workers", "database"};
  EXPECT_EQ(nearest("listn", kWords), "listen");
  EXPECT_EQ(nearest("wrokers", kWords), "workers");
  EXPECT_EQ(nearest("zzz", kWords), "");
  EXPECT_EQ(nearest("databank", kWords), "database");
}

TEST(ConninfoTest, ReadsKeywordsAndUris) {
  const auto keywords = parse_conninfo("host=a port=1 options='-c x=\\'y\\''");
  ASSERT_TRUE(keywords.has_value());
  EXPECT_EQ(keywords->at("options"), "-c x='y'");
  const auto uri = parse_conninfo("postgresql://u:p@h:5433/d?sslmode=require");
  ASSERT_TRUE(uri.has_value());
  EXPECT_EQ(uri->at("sslmode"), "require");
  EXPECT_EQ(uri->at("password"), "p");
}

TEST(ConninfoTest, WritesWhatItReads) {
  const auto keywords = parse_conninfo("host=h password='a\\'b\\\\c d'");
  ASSERT_TRUE(keywords.has_value());
  EXPECT_EQ(parse_conninfo(make_conninfo(*keywords)).value(), *keywords);
}

TEST(ConninfoTest, GivesLibpqsReason) {
  const auto refused = parse_conninfo("hots=a");
  ASSERT_TRUE(refused.has_error());
  EXPECT_EQ(refused.error().message, "invalid connection option \"hots\"");
}

TEST(PassfileTest, TakesTheFirstLineThatFits) {
  const char* contents = "# a comment\nh:1:d:u:first\nh:*:*:*:second\n*:*:*:*:with\\:colon\\\\\r\n";
  EXPECT_EQ(find_in_passfile(contents, "h", "1", "d", "u"), "first");
  EXPECT_EQ(find_in_passfile(contents, "h", "2", "d", "u"), "second");
  EXPECT_EQ(find_in_passfile(contents, "x", "2", "d", "u"), "with:colon\\");
  EXPECT_EQ(find_in_passfile("h:1:d:u:p\n", "x", "1", "d", "u"), std::nullopt);
}

}  // namespace
}  // namespace collegedb
