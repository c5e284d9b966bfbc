#include "routing/snapshot.h"

#include <gtest/gtest.h>

namespace collegedb::routing {
namespace {

TableInfo table(std::string schema, std::string name, TableKind kind, std::string group = "") {
  TableInfo info;
  info.name = {std::move(schema), std::move(name)};
  info.kind = kind;
  info.group = std::move(group);
  return info;
}

Snapshot sample() {
  Snapshot snapshot;
  snapshot.shards = {{"db-east"}, {"db-west"}};
  snapshot.tables = {table("public", "users", TableKind::kSharded, "public.users"),
                     table("public", "orders", TableKind::kSharded, "public.users"),
                     table("app", "users", TableKind::kSharded, "app.users"),
                     table("public", "countries", TableKind::kReference)};
  snapshot.dependent_relations = {{"app", "active"}, {"public", "users"}, {"late", "orders"}};
  return snapshot;
}

TEST(Snapshot, QualifiedNameIsFoundAsItStands) {
  const Snapshot snapshot = sample();
  EXPECT_EQ(snapshot.find_table({"app", "users"}, {"public"})->group, "app.users");
  EXPECT_EQ(snapshot.find_table({"app", "orders"}, {"public"}), nullptr);
}

TEST(Snapshot, SearchPathDecidesInOrder) {
  const Snapshot snapshot = sample();
  EXPECT_EQ(snapshot.find_table({"", "users"}, {"public", "app"})->group, "public.users");
  EXPECT_EQ(snapshot.find_table({"", "users"}, {"app", "public"})->group, "app.users");
  EXPECT_EQ(snapshot.find_table({"", "users"}, {"nowhere"}), nullptr);
  EXPECT_EQ(snapshot.find_table({"", "users"}, {}), nullptr);
}

TEST(Snapshot, DependentRelationsFollowTheSamePath) {
  const Snapshot snapshot = sample();
  EXPECT_TRUE(snapshot.is_dependent({"app", "active"}, {}));
  EXPECT_TRUE(snapshot.is_dependent({"", "active"}, {"public", "app"}));
  EXPECT_FALSE(snapshot.is_dependent({"", "active"}, {"public"}));
  // The registered table of an earlier schema hides the view of a later one.
  EXPECT_FALSE(snapshot.is_dependent({"", "orders"}, {"public", "late"}));
  EXPECT_TRUE(snapshot.is_dependent({"", "orders"}, {"late", "public"}));
}

TEST(Snapshot, ShardsByName) {
  const Snapshot snapshot = sample();
  EXPECT_EQ(snapshot.find_shard("db-west"), ShardId{1});
  EXPECT_EQ(snapshot.find_shard("db"), std::nullopt);
}

TEST(Snapshot, GroupsAreDistinctAndSorted) {
  EXPECT_EQ(sample().groups(), (std::vector<std::string>{"app.users", "public.users"}));
  EXPECT_TRUE(sample().has_sharded_tables());
  Snapshot reference_only;
  reference_only.tables = {table("public", "countries", TableKind::kReference)};
  EXPECT_FALSE(reference_only.has_sharded_tables());
}

TEST(ExceptionMap, LooksUpBorrowedNames) {
  ExceptionMap map;
  map.emplace(GroupKey{"g", "k"}, ShardId{3});
  EXPECT_EQ(map.find(GroupKeyView{"g", "k"})->second, 3);
  EXPECT_EQ(map.find(GroupKeyView{"g", "K"}), map.end());
  EXPECT_EQ(map.find(GroupKey{"h", "k"}), map.end());
}

}  // namespace
}  // namespace collegedb::routing
