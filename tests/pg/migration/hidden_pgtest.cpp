// What the snapshot says of code that runs without a visible call, for every way to hide it.
#include "migration/registry.h"
#include "store/store.h"
#include "tests/pg/migration/cluster_fixture.h"

namespace collegedb {
namespace {

using parser::QualifiedName;
using ::testing::UnorderedElementsAre;

class HiddenCodeTest : public pgtest::ClusterTest {
 protected:
  void SetUp() override {
    ClusterTest::SetUp();
    tell_all("CREATE TABLE users (id bigint PRIMARY KEY)");
    config.tables = {{"users", "id", ""}};
    install();
    tell(0,
         "CREATE TABLE plain (a int, v int);"
         "CREATE FUNCTION rows() RETURNS bigint LANGUAGE plpgsql AS 'BEGIN RETURN 1; END';"
         "CREATE FUNCTION even(int) RETURNS boolean LANGUAGE plpgsql IMMUTABLE"
         " AS 'BEGIN RETURN true; END';"
         "CREATE FUNCTION plus(int, int) RETURNS int LANGUAGE sql AS 'SELECT 1';"
         "CREATE FUNCTION fire() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'");
  }
  const routing::HiddenCode& load() {
    store::Store store(config);
    snapshot_ = store.load();
    return snapshot_->hidden;
  }
  bool reads(const std::string& name) { return load().read.contains({"public", name}); }
  bool writes(const std::string& name) { return load().written.contains({"public", name}); }

  std::shared_ptr<const routing::Snapshot> snapshot_;
};

TEST_F(HiddenCodeTest, OperatorsAndAttributes) {
  tell(0,
       "CREATE OPERATOR !!! (LEFTARG = int, RIGHTARG = int, FUNCTION = plus);"
       "CREATE OPERATOR &&&& (LEFTARG = int, RIGHTARG = int, FUNCTION = int4pl);"
       "CREATE AGGREGATE total (int) (SFUNC = plus, STYPE = int);"
       "CREATE AGGREGATE whole (int) (SFUNC = int4pl, STYPE = int)");
  EXPECT_THAT(load().operators, UnorderedElementsAre("!!!"));
  EXPECT_THAT(load().attributes, UnorderedElementsAre("even", "total"));
  EXPECT_TRUE(load().columns.empty());
  tell(0, "ALTER TABLE plain ADD COLUMN even int");
  ASSERT_EQ(load().columns.size(), 1U);
  EXPECT_EQ(load().columns[0].relation, (QualifiedName{"public", "plain"}));
}

TEST_F(HiddenCodeTest, TypesAndWhatIsMadeOfThem) {
  tell(0,
       "CREATE DOMAIN evens AS int CHECK (even(VALUE)); CREATE DOMAIN more AS evens;"
       "CREATE DOMAIN harmless AS int CHECK (VALUE > 0);"
       "CREATE TABLE holds (a more[]); CREATE TABLE fine (a harmless)");
  const routing::HiddenCode& hidden = load();
  EXPECT_TRUE(hidden.types.contains("evens"));
  EXPECT_TRUE(hidden.types.contains("more"));
  EXPECT_TRUE(hidden.types.contains("holds"));
  EXPECT_FALSE(hidden.types.contains("harmless"));
  EXPECT_TRUE(writes("holds"));
  EXPECT_FALSE(reads("holds"));
  EXPECT_FALSE(writes("fine"));
}

TEST_F(HiddenCodeTest, Casts) {
  tell(0,
       "CREATE TYPE pair AS (a int, b int); CREATE TABLE pairs (p pair);"
       "CREATE FUNCTION first(pair) RETURNS int LANGUAGE sql AS 'SELECT 1';"
       "CREATE CAST (pair AS int) WITH FUNCTION first(pair) AS IMPLICIT");
  EXPECT_TRUE(load().types.contains("pair"));
  EXPECT_TRUE(reads("pairs"));
  EXPECT_FALSE(load().casts);
  tell(0,
       "CREATE FUNCTION many(int) RETURNS date LANGUAGE sql AS 'SELECT current_date';"
       "CREATE CAST (int AS date) WITH FUNCTION many(int) AS ASSIGNMENT");
  EXPECT_TRUE(load().casts);
}

TEST_F(HiddenCodeTest, ViewsAndPolicies) {
  tell(0,
       "CREATE OPERATOR !!! (LEFTARG = int, RIGHTARG = int, FUNCTION = plus);"
       "CREATE VIEW calls AS SELECT rows() AS n; CREATE VIEW above AS SELECT * FROM calls;"
       "CREATE VIEW operates AS SELECT a !!! 1 AS n FROM plain;"
       "CREATE VIEW runs AS SELECT query_to_xml('SELECT 1', true, true, '') AS n;"
       "CREATE VIEW locks AS SELECT pg_try_advisory_lock(1) AS n;"
       "CREATE VIEW quiet AS SELECT lower('X'), count(*) FROM plain;"
       "CREATE VIEW settings AS SELECT * FROM pg_settings;"
       "CREATE TABLE policed (a int); CREATE POLICY p ON policed USING (even(a))");
  for (const char* name : {"calls", "above", "operates", "runs", "locks", "policed"}) {
    EXPECT_TRUE(reads(name)) << name;
  }
  EXPECT_FALSE(reads("quiet"));
  EXPECT_FALSE(reads("settings"));
  EXPECT_TRUE(writes("settings"));
}

TEST_F(HiddenCodeTest, WhatHangsOnWrites) {
  tell(0,
       "CREATE TABLE defaults (a bigint DEFAULT rows()); CREATE TABLE checks (a int CHECK "
       "(even(a)));"
       "CREATE TABLE generates (a int, b boolean GENERATED ALWAYS AS (even(a)) STORED);"
       "CREATE TABLE indexes (a int); CREATE INDEX ON indexes (even(a));"
       "CREATE TABLE sql_text (a xml DEFAULT query_to_xml('SELECT 1', true, true, ''));"
       "CREATE TABLE fires (a int); CREATE TRIGGER t BEFORE INSERT ON fires FOR EACH ROW"
       " EXECUTE FUNCTION fire();"
       "CREATE TABLE whole (a int) PARTITION BY LIST (a);"
       "CREATE TABLE part PARTITION OF whole FOR VALUES IN (1);"
       "CREATE TRIGGER t BEFORE INSERT ON part FOR EACH ROW EXECUTE FUNCTION fire();"
       "CREATE TABLE parent (a int PRIMARY KEY);"
       "CREATE TABLE child (a int REFERENCES parent ON DELETE CASCADE);"
       "CREATE TRIGGER t BEFORE DELETE ON child FOR EACH ROW EXECUTE FUNCTION fire();"
       "CREATE TABLE ruled (a int); CREATE RULE r AS ON INSERT TO ruled DO ALSO SELECT rows();"
       "CREATE TABLE counted (a serial, b timestamptz DEFAULT now(), c int CHECK (c > 0))");
  for (const char* name : {"defaults", "checks", "generates", "indexes", "sql_text", "fires",
                           "whole", "part", "parent", "child", "ruled"}) {
    EXPECT_TRUE(writes(name)) << name;
  }
  for (const char* name : {"defaults", "checks", "fires", "parent", "ruled"}) {
    EXPECT_FALSE(reads(name)) << name;
  }
  EXPECT_FALSE(writes("counted"));
  EXPECT_FALSE(writes("plain"));
}

// The insert fence of a registered table stays on when writing it runs code.
TEST_F(HiddenCodeTest, RegisteredTables) {
  tell_all(
      "CREATE FUNCTION odd(bigint) RETURNS boolean LANGUAGE plpgsql IMMUTABLE"
      " AS 'BEGIN RETURN true; END'; CREATE TABLE checked (id bigint CHECK (odd(id)));"
      "CREATE TABLE free (id bigint CHECK (id > 0))");
  ASSERT_TRUE(migration::shard_table(config, {.table = "checked"}));
  ASSERT_TRUE(migration::shard_table(config, {.table = "free"}));
  load();
  EXPECT_TRUE(snapshot_->find_table({"public", "checked"}, {})->user_triggers);
  EXPECT_FALSE(snapshot_->find_table({"public", "free"}, {})->user_triggers);
}

TEST_F(HiddenCodeTest, ExtensionsInCStayUsable) {
  tell(0,
       "CREATE EXTENSION citext;"
       "CREATE TABLE words (a citext PRIMARY KEY DEFAULT 'x' CHECK (a <> 'y'));"
       "CREATE VIEW sorted AS SELECT a FROM words WHERE a = 'x' ORDER BY a");
  EXPECT_FALSE(load().types.contains("citext"));
  EXPECT_FALSE(load().operators.contains("="));
  EXPECT_FALSE(reads("words"));
  EXPECT_FALSE(writes("words"));
  EXPECT_FALSE(reads("sorted"));
  // A view that comes with an extension; the same view of a user counts.
  tell(0,
       "CREATE EXTENSION pg_stat_statements;"
       "CREATE VIEW mine AS SELECT query FROM pg_stat_statements(false)");
  EXPECT_TRUE(snapshot_->builtin_functions.contains("max"));
  EXPECT_FALSE(snapshot_->builtin_functions.contains("replace"));  // citext has it in SQL
  EXPECT_FALSE(reads("pg_stat_statements"));
  EXPECT_TRUE(reads("mine"));
}

TEST_F(HiddenCodeTest, HomonymsHideRegisteredTables) {
  tell_all("CREATE SCHEMA s; CREATE TABLE s.users (id bigint)");
  load();
  EXPECT_EQ(snapshot_->find_table({"", "users"}, {"s", "public"}), nullptr);
  EXPECT_NE(snapshot_->find_table({"", "users"}, {"public", "s"}), nullptr);
  EXPECT_EQ(snapshot_->resolve({"", "pg_settings"}, {"public"}).schema, "pg_catalog");
}

}  // namespace
}  // namespace collegedb
