// collegedb_import under mapped placement: every key on one shard gets its mapping, once.
#include "migration/import.h"

#include "tests/pg/migration/import_fixture.h"

namespace collegedb::pgtest {
namespace {

using migration::import_group;
using migration::ImportRequest;
using migration::ImportResult;
using ::testing::HasSubstr;

class MappedImportTest : public ImportTest {
 protected:
  void SetUp() override {
    ImportTest::SetUp();
    config.routing.placement = "mapped";
  }
  std::string mapping(const std::string& key) {
    return ask(0, "SELECT shard FROM collegedb.mappings WHERE key = '" + key + "'");
  }
  void map(const std::string& key, const std::string& shard) {
    tell(0, "INSERT INTO collegedb.mappings (scope, grp, key, shard) VALUES ('" +
                config.journal.scope + "', 'public.users', '" + key + "', '" + shard + "')");
  }
};

TEST_F(MappedImportTest, EveryKeyOnOneShardGetsItsMapping) {
  open();
  for (std::size_t i = 0; i < 3; ++i) {
    tell(i, "INSERT INTO users (id, name) SELECT g, 'x' FROM generate_series(" +
                std::to_string(i * 2000 + 1) + ", " + std::to_string(i * 2000 + 2000) + ") g");
  }
  map("1", "sa");
  map("2", "sc");
  tell(2, insert("3"));  // also on sa
  const ImportResult told = rehearse();
  EXPECT_EQ(told.mapped, 5997);
  EXPECT_EQ(ask(0, "SELECT count(*) FROM collegedb.mappings"), "2");
  const ImportResult done = run();
  EXPECT_EQ(done.examined, 6000);
  EXPECT_EQ(done.mapped, 5997);
  EXPECT_EQ(done.conflicts, 2);
  expect_conflict(done, "2", "the directory has it on shard \"sc\"");
  expect_conflict(done, "3", "rows on several shards");
  EXPECT_EQ(mapping("4"), "sa");
  EXPECT_EQ(mapping("2004"), "sb");
  EXPECT_EQ(mapping("4004"), "sc");
  EXPECT_EQ(mapping("3"), "");
  EXPECT_EQ(ask(0, "SELECT count(*) FROM collegedb.allocations"), "0") << "no strategy put them";
  EXPECT_EQ(ask(0, "SELECT count(*) FROM collegedb.exceptions"), "0");
  EXPECT_EQ(run().mapped, 0);
  expect_quiet();
}

TEST_F(MappedImportTest, ACrashInTheMiddleIsGoneOnFrom) {
  open();
  tell(1, "INSERT INTO users (id, name) SELECT g, 'x' FROM generate_series(1, 1300) g");
  const Config copy = config;
  EXPECT_EQ(in_child([&] {
              int lots = 0;
              ImportRequest request{.group = std::string(kGroup)};
              request.step = [&](std::string_view step) {
                if (step == "recorded" && ++lots == 2) ::_exit(77);
              };
              (void)import_group(copy, request);
            }),
            77);
  EXPECT_EQ(ask(0, "SELECT count(*) FROM collegedb.mappings"), "1000");
  const ImportResult done = run();
  EXPECT_EQ(done.examined, 1300);
  EXPECT_EQ(done.mapped, 300);
  EXPECT_EQ(ask(0, "SELECT count(*) FROM collegedb.mappings"), "1300");
  expect_quiet();
}

// Allocations of keys that came to a shard past the proxy: who writes the mapping first is right,
// and the other one says so.
TEST_F(MappedImportTest, AllocationsMeanwhileAreKept) {
  open();
  tell(1, "INSERT INTO users (id, name) SELECT g, 'x' FROM generate_series(1, 1000) g");
  ImportRequest request{.group = std::string(kGroup)};
  bool once = false;
  request.step = [&](std::string_view step) {
    if (step != "held" || std::exchange(once, true)) return;
    session(0)->run(
        "INSERT INTO collegedb.mappings (scope, grp, key, shard)"
        " SELECT $1, 'public.users', g::text, 'sc' FROM generate_series(1, 50) g",
        {config.journal.scope});
  };
  const ImportResult done = run(request);
  EXPECT_EQ(done.mapped, 950);
  EXPECT_EQ(done.conflicts, 50);
  expect_conflict(done, "7", "the directory has it on shard \"sc\"");
}

TEST_F(MappedImportTest, TwoImportsShareTheWork) {
  open();
  for (std::size_t i = 0; i < 3; ++i) {
    tell(i, "INSERT INTO users (id, name) SELECT g, 'x' FROM generate_series(" +
                std::to_string(i * 2000 + 1) + ", " + std::to_string(i * 2000 + 2000) + ") g");
  }
  std::vector<ImportResult> results(2);
  std::vector<std::thread> threads;
  for (ImportResult& result : results) threads.emplace_back([&] { result = run(); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(results[0].mapped + results[1].mapped, 6000);
  EXPECT_EQ(results[0].conflicts + results[1].conflicts, 0);
  EXPECT_EQ(ask(0, "SELECT count(*) FROM collegedb.mappings"), "6000");
  expect_quiet();
}

TEST_F(MappedImportTest, ATopologyThatChangesIsReadAgain) {
  open();
  tell(1, insert("1"));
  ImportRequest request{.group = std::string(kGroup)};
  int held = 0;
  request.step = [&](std::string_view step) {
    // After the lot has read the generation it would be too late to matter: map_keys() decides.
    if (step == "held" && ++held == 1) {
      session(0)->run("UPDATE collegedb.manifest SET generation = generation + 1");
    }
  };
  EXPECT_EQ(run(request).mapped, 1);
  EXPECT_EQ(mapping("1"), "sb");
}

}  // namespace
}  // namespace collegedb::pgtest
