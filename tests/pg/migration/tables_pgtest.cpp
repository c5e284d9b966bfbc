#include <condition_variable>
#include <mutex>

#include "migration/registry.h"
#include "proxy/admin/control_plane.h"
#include "proxy/admin/functions.h"
#include "tests/pg/migration/cluster_fixture.h"

namespace collegedb {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Row = std::vector<std::optional<std::string>>;

// Calls of admin functions through the control plane, as sessions make them.
class TablesTest : public pgtest::ClusterTest {
 protected:
  void SetUp() override {
    ClusterTest::SetUp();
    install();
    store_ = std::make_unique<store::Store>(config);
    store_->load();
    store_->start([](const auto&) {});
    control_ = std::make_unique<admin::ControlPlane>(config, *store_, nullptr,
                                                     admin::ControlOptions{.threads = 2});
  }
  void TearDown() override {
    control_.reset();
    store_.reset();
    ClusterTest::TearDown();
  }

  session::ControlReply ask_control(session::ControlRequest request) {
    std::mutex mutex;
    std::condition_variable ready;
    std::optional<session::ControlReply> reply;
    control_->call(std::move(request), [&](session::ControlReply answer) {
      const std::lock_guard lock(mutex);
      reply = std::move(answer);
      ready.notify_one();
    });
    std::unique_lock lock(mutex);
    ready.wait(lock, [&] { return reply.has_value(); });
    return *std::move(reply);
  }
  session::ControlReply call(std::string_view name, std::vector<std::string> arguments,
                             bool is_admin = true) {
    session::AdminCall request;
    for (const auto& function : admin::functions()) {
      if (function.name == name) {
        request.function = &function;
      }
    }
    for (std::string& argument : arguments) {
      request.arguments.emplace_back(std::optional<std::string>(std::move(argument)));
    }
    request.arguments.resize(request.function->arguments.size());
    request.user = "u";
    request.is_admin = is_admin;
    return ask_control({std::move(request), {}});
  }
  std::vector<Row> rows(const session::ControlReply& reply) {
    if (const auto* error = std::get_if<SqlError>(&reply)) {
      ADD_FAILURE() << error->message << " " << error->detail;
      return {};
    }
    return std::get<session::AdminRows>(reply).rows;
  }
  SqlError error(const session::ControlReply& reply) {
    if (const auto* found = std::get_if<SqlError>(&reply)) {
      return *found;
    }
    ADD_FAILURE() << "no error";
    return {};
  }
  // A key that shard `index` owns.
  std::string key_of(std::size_t index, int nth = 0) {
    for (int i = 0;; ++i) {
      const std::string key = "k" + std::to_string(i);
      if (owner(key) == index && nth-- == 0) {
        return key;
      }
    }
  }
  std::string exceptions() {
    return ask(0,
               "SELECT string_agg(grp || ' ' || key || ' ' || shard || ' ' || kind, ','"
               " ORDER BY key) FROM collegedb.exceptions");
  }

  std::unique_ptr<store::Store> store_;
  std::unique_ptr<admin::ControlPlane> control_;
};

TEST_F(TablesTest, AnEmptyTableIsShardedAndRoutedAtOnce) {
  tell_all("CREATE TABLE users (id text PRIMARY KEY)");
  EXPECT_THAT(rows(call("collegedb_shard_table", {"users"})),
              ElementsAre(Row{"public.users", "sharded", "public.users", "id", "text"}));
  const auto snapshot = store_->current();
  ASSERT_NE(snapshot->find_table({"public", "users"}, {}), nullptr);
  EXPECT_EQ(snapshot->groups(), std::vector<std::string>{"public.users"});
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(ask(i, "SELECT count(*) FROM pg_trigger WHERE tgname LIKE 'collegedb_fence%'"), "2");
  }
}

TEST_F(TablesTest, RepeatingIsANoOpAndAContradictionIsRefused) {
  tell_all("CREATE TABLE users (id text, other text)");
  rows(call("collegedb_shard_table", {"users"}));
  const std::string version = ask(0, "SELECT registry_version FROM collegedb.manifest");
  rows(call("collegedb_shard_table", {"users", "id"}));
  EXPECT_EQ(ask(0, "SELECT registry_version FROM collegedb.manifest"), version);
  EXPECT_EQ(error(call("collegedb_shard_table", {"users", "other"})).sqlstate, "42710");
}

TEST_F(TablesTest, ATableOfAGroupNeedsKeysOfTheSameType) {
  tell_all(
      "CREATE TABLE users (id bigint); CREATE TABLE orders (user_id int);"
      "CREATE TABLE notes (user_id text)");
  rows(call("collegedb_shard_table", {"users"}));
  EXPECT_THAT(rows(call("collegedb_shard_table", {"orders", "user_id", "users"})),
              ElementsAre(Row{"public.orders", "sharded", "public.users", "user_id", "int4"}));
  EXPECT_EQ(error(call("collegedb_shard_table", {"notes", "user_id", "users"})).sqlstate, "42804");
  EXPECT_EQ(error(call("collegedb_shard_table", {"notes", "user_id", "orderz"})).sqlstate, "42P01");
}

TEST_F(TablesTest, RefusesWhatCannotBeSharded) {
  tell_all(
      "CREATE TABLE f (id float8); CREATE TABLE n (id numeric(8,2)); CREATE TABLE v0 (id int);"
      "CREATE VIEW v AS SELECT * FROM v0;"
      "CREATE COLLATION nd (provider = icu, locale = 'und', deterministic = false);"
      "CREATE TABLE c (id text COLLATE nd)");
  tell(1, "CREATE TABLE partial (id int)");
  tell_all("CREATE TABLE drift (id int)");
  tell(2, "ALTER TABLE drift ADD COLUMN more int");
  tell_all(
      "CREATE TABLE cyclic (id int, n int);"
      "CREATE SEQUENCE s CYCLE; ALTER TABLE cyclic ALTER n SET DEFAULT nextval('s')");
  EXPECT_EQ(error(call("collegedb_shard_table", {"f"})).sqlstate, "0A000");
  EXPECT_EQ(error(call("collegedb_shard_table", {"n"})).sqlstate, "0A000");
  EXPECT_EQ(error(call("collegedb_shard_table", {"v"})).sqlstate, "42809");
  EXPECT_THAT(error(call("collegedb_shard_table", {"c"})).message, HasSubstr("nondeterministic"));
  EXPECT_EQ(error(call("collegedb_shard_table", {"nowhere"})).sqlstate, "42P01");
  EXPECT_EQ(error(call("collegedb_shard_table", {"v0", "nope"})).sqlstate, "42703");
  EXPECT_EQ(error(call("collegedb_shard_table", {"partial"})).sqlstate, "42P01");
  EXPECT_THAT(error(call("collegedb_shard_table", {"drift"})).message,
              HasSubstr("differs between shards \"sa\" and \"sc\""));
  EXPECT_THAT(error(call("collegedb_shard_table", {"cyclic"})).message,
              HasSubstr("cannot be shared out"));
  EXPECT_EQ(ask(0, "SELECT count(*) FROM collegedb.tables"), "0");
  EXPECT_EQ(ask(0, "SELECT count(*) FROM pg_trigger WHERE tgname LIKE 'collegedb_fence%'"), "0");
}

TEST_F(TablesTest, RowsElsewhereThanTheirOwnerGetAnException) {
  tell_all("CREATE TABLE users (id text PRIMARY KEY)");
  const std::string at_home = key_of(1);
  const std::string astray = key_of(2);
  tell(1, "INSERT INTO users VALUES ('" + at_home + "'), ('" + astray + "')");
  rows(call("collegedb_shard_table", {"users"}));
  EXPECT_EQ(exceptions(), "public.users " + astray + " sb move");
  EXPECT_THAT(rows(call("collegedb_locate", {astray, "users"})),
              ElementsAre(Row{"sb", "exception", "1"}));
  EXPECT_THAT(rows(call("collegedb_locate", {at_home})), ElementsAre(Row{"sb", "computed", "1"}));
}

TEST_F(TablesTest, AKeyOnTwoShardsIsRefusedByName) {
  tell_all("CREATE TABLE users (id text)");
  const std::string key = key_of(0);
  tell(0, "INSERT INTO users VALUES ('" + key + "')");
  tell(2, "INSERT INTO users VALUES ('" + key + "')");
  SqlError refused = error(call("collegedb_shard_table", {"users"}));
  EXPECT_THAT(refused.message, HasSubstr("have rows on two shards"));
  EXPECT_EQ(refused.detail, "Keys: " + key + ".");
  tell(0, "UPDATE users SET id = NULL");
  EXPECT_EQ(error(call("collegedb_shard_table", {"users"})).sqlstate, "23502");
  EXPECT_EQ(ask(0, "SELECT count(*) FROM collegedb.tables"), "0");
}

TEST_F(TablesTest, ASecondTableFollowsTheDirectoryOfItsGroup) {
  tell_all("CREATE TABLE users (id text); CREATE TABLE orders (user_id text)");
  const std::string key = key_of(2);
  tell(1, "INSERT INTO users VALUES ('" + key + "')");
  rows(call("collegedb_shard_table", {"users"}));
  tell(1, "INSERT INTO orders VALUES ('" + key + "')");
  rows(call("collegedb_shard_table", {"orders", "user_id", "users"}));
  EXPECT_EQ(exceptions(), "public.users " + key + " sb move");
  // Its computed owner has no row of it, yet rows there would be out of sight.
  tell_all("CREATE TABLE notes (user_id text)");
  tell(2, "INSERT INTO notes VALUES ('" + key + "')");
  EXPECT_THAT(error(call("collegedb_shard_table", {"notes", "user_id", "users"})).message,
              HasSubstr("have rows on two shards"));
}

TEST_F(TablesTest, RowsWhereATombstoneIsAreRefused) {
  tell_all("CREATE TABLE users (id text)");
  const std::string key = key_of(2);
  tell(1, "INSERT INTO users VALUES ('" + key + "')");
  tell(1, "INSERT INTO collegedb.retired (scope, grp, key, op, moved_to) VALUES ('" +
              config.journal.scope + "', 'public.users', '" + key + "', 'op', 'sc')");
  EXPECT_THAT(error(call("collegedb_shard_table", {"users"})).message,
              HasSubstr("have moved away from there"));
}

TEST_F(TablesTest, NoChangeOfAGroupWhileItsKeysAreMoving) {
  tell_all("CREATE TABLE users (id text); CREATE TABLE orders (user_id text)");
  rows(call("collegedb_shard_table", {"users"}));
  tell(0, "INSERT INTO collegedb.claims (scope, grp, key, op) VALUES ('" + config.journal.scope +
              "', 'public.users', 'k', 'op-1')");
  const SqlError refused = error(call("collegedb_shard_table", {"orders", "user_id", "users"}));
  EXPECT_EQ(refused.sqlstate, "55006");
  EXPECT_EQ(refused.detail, "Operation op-1.");
  EXPECT_EQ(error(call("collegedb_local_table", {"users"})).sqlstate, "55006");
}

TEST_F(TablesTest, AReferenceTableMustBeEqualEverywhere) {
  tell_all(
      "CREATE TABLE countries (code text, area float8);"
      "INSERT INTO countries VALUES ('de', 357022.5), ('fr', 0.1)");
  tell(2, "UPDATE countries SET area = 0.2 WHERE code = 'fr'");
  EXPECT_THAT(error(call("collegedb_reference_table", {"countries"})).message,
              HasSubstr("has different rows on shards \"sa\" and \"sc\""));
  tell(2, "UPDATE countries SET area = 0.1 WHERE code = 'fr'");
  EXPECT_THAT(
      rows(call("collegedb_reference_table", {"countries"})),
      ElementsAre(Row{"public.countries", "reference", std::nullopt, std::nullopt, std::nullopt}));
  EXPECT_EQ(store_->current()->find_table({"public", "countries"}, {})->kind,
            routing::TableKind::kReference);
}

TEST_F(TablesTest, ATableBecomesLocalOnlyWithoutRowsElsewhere) {
  tell_all("CREATE TABLE users (id text)");
  rows(call("collegedb_shard_table", {"users"}));
  const std::string key = key_of(1);
  tell(1, "INSERT INTO users VALUES ('" + key + "')");
  EXPECT_THAT(error(call("collegedb_local_table", {"users"})).message,
              HasSubstr("has rows on shard \"sb\""));
  tell(1, "DELETE FROM users");
  rows(call("collegedb_local_table", {"users"}));
  EXPECT_EQ(ask(1, "SELECT count(*) FROM pg_trigger WHERE tgname LIKE 'collegedb_fence%'"), "0");
  EXPECT_FALSE(store_->current()->has_sharded_tables());
}

TEST_F(TablesTest, TheFenceStopsInsertsOfAMovedKeyPastTheProxy) {
  tell_all(
      "CREATE TABLE users (id text PRIMARY KEY) PARTITION BY HASH (id);"
      "CREATE TABLE users_p PARTITION OF users FOR VALUES WITH (MODULUS 1, REMAINDER 0)");
  rows(call("collegedb_shard_table", {"users"}));
  tell(1, "INSERT INTO collegedb.retired (scope, grp, key, op, moved_to) VALUES ('" +
              config.journal.scope +
              "', 'public.users', 'k', 'op', 'sc');"
              "UPDATE collegedb.gate SET cutovers = 1"
              " WHERE bucket = collegedb.bucket('public.users', 'k')");
  for (const char* sql : {"INSERT INTO users VALUES ('k')", "INSERT INTO users_p VALUES ('k')"}) {
    EXPECT_EQ(pgtest::failure_of([&] { tell(1, sql); }).sqlstate, "CDB02") << sql;
  }
  tell(1, "INSERT INTO users VALUES ('other')");
  EXPECT_EQ(pgtest::failure_of([&] { tell(1, "UPDATE users SET id = 'k'"); }).sqlstate, "CDB02");
  EXPECT_EQ(pgtest::failure_of([&] { tell(1, "UPDATE users_p SET id = 'k'"); }).sqlstate, "CDB02");
  tell(2, "INSERT INTO users VALUES ('k')");
}

TEST_F(TablesTest, OnlyAdministratorsMayChangeAnything) {
  const SqlError refused = error(call("collegedb_shard_table", {"users"}, false));
  EXPECT_EQ(refused.sqlstate, "42501");
  EXPECT_EQ(refused.message, "permission denied for function collegedb_shard_table");
  EXPECT_TRUE(rows(call("collegedb_pools", {}, false)).empty());
}

TEST_F(TablesTest, LocateNamesWhatThereIsWhenItCannotTell) {
  tell_all("CREATE TABLE a (id int); CREATE TABLE b (id int)");
  EXPECT_EQ(error(call("collegedb_locate", {"1"})).sqlstate, "42P01");
  rows(call("collegedb_shard_table", {"a"}));
  EXPECT_EQ(rows(call("collegedb_locate", {"042"})), rows(call("collegedb_locate", {"42", "a"})));
  rows(call("collegedb_shard_table", {"b"}));
  EXPECT_THAT(error(call("collegedb_locate", {"1"})).message, HasSubstr("public.a, public.b"));
  EXPECT_EQ(error(call("collegedb_locate", {"1", "nope"})).sqlstate, "42P01");
  EXPECT_EQ(error(call("collegedb_locate", {"1", "\"a"})).sqlstate, "42602");
}

TEST_F(TablesTest, ExplainTellsWithoutRunning) {
  tell_all("CREATE TABLE users (id text)");
  rows(call("collegedb_shard_table", {"users"}));
  const std::string key = key_of(1);
  const auto plan = rows(
      call("collegedb_explain", {"DELETE FROM public.users WHERE id = '" + key + "'; SELECT 1"}));
  ASSERT_EQ(plan.size(), 2U);
  EXPECT_EQ(plan[0][0], "1");
  EXPECT_EQ(plan[0][1], "{\"sb\"}");
  EXPECT_EQ(plan[0][4], key);
  EXPECT_EQ(plan[1][0], "2");
  EXPECT_EQ(error(call("collegedb_explain", {"SELEC"})).sqlstate, "42601");
}

TEST_F(TablesTest, ASchemaChangeIsLoadedBeforeItIsAnswered) {
  tell_all("CREATE TABLE users (id text)");
  rows(call("collegedb_shard_table", {"users"}));
  const auto reply = ask_control({session::Broadcast{"ALTER TABLE users ADD COLUMN n int", true},
                                  {{{"search_path", "public"}}, {"public"}}});
  ASSERT_TRUE(std::holds_alternative<session::BroadcastDone>(reply));
  EXPECT_EQ(store_->current()->find_table({"public", "users"}, {})->columns.size(), 2U);
  const auto reloaded = ask_control({session::Reload{0}, {}});
  EXPECT_EQ(std::get<session::ReloadDone>(reloaded).snapshot, store_->current());
}

TEST_F(TablesTest, AfterShutdownEverythingIsAnsweredWith57P01) {
  control_->shutdown();
  EXPECT_EQ(error(call("collegedb_pools", {})).sqlstate, "57P01");
}

TEST_F(TablesTest, ATableCreatedPastTheProxyIsCompletedByRecovery) {
  ASSERT_FALSE(
      migration::shard_table(config, {.table = "late", .may_be_missing = true}).has_error());
  EXPECT_EQ(store_->reload(5s)->find_table({"public", "late"}, {})->key_column, "");
  control_->finish_two_phase();
  EXPECT_EQ(ask(0, "SELECT key_type IS NULL FROM collegedb.tables"), "t");
  tell_all("CREATE TABLE late (id uuid)");
  control_->finish_two_phase();
  const auto snapshot = store_->refresh(store_->current()->version, 5s);
  EXPECT_EQ(snapshot->find_table({"public", "late"}, {})->key_column, "id");
  EXPECT_EQ(snapshot->find_table({"public", "late"}, {})->key_type, routing::KeyType::kUuid);
  EXPECT_EQ(ask(2, "SELECT count(*) FROM pg_trigger WHERE tgname LIKE 'collegedb_fence%'"), "2");
}

TEST_F(TablesTest, StubsOfAllFunctionsCanBeInstalled) {
  migration::install_schema(config, admin::stubs());
  EXPECT_EQ(ask(1,
                "SELECT count(*) FROM pg_proc WHERE pronamespace = 'public'::regnamespace"
                " AND proname LIKE 'collegedb\\_%'"),
            std::to_string(admin::functions().size()));
}

TEST_F(TablesTest, PreflightReportsWhatIsWrong) {
  tell_all("CREATE TABLE users (id text)");
  rows(call("collegedb_shard_table", {"users"}));
  const auto errors = [&] {
    std::vector<std::string> out;
    for (const migration::Finding& finding : migration::preflight(config)) {
      if (finding.severity != migration::Finding::Severity::kNote) {
        out.push_back(finding.shard + ": " + finding.text);
      }
    }
    return out;
  };
  std::string unreachable = "host=127.0.0.1 port=1 connect_timeout=2";
  EXPECT_THAT(errors(), ElementsAre());
  tell(1, "DROP TRIGGER collegedb_fence_insert ON users");
  tell(2, "ALTER TABLE users ADD COLUMN n int");
  config.migration.cutover_lock_timeout = 5s;
  const auto found = errors();
  EXPECT_EQ(found.size(), 5U);
  EXPECT_THAT(found, ::testing::Contains(HasSubstr("sa: deadlock_timeout (1000 ms)")));
  EXPECT_THAT(found, ::testing::Contains("sb: table public.users lacks the insert fence"));
  EXPECT_THAT(found, ::testing::Contains(HasSubstr("sc: table public.users differs")));
  std::swap(config.shards[2].conninfo, unreachable);
  EXPECT_THAT(errors(), ::testing::Contains(HasSubstr("sc: SHARD_UNAVAILABLE")));
  std::swap(config.shards[2].conninfo, unreachable);
}

}  // namespace
}  // namespace collegedb
