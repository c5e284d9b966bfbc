#include "proxy/admin/functions.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "proxy/admin/handlers.h"

namespace collegedb::admin {
namespace {

TEST(Functions, AreSortedAndNamedAlike) {
  const auto all = functions();
  EXPECT_TRUE(std::is_sorted(all.begin(), all.end(),
                             [](const auto& a, const auto& b) { return a.name < b.name; }));
  for (const auto& function : all) {
    EXPECT_TRUE(function.name.starts_with("collegedb_")) << function.name;
    EXPECT_FALSE(function.columns.empty()) << function.name;
    EXPECT_FALSE(function.help.empty()) << function.name;
    EXPECT_NE(handler_of(function), nullptr) << function.name;
  }
}

// PostgreSQL refuses a parameter without a default after one with a default, and two of one name.
TEST(Functions, HaveArgumentsThatSqlCanDeclare) {
  for (const auto& function : functions()) {
    bool optional = false;
    std::set<std::string_view> names;
    for (const auto& argument : function.arguments) {
      EXPECT_FALSE(optional && argument.required) << function.name << "." << argument.name;
      optional = optional || !argument.required;
      EXPECT_TRUE(names.insert(argument.name).second) << function.name << "." << argument.name;
    }
    names.clear();
    for (const auto& column : function.columns) {
      EXPECT_TRUE(names.insert(column.name).second) << function.name << "." << column.name;
    }
  }
}

TEST(Functions, ThoseThatChangeSomethingAreForAdministrators) {
  std::set<std::string_view> open;
  for (const auto& function : functions()) {
    if (!function.admin_only) {
      open.insert(function.name);
    }
  }
  EXPECT_EQ(open, (std::set<std::string_view>{
                      "collegedb_clients", "collegedb_diff", "collegedb_explain",
                      "collegedb_hot_keys", "collegedb_locate", "collegedb_lookups",
                      "collegedb_migration_status", "collegedb_pools", "collegedb_servers"}));
}

TEST(Functions, HaveStubsWithTheirSignature) {
  const auto all = stubs();
  ASSERT_EQ(all.size(), functions().size());
  const auto find = [&](std::string_view name) {
    return *std::find_if(all.begin(), all.end(), [&](const auto& s) { return s.name == name; });
  };
  EXPECT_EQ(find("collegedb_shard_table").arguments,
            "\"table\" text, \"key\" text DEFAULT 'id', \"colocate_with\" text DEFAULT NULL");
  EXPECT_EQ(find("collegedb_cancel_move").result, "TABLE (\"state\" text)");
  EXPECT_EQ(find("collegedb_reassign").result, "SETOF record") << "key is argument and column";
}

}  // namespace
}  // namespace collegedb::admin
