// A registered table that somebody changed past the proxy is refused by its name; everything else
// goes on, and it comes back when it is put right.
#include <algorithm>

#include "migration/registry.h"
#include "parser/analyze.h"
#include "proxy/admin/broadcast.h"
#include "routing/route.h"
#include "store/store.h"
#include "tests/pg/migration/cluster_fixture.h"

namespace collegedb {
namespace {

using namespace std::chrono_literals;
using ::testing::Contains;
using ::testing::HasSubstr;

class BrokenTablesTest : public pgtest::ClusterTest {
 protected:
  void SetUp() override {
    ClusterTest::SetUp();
    tell_all("CREATE TABLE users (id bigint PRIMARY KEY); CREATE TABLE orders (id text)");
    config.tables = {{.name = "users", .key = "id", .colocate_with = ""},
                     {.name = "orders", .key = "id", .colocate_with = ""}};
    install();
  }

  static routing::Route route(const routing::Snapshot& snapshot, const std::string& sql) {
    auto statements = parser::analyze(sql);
    const auto plan =
        routing::make_plan(std::move(statements->front()), snapshot, {"app", "public"});
    return routing::route(*plan, {}, snapshot);
  }
  void expect_only_users_broken(const routing::Snapshot& snapshot, const std::string& reason) {
    ASSERT_EQ(snapshot.broken_tables.size(), 1U);
    EXPECT_EQ(snapshot.broken_tables.front().name.name, "users");
    for (const char* sql : {"SELECT * FROM users", "SELECT * FROM public.users WHERE id = 1",
                            "INSERT INTO users VALUES (1)", "UPDATE users SET id = 1 WHERE id = 1",
                            "DELETE FROM users WHERE id = 1", "SELECT count(*) FROM users",
                            "SELECT * FROM orders o JOIN users u ON true WHERE o.id = '1'"}) {
      const routing::Route refused = route(snapshot, sql);
      EXPECT_EQ(refused.kind, routing::RouteKind::kRefuse) << sql;
      EXPECT_THAT(refused.error.message, HasSubstr("PLACEMENT_UNVERIFIED: ")) << sql;
      EXPECT_THAT(refused.error.message, HasSubstr(reason)) << sql;
    }
    EXPECT_EQ(route(snapshot, "SELECT * FROM orders WHERE id = 'x'").kind,
              routing::RouteKind::kShard);
    EXPECT_EQ(route(snapshot, "ALTER TABLE users RENAME COLUMN ident TO id").kind,
              routing::RouteKind::kBroadcast);
  }
  // Until `good`; the store's own poll has to bring it.
  template <class F>
  std::shared_ptr<const routing::Snapshot> eventually(const store::Store& store, F good) {
    const auto deadline = std::chrono::steady_clock::now() + 10s;
    while (!good(*store.current()) && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(20ms);
    }
    return store.current();
  }
  std::vector<std::string> findings() {
    std::vector<std::string> out;
    for (const migration::Finding& each : migration::preflight(config)) {
      if (each.severity == migration::Finding::Severity::kError) {
        out.push_back(each.text);
      }
    }
    return out;
  }
  Result<session::BroadcastDone> ddl(const std::string& sql) {
    return admin::broadcast(config, {sql, true}, {{{"search_path", "public"}}, {"public"}});
  }
};

TEST_F(BrokenTablesTest, ARenamedKeyColumn) {
  tell_all("ALTER TABLE users RENAME COLUMN id TO ident");
  store::Store store(config);
  expect_only_users_broken(*store.load(), "column \"id\" of relation \"users\" does not exist");
  EXPECT_THAT(findings(), Contains(HasSubstr("public.users")));
}

TEST_F(BrokenTablesTest, AKeyColumnOfAnotherType) {
  tell_all(
      "DROP TRIGGER collegedb_fence_update ON users; ALTER TABLE users ALTER COLUMN id TYPE text");
  store::Store store(config);
  expect_only_users_broken(*store.load(), "public.users.id is of type text but was registered");
  EXPECT_THAT(findings(), Contains(HasSubstr("public.users.id is of type text")));
  tell_all("ALTER TABLE users ALTER COLUMN id TYPE float8 USING 1");
  expect_only_users_broken(*store.load(), "cannot be a key column");
}

TEST_F(BrokenTablesTest, ARunningProxySeesItBreakAndHeal) {
  store::Store store(config);
  const auto first = store.load();
  store.start([](const auto&) {});
  tell_all("ALTER TABLE users RENAME COLUMN id TO ident");
  const auto broken = store.reload(5s);
  expect_only_users_broken(*broken, "does not exist");
  EXPECT_GT(broken->registry_version, first->registry_version) << "plans must be made again";
  tell_all("ALTER TABLE users RENAME COLUMN ident TO id");
  const auto healed =
      eventually(store, [](const routing::Snapshot& now) { return now.broken_tables.empty(); });
  EXPECT_TRUE(healed->broken_tables.empty());
  EXPECT_GT(healed->registry_version, broken->registry_version);
  EXPECT_EQ(route(*healed, "SELECT * FROM users WHERE id = 1").kind, routing::RouteKind::kShard);
  // It stays as it is when nothing changes.
  std::this_thread::sleep_for(2500ms);
  EXPECT_EQ(store.current()->registry_version, healed->registry_version);
}

// What one proxy finds, the others learn of.
TEST_F(BrokenTablesTest, OtherProxiesLearnOfIt) {
  store::Store one(config);
  store::Store other(config);
  one.load();
  other.load();
  one.start([](const auto&) {});
  other.start([](const auto&) {});
  tell_all("ALTER TABLE users RENAME COLUMN id TO ident");
  one.reload(5s);
  const auto learnt =
      eventually(other, [](const routing::Snapshot& now) { return !now.broken_tables.empty(); });
  EXPECT_EQ(learnt->broken_tables.size(), 1U);
  // Broken, but not restless.
  std::this_thread::sleep_for(500ms);
  const auto version = one.current()->registry_version;
  std::this_thread::sleep_for(2500ms);
  EXPECT_EQ(one.current()->registry_version, version);
  EXPECT_EQ(other.current()->registry_version, version);
}

TEST_F(BrokenTablesTest, AProxyStartsAndRepairsTheOthers) {
  ASSERT_TRUE(migration::shard_table(config, {.table = "late", .may_be_missing = true}));
  tell_all(
      "ALTER TABLE users RENAME COLUMN id TO ident; CREATE TABLE late (ident int);"
      "DROP TRIGGER collegedb_fence_insert ON orders");
  install();
  EXPECT_EQ(ask(1,
                "SELECT count(*) FROM pg_trigger WHERE tgrelid = 'orders'::regclass"
                " AND tgname LIKE 'collegedb_fence%'"),
            "2");
  store::Store store(config);
  EXPECT_EQ(store.load()->broken_tables.size(), 2U);
}

TEST_F(BrokenTablesTest, SchemaChangesGoOnAndCanPutItRight) {
  tell_all("ALTER TABLE users RENAME COLUMN id TO ident");
  ASSERT_TRUE(ddl("ALTER TABLE orders ADD COLUMN n int"));
  const auto repaired = ddl("ALTER TABLE users RENAME COLUMN ident TO id");
  ASSERT_TRUE(repaired) << repaired.error().message;
  store::Store store(config);
  EXPECT_TRUE(store.load()->broken_tables.empty());
  EXPECT_THAT(findings(), ::testing::IsEmpty());
}

TEST_F(BrokenTablesTest, ARenameThroughTheProxyIsFollowed) {
  tell(owner("7"), "INSERT INTO users VALUES (7)");
  const auto done = ddl("ALTER TABLE users RENAME COLUMN id TO ident");
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_EQ(ask(0,
                "SELECT key_column || key_expression FROM collegedb.tables"
                " WHERE table_name = 'users'"),
            "ident(\"ident\")::pg_catalog.text");
  store::Store store(config);
  EXPECT_TRUE(store.load()->broken_tables.empty());
  EXPECT_EQ(route(*store.current(), "SELECT * FROM users WHERE ident = 7").kind,
            routing::RouteKind::kShard);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(ask(i,
                  "SELECT count(*) FROM pg_trigger WHERE tgrelid = 'users'::regclass"
                  " AND tgname LIKE 'collegedb_fence%'"
                  " AND encode(tgargs, 'escape') LIKE '%(\"ident\")::pg_catalog.text%'"),
              "2");
  }
  tell(owner("8"), "INSERT INTO users VALUES (8)");
  tell(owner("8"), "UPDATE users SET ident = 9 WHERE ident = 8");
}

// As an older program registered it: keys under another text, so that routing looked for rows
// where they are not.
TEST_F(BrokenTablesTest, AWrongKeyExpressionIsRepairedAtStart) {
  tell_all("CREATE TABLE raw (id bytea PRIMARY KEY, v text)");
  ASSERT_TRUE(migration::shard_table(config, {.table = "raw"}));
  const std::size_t home = owner("0102");
  const std::size_t elsewhere = (home + 1) % 3;
  tell(elsewhere, "INSERT INTO raw VALUES ('\\x0102', 'x')");
  tell(0,
       "UPDATE collegedb.tables SET key_expression = '(\"id\")::pg_catalog.text'"
       " WHERE table_name = 'raw'");
  tell_all("SELECT collegedb.install_fence('raw', '" + config.journal.scope +
           "', 'public.raw', 'id', '(\"id\")::pg_catalog.text')");
  EXPECT_THAT(findings(), Contains(HasSubstr("key expression")));
  install();
  EXPECT_EQ(ask(0, "SELECT key_expression FROM collegedb.tables WHERE table_name = 'raw'"),
            routing::sql_key_expression(routing::KeyType::kBytea, "\"id\""));
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(ask(i,
                  "SELECT count(*) FROM pg_trigger WHERE tgrelid = 'raw'::regclass"
                  " AND encode(tgargs, 'escape') LIKE '%encode%'"),
              "2");
  }
  EXPECT_EQ(ask(0, "SELECT key || ' ' || shard FROM collegedb.exceptions"),
            "0102 " + config.shards[elsewhere].name);
  EXPECT_THAT(findings(), ::testing::IsEmpty());
  install();
  EXPECT_EQ(ask(0, "SELECT count(*) FROM collegedb.exceptions"), "1") << "nothing left to repair";
}

}  // namespace
}  // namespace collegedb
