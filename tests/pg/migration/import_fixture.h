// A cluster with keys that lie where routing does not look, and what an import makes of them.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "migration/import.h"
#include "tests/pg/migration/move_fixture.h"

namespace collegedb::pgtest {

class ImportTest : public MoveTest {
 protected:
  migration::ImportResult run(migration::ImportRequest request = {}) {
    if (request.group.empty()) request.group = kGroup;
    auto done = migration::import_group(config, request);
    if (!done) {
      ADD_FAILURE() << done.error().message << " " << done.error().detail;
      return {};
    }
    return *std::move(done);
  }
  migration::ImportResult rehearse() {
    return run({.group = std::string(kGroup), .dry_run = true});
  }

  static std::string insert(const std::string& key, const std::string& name = "x") {
    return "INSERT INTO users (id, name) VALUES (" + key + ", '" + name + "')";
  }
  // A new key that shard `home` owns, with a row on `at`, put there past every proxy.
  std::string stray(std::size_t home, std::size_t at) {
    const std::string key = key_of(home);
    tell(at, insert(key));
    return key;
  }
  std::string key_of(std::size_t home) {
    while (owner(std::to_string(++next_key_)) != home) {
    }
    return std::to_string(next_key_);
  }
  std::string tombstone(std::size_t shard, const std::string& key) {
    return ask(shard, "SELECT moved_to FROM collegedb.retired WHERE key = '" + key + "'");
  }
  std::string entry(const std::string& key) {
    return ask(0,
               "SELECT kind || ' ' || shard FROM collegedb.exceptions WHERE key = '" + key + "'");
  }
  std::vector<std::size_t> holders(const std::string& key) {
    std::vector<std::size_t> out;
    for (std::size_t i = 0; i < 3; ++i) {
      if (ask(i, "SELECT count(*) FROM users WHERE id = " + key) != "0") out.push_back(i);
    }
    return out;
  }
  void expect_conflict(const migration::ImportResult& result, const std::string& key,
                       const std::string& reason) {
    for (const auto& each : result.listed) {
      if (each.key != key) continue;
      EXPECT_THAT(each.reason, ::testing::HasSubstr(reason));
      return;
    }
    ADD_FAILURE() << "no conflict of key " << key;
  }
  // All that an import may write.
  std::string state() {
    std::string out = ask(0,
                          "SELECT (SELECT md5(string_agg(e::text, ';' ORDER BY e.key))"
                          " FROM collegedb.exceptions e) || (SELECT m::text FROM"
                          " collegedb.manifest m) || (SELECT count(*) FROM collegedb.claims)");
    for (std::size_t i = 0; i < 3; ++i) {
      out += ask(i,
                 "SELECT (SELECT coalesce(md5(string_agg(r::text, ';' ORDER BY r.key)), '')"
                 " FROM collegedb.retired r) || (SELECT sum(cutovers) FROM collegedb.gate)"
                 " || (SELECT last_value FROM collegedb.cutover_counter)");
    }
    return out;
  }

  int next_key_ = 0;
};

}  // namespace collegedb::pgtest
