// Keys between epochs on real servers (4b rows 6 and 7): every key has one home, whoever looks for
// it and whoever still writes where it was.
#include "migration/finder.h"

#include <optional>

#include "tests/pg/migration/move_fixture.h"

namespace collegedb::pgtest {
namespace {

using migration::Finder;
using migration::KeyPlace;

class FinderTest : public MoveTest {
 protected:
  // Epochs as lists of shards, newest first; a snapshot of that.
  void epochs(const std::vector<std::vector<routing::ShardId>>& lists) {
    auto made = std::make_shared<routing::Snapshot>(*MoveTest::snapshot());
    made->epochs.clear();
    auto id = static_cast<std::int32_t>(lists.size());
    for (const auto& shards : lists) {
      routing::Epoch epoch;
      epoch.id = id--;
      epoch.shards = shards;
      made->epochs.push_back(epoch);
    }
    made_ = made;
  }

  routing::RoutedKey routed(const std::string& key) {
    return {std::string(kGroup), key, routing::gate_bucket(kGroup, key), true};
  }
  Result<KeyPlace> find(const std::string& key, bool for_write) {
    return Finder(options()).find(*made_, routed(key), for_write);
  }
  // A key whose owners by the epochs are these, newest first.
  std::string key_with(const std::vector<routing::ShardId>& owners) {
    for (int i = 1; i < 100000; ++i) {
      const auto found = routing::candidates(*made_, std::to_string(next_key_ + i));
      if (std::vector<routing::ShardId>(found.begin(), found.end()) == owners) {
        next_key_ += i;
        return std::to_string(next_key_);
      }
    }
    ADD_FAILURE() << "no such key";
    return "0";
  }
  static std::string insert(const std::string& key) {
    return "INSERT INTO users (id, name) VALUES (" + key + ", 'x')";
  }
  std::string tombstone(std::size_t shard, const std::string& key) {
    return ask(shard, "SELECT moved_to FROM collegedb.retired WHERE key = '" + key + "'");
  }
  int shards_with(const std::string& key) {
    int out = 0;
    for (std::size_t i = 0; i < 3; ++i) {
      out += ask(i, "SELECT count(*) FROM users WHERE id = " + key) != "0";
    }
    return out;
  }

  std::shared_ptr<const routing::Snapshot> made_;
  int next_key_ = 0;
};

TEST_F(FinderTest, RowsDecideWherever) {
  open();
  epochs({{0, 1, 2}, {0}});
  const std::string key = key_with({1, 0});
  tell(0, insert(key));
  for (const bool for_write : {false, true}) {
    const auto place = find(key, for_write);
    ASSERT_TRUE(place) << place.error().message;
    EXPECT_EQ(place->shard, 0);
    EXPECT_TRUE(place->settled);
  }
  EXPECT_EQ(tombstone(0, key), "");
  // Rows of any table of the group count.
  const std::string other = key_with({2, 0});
  tell(0, "ALTER TABLE orders DROP CONSTRAINT orders_user_id_fkey");
  tell(0, "INSERT INTO orders VALUES (" + other + ", 1, 1)");
  EXPECT_EQ(find(other, true)->shard, 0);
}

TEST_F(FinderTest, AReadOfNothingLeavesNoTrace) {
  open();
  epochs({{0, 1, 2}, {0}});
  const std::string key = key_with({1, 0});
  const auto place = find(key, false);
  ASSERT_TRUE(place);
  EXPECT_EQ(place->shard, 1);
  EXPECT_FALSE(place->settled);
  EXPECT_EQ(tombstone(0, key), "");
  EXPECT_EQ(writable_at(0, key), 0U);
}

TEST_F(FinderTest, AWriteOfNothingClosesTheOlderOwners) {
  open();
  epochs({{1, 2}, {0, 2}, {0}});
  const std::string key = key_with({1, 2, 0});
  for (int i = 0; i < 2; ++i) {
    const auto place = find(key, true);
    ASSERT_TRUE(place) << place.error().message;
    EXPECT_EQ(place->shard, 1);
    EXPECT_TRUE(place->settled);
  }
  EXPECT_EQ(tombstone(0, key), "sc");
  EXPECT_EQ(tombstone(2, key), "sb");
  EXPECT_EQ(tombstone(1, key), "");
  EXPECT_EQ(writable_at(0, key), 1U);
  expect_quiet();
}

// The older owner gave the key away and is the newest again: nothing may lead in a circle.
TEST_F(FinderTest, AnOwnerThatComesBackIsOpenedAgain) {
  open();
  epochs({{0, 1}, {0}});
  const std::string key = key_with({1, 0});
  ASSERT_EQ(find(key, true)->shard, 1);
  ASSERT_EQ(tombstone(0, key), "sb");
  epochs({{0}, {0, 1}, {0}});
  ASSERT_EQ(find(key, true)->shard, 0);
  EXPECT_EQ(tombstone(0, key), "");
  EXPECT_EQ(tombstone(1, key), "sa");
  EXPECT_EQ(writable_at(1, key), 0U);
}

TEST_F(FinderTest, ATombstoneOfAMoveIsFollowed) {
  open();
  epochs({{0, 1, 2}, {0}});
  const std::string key = key_with({1, 0});
  tell(0, insert(key));
  migration::Runner runner(options());
  ASSERT_TRUE(runner.reassign_keys(std::string(kGroup), {key}, name(0), name(2)));
  const auto place = find(key, true);
  ASSERT_TRUE(place) << place.error().message;
  EXPECT_EQ(place->shard, 2);
}

TEST_F(FinderTest, AShardThatIsDownLeavesAWriteUnresolved) {
  open();
  epochs({{0, 1, 2}, {0}});
  const std::string key = key_with({1, 0});
  auto broken = options();
  broken.shards[0].conninfo = "host=127.0.0.1 port=1 dbname=nowhere connect_timeout=2";
  const auto write = Finder(broken).find(*made_, routed(key), true);
  ASSERT_FALSE(write);
  EXPECT_EQ(write.error().sqlstate, "40001");
  EXPECT_TRUE(write.error().message.starts_with("WRITE_UNRESOLVED: ")) << write.error().message;
  const auto read = Finder(broken).find(*made_, routed(key), false);
  ASSERT_FALSE(read);
  EXPECT_TRUE(read.error().message.starts_with("SHARD_UNAVAILABLE: ")) << read.error().message;
}

// 4b row 7: an uncommitted first row at the old owner.
TEST_F(FinderTest, AnOpenWriterAtTheOldOwnerIsWaitedFor) {
  open();
  epochs({{0, 1, 2}, {0}});
  const std::string key = key_with({1, 0});
  auto writer = session(0);
  writer->run("BEGIN");
  take_guard(*writer, key);
  writer->run(insert(key));
  std::optional<Result<KeyPlace>> place;
  std::thread finder([&] { place = find(key, true); });
  std::this_thread::sleep_for(std::chrono::milliseconds(700));
  EXPECT_FALSE(place.has_value()) << "decided while a writer was at it";
  writer->run("COMMIT");
  finder.join();
  ASSERT_TRUE(place->has_value()) << place->error().message;
  EXPECT_EQ((*place)->shard, 0);
}

TEST_F(FinderTest, AWriterThatNeverEndsLeavesItUnresolved) {
  open();
  epochs({{0, 1, 2}, {0}});
  config.migration.write_hold = std::chrono::milliseconds(600);
  const std::string key = key_with({1, 0});
  auto writer = session(0);
  writer->run("BEGIN");
  take_guard(*writer, key);
  const auto place = find(key, true);
  ASSERT_FALSE(place);
  EXPECT_EQ(place.error().sqlstate, "40001");
  EXPECT_EQ(tombstone(0, key), "");
}

// 4b row 6: some still know the key at its old owner, others find nobody; whatever the order, its
// rows are on one shard. Half of the keys lived under the first epoch only, the others have been
// settled under the second: a writer knows shard 2 only of these.
TEST_F(FinderTest, StaleWritersAndFindersAgreeOnOneHome) {
  open();
  epochs({{0, 2}, {0}});
  const auto two_epochs = made_;
  epochs({{1, 2}, {0, 2}, {0}});
  std::vector<std::string> keys;
  for (int i = 0; i < 60; ++i) {
    keys.push_back(key_with({1, 2, 0}));
    if (i % 2 == 0) continue;
    const auto settled = Finder(options()).find(*two_epochs, routed(keys.back()), true);
    ASSERT_TRUE(settled && settled->shard == 2);
  }
  std::atomic<int> refused{0};
  std::mutex mutex;
  std::vector<std::string> errors;
  const auto write = [&](migration::ControlSession& at, const std::string& key) {
    const SqlError error = guarded(at, key, insert(key) + " ON CONFLICT DO NOTHING");
    if (error.sqlstate == guard::kMoved) {
      ++refused;
    } else if (!error.sqlstate.empty()) {
      const std::lock_guard lock(mutex);
      errors.push_back(error.sqlstate + " " + error.message);
    }
  };
  std::vector<std::thread> threads;
  for (const std::size_t shard : {0U, 2U}) {
    threads.emplace_back([&, shard] {
      auto at = session(shard);
      for (std::size_t i = 0; i < keys.size(); ++i) {
        if (shard == 0 || i % 2 == 1) write(*at, keys[i]);
      }
    });
  }
  const auto seeker_options = options();
  for (int seeker = 0; seeker < 2; ++seeker) {
    threads.emplace_back([&] {
      Finder finder(seeker_options);
      std::map<routing::ShardId, std::unique_ptr<migration::ControlSession>> sessions;
      for (const std::string& key : keys) {
        const auto place = finder.find(*made_, routed(key), true);
        if (!place) {
          const std::lock_guard lock(mutex);
          errors.push_back(place.error().message);
          continue;
        }
        auto& at = sessions[place->shard];
        if (!at) at = session(place->shard);
        write(*at, key);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(errors, ::testing::IsEmpty());
  for (const std::string& key : keys) EXPECT_EQ(shards_with(key), 1) << "key " << key;
  expect_quiet();
}

// A finder that slept over a change of the topology plants nothing.
TEST_F(FinderTest, AnOlderTopologyThanTheShardsIsRefused) {
  open();
  epochs({{0, 1}, {0}});
  const std::string key = key_with({1, 0});
  tell(0, "UPDATE collegedb.gate SET min_generation = 5");
  const auto place = find(key, true);
  ASSERT_FALSE(place);
  EXPECT_EQ(place.error().sqlstate, guard::kStale);
  EXPECT_EQ(tombstone(0, key), "");
  expect_quiet();
}

// A key without rows has one home before it leaves it.
TEST_F(FinderTest, AMoveOfAKeyWithoutRowsSettlesItFirst) {
  open();
  epochs({{0, 1}, {0}});
  const std::string key = key_with({1, 0});
  auto with_epochs = options();
  with_epochs.snapshot = [this] { return made_; };
  migration::Runner runner(with_epochs);
  const auto moved = runner.reassign({.group = std::string(kGroup), .key = key, .shard = "sc"});
  ASSERT_TRUE(moved) << moved.error().message;
  EXPECT_EQ(moved->source, "sb");
  EXPECT_EQ(tombstone(0, key), "sb");
  EXPECT_EQ(writable_at(0, key), 2U);
}

}  // namespace
}  // namespace collegedb::pgtest
