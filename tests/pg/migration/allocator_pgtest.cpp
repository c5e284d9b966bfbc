// Mapped placement on real servers: every key has one home, whoever puts it there, and nothing is
// written anywhere before it has.
#include "migration/allocator.h"

#include <gmock/gmock.h>

#include <optional>
#include <set>
#include <thread>

#include "migration/mappings.h"
#include "migration/prune.h"
#include "migration/rebalance.h"
#include "migration/registry.h"
#include "migration/topology.h"
#include "tests/pg/migration/move_fixture.h"

namespace collegedb::pgtest {
namespace {

using migration::Allocator;
using migration::KeyPlace;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class AllocatorTest : public MoveTest {
 protected:
  void SetUp() override {
    MoveTest::SetUp();
    config.routing.placement = "mapped";
  }

  static routing::RoutedKey routed(const std::string& key) {
    return {std::string(kGroup), key, routing::gate_bucket(kGroup, key), true};
  }
  Allocator& allocator() {
    if (!allocator_) {
      allocator_ = std::make_unique<Allocator>(options());
      now_ = snapshot();
    }
    return *allocator_;
  }
  // With what is configured, and the topology as it is, now.
  void renew() { allocator_.reset(); }
  Result<KeyPlace> find(const std::string& key, bool for_write,
                        routing::ShardId prefer = routing::kNoShard) {
    Allocator& asked = allocator();
    return asked.find(*now_, routed(key), for_write, prefer);
  }
  // Shard of a key that is written first now; its allocation is checked.
  std::string allocated(const std::string& key, const std::string& strategy) {
    const auto place = find(key, true);
    if (!place) {
      ADD_FAILURE() << place.error().message << " " << place.error().detail;
      return "";
    }
    EXPECT_TRUE(place->settled);
    EXPECT_EQ(entry(key), name(place->shard));
    EXPECT_EQ(ledger(key), name(place->shard) + " " + strategy);
    return name(place->shard);
  }
  std::string ledger(const std::string& key) {
    return ask(
        0, "SELECT shard || ' ' || strategy FROM collegedb.allocations WHERE key = '" + key + "'");
  }
  std::string hashed(const std::string& key, std::vector<std::string> shards = {"sa", "sb", "sc"}) {
    const std::int64_t hash = routing::college_hash(key);
    return shards[static_cast<std::uint64_t>(hash < 0 ? -hash : hash) % shards.size()];
  }
  void insert(std::size_t shard, const std::string& key) {
    tell(shard, "INSERT INTO users (id, name) VALUES (" + key + ", 'x')");
  }
  std::string mappings() { return ask(0, "SELECT count(*) FROM collegedb.mappings"); }
  migration::TopologyOptions patient() {
    migration::TopologyOptions out;
    out.patience = std::chrono::milliseconds(20000);
    return out;
  }

  std::unique_ptr<Allocator> allocator_;
  std::shared_ptr<const routing::Snapshot> now_;
};

TEST_F(AllocatorTest, AFirstWriteGetsAMappingAndALineInTheLedger) {
  open();
  for (const std::string key : {"1", "2", "3", "4", "5", "6", "7", "8"}) {
    EXPECT_EQ(allocated(key, "hash"), hashed(key));
    for (const bool for_write : {true, false}) {
      const auto again = find(key, for_write);
      ASSERT_TRUE(again) << again.error().message;
      EXPECT_EQ(name(again->shard), hashed(key));
      EXPECT_TRUE(again->settled);
    }
  }
  EXPECT_EQ(mappings(), "8");
  EXPECT_EQ(ask(0, "SELECT count(*) FROM collegedb.allocations"), "8");
  EXPECT_EQ(ask(0, "SELECT count(DISTINCT shard) FROM collegedb.mappings"), "3");
}

TEST_F(AllocatorTest, AReadOfAKeyNobodyHasWritesNothing) {
  config.routing.strategy = "round-robin";
  open();
  std::set<routing::ShardId> looked;
  for (int i = 0; i < 3; ++i) {
    const auto place = find("1", false);
    ASSERT_TRUE(place) << place.error().message;
    EXPECT_FALSE(place->settled);
    EXPECT_TRUE(place->nobody);
    looked.insert(place->shard);
  }
  EXPECT_EQ(looked.size(), 3U);
  EXPECT_EQ(mappings(), "0");
  EXPECT_EQ(ask(0, "SELECT count(*) FROM collegedb.allocations"), "0");
  EXPECT_EQ(ask(0, "SELECT count(*) FROM collegedb.sequences"), "0");
}

TEST_F(AllocatorTest, RoundRobinTakesTurnsOverAllProxies) {
  config.routing.strategy = "round-robin";
  open();
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(allocated(std::to_string(i), "round-robin"), name(static_cast<std::size_t>(i % 3)));
    renew();  // another proxy
  }
}

TEST_F(AllocatorTest, MixedReadsAndWritesDiffer) {
  config.routing.strategy = "mixed";
  config.routing.strategy_read = "location";
  config.routing.strategy_write = "random";
  config.routing.target_region = "weur";
  config.shards[0].region = "apac";
  config.shards[1].region = "enam";
  config.shards[2].region = "eeur";
  open();
  std::set<std::string> written;
  for (int i = 0; i < 40; ++i) {
    EXPECT_EQ(find(std::to_string(i), false)->shard, 2);
    written.insert(allocated(std::to_string(i), "random"));
  }
  EXPECT_EQ(written.size(), 3U);
}

TEST_F(AllocatorTest, TheNearestShardTakesNewKeysAsConfiguredLast) {
  config.routing.strategy = "location";
  config.routing.target_region = "weur";
  config.shards[1].region = "eeur";
  config.shards[2].region = "apac";
  open();
  EXPECT_EQ(allocated("1", "location"), "sb");
  std::swap(config.shards[1].region, config.shards[2].region);
  install();
  EXPECT_EQ(allocated("2", "location"), "sc");
}

TEST_F(AllocatorTest, AFullShardTakesNoNewKeys) {
  config.shards[1].max_size = 1000;
  open();
  tell(0, "UPDATE collegedb.shards SET database_bytes = 999 WHERE shard = 'sb'");
  std::string key = "1";
  while (hashed(key) != "sb") key = std::to_string(std::stoi(key) + 1);
  EXPECT_EQ(allocated(key, "hash"), "sb");
  tell(0, "UPDATE collegedb.shards SET database_bytes = 1000 WHERE shard = 'sb'");
  for (int i = 100; i < 110; ++i) {
    EXPECT_EQ(allocated(std::to_string(i), "hash"), hashed(std::to_string(i), {"sa", "sc"}));
  }
  EXPECT_EQ(name(find(key, true)->shard), "sb");  // its own stays
  tell(0, "UPDATE collegedb.shards SET database_bytes = 1000, max_size = 1000");
  for (int i = 200; i < 210; ++i) {
    EXPECT_EQ(allocated(std::to_string(i), "hash"), hashed(std::to_string(i)));
  }
}

TEST_F(AllocatorTest, RowsFromBeforeAreReadWhereTheyAreAndEnteredByAWrite) {
  open();
  std::string key = "1";
  while (hashed(key) == "sc") key = std::to_string(std::stoi(key) + 1);
  insert(2, key);
  for (int i = 0; i < 2; ++i) {
    const auto read = find(key, false);
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_EQ(read->shard, 2);
    EXPECT_FALSE(read->settled);
    EXPECT_FALSE(read->nobody);
  }
  EXPECT_EQ(mappings(), "0");
  const auto write = find(key, true);
  ASSERT_TRUE(write) << write.error().message;
  EXPECT_EQ(write->shard, 2);
  EXPECT_TRUE(write->settled);
  EXPECT_EQ(entry(key), "sc");
  EXPECT_EQ(ledger(key), "");
}

TEST_F(AllocatorTest, RowsOnSeveralShardsAreRefused) {
  open();
  insert(0, "7");
  insert(2, "7");
  for (const bool for_write : {false, true}) {
    const auto place = find("7", for_write);
    ASSERT_FALSE(place);
    EXPECT_EQ(place.error().sqlstate, "0A000");
    EXPECT_THAT(place.error().message, HasSubstr("rows on shards sa, sc"));
    EXPECT_THAT(place.error().hint, HasSubstr("collegedb_import()"));
  }
  EXPECT_EQ(mappings(), "0");
  const auto moved = reassign("7", "sb");
  ASSERT_FALSE(moved);
  EXPECT_THAT(moved.error().message, HasSubstr("rows on shards sa, sc"));
}

TEST_F(AllocatorTest, OfManyAllocatorsOneDecidesForAll) {
  config.routing.strategy = "random";
  open();
  constexpr int kKeys = 60;
  constexpr int kThreads = 4;
  const auto now = snapshot();
  const auto chosen_options = options();
  std::vector<std::vector<routing::ShardId>> seen(kThreads);
  std::atomic<int> waiting{kThreads};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      auto mine = chosen_options;
      mine.sessions = std::make_shared<migration::SessionPool>();
      Allocator allocator(mine);
      --waiting;
      while (waiting > 0) std::this_thread::yield();
      for (int i = 0; i < kKeys; ++i) {
        const auto place = allocator.find(*now, routed(std::to_string(i)), true);
        seen[static_cast<std::size_t>(t)].push_back(place ? place->shard : routing::kNoShard);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (int t = 1; t < kThreads; ++t) EXPECT_EQ(seen[static_cast<std::size_t>(t)], seen[0]);
  for (int i = 0; i < kKeys; ++i) {
    const std::string home = name(seen[0][static_cast<std::size_t>(i)]);
    EXPECT_EQ(entry(std::to_string(i)), home);
    EXPECT_EQ(ledger(std::to_string(i)), home + " random");
  }
}

TEST_F(AllocatorTest, UnderAnOlderTopologyNothingIsMapped) {
  open();
  allocator();
  tell(0, "UPDATE collegedb.manifest SET generation = generation + 1");
  insert(1, "2");
  for (const std::string key : {"1", "2"}) {
    const auto place = find(key, true);
    ASSERT_FALSE(place);
    EXPECT_EQ(place.error().sqlstate, guard::kStale);
  }
  EXPECT_EQ(mappings(), "0");
  renew();
  tell(0,
       "INSERT INTO collegedb.mappings SELECT scope, 'public.users', '3', 'sc' FROM"
       " collegedb.manifest");
  EXPECT_TRUE(find("3", true));
  // A shard that the newest epoch does not name any more, chosen by who does not know that yet.
  allocator();
  tell(0, "UPDATE collegedb.epochs SET shards = '{sa}'");
  const auto session = this->session(0);
  EXPECT_EQ(failure_of([&] {
              (void)migration::map_keys(*session, config.journal.scope, std::string(kGroup), {"4"},
                                        "sb", "hash", now_->generation);
            }).sqlstate,
            guard::kStale);
  EXPECT_EQ(allocated("4", "hash"), "sa");
}

// A change of the topology waits for mappings that are being made, and those behind it are refused.
TEST_F(AllocatorTest, MappingsAndTopologiesTakeTurns) {
  open();
  const auto mapping = session(0);
  const auto changing = session(0);
  mapping->run("BEGIN");
  ASSERT_EQ(migration::map_keys(*mapping, config.journal.scope, std::string(kGroup), {"1"}, "sa",
                                "hash", 1)
                .at("1"),
            "sa");
  std::atomic<bool> changed{false};
  std::thread change([&] {
    migration::change_manifest(*changing, config.journal.scope, migration::Bump::kGeneration,
                               [](auto&, auto&, auto) {});
    changed = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_FALSE(changed);
  std::optional<SqlError> late;
  std::thread behind([&] {
    const auto session = this->session(0);
    late = failure_of([&] {
      (void)migration::map_keys(*session, config.journal.scope, std::string(kGroup), {"2"}, "sa",
                                "hash", 1);
    });
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  mapping->run("COMMIT");
  change.join();
  behind.join();
  ASSERT_TRUE(late);
  EXPECT_EQ(late->sqlstate, guard::kStale);
  EXPECT_EQ(entry("1") + entry("2"), "sa");
}

TEST_F(AllocatorTest, WithoutTheJournalNothingIsRouted) {
  open();
  insert(1, "1");
  now_ = snapshot();
  auto broken = options();
  broken.shards[0].conninfo = "host=127.0.0.1 port=1 dbname=nowhere connect_timeout=2";
  broken.sessions = std::make_shared<migration::SessionPool>();
  Allocator allocator(broken);
  for (const bool for_write : {false, true}) {
    const auto place = allocator.find(*now_, routed("1"), for_write);
    ASSERT_FALSE(place);
    EXPECT_EQ(place.error().sqlstate, "40001");
    EXPECT_THAT(place.error().message, StartsWith("PLACEMENT_UNVERIFIED: "));
  }
}

TEST_F(AllocatorTest, AShardThatCannotBeAskedLeavesNewKeysUnresolved) {
  open();
  map("5", 2);
  now_ = snapshot();
  auto broken = options();
  broken.shards[1].conninfo = "host=127.0.0.1 port=1 dbname=nowhere connect_timeout=2";
  broken.sessions = std::make_shared<migration::SessionPool>();
  Allocator allocator(broken);
  EXPECT_EQ(allocator.find(*now_, routed("5"), true)->shard, 2);
  const auto write = allocator.find(*now_, routed("1"), true);
  ASSERT_FALSE(write);
  EXPECT_THAT(write.error().message, StartsWith("WRITE_UNRESOLVED: "));
  const auto read = allocator.find(*now_, routed("1"), false);
  ASSERT_FALSE(read);
  EXPECT_THAT(read.error().message, StartsWith("SHARD_UNAVAILABLE: "));
  EXPECT_EQ(mappings(), "1");
}

TEST_F(AllocatorTest, ATransactionKeepsTheKeyItHasLookedFor) {
  open();
  std::string key = "1";
  while (hashed(key) != "sa") key = std::to_string(std::stoi(key) + 1);
  EXPECT_EQ(find(key, true, 2)->shard, 2);
  EXPECT_EQ(ledger(key), "sc transaction");
  // Not where no new keys go.
  tell(0, "UPDATE collegedb.epochs SET shards = '{sa,sb}'");
  const auto other = find("1000", true, 2);
  ASSERT_TRUE(other) << other.error().message;
  EXPECT_EQ(name(other->shard), hashed("1000", {"sa", "sb"}));
}

TEST_F(AllocatorTest, ATombstoneWithoutAMappingLeadsToItsEnd) {
  open();
  std::string key = "1";
  while (hashed(key) != "sa") key = std::to_string(std::stoi(key) + 1);
  for (const auto& [at, to] : {std::pair{0, "sb"}, std::pair{1, "sc"}}) {
    tell(static_cast<std::size_t>(at),
         "INSERT INTO collegedb.retired (scope, grp, key, op, moved_to) VALUES ('" +
             config.journal.scope + "', 'public.users', '" + key + "', 'op', '" + to + "')");
  }
  EXPECT_EQ(find(key, true)->shard, 2);
  EXPECT_EQ(entry(key), "sc");
}

TEST_F(AllocatorTest, AMoveUpdatesTheMapping) {
  open();
  const std::size_t from = add_key("42");
  const std::string before = rows(from, "42");
  for (const std::size_t to : {other_than(from), other_than(other_than(from)), from}) {
    const auto moved = reassign("42", name(to));
    ASSERT_TRUE(moved) << moved.error().message;
    expect_owner("42", to, before);
    const auto place = find("42", true);
    ASSERT_TRUE(place);
    EXPECT_EQ(place->shard, to);
  }
  EXPECT_EQ(ask(0, "SELECT exception_version FROM collegedb.manifest"), "0");
  expect_quiet();
}

TEST_F(AllocatorTest, AMoveNeedsAMappingOrRows) {
  open();
  const auto nobody = reassign("1", "sb");
  ASSERT_FALSE(nobody);
  EXPECT_EQ(nobody.error().sqlstate, "02000");
  EXPECT_THAT(nobody.error().message, StartsWith("MAPPING_NOT_FOUND: "));
  // Rows alone: entered first. A rehearsal enters nothing.
  insert(2, "3");
  const auto rehearsed = reassign("3", "sb", true);
  ASSERT_TRUE(rehearsed) << rehearsed.error().message;
  EXPECT_EQ(rehearsed->source, "sc");
  EXPECT_EQ(mappings(), "0");
  ASSERT_TRUE(reassign("3", "sb"));
  EXPECT_EQ(entry("3"), "sb");
  EXPECT_EQ(ask(1, "SELECT count(*) FROM users WHERE id = 3"), "1");
  EXPECT_EQ(ask(2, "SELECT count(*) FROM users WHERE id = 3"), "0");
  // A mapping alone: the next first row is made at the new home, also by who knows the old one.
  map("4", 0);
  ASSERT_TRUE(reassign("4", "sc"));
  EXPECT_EQ(entry("4"), "sc");
  EXPECT_EQ(writable_at(0, "4"), 2U);
  expect_quiet();
}

TEST_F(AllocatorTest, ABatchMovesOnlyKeysMappedToItsSource) {
  open();
  for (const std::string key : {"1", "2", "3"}) {
    insert(0, key);
    map(key, key == "2" ? 1 : 0);
  }
  migration::Runner runner(options());
  const auto refused = runner.reassign_keys(std::string(kGroup), {"1", "2", "3"}, "sa", "sc");
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("key 2 is mapped to shard \"sb\""));
  EXPECT_EQ(entry("1") + entry("2") + entry("3"), "sasbsa");
  EXPECT_EQ(ask(0, "SELECT count(*) FROM collegedb.claims"), "0");
  ASSERT_TRUE(runner.reassign_keys(std::string(kGroup), {"1", "3"}, "sa", "sc"));
  EXPECT_EQ(entry("1") + entry("2") + entry("3"), "scsbsc");
  expect_quiet();
}

TEST_F(AllocatorTest, ADrainedShardIsEmptiedAndRemoved) {
  open();
  for (int i = 1; i <= 300; ++i) {
    const std::string key = std::to_string(i);
    insert(static_cast<std::size_t>(i % 3), key);
    if (i > 30) map(key, static_cast<std::size_t>(i % 3));  // the first ones have rows alone
  }
  for (int i = 301; i <= 330; ++i) map(std::to_string(i), static_cast<std::size_t>(i % 3));
  const auto before = ask(0,
                          "SELECT string_agg(key || shard, ',' ORDER BY key)"
                          " FROM collegedb.mappings WHERE shard <> 'sb'");
  ASSERT_TRUE(migration::drain_shard(config, "sb", false, patient()));
  renew();
  for (int i = 1000; i < 1020; ++i) {
    EXPECT_EQ(allocated(std::to_string(i), "hash"), hashed(std::to_string(i), {"sa", "sc"}));
  }
  tell(0, "DELETE FROM collegedb.mappings WHERE key::int >= 1000");

  const auto pruned = migration::prune_epochs(config, {});
  ASSERT_TRUE(pruned) << pruned.error().message;
  EXPECT_EQ(pruned->removed, std::vector{1});
  EXPECT_EQ(ask(0, "SELECT count(*) FROM collegedb.epochs"), "1");
  EXPECT_THAT(migration::remove_shard(config, "sb", false, patient()).error().message,
              HasSubstr("mappings for keys on shard \"sb\""));

  auto now = options();
  now.snapshot = [fresh = snapshot()] { return fresh; };
  migration::Runner runner(now);
  const auto rehearsed = migration::rebalance(runner, {.dry_run = true});
  ASSERT_TRUE(rehearsed) << rehearsed.error().message;
  EXPECT_EQ(rehearsed->moved, 110);
  const auto done = migration::rebalance(runner, {});
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_EQ(done->failed, 0) << (done->failures.empty() ? "" : done->failures.front().error);
  EXPECT_EQ(done->moved, 110);
  EXPECT_EQ(ask(1, "SELECT count(*) FROM users"), "0");
  for (int i = 1; i <= 330; ++i) {
    const std::string key = std::to_string(i);
    if (i % 3 == 1) {
      EXPECT_EQ(entry(key), hashed(key, {"sa", "sc"})) << key;
      EXPECT_EQ(ask(index(entry(key)), "SELECT count(*) FROM users WHERE id = " + key),
                i <= 300 ? "1" : "0");
    }
  }
  // What is on the others stays there.
  EXPECT_EQ(ask(0,
                "SELECT string_agg(key || shard, ',' ORDER BY key) FROM collegedb.mappings"
                " WHERE key::int % 3 <> 1"),
            before);
  expect_quiet();
  const auto gone = migration::remove_shard(config, "sb", false, patient());
  ASSERT_TRUE(gone) << gone.error().message;
  EXPECT_EQ(gone->state, "removed");
  const auto session = this->session(0);
  EXPECT_EQ(failure_of([&] {
              (void)migration::map_keys(*session, config.journal.scope, std::string(kGroup), {"1"},
                                        "sb", "", gone->generation);
            }).sqlstate,
            guard::kStale);
}

// Who remembers the key where its way to the removed shard begins is stopped there by the tombstone
// until he is stopped by the fence.
TEST_F(AllocatorTest, ARemovalLeavesNoGapBetweenTombstoneAndFence) {
  open();
  add_key("42");
  for (const char* shard : {"sa", "sb", "sc"}) ASSERT_TRUE(reassign("42", shard));
  ASSERT_EQ(ask(0, "SELECT moved_to FROM collegedb.retired"), "sb");
  ASSERT_TRUE(migration::drain_shard(config, "sb", false, patient()));
  ASSERT_TRUE(migration::prune_epochs(config, {}));
  const auto old_generation = ask(0, "SELECT generation FROM collegedb.manifest");
  std::vector<std::string> seen;
  auto options = patient();
  options.step = [&](std::string_view step) {
    if (step != "published") return;
    const auto look = session(0);
    seen.push_back(
        look->run("SELECT count(*) FROM collegedb.retired").text(0, 0) + " " +
        look->run("SELECT min(min_generation) > $1::int8 FROM collegedb.gate", {old_generation})
            .text(0, 0));
  };
  const auto gone = migration::remove_shard(config, "sb", false, options);
  ASSERT_TRUE(gone) << gone.error().message;
  EXPECT_EQ(seen, (std::vector<std::string>{"1 f", "0 t"}));
}

TEST_F(AllocatorTest, ARebalanceTellsOfKeysItCannotPlace) {
  open();
  insert(1, "1");
  insert(2, "1");
  insert(1, "2");
  ASSERT_TRUE(migration::drain_shard(config, "sb", false, patient()));
  auto now = options();
  now.snapshot = [fresh = snapshot()] { return fresh; };
  migration::Runner runner(now);
  const auto done = migration::rebalance(runner, {});
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_EQ(done->moved, 1);
  ASSERT_EQ(done->failures.size(), 1U);
  EXPECT_EQ(done->failures[0].key, "1");
  EXPECT_THAT(done->failures[0].error, HasSubstr("rows on shards sb, sc"));
  EXPECT_EQ(entry("1"), "");
}

TEST_F(AllocatorTest, AShardThatIsAddedTakesNewKeysAndNoOthers) {
  auto all = config.shards;
  config.shards.resize(2);
  for (const std::size_t i : {0, 1}) tell(i, kTables);
  install();
  config.shards = all;
  for (int i = 1; i <= 20; ++i) {
    insert(static_cast<std::size_t>(i % 2), std::to_string(i));
    map(std::to_string(i), static_cast<std::size_t>(i % 2));
  }
  const auto added = migration::add_shard(config, "sc", false, patient());
  ASSERT_TRUE(added) << added.error().message << added.error().detail;
  EXPECT_EQ(added->state, "active");
  auto now = options();
  now.snapshot = [fresh = snapshot()] { return fresh; };
  migration::Runner runner(now);
  const auto done = migration::rebalance(runner, {});
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_EQ(done->moved, 0);
  EXPECT_EQ(done->examined, 20);
  EXPECT_EQ(done->agreed, 20);
  std::set<std::string> homes;
  for (int i = 100; i < 130; ++i) homes.insert(allocated(std::to_string(i), "hash"));
  EXPECT_EQ(homes.size(), 3U);
}

TEST_F(AllocatorTest, ATableWithRowsElsewhereThanMappedIsNotRegistered) {
  open();
  map("1", 1);
  tell_all("CREATE TABLE notes (user_id bigint, t text)");
  tell(2, "INSERT INTO notes VALUES (1, 'astray'), (2, 'nobody knows')");
  const migration::TableRequest request{
      .table = "notes", .key = "user_id", .colocate_with = "users"};
  const auto refused = migration::shard_table(config, request);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("rows on shard \"sc\" of keys that are mapped"));
  EXPECT_THAT(refused.error().detail, AllOf(HasSubstr("1"), ::testing::Not(HasSubstr("2"))));
  tell(2, "DELETE FROM notes WHERE user_id = 1");
  const auto done = migration::shard_table(config, request);
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_EQ(ask(0, "SELECT count(*) FROM collegedb.exceptions"), "0");
  EXPECT_EQ(find("2", true)->shard, 2);
}

TEST_F(AllocatorTest, LookingTellsOfMappingsAndRows) {
  open();
  map("1", 1);
  insert(2, "2");
  allocator();
  const auto look = [&](const std::string& key, bool enter) {
    auto found = allocator().look(*now_, routed(key), enter);
    EXPECT_TRUE(found) << found.error().message;
    return found ? *found : std::nullopt;
  };
  EXPECT_TRUE(look("1", false)->mapped);
  EXPECT_EQ(look("1", false)->shard, 1);
  EXPECT_FALSE(look("2", false)->mapped);
  EXPECT_EQ(look("2", false)->shard, 2);
  EXPECT_FALSE(look("3", true));
  EXPECT_EQ(mappings(), "1");
  EXPECT_TRUE(look("2", true)->mapped);
  EXPECT_EQ(entry("2"), "sc");
}

}  // namespace
}  // namespace collegedb::pgtest
