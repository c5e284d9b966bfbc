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

TEST(Snapshot, AnUnregisteredRelationHidesTheRegisteredOne) {
  Snapshot snapshot = sample();
  snapshot.homonyms = {{"s", "users"}, {"public", "users"}, {"s", "active"}};
  EXPECT_EQ(snapshot.find_table({"", "users"}, {"s", "public"}), nullptr);
  EXPECT_EQ(snapshot.find_table({"", "users"}, {"public", "s"})->group, "public.users");
  EXPECT_EQ(snapshot.find_table({"public", "users"}, {"s"})->group, "public.users");
  EXPECT_FALSE(snapshot.is_dependent({"", "active"}, {"s", "app"}));
  EXPECT_EQ(snapshot.resolve({"", "users"}, {"s", "public"}),
            (parser::QualifiedName{"s", "users"}));
  EXPECT_EQ(snapshot.resolve({"", "unheard_of"}, {"s"}), (parser::QualifiedName{"", "unheard_of"}));
}

TEST(Snapshot, TheCatalogComesFirstUnlessThePathHasIt) {
  Snapshot snapshot = sample();
  snapshot.tables.push_back(table("public", "pg_class", TableKind::kSharded, "public.pg_class"));
  snapshot.homonyms = {{"pg_catalog", "pg_class"}};
  EXPECT_EQ(snapshot.find_table({"", "pg_class"}, {"public"}), nullptr);
  EXPECT_NE(snapshot.find_table({"", "pg_class"}, {"public", "pg_catalog"}), nullptr);
  EXPECT_EQ(snapshot.find_table({"", "pg_class"}, {"pg_catalog", "public"}), nullptr);
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
