// Fresh databases on the servers of COLLEGEDB_TEST_SHARDS (conninfos separated by semicolons,
// tests/support/cluster.py), one set per test, and short verbs to look into them.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "migration/control_session.h"
#include "migration/schema.h"
#include "proxy/config.h"

namespace collegedb::pgtest {

class ClusterTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* text = std::getenv("COLLEGEDB_TEST_SHARDS");
    ASSERT_NE(text, nullptr) << "run through tests/support/cluster.py";
    std::string_view rest = text;
    while (!rest.empty()) {
      const std::size_t end = std::min(rest.find(';'), rest.size());
      servers_.emplace_back(rest.substr(0, end));
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
    ASSERT_GE(servers_.size(), 3U);
    static std::atomic<int> count{0};
    database_ = "t" + std::to_string(::getpid()) + "_" + std::to_string(++count);
    for (std::size_t i = 0; i < servers_.size(); ++i) {
      admin(i).run("CREATE DATABASE " + database_);
      config.shards.push_back({std::string("s") + static_cast<char>('a' + i),
                               servers_[i] + " dbname=" + database_,
                               {},
                               0});
    }
    config.shards.resize(3);
    config.journal.shard = "sa";
    config.journal.scope = database_;
  }

  void TearDown() override {
    for (std::size_t i = 0; i < servers_.size(); ++i) {
      auto session = admin(i);
      const auto left =
          session.run("SELECT gid FROM pg_prepared_xacts WHERE database = $1", {database_});
      if (!left.empty()) {
        // A prepared transaction can be ended only from its own database.
        migration::ControlSession inside(config.shards[i]);
        for (int row = 0; row < left.size(); ++row) {
          inside.run("ROLLBACK PREPARED " + migration::quote_literal(left.view(row, 0)));
        }
      }
      session.run("DROP DATABASE IF EXISTS " + database_ + " WITH (FORCE)");
    }
  }

  // As an application would see it.
  std::unique_ptr<migration::ControlSession> session(std::size_t shard) {
    auto out = std::make_unique<migration::ControlSession>(config.shards[shard]);
    out->run("SET search_path = public");
    return out;
  }
  // First column of the first row, "" when there is none.
  std::string ask(std::size_t shard, std::string_view sql) {
    const migration::Rows rows = session(shard)->run(sql);
    return rows.empty() ? "" : rows.text(0, 0);
  }
  void tell(std::size_t shard, std::string_view sql) { session(shard)->script(sql); }
  void tell_all(std::string_view sql) {
    for (std::size_t i = 0; i < config.shards.size(); ++i) {
      tell(i, sql);
    }
  }
  // The shard that collegedb.owner() computes.
  std::size_t owner(const std::string& key) {
    std::vector<std::string> names;
    for (const ShardConfig& shard : config.shards) {
      names.push_back(shard.name);
    }
    const std::string name =
        session(0)
            ->run("SELECT collegedb.owner($1::text[], $2)", {migration::array_text(names), key})
            .text(0, 0);
    return static_cast<std::size_t>(name[1] - 'a');
  }
  void install() { migration::install_schema(config, {}); }

  Config config;  // three shards sa, sb, sc; sa has the journal

 private:
  migration::ControlSession admin(std::size_t server) {
    return migration::ControlSession({"admin", servers_[server] + " dbname=postgres", {}, 0});
  }

  std::vector<std::string> servers_;
  std::string database_;
};

// The SqlError of the SqlFailure that `call` throws; an empty one when it does not.
template <class F>
SqlError failure_of(F call) {
  try {
    call();
  } catch (const migration::SqlFailure& failure) {
    return failure.error();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

}  // namespace collegedb::pgtest
