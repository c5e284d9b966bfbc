// What no shard can do alone is told when a table is sharded, and by collegedb check.
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <sstream>

#include "migration/hazards.h"
#include "migration/registry.h"
#include "tests/pg/migration/cluster_fixture.h"

namespace collegedb {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class HazardsTest : public pgtest::ClusterTest {
 protected:
  void SetUp() override {
    ClusterTest::SetUp();
    install();
  }
  void shard(const std::string& table, const std::string& key = "id",
             const std::string& root = {}) {
    const auto done =
        migration::shard_table(config, {.table = table, .key = key, .colocate_with = root});
    ASSERT_TRUE(done) << done.error().message;
  }
  std::vector<std::string> of(const std::string& table, bool unregistered_too = true) {
    const auto journal = session(0);
    const auto registry = migration::read_registry(*journal, config.journal.scope);
    for (const auto& each : registry) {
      if (each.name.name == table) {
        return migration::hazards(*journal, each, registry, unregistered_too);
      }
    }
    ADD_FAILURE() << table << " is not registered";
    return {};
  }
};

TEST_F(HazardsTest, UniquenessWithoutTheKey) {
  tell_all(
      "CREATE EXTENSION btree_gist;"
      "CREATE TABLE users (id int PRIMARY KEY, mail text CONSTRAINT one_mail UNIQUE, name text,"
      " room int, UNIQUE (id, name), CONSTRAINT one_room EXCLUDE USING gist (room WITH =),"
      " EXCLUDE USING gist (id WITH =, room WITH =));"
      "CREATE UNIQUE INDEX one_name ON users (lower(name)) INCLUDE (id);"
      "CREATE UNIQUE INDEX with_key ON users (name, id); CREATE INDEX plain ON users (name)");
  shard("users");
  EXPECT_THAT(
      of("users"),
      ElementsAre(HasSubstr("unique index one_mail of table public.users does not contain the key"),
                  HasSubstr("unique index one_name"), HasSubstr("exclusion constraint one_room")));
}

TEST_F(HazardsTest, TriggersAndRules) {
  tell_all(
      "CREATE TABLE users (id int) PARTITION BY LIST (id);"
      "CREATE TABLE part PARTITION OF users FOR VALUES IN (1); CREATE TABLE calm (id int);"
      "CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';"
      "CREATE TRIGGER audit AFTER INSERT ON part FOR EACH ROW EXECUTE FUNCTION nothing();"
      "CREATE TABLE ruled (id int); CREATE RULE gone AS ON DELETE TO ruled DO INSTEAD NOTHING");
  shard("users");
  shard("ruled");
  shard("calm");
  EXPECT_THAT(of("users"), ElementsAre(HasSubstr("trigger audit of table public.users")));
  EXPECT_THAT(of("ruled"), ElementsAre(HasSubstr("rule gone of table public.ruled")));
  EXPECT_THAT(of("calm"), IsEmpty()) << "the fence is no trigger of the user's";
}

TEST_F(HazardsTest, ForeignKeysThatPlacementDecides) {
  tell_all(
      "CREATE TABLE countries (code text PRIMARY KEY);"
      "CREATE TABLE settings (id int PRIMARY KEY);"
      "CREATE TABLE teams (id int PRIMARY KEY);"
      "CREATE TABLE users (id int PRIMARY KEY, boss int REFERENCES users,"
      " country text REFERENCES countries, team int CONSTRAINT to_team REFERENCES teams,"
      " setting int CONSTRAINT to_setting REFERENCES settings);"
      "CREATE TABLE orders (user_id int REFERENCES users, no int)");
  ASSERT_TRUE(migration::reference_table(config, {.table = "countries"}));
  shard("teams");
  shard("users");
  EXPECT_THAT(of("users"), Contains(HasSubstr("of public.orders: its rows")));
  EXPECT_THAT(of("users", false), Not(Contains(HasSubstr("orders"))));
  shard("orders", "user_id", "users");
  EXPECT_THAT(of("users"),
              ElementsAre(HasSubstr("foreign key to_setting of table public.users references"),
                          HasSubstr("foreign key to_team of table public.users references"),
                          HasSubstr("foreign key users_boss_fkey")));
  EXPECT_THAT(of("teams"), ElementsAre(HasSubstr("foreign key to_team to table public.teams of")));
  EXPECT_THAT(of("orders"), IsEmpty());
}

TEST_F(HazardsTest, AComputedKeyIsRefused) {
  tell_all("CREATE TABLE t (a int, id int GENERATED ALWAYS AS (a + 1) STORED)");
  const auto refused = migration::shard_table(config, {.table = "t"});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().sqlstate, "0A000");
  EXPECT_THAT(refused.error().message, HasSubstr("is generated from other columns"));
  EXPECT_EQ(ask(0, "SELECT count(*) FROM collegedb.tables"), "0");
}

TEST_F(HazardsTest, AreLoggedWhenTheTableIsSharded) {
  tell_all("CREATE TABLE users (id int PRIMARY KEY, mail text UNIQUE)");
  std::ostringstream log;
  const auto before = spdlog::default_logger();
  spdlog::set_default_logger(
      std::make_shared<spdlog::logger>("", std::make_shared<spdlog::sinks::ostream_sink_mt>(log)));
  shard("users");
  spdlog::set_default_logger(before);
  EXPECT_THAT(log.str(), HasSubstr("unique index users_mail_key of table public.users"));
}

TEST_F(HazardsTest, AreToldByCheck) {
  tell_all("CREATE TABLE users (id int PRIMARY KEY, mail text UNIQUE)");
  shard("users");
  std::vector<std::string> warnings;
  for (const migration::Finding& each : migration::preflight(config)) {
    if (each.severity == migration::Finding::Severity::kWarning) {
      warnings.push_back(each.text);
    }
    EXPECT_NE(each.severity, migration::Finding::Severity::kError) << each.text;
  }
  EXPECT_THAT(warnings, ElementsAre(HasSubstr("users_mail_key")));
}

}  // namespace
}  // namespace collegedb
