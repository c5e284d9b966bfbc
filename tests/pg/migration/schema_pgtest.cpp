#include "migration/schema.h"

#include <thread>

#include "store/snapshot_reader.h"
#include "tests/pg/migration/cluster_fixture.h"

namespace collegedb {
namespace {

using pgtest::failure_of;
using ::testing::HasSubstr;

class SchemaTest : public pgtest::ClusterTest {
 protected:
  routing::Snapshot read_snapshot() {
    return store::read_snapshot(*session(0), config, nullptr).snapshot;
  }
};

TEST_F(SchemaTest, InstallsTheJournalOnItsShardOnly) {
  install();
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(ask(i, "SELECT count(*) FROM collegedb.gate"), "2048");
    EXPECT_EQ(ask(i, "SELECT shard FROM collegedb.topology"), config.shards[i].name);
    EXPECT_EQ(ask(i, "SELECT to_regclass('collegedb.manifest') IS NOT NULL"), i == 0 ? "t" : "f");
    EXPECT_EQ(ask(i, "SELECT to_regclass('collegedb.moves') IS NOT NULL"), i == 0 ? "t" : "f");
  }
  EXPECT_EQ(ask(0, "SELECT revision || ' ' || generation || ' ' || seeded FROM collegedb.manifest"),
            "1 1 true");
  EXPECT_EQ(ask(0, "SELECT algorithm || array_to_string(shards, ',') FROM collegedb.epochs"),
            "hrwsa,sb,sc");
  EXPECT_EQ(ask(0, "SELECT string_agg(shard || slot, ',' ORDER BY slot) FROM collegedb.shards"),
            "sa0,sb1,sc2");
}

TEST_F(SchemaTest, InstallingAgainChangesNothing) {
  install();
  const std::string before = ask(0, "SELECT xmin FROM collegedb.manifest");
  install();
  EXPECT_EQ(ask(0, "SELECT xmin FROM collegedb.manifest"), before);
  EXPECT_NO_THROW(migration::check_schema(config));
}

TEST_F(SchemaTest, SeveralProxiesMayInstallAtOnce) {
  tell_all("CREATE TABLE users (id text PRIMARY KEY)");
  config.tables = {{.name = "users", .key = "id", .colocate_with = ""}};
  std::vector<std::thread> proxies;
  std::atomic<int> failures{0};
  for (int i = 0; i < 4; ++i) {
    proxies.emplace_back([&] {
      try {
        install();
      } catch (const std::exception& failure) {
        ++failures;
        ADD_FAILURE() << failure.what();
      }
    });
  }
  for (std::thread& proxy : proxies) {
    proxy.join();
  }
  EXPECT_EQ(failures, 0);
  EXPECT_EQ(ask(0, "SELECT count(*) FROM collegedb.epochs"), "1");
  EXPECT_EQ(ask(0, "SELECT count(*) FROM collegedb.tables"), "1");
}

TEST_F(SchemaTest, AShardOfVersionOneGetsWhatTheGuardNeeds) {
  install();
  tell(1,
       "DROP FUNCTION collegedb.raise_no_gate(int);"
       "UPDATE collegedb.schema_version SET version = 1 WHERE component = 'shard'");
  EXPECT_NE(failure_of([&] { migration::check_schema(config); }).message, "");
  install();
  const std::string version =
      "SELECT version FROM collegedb.schema_version WHERE component = 'shard'";
  EXPECT_EQ(ask(1, version), ask(0, version));
  EXPECT_EQ(ask(1, "SELECT to_regprocedure('collegedb.raise_no_gate(int)') IS NOT NULL"), "t");
}

TEST_F(SchemaTest, RefusesASchemaNewerThanTheProgram) {
  install();
  tell(1, "UPDATE collegedb.schema_version SET version = 99 WHERE component = 'shard'");
  const SqlError error = failure_of([&] { install(); });
  EXPECT_EQ(error.sqlstate, "55000");
  EXPECT_THAT(error.message, HasSubstr("shard \"sb\" has version 99"));
  EXPECT_EQ(failure_of([&] { migration::check_schema(config); }).message, error.message);
}

TEST_F(SchemaTest, RefusesTheDatabaseOfAnotherShard) {
  install();
  std::swap(config.shards[1].conninfo, config.shards[2].conninfo);
  EXPECT_THAT(failure_of([&] { install(); }).message,
              HasSubstr("configured as shard \"sb\" of scope \"" + config.journal.scope +
                        "\" is shard \"sc\""));
}

TEST_F(SchemaTest, RefusesTheDatabaseOfAnotherScope) {
  install();
  config.journal.scope = "other";
  EXPECT_THAT(failure_of([&] { install(); }).message, HasSubstr("of scope \"other\" is shard"));
  EXPECT_EQ(ask(0, "SELECT count(*) FROM collegedb.topology"), "1");
}

TEST_F(SchemaTest, OneDatabaseCannotBeTwoShards) {
  config.shards[2].conninfo = config.shards[1].conninfo;
  EXPECT_THAT(failure_of([&] { install(); }).message, HasSubstr("is shard \"sb\""));
}

TEST_F(SchemaTest, CheckRefusesWhatHasNotBeenInstalled) {
  const SqlError error = failure_of([&] { migration::check_schema(config); });
  EXPECT_EQ(error.hint, "Run collegedb init.");
}

TEST_F(SchemaTest, ListsTheFunctionsOfTheProxyAndRefusesThem) {
  std::vector<migration::FunctionStub> stubs = {
      {"collegedb_locate", "key text, \"table\" text DEFAULT NULL", "TABLE (shard text)"}};
  migration::install_schema(config, stubs);
  for (std::size_t i = 0; i < 3; ++i) {
    const SqlError error =
        failure_of([&] { ask(i, "SELECT * FROM public.collegedb_locate('a')"); });
    EXPECT_EQ(error.sqlstate, "0A000");
    EXPECT_THAT(error.message, HasSubstr("call it through the proxy"));
  }
  stubs[0].result = "TABLE (shard text, via text)";
  migration::install_schema(config, stubs);
  EXPECT_EQ(ask(0, "SELECT pg_get_function_result('public.collegedb_locate'::regproc)"),
            "TABLE(shard text, via text)");
  // A function of that name which is not ours stays as it is.
  tell(1,
       "DROP FUNCTION public.collegedb_locate;"
       "CREATE FUNCTION public.collegedb_mine() RETURNS int LANGUAGE sql AS 'SELECT 7'");
  stubs[0].arguments = "key text";
  migration::install_schema(config, stubs);
  EXPECT_EQ(ask(1, "SELECT public.collegedb_mine()"), "7");
}

TEST_F(SchemaTest, PlacementIsOfTheClusterAndStays) {
  config.routing.placement = "mapped";
  install();
  EXPECT_EQ(ask(0, "SELECT placement FROM collegedb.manifest"), "mapped");
  EXPECT_NO_THROW(migration::check_schema(config));
  EXPECT_EQ(read_snapshot().placement, routing::Placement::kMapped);
  config.routing.placement = "computed";
  const SqlError error = failure_of([&] { install(); });
  EXPECT_EQ(error.sqlstate, "55000");
  EXPECT_THAT(error.message, HasSubstr("have mapped placement"));
  EXPECT_THAT(error.hint, HasSubstr("Set routing.placement = \"mapped\""));
  EXPECT_EQ(failure_of([&] { migration::check_schema(config); }).message, error.message);
  EXPECT_EQ(failure_of([&] { read_snapshot(); }).message, error.message);
  const auto findings = migration::preflight(config);
  EXPECT_TRUE(std::any_of(findings.begin(), findings.end(),
                          [&](const auto& each) { return each.text == error.message; }));
  EXPECT_EQ(ask(0, "SELECT placement FROM collegedb.manifest"), "mapped");
}

TEST_F(SchemaTest, AnOlderClusterHasComputedPlacement) {
  install();
  tell(0,
       "ALTER TABLE collegedb.manifest DROP COLUMN placement;"
       "UPDATE collegedb.schema_version SET version = 2 WHERE component = 'journal'");
  EXPECT_NE(failure_of([&] { migration::check_schema(config); }).message, "");
  install();
  EXPECT_EQ(ask(0, "SELECT placement FROM collegedb.manifest"), "computed");
  EXPECT_EQ(read_snapshot().placement, routing::Placement::kComputed);
}

TEST_F(SchemaTest, SeedsTheRegistryOnceAndKeepsLaterChanges) {
  tell_all(
      "CREATE TABLE users (id bigint PRIMARY KEY);"
      "CREATE TABLE orders (id bigint, user_id int);"
      "CREATE TABLE countries (code text)");
  config.tables = {{.name = "users", .key = "id", .colocate_with = ""},
                   {.name = "orders", .key = "user_id", .colocate_with = "users"}};
  config.reference_tables = {"countries"};
  install();
  EXPECT_EQ(ask(0,
                "SELECT string_agg(concat_ws(' ', table_name, kind, grp, key_column, key_type),"
                " ', ' ORDER BY table_name) FROM collegedb.tables"),
            "countries reference, orders sharded public.users user_id int4, "
            "users sharded public.users id int8");
  tell(0, "DELETE FROM collegedb.tables WHERE table_name = 'countries'");
  install();
  EXPECT_EQ(ask(0, "SELECT count(*) FROM collegedb.tables"), "2");
}

TEST_F(SchemaTest, SeedsAgainUntilItHasSucceeded) {
  tell_all("CREATE TABLE users (id float8)");
  config.tables = {{.name = "users", .key = "id", .colocate_with = ""}};
  EXPECT_THAT(failure_of([&] { install(); }).message, HasSubstr("cannot be a key column"));
  tell_all("ALTER TABLE users ALTER id TYPE bigint");
  install();
  EXPECT_EQ(ask(0, "SELECT key_type FROM collegedb.tables"), "int8");
}

TEST_F(SchemaTest, CompletesATableThatIsCreatedAfterTheFirstStart) {
  config.tables = {{.name = "users", .key = "id", .colocate_with = ""}};
  install();
  EXPECT_EQ(ask(0, "SELECT key_type IS NULL FROM collegedb.tables"), "t");
  tell_all("CREATE TABLE users (id uuid PRIMARY KEY)");
  install();
  EXPECT_EQ(ask(0, "SELECT key_type FROM collegedb.tables"), "uuid");
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(ask(i,
                  "SELECT count(*) FROM pg_trigger WHERE tgname LIKE 'collegedb_fence%'"
                  " AND tgenabled = 'A'"),
              "2");
  }
}

TEST_F(SchemaTest, RepairsAFenceThatWasTakenAway) {
  tell_all("CREATE TABLE users (id text PRIMARY KEY)");
  config.tables = {{.name = "users", .key = "id", .colocate_with = ""}};
  install();
  tell(1, "DROP TRIGGER collegedb_fence_insert ON users");
  tell(2, "ALTER TABLE users ENABLE TRIGGER collegedb_fence_update");
  install();
  for (std::size_t i = 1; i < 3; ++i) {
    EXPECT_EQ(ask(i,
                  "SELECT count(*) FROM pg_trigger WHERE tgname LIKE 'collegedb_fence%'"
                  " AND tgenabled = 'A'"),
              "2");
  }
}

TEST_F(SchemaTest, WithoutAJournalOnlyTheFenceIsInstalled) {
  config.journal.shard.clear();
  install();
  EXPECT_EQ(ask(0, "SELECT to_regclass('collegedb.manifest') IS NULL"), "t");
  EXPECT_EQ(ask(2, "SELECT count(*) FROM collegedb.gate"), "2048");
}

}  // namespace
}  // namespace collegedb
