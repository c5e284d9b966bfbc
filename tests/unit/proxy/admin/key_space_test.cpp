#include "proxy/admin/key_space.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace collegedb::admin {
namespace {

using ::testing::HasSubstr;
using Path = std::vector<std::string>;

routing::TableInfo table(std::string schema, std::string name, routing::TableKind kind,
                         std::string group = {}, routing::KeyType type = routing::KeyType::kInt8) {
  routing::TableInfo info;
  info.name = {std::move(schema), std::move(name)};
  info.kind = kind;
  info.group = std::move(group);
  info.key_type = type;
  return info;
}

routing::Snapshot cluster() {
  using enum routing::TableKind;
  routing::Snapshot snapshot;
  snapshot.tables = {table("public", "users", kSharded, "public.users"),
                     table("public", "orders", kSharded, "public.users"),
                     table("app", "users", kSharded, "app.users", routing::KeyType::kText),
                     table("app", "Mixed", kSharded, "app.mixed", routing::KeyType::kBytea),
                     table("public", "countries", kReference)};
  return snapshot;
}

std::string meant(const std::string& key, const std::optional<std::string>& name,
                  const Path& path = {}) {
  const auto found = key_meant(cluster(), key, name, path);
  return found ? found->group + " " + found->key
               : found.error().sqlstate + " " + found.error().message;
}

TEST(KeyMeant, NamesAreReadAsSqlReadsThem) {
  EXPECT_EQ(meant("7", "users"), "public.users 7");
  EXPECT_EQ(meant("7", "USERS"), "public.users 7");
  EXPECT_EQ(meant("7", "\"orders\""), "public.users 7");
  EXPECT_EQ(meant("7", "Public.Orders"), "public.users 7");
  EXPECT_EQ(meant("0102", "app.\"Mixed\"").substr(0, 9), "app.mixed");
  EXPECT_THAT(meant("7", "app.mixed"), HasSubstr("42P01"));
  EXPECT_THAT(meant("7", "\"USERS\""), HasSubstr("42P01"));
  EXPECT_THAT(meant("7", "public.users.x"), HasSubstr("42602"));
  EXPECT_THAT(meant("7", "\"users"), HasSubstr("42602"));
}

TEST(KeyMeant, TheSearchPathDecides) {
  EXPECT_EQ(meant("x", "users", {"app"}), "app.users x");
  EXPECT_EQ(meant("7", "users", {"public", "app"}), "public.users 7");
  EXPECT_EQ(meant("7", "users", {"none"}), "public.users 7");
  EXPECT_EQ(meant("7", "public.users", {"app"}), "public.users 7");
}

TEST(KeyMeant, WithoutATableThereMustBeOneGroup) {
  EXPECT_EQ(meant("7", std::nullopt),
            "42725 there are several colocation groups: app.mixed, app.users, public.users");
  routing::Snapshot one = cluster();
  one.tables.resize(2);
  EXPECT_EQ(key_meant(one, "7", std::nullopt, {})->group, "public.users");
  one.tables.clear();
  EXPECT_EQ(key_meant(one, "7", std::nullopt, {}).error().sqlstate, "42P01");
}

TEST(KeyMeant, OnlyShardedTablesHaveKeys) {
  EXPECT_THAT(meant("7", "countries"), HasSubstr("42P01 UNKNOWN_TABLE"));
  EXPECT_THAT(meant("7", "nothing"), HasSubstr("\"nothing\" is not a sharded table"));
}

TEST(KeyMeant, TheKeyIsCanonical) {
  EXPECT_EQ(meant("042", "users"), "public.users 42");
  EXPECT_EQ(meant("\\x0AFF", "app.\"Mixed\""), "app.mixed 0aff");
  EXPECT_THAT(meant("x", "users"), HasSubstr("22P02"));
}

}  // namespace
}  // namespace collegedb::admin
