// A cluster of one shard with rows that others join: verbs for changes of the topology.
#pragma once

#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "migration/schema.h"
#include "migration/topology.h"
#include "proxy/session/guard.h"
#include "routing/hash.h"
#include "tests/pg/migration/cluster_fixture.h"

namespace collegedb::pgtest {

class TopologyTest : public ClusterTest {
 protected:
  static constexpr std::string_view kTables =
      "CREATE TYPE mood AS ENUM ('sad', 'happy');"
      "CREATE TABLE users (id bigint PRIMARY KEY, name text NOT NULL, m mood);"
      "CREATE TABLE orders (id serial PRIMARY KEY, user_id bigint NOT NULL REFERENCES users,"
      " total numeric(12,2));"
      "CREATE INDEX ON orders (user_id);"
      "CREATE TABLE countries (code text PRIMARY KEY, name text NOT NULL,"
      " upper_name text GENERATED ALWAYS AS (upper(name)) STORED);"
      "CREATE FUNCTION twice(n int) RETURNS int LANGUAGE sql AS 'SELECT 2 * n';";
  static constexpr const char* kGroup = "public.users";

  // A cluster of shard sa alone, with rows; the other two are configured and empty.
  void open() {
    tell(0, kTables);
    config.tables = {{.name = "users", .key = "id", .colocate_with = ""},
                     {.name = "orders", .key = "user_id", .colocate_with = "users"}};
    config.reference_tables = {"countries"};
    tell(0,
         "INSERT INTO users SELECT g, 'user ' || g, 'sad' FROM generate_series(1, 300) g;"
         "INSERT INTO orders (user_id, total) SELECT id, 1 FROM users;"
         "INSERT INTO countries VALUES ('de', 'Germany'), ('fr', E'Fra\\\\nce\\t'), ('xx', '')");
    Config alone = config;
    alone.shards.resize(1);
    migration::install_schema(alone, stubs_);
  }

  migration::TopologyOptions options(migration::StepHook step = {}) {
    migration::TopologyOptions out;
    out.stubs = stubs_;
    out.patience = std::chrono::milliseconds(20000);
    out.step = std::move(step);
    return out;
  }
  Result<migration::TopologyChange> add(const std::string& shard, bool dry_run = false) {
    return migration::add_shard(config, shard, dry_run, options());
  }
  Result<migration::TopologyChange> drain(const std::string& shard, bool dry_run = false) {
    return migration::drain_shard(config, shard, dry_run, options());
  }
  Result<migration::TopologyChange> remove(const std::string& shard, bool dry_run = false) {
    return migration::remove_shard(config, shard, dry_run, options());
  }

  std::string epochs() {
    return ask(0,
               "SELECT string_agg(id || ' ' || state || ' ' || array_to_string(shards, ','), '; '"
               " ORDER BY id) FROM collegedb.epochs");
  }
  std::int64_t generation() {
    return std::stoll(ask(0, "SELECT generation FROM collegedb.manifest"));
  }
  // Every fence of the first `shards` shards is at the manifest's generation.
  void expect_raised(std::size_t shards) {
    const std::string now = std::to_string(generation());
    for (std::size_t i = 0; i < shards; ++i) {
      EXPECT_EQ(ask(i, "SELECT min_generation FROM collegedb.topology"), now) << i;
      EXPECT_EQ(ask(i,
                    "SELECT min(min_generation) || ' ' || max(min_generation) || ' ' ||"
                    " count(*) FROM collegedb.gate"),
                now + " " + now + " 2048")
          << i;
    }
  }
  void expect_no_locks() {
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(ask(i,
                    "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND database ="
                    " (SELECT oid FROM pg_database WHERE datname = current_database())"),
                "0");
    }
  }
  // All that is read of a shard's part in the cluster; equal before and after what changes nothing.
  std::string state_of_all() {
    std::string out = epochs();
    out += ask(0,
               "SELECT m::text || (SELECT coalesce(string_agg(s::text, ';'), '')"
               " FROM collegedb.shards s) FROM collegedb.manifest m");
    for (std::size_t i = 0; i < 3; ++i) {
      out += "|" +
             ask(i,
                 "SELECT string_agg(n.nspname || '.' || c.relname, ',' ORDER BY nspname, relname)"
                 " FROM (SELECT 1) one, pg_class c JOIN pg_namespace n"
                 " ON n.oid = relnamespace WHERE nspname IN ('public', 'collegedb')");
      if (ask(i, "SELECT to_regclass('collegedb.gate') IS NOT NULL") == "t") {
        out += ask(i, "SELECT max(min_generation) FROM collegedb.gate");
      }
    }
    return out;
  }

  void take_guard(migration::ControlSession& session, const std::string& key,
                  std::int64_t generation) {
    const std::string bucket = std::to_string(routing::gate_bucket(kGroup, key));
    session.run(session::guard::kQueueSql, {bucket});
    const std::vector<std::string> keys = {key};
    session.run(session::guard::kGateSql, {bucket, std::to_string(generation), config.journal.scope,
                                           kGroup, migration::array_text(keys), "on"});
  }

  // Runs `body` in a child process that may die; returns its exit status.
  static int in_child(const std::function<bool()>& body) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::_exit(body() ? 0 : 1);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

  std::vector<migration::FunctionStub> stubs_ = {
      {"collegedb_locate", "key text, \"table\" text DEFAULT NULL", "TABLE (shard text)"}};
};

}  // namespace collegedb::pgtest
