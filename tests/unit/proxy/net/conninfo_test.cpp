#include "proxy/net/conninfo.h"

#include <gtest/gtest.h>

namespace collegedb::net {
namespace {

TEST(Conninfo, KeywordsAndDefaults) {
  const auto target = parse_target("host=db1 port=6001 user=app dbname=shop password='a b'");
  ASSERT_TRUE(target);
  ASSERT_EQ(target->hosts.size(), 1U);
  EXPECT_EQ(target->hosts[0].name, "db1");
  EXPECT_EQ(target->hosts[0].port, 6001);
  EXPECT_EQ(target->hosts[0].text(), "db1:6001");
  EXPECT_EQ(target->user, "app");
  EXPECT_EQ(target->database, "shop");
  EXPECT_EQ(target->password, "a b");
  EXPECT_EQ(target->application_name, "collegedb");
}

TEST(Conninfo, Uri) {
  const auto target = parse_target(
      "postgresql://app:pw@[::1]:6002/shop?sslmode=require&connect_timeout=3&application_name=x");
  ASSERT_TRUE(target);
  EXPECT_EQ(target->hosts[0].name, "::1");
  EXPECT_EQ(target->hosts[0].port, 6002);
  EXPECT_EQ(target->connect_timeout, Milliseconds(3000));
  EXPECT_GE(target->ssl_mode, SslMode::kRequire);
  EXPECT_EQ(target->application_name, "x");
}

TEST(Conninfo, DatabaseDefaultsToUser) {
  const auto target = parse_target("host=h user=app");
  ASSERT_TRUE(target);
  EXPECT_EQ(target->database, "app");
}

TEST(Conninfo, SeveralHostsShareOnePort) {
  const auto target = parse_target("host=a,b,/run/pg port=6001 user=u");
  ASSERT_TRUE(target);
  ASSERT_EQ(target->hosts.size(), 3U);
  EXPECT_EQ(target->hosts[1].port, 6001);
  EXPECT_TRUE(target->hosts[2].is_unix());
  EXPECT_EQ(target->hosts[2].text(), "/run/pg/.s.PGSQL.6001");
}

TEST(Conninfo, PortsPerHostAndHostaddr) {
  const auto target = parse_target("host=a,b hostaddr=127.0.0.1,127.0.0.2 port=1,2 user=u");
  ASSERT_TRUE(target);
  EXPECT_EQ(target->hosts[1].address, "127.0.0.2");
  EXPECT_EQ(target->hosts[1].port, 2);
}

TEST(Conninfo, SslModes) {
  for (const auto& [text, mode] :
       {std::pair{"disable", SslMode::kDisable}, std::pair{"allow", SslMode::kAllow},
        std::pair{"prefer", SslMode::kPrefer}, std::pair{"verify-ca", SslMode::kVerifyCa},
        std::pair{"verify-full", SslMode::kVerifyFull}}) {
    const auto target = parse_target(std::string("host=h user=u sslmode=") + text);
    ASSERT_TRUE(target) << text;
    EXPECT_EQ(target->ssl_mode, mode) << text;
  }
  const auto pinned = parse_target("host=h user=u sslmode=require sslrootcert=/ca.pem");
  ASSERT_TRUE(pinned);
  EXPECT_EQ(pinned->ssl_mode, SslMode::kVerifyCa);
}

TEST(Conninfo, Faults) {
  for (const char* text :
       {"host", "nonsense=1", "host=h port=abc user=u", "host=h port=70000 user=u",
        "host=a,b port=1,2,3 user=u", "host=h sslmode=maybe user=u", "postgresql://[::1"}) {
    EXPECT_FALSE(parse_target(text)) << text;
  }
}

}  // namespace
}  // namespace collegedb::net
