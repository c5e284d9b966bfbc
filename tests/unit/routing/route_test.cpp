#include "routing/route.h"

#include "fixture.h"
#include "routing/explain.h"
#include "routing/hash.h"

namespace collegedb::routing::testing {
namespace {

using namespace std::string_literals;

ShardId owner(std::string_view key, const Snapshot& snapshot = cluster()) {
  return computed_owner(snapshot, snapshot.epochs[0], key);
}

// Two keys of table users, on the same shard or on different ones.
std::pair<std::string, std::string> two_keys(bool same_shard) {
  for (int i = 2;; ++i) {
    const std::string other = std::to_string(i);
    if ((owner(other) == owner("1")) == same_shard) return {"1", other};
  }
}

Route routed(std::string_view sql, std::vector<Parameter> parameters = {},
             const Snapshot& snapshot = cluster()) {
  return route(*planned(sql, snapshot), parameters, snapshot);
}

void expect_key(const Route& actual, std::string_view key) {
  ASSERT_EQ(actual.kind, RouteKind::kShard) << actual.error.message;
  ASSERT_EQ(actual.keys.size(), 1u);
  EXPECT_EQ(actual.keys[0].key, key);
  EXPECT_EQ(actual.keys[0].group, "public.users");
  EXPECT_EQ(actual.keys[0].bucket, gate_bucket("public.users", key));
  EXPECT_EQ(actual.shard, owner(key));
  EXPECT_EQ(actual.via, Via::kComputed);
}

TEST(Route, SpellingsOfOneKeyGoToOneShard) {
  expect_key(routed("SELECT * FROM users WHERE id = 42"), "42");
  expect_key(routed("SELECT * FROM users WHERE id = '042'"), "42");
  expect_key(routed("SELECT * FROM users WHERE id = 42.0"), "42");
  expect_key(routed("SELECT * FROM users WHERE id = $1", {text("42")}), "42");
  expect_key(routed("SELECT * FROM users WHERE id = $1", {text("42.0", 1700)}), "42");
  expect_key(routed("SELECT * FROM users WHERE id = $1", {{"\0\0\0*"s, true, 23}}), "42");
  expect_key(routed("SELECT * FROM users WHERE id = $2::int8", {text("x"), text("042", 25)}), "42");
  expect_key(routed("UPDATE users SET name = $2 WHERE id = $1", {text("42"), text("x")}), "42");
  expect_key(routed("INSERT INTO users (id) VALUES ($1)", {text("42")}), "42");
  expect_key(routed("SELECT * FROM users u JOIN orders o ON o.user_id = u.id WHERE u.id = 42"),
             "42");
}

TEST(Route, NothingMatchesNull) {
  EXPECT_EQ(routed("SELECT * FROM users WHERE id = NULL").kind, RouteKind::kAnyShard);
  EXPECT_EQ(routed("SELECT * FROM users WHERE id = $1", {Parameter{}}).kind, RouteKind::kAnyShard);
  EXPECT_EQ(routed("DELETE FROM users WHERE id = $1", {Parameter{}}).kind, RouteKind::kAnyShard);
  EXPECT_EQ(routed("SELECT * FROM users WHERE id = 4.5").kind, RouteKind::kAnyShard);
  EXPECT_EQ(routed("SELECT * FROM users WHERE id = 99999999999999999999").kind,
            RouteKind::kAnyShard);
  expect_key(routed("SELECT * FROM users WHERE id IN (NULL, 7, 4.5)"), "7");
}

TEST(Route, InsertedNullIsRefusedAsTheServerWould) {
  const Route actual = routed("INSERT INTO users (id) VALUES ($1)", {Parameter{}});
  EXPECT_EQ(actual.kind, RouteKind::kRefuse);
  EXPECT_EQ(actual.error.sqlstate, "23502");
  EXPECT_EQ(actual.error.message,
            "null value in column \"id\" of relation \"users\" violates not-null constraint");
}

TEST(Route, UnreadableKeysAreRefused) {
  const Route read = routed("SELECT * FROM users WHERE id = $1", {text("x")});
  EXPECT_EQ(read.kind, RouteKind::kRefuse);
  EXPECT_TRUE(read.error.message.starts_with("UNROUTABLE_QUERY: ")) << read.error.message;
  const Route write = routed("DELETE FROM users WHERE id = $1", {text("x")});
  EXPECT_TRUE(write.error.message.starts_with("KEY_REQUIRED: ")) << write.error.message;
  const Route insert = routed("INSERT INTO users (id) VALUES (4.5)");
  EXPECT_TRUE(insert.error.message.starts_with("KEY_REQUIRED: ")) << insert.error.message;
  EXPECT_EQ(routed("SELECT * FROM users WHERE id = $2", {text("1")}).kind, RouteKind::kRefuse);
}

TEST(Route, K9SeveralKeysMustShareAShard) {
  const auto [a, b] = two_keys(true);
  const auto [c, d] = two_keys(false);
  for (const char* sql :
       {"INSERT INTO users (id) VALUES ($1), ($2)", "SELECT * FROM users WHERE id IN ($1, $2)",
        "DELETE FROM users WHERE id IN ($1, $2)",
        "UPDATE users SET name = 'x' WHERE id = ANY(ARRAY[$1, $2])"}) {
    const Route together = routed(sql, {text(a), text(b)});
    ASSERT_EQ(together.kind, RouteKind::kShard) << sql << together.error.message;
    EXPECT_EQ(together.shard, owner(a));
    ASSERT_EQ(together.keys.size(), 2u);
    EXPECT_EQ(together.keys[0].key, a);
    EXPECT_EQ(together.keys[1].key, b);
    const Route apart = routed(sql, {text(c), text(d)});
    EXPECT_EQ(apart.kind, RouteKind::kRefuse) << sql;
    EXPECT_TRUE(apart.error.message.starts_with("UNROUTABLE_QUERY: ")) << apart.error.message;
    EXPECT_EQ(routed(sql, {text(a), text(a)}).keys.size(), 1u) << sql;
  }
}

TEST(Route, AtMostSixtyFourKeys) {
  const auto insert = [](int rows) {
    std::string sql = "INSERT INTO users (id) VALUES ";
    int added = 0;
    for (int i = 0; added < rows; ++i) {
      if (owner(std::to_string(i)) != owner("0")) continue;
      sql += (added++ == 0 ? "(" : ", (") + std::to_string(i) + ")";
    }
    return sql;
  };
  EXPECT_EQ(routed(insert(64)).keys.size(), 64u);
  EXPECT_EQ(routed(insert(65)).kind, RouteKind::kRefuse);
  std::string same_key = "INSERT INTO users (id, name) VALUES (1, 'a')";
  for (int i = 0; i < 200; ++i) same_key += ", (1, 'b')";
  EXPECT_EQ(routed(same_key).keys.size(), 1u);
}

TEST(Route, TablesOfDifferentKeysAreRefusedEvenOnOneShard) {
  const auto [a, b] = two_keys(true);
  const std::string sql = "SELECT * FROM users u, orders o WHERE u.id = $1 AND o.user_id = $2";
  expect_key(routed(sql, {text(a), text(a)}), a);
  EXPECT_EQ(routed(sql, {text(a), text(b)}).kind, RouteKind::kRefuse);
  // A table without any matching row does not decide.
  expect_key(routed(sql, {text(a), Parameter{}}), a);
  expect_key(routed(sql, {Parameter{}, text(b)}), b);
}

TEST(Route, ConflictingConditionsOnOneTableMatchNothingAnywhere) {
  EXPECT_EQ(routed("SELECT * FROM users WHERE id = 1 AND id = 2").kind, RouteKind::kShard);
}

TEST(Route, SubSelectOfAnInsertHasTheSameKey) {
  const std::string sql =
      "INSERT INTO users (id, name) VALUES ($1, (SELECT name FROM users WHERE id = $2))";
  expect_key(routed(sql, {text("5"), text("05")}), "5");
  EXPECT_EQ(routed(sql, {text("5"), text("6")}).kind, RouteKind::kRefuse);
}

TEST(Route, P41KeyUpdates) {
  expect_key(routed("UPDATE users SET id = 1, name = 'x' WHERE id = 1"), "1");
  expect_key(routed("UPDATE users SET id = $1 WHERE id = $2", {text("07"), text("7")}), "7");
  expect_key(routed("UPDATE users SET id = id WHERE id = 1"), "1");
  for (const Route& actual :
       {routed("UPDATE users SET id = 9 WHERE id = 1"),
        routed("UPDATE users SET id = $1 WHERE id = $2", {text("8"), text("7")}),
        routed("UPDATE users SET id = $1 WHERE id = $2", {Parameter{}, text("7")}),
        routed("UPDATE users SET id = 1 WHERE id IN (1, " + two_keys(true).second + ")")}) {
    EXPECT_EQ(actual.kind, RouteKind::kRefuse);
    EXPECT_TRUE(actual.error.message.starts_with("KEY_UPDATE: ")) << actual.error.message;
    EXPECT_EQ(actual.error.sqlstate, "0A000");
  }
}

TEST(Route, ExceptionsAreFollowed) {
  Snapshot snapshot = cluster();
  const auto elsewhere = static_cast<ShardId>((owner("1") + 1) % 3);
  auto exceptions = std::make_shared<ExceptionMap>();
  exceptions->emplace(GroupKey{"public.users", "1"}, elsewhere);
  snapshot.exceptions = exceptions;
  const Route actual = routed("SELECT * FROM orders WHERE user_id = 1", {}, snapshot);
  EXPECT_EQ(actual.shard, elsewhere);
  EXPECT_EQ(actual.via, Via::kException);
}

// Active epochs that place a key differently: it has to be sought, newest owner first.
TEST(Route, KeysBetweenEpochsAreSought) {
  Snapshot snapshot = cluster();
  Epoch older = snapshot.epochs[0];
  older.shards = {static_cast<ShardId>((owner("1") + 1) % 3)};
  snapshot.epochs.push_back(older);
  for (const char* sql : {"SELECT * FROM users WHERE id = 1", "DELETE FROM users WHERE id = 1"}) {
    const Route route = routed(sql, {}, snapshot);
    ASSERT_EQ(route.kind, RouteKind::kShard) << sql;
    EXPECT_EQ(route.shard, owner("1"));
    EXPECT_EQ(route.via, Via::kEpoch);
    ASSERT_EQ(route.keys.size(), 1U);
    EXPECT_TRUE(route.keys.front().sought);
  }
  EXPECT_EQ(candidates(snapshot, "1"), (Candidates{owner("1"), older.shards.front()}));
  // An exception settles it.
  auto exceptions = std::make_shared<ExceptionMap>();
  exceptions->emplace(GroupKey{"public.users", "1"}, older.shards.front());
  snapshot.exceptions = exceptions;
  const Route settled = routed("SELECT * FROM users WHERE id = 1", {}, snapshot);
  EXPECT_EQ(settled.shard, older.shards.front());
  EXPECT_FALSE(settled.keys.front().sought);
}

TEST(Route, WithoutAnActiveEpochNothingIsRouted) {
  Snapshot snapshot = cluster();
  snapshot.epochs.clear();
  EXPECT_TRUE(routed("DELETE FROM users WHERE id = 1", {}, snapshot)
                  .error.message.starts_with("PLACEMENT_UNVERIFIED: "));
}

TEST(Route, OtherKinds) {
  Snapshot snapshot = cluster();
  snapshot.journal_shard = 2;
  const auto at = [&](std::string_view sql) { return routed(sql, {}, snapshot); };
  EXPECT_EQ(at("SELECT * FROM notes").kind, RouteKind::kShard);
  EXPECT_EQ(at("SELECT * FROM notes").shard, 2);
  EXPECT_EQ(at("SELECT 1").kind, RouteKind::kAnyShard);
  EXPECT_EQ(at("SELECT 1").shard, kNoShard);
  EXPECT_EQ(at("SELECT now()").kind, RouteKind::kAnyShard);
  EXPECT_EQ(at("SELECT now()").shard, 2);
  EXPECT_EQ(at("SELECT * FROM countries").kind, RouteKind::kAnyShard);
  EXPECT_EQ(at("SELECT * FROM users").kind, RouteKind::kScatter);
  EXPECT_EQ(at("TRUNCATE users").kind, RouteKind::kBroadcast);
  EXPECT_EQ(at("SELECT collegedb_pools()").kind, RouteKind::kAdmin);
  EXPECT_EQ(at("BEGIN").kind, RouteKind::kSession);
  EXPECT_EQ(at("DELETE FROM users").kind, RouteKind::kRefuse);
  EXPECT_TRUE(at("DELETE FROM users").error.message.starts_with("KEY_REQUIRED: "));
}

TEST(Route, OneShardTakesAllAndCarriesKeys) {
  const Snapshot one = cluster({"only"});
  const Route keyed = routed("DELETE FROM users WHERE id IN (1, 2)", {}, one);
  EXPECT_EQ(keyed.kind, RouteKind::kShard);
  EXPECT_EQ(keyed.shard, 0);
  EXPECT_EQ(keyed.keys.size(), 2u);
  const Route unreadable = routed("SELECT * FROM users WHERE id = $1", {text("x")}, one);
  EXPECT_EQ(unreadable.kind, RouteKind::kShard);
  EXPECT_TRUE(unreadable.keys.empty());
  EXPECT_EQ(routed("SELECT 1", {}, one).shard, 0);
  EXPECT_EQ(routed("SELECT * FROM users", {}, one).kind, RouteKind::kShard);
  EXPECT_EQ(routed("TRUNCATE users", {}, one).kind, RouteKind::kShard);
  EXPECT_EQ(routed("BEGIN", {}, one).kind, RouteKind::kSession);
  EXPECT_EQ(routed("SELECT collegedb_pools()", {}, one).kind, RouteKind::kAdmin);
}

// ---- explain
// -------------------------------------------------------------------------------------

TEST(Explain, KeyedStatements) {
  const Snapshot snapshot = cluster();
  const auto plan = planned("UPDATE users SET name = 'x' WHERE id = 042");
  const Explanation actual = explain(*plan, {}, snapshot);
  const std::string shard = snapshot.shards[owner("42")].name;
  EXPECT_EQ(actual.step, 1);
  EXPECT_EQ(actual.shards, std::vector<std::string>{shard});
  EXPECT_EQ(actual.kind, "keyed write");
  EXPECT_EQ(actual.table, "users");
  EXPECT_EQ(actual.key, "42");
  EXPECT_EQ(actual.reason, "via computed");
  EXPECT_EQ(explain_line(*plan, route(*plan, {}, snapshot), snapshot),
            "CollegeDB: shard " + shard + ", key users(42), via computed");
}

TEST(Explain, SeveralKeys) {
  const Snapshot snapshot = cluster();
  const auto [a, b] = two_keys(true);
  const auto plan = planned("SELECT * FROM users WHERE id IN (" + a + ", " + b + ")");
  EXPECT_EQ(explain_line(*plan, route(*plan, {}, snapshot), snapshot),
            "CollegeDB: shard " + snapshot.shards[owner(a)].name + ", keys users(" + a + ", " + b +
                "), via computed");
}

TEST(Explain, ParameterWithoutValue) {
  const auto plan = planned("SELECT * FROM users WHERE id = $2 AND name = $1");
  const Explanation actual = explain(*plan, {}, cluster());
  EXPECT_EQ(actual.kind, "keyed read");
  EXPECT_TRUE(actual.shards.empty());
  EXPECT_EQ(actual.reason, "the key is parameter $2");
  EXPECT_EQ(explain(*plan, std::vector<Parameter>{text("x"), text("7")}, cluster()).key, "7");
}

TEST(Explain, OtherKinds) {
  const Snapshot snapshot = cluster();
  const std::vector<std::string> all = {"db-east", "db-west", "db-north"};
  struct Case {
    const char* sql;
    const char* kind;
    std::vector<std::string> shards;
    const char* line;
  };
  const Case kCases[] = {
      {"SELECT * FROM users", "scatter", all, "CollegeDB: shards db-east, db-west, db-north"},
      {"SELECT count(*) FROM users", "scatter", all,
       "CollegeDB: shards db-east, db-west, db-north"},
      {"TRUNCATE users", "broadcast", all, "CollegeDB: shards db-east, db-west, db-north"},
      {"SELECT * FROM countries", "reference", all, "CollegeDB: any shard"},
      {"SELECT 1", "no table", all, "CollegeDB: any shard"},
      {"SELECT * FROM users WHERE id = NULL", "keyed read", all, "CollegeDB: any shard"},
      {"SELECT * FROM notes", "journal", {"db-east"}, "CollegeDB: shard db-east"},
      {"SELECT collegedb_pools()", "admin", {}, "CollegeDB: admin"},
      {"BEGIN", "session", {}, "CollegeDB: session"},
      {"DELETE FROM users", "refused", {}, "CollegeDB: refused"},
  };
  for (const Case& c : kCases) {
    const auto plan = planned(c.sql);
    const Explanation actual = explain(*plan, {}, snapshot);
    EXPECT_EQ(actual.kind, c.kind) << c.sql;
    EXPECT_EQ(actual.shards, c.shards) << c.sql;
    EXPECT_FALSE(actual.reason.empty()) << c.sql;
    EXPECT_EQ(explain_line(*plan, route(*plan, {}, snapshot), snapshot), c.line) << c.sql;
  }
  EXPECT_TRUE(
      explain(*planned("DELETE FROM users"), {}, snapshot).reason.starts_with("KEY_REQUIRED"));
}

// It is refused in its own words; what does not name it goes on.
TEST(Route, ABrokenTableIsRefusedByItsName) {
  Snapshot snapshot = cluster();
  snapshot.dependent_relations.push_back({"public", "accounts"});
  snapshot.broken_tables.push_back({{"public", "accounts"}, "table public.accounts is odd"});
  for (const char* sql :
       {"SELECT * FROM accounts WHERE code = 'a'", "DELETE FROM accounts",
        "INSERT INTO public.accounts VALUES ('a', 1)", "SELECT count(*) FROM accounts"}) {
    const Route refused = routed(sql, {}, snapshot);
    EXPECT_EQ(refused.kind, RouteKind::kRefuse) << sql;
    EXPECT_EQ(refused.error.sqlstate, "40001") << sql;
    EXPECT_EQ(refused.error.message, "PLACEMENT_UNVERIFIED: table public.accounts is odd") << sql;
  }
  EXPECT_TRUE(routed("SELECT * FROM active_users", {}, snapshot)
                  .error.message.starts_with("UNROUTABLE_QUERY"));
  EXPECT_EQ(routed("SELECT * FROM users WHERE id = 1", {}, snapshot).kind, RouteKind::kShard);
}

TEST(Explain, MappedKeysAreWhereTheDirectorySays) {
  Snapshot snapshot = cluster();
  snapshot.placement = Placement::kMapped;
  const Directory directory = [](const RoutedKey& key) -> Result<std::optional<ShardId>> {
    if (key.key == "9") return std::optional<ShardId>{};
    if (key.key == "8") return make_error(ErrorCode::kPlacementUnverified, "no journal");
    return std::optional<ShardId>{key.key == "1" ? 1 : 2};
  };
  const auto explained = [&](std::string_view sql) {
    return explain(*planned(sql, snapshot), {}, snapshot, directory);
  };
  const Explanation one = explained("SELECT * FROM users WHERE id = 1");
  EXPECT_EQ(one.shards, std::vector<std::string>{"db-west"});
  EXPECT_EQ(one.reason, "via mapping");
  EXPECT_EQ(explained("SELECT * FROM users WHERE id IN (2, 3, 9)").shards,
            std::vector<std::string>{"db-north"});
  EXPECT_EQ(explained("SELECT * FROM users WHERE id IN (1, 2)").kind, "refused");
  const Explanation nobody = explained("INSERT INTO users (id) VALUES (9)");
  EXPECT_TRUE(nobody.shards.empty());
  EXPECT_EQ(nobody.kind, "keyed write");
  EXPECT_NE(nobody.reason.find("no mapping yet"), std::string::npos);
  EXPECT_NE(explained("DELETE FROM users WHERE id = 8").reason.find("no journal"),
            std::string::npos);
}

TEST(Route, MappedKeysAreSoughtWhateverTheEpochsSay) {
  Snapshot snapshot = cluster();
  snapshot.placement = Placement::kMapped;
  auto exceptions = std::make_shared<ExceptionMap>();
  exceptions->emplace(GroupKey{"public.users", "42"}, ShardId{2});
  snapshot.exceptions = exceptions;
  Epoch older = snapshot.epochs.front();
  older.shards = {1};
  snapshot.epochs.push_back(older);
  const Route one = routed("SELECT * FROM users WHERE id = 42", {}, snapshot);
  ASSERT_EQ(one.kind, RouteKind::kShard);
  ASSERT_EQ(one.keys.size(), 1U);
  EXPECT_TRUE(one.keys[0].sought);
  EXPECT_EQ(one.via, Via::kMapping);
  const Route many = routed("SELECT * FROM users WHERE id IN (1, 2, 3, 4, 5)", {}, snapshot);
  ASSERT_EQ(many.kind, RouteKind::kShard) << many.error.message;
  EXPECT_TRUE(std::ranges::all_of(many.keys, &RoutedKey::sought));
  EXPECT_TRUE(candidates(snapshot, "42").empty());
  snapshot.epochs.clear();
  EXPECT_EQ(routed("SELECT * FROM users WHERE id = 42", {}, snapshot).kind, RouteKind::kRefuse);
}

}  // namespace
}  // namespace collegedb::routing::testing
