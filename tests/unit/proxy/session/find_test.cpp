// Keys that the snapshot cannot place (epochs that differ, mapped placement): asked for before
// anything is sent.
#include "tests/support/session_script.h"

namespace collegedb::session::testing {
namespace {

// Two active epochs: all keys were on `old_shard`, the newest places them over three.
void add_older_epoch(Conversation& c, routing::ShardId old_shard) {
  auto snapshot = std::make_shared<routing::Snapshot>(*c.context.snapshot);
  ++snapshot->version;
  routing::Epoch older = snapshot->epochs.front();
  older.shards = {old_shard};
  snapshot->epochs.push_back(older);
  c.context.snapshot = snapshot;
}

const Find& asked(const Conversation& c) {
  EXPECT_EQ(c.session->wait().kind, Wait::Kind::kControl);
  return std::get<Find>(c.session->wait().control->what);
}

std::string update(const std::string& key) {
  return "UPDATE users SET name = 'x' WHERE id = " + key;
}

TEST(Find, a_write_asks_once_and_remembers) {
  Conversation c;
  const std::string key = c.key_on(1);
  add_older_epoch(c, 0);
  c.client(query(update(key)));
  EXPECT_TRUE(asked(c).for_write);
  ASSERT_EQ(asked(c).keys.size(), 1U);
  EXPECT_EQ(asked(c).keys.front().key, key);
  c.control(FindDone{{{0, true}}}).lease(0);
  c.shard(guard_passed() + complete("UPDATE 1") + ready()).hears("C(UPDATE 1) Z(I)").released();
  c.client(query(update(key))).lease(0);
}

TEST(Find, a_key_that_all_epochs_place_alike_is_not_asked_for) {
  Conversation c;
  add_older_epoch(c, 0);
  c.client(query(update(c.key_on(0)))).lease(0);
}

// What nobody has may be made anywhere at any moment: a read that found nothing proves nothing for
// the write after it.
TEST(Find, a_miss_is_not_remembered) {
  Conversation c;
  const std::string key = c.key_on(1);
  add_older_epoch(c, 0);
  const std::string sql = "SELECT name FROM users WHERE id = " + key;
  c.client(query(sql));
  EXPECT_FALSE(asked(c).for_write);
  c.control(FindDone{{{1, false}}}).lease(1);
  c.shard(columns() + complete("SELECT 0") + ready());
  c.shard(guard_passed() + columns() + complete("SELECT 0") + ready());
  c.hears("T C(SELECT 0) Z(I)").released();
  c.client(query(update(key)));
  EXPECT_TRUE(asked(c).for_write);
}

TEST(Find, a_stale_memory_costs_a_hop) {
  Conversation c;
  const std::string key = c.key_on(1);
  add_older_epoch(c, 0);
  c.client(query(update(key))).control(FindDone{{{0, true}}}).lease(0);
  c.shard(guard_passed() + complete("UPDATE 1") + ready()).hears("C(UPDATE 1) Z(I)").released();
  c.client(query(update(key))).lease(0).shard(guard_moved("db-west", key, "op-1", false));
  c.shard(ready()).released().lease(1);
  c.shard(guard_passed() + complete("UPDATE 1") + ready()).hears("C(UPDATE 1) Z(I)").released();
  c.client(query(update(key))).lease(1);
}

TEST(Find, a_new_generation_forgets) {
  Conversation c;
  const std::string key = c.key_on(1);
  add_older_epoch(c, 0);
  c.client(query(update(key))).control(FindDone{{{0, true}}}).lease(0);
  c.shard(guard_passed() + complete("UPDATE 1") + ready()).hears("C(UPDATE 1) Z(I)").released();
  auto newer = std::make_shared<routing::Snapshot>(*c.context.snapshot);
  ++newer->version;
  ++newer->generation;
  c.context.snapshot = newer;
  c.client(query(update(key)));
  EXPECT_EQ(asked(c).keys.size(), 1U);
}

TEST(Find, an_older_topology_is_reloaded_once) {
  Conversation c;
  const std::string key = c.key_on(1);
  add_older_epoch(c, 0);
  c.client(query(update(key))).control(make_error("CDB01", "changed"));
  EXPECT_TRUE(std::holds_alternative<Reload>(c.session->wait().control->what));
  c.control(ReloadDone{c.context.snapshot});
  EXPECT_EQ(asked(c).keys.size(), 1U);
  c.control(make_error("CDB01", "changed")).hears("E(40001) Z(I)").idle();
}

TEST(Find, an_error_is_the_statements) {
  Conversation c;
  add_older_epoch(c, 0);
  const std::string key = c.key_on(1);
  c.client(query(update(key)));
  c.control(make_error(ErrorCode::kWriteUnresolved, "a shard is down"));
  c.hears("E(40001) Z(I)").idle();
  c.client(query(update(key)));  // the next statement asks again
  EXPECT_EQ(asked(c).keys.size(), 1U);
}

TEST(Find, an_error_aborts_the_transaction) {
  Conversation c;
  const std::string key = c.key_on(1);
  add_older_epoch(c, 0);
  c.client(query("BEGIN")).hears("C(BEGIN) Z(T)").client(query(update(key)));
  c.control(make_error(ErrorCode::kWriteUnresolved, "a shard is down")).hears("E(40001) Z(E)");
}

TEST(Find, an_extended_write_asks_before_its_bind) {
  Conversation c;
  const std::string key = c.key_on(1);
  add_older_epoch(c, 0);
  c.client(parse("", "UPDATE users SET name = 'x' WHERE id = " + key) + bind("") + execute("") +
           sync());
  EXPECT_TRUE(asked(c).for_write);
  c.control(FindDone{{{0, true}}}).lease(0);
  c.shard(guard_passed() + parsed() + bound() + complete("UPDATE 1") + ready());
  c.hears("1 2 C(UPDATE 1) Z(I)").released().idle();
}

// A transaction that has looked for a key nobody has and then makes it must ask: it may have come
// into being elsewhere, and nobody else would know of this one.
TEST(Find, a_miss_in_a_transaction_is_no_claim) {
  Conversation c;
  const std::string key = c.key_on(1);
  add_older_epoch(c, 0);
  c.client(query("BEGIN")).hears("C(BEGIN) Z(T)");
  c.client(query("SELECT name FROM users WHERE id = " + key));
  c.control(FindDone{{{1, false, true}}}).lease(1);
  c.shard(begun() + guard_passed() + columns() + complete("SELECT 0") + ready('T'));
  c.hears("T C(SELECT 0) Z(T)");
  c.client(query(update(key)));
  EXPECT_TRUE(asked(c).for_write);
  EXPECT_EQ(asked(c).prefer, 1);
  c.control(FindDone{{{1, true}}});
  c.shard(complete("UPDATE 0") + ready('T')).hears("C(UPDATE 0) Z(T)");
  // Settled there now, and guarded since the first look.
  c.client(query(update(key))).shard(complete("UPDATE 0") + ready('T')).hears("C(UPDATE 0) Z(T)");
}

void map_keys(Conversation& c) {
  auto snapshot = std::make_shared<routing::Snapshot>(*c.context.snapshot);
  ++snapshot->version;
  snapshot->placement = routing::Placement::kMapped;
  c.context.snapshot = snapshot;
}

std::string select(const std::string& keys) {
  return "SELECT name FROM users WHERE id IN (" + keys + ")";
}

TEST(Mapped, what_was_told_is_remembered_within_its_generation) {
  Conversation c;
  map_keys(c);
  c.client(query(update("7")));
  EXPECT_TRUE(asked(c).for_write);
  EXPECT_EQ(asked(c).prefer, routing::kNoShard);
  c.control(FindDone{{{2, true}}}).lease(2);
  c.shard(guard_passed() + complete("UPDATE 1") + ready()).hears("C(UPDATE 1) Z(I)").released();
  map_keys(c);  // a newer snapshot
  c.client(query(update("7"))).lease(2);
  c.shard(guard_passed(false) + complete("UPDATE 1") + ready()).hears("C(UPDATE 1) Z(I)");
  c.client(query(update("8")));
  EXPECT_EQ(asked(c).keys.front().key, "8");
}

TEST(Mapped, with_a_life_of_nothing_every_statement_asks) {
  Conversation c;
  map_keys(c);
  c.context.mapping_life_ns = 0;
  bool fresh = true;
  for (int i = 0; i < 3; ++i, fresh = false) {
    c.client(query(update("7")));
    EXPECT_EQ(asked(c).keys.size(), 1U);
    c.control(FindDone{{{1, true}}}).lease(1);
    c.shard(guard_passed(fresh) + complete("UPDATE 1") + ready());
    c.hears("C(UPDATE 1) Z(I)").released();
  }
}

TEST(Mapped, a_tombstone_is_followed_without_asking_again) {
  for (const std::uint64_t life : {std::uint64_t{0}, std::uint64_t{30'000'000'000}}) {
    Conversation c;
    map_keys(c);
    c.context.mapping_life_ns = life;
    c.client(query(update("7"))).control(FindDone{{{0, true}}}).lease(0);
    c.shard(guard_moved("db-west", "7")).shard(ready()).released().lease(1);
    c.shard(guard_passed() + complete("UPDATE 1") + ready()).hears("C(UPDATE 1) Z(I)").released();
    c.client(query(update("7")));
    if (life == 0) {
      EXPECT_EQ(asked(c).keys.size(), 1U);
    } else {
      c.lease(1);
    }
  }
}

TEST(Mapped, a_key_nobody_has_has_no_say_in_a_read) {
  Conversation c;
  map_keys(c);
  c.client(query(select("7, 8, 9")));
  EXPECT_EQ(asked(c).keys.size(), 3U);
  c.control(FindDone{{{0, false, true}, {2, true}, {1, false, true}}}).lease(2);
  c.shard(guard_passed() + guard_passed(false) + guard_passed(false));
  c.shard(columns() + row() + complete("SELECT 1") + ready());
  c.hears("T D C(SELECT 1) Z(I)").released();
  // The one that is settled is not asked for again.
  c.client(query(select("7, 8, 9")));
  EXPECT_EQ(asked(c).keys.size(), 2U);
}

TEST(Mapped, a_transaction_reads_keys_nobody_has_where_it_is) {
  Conversation c;
  map_keys(c);
  c.client(query("BEGIN")).hears("C(BEGIN) Z(T)").client(query(update("7")));
  c.control(FindDone{{{2, true}}}).lease(2);
  c.shard(begun() + guard_passed() + complete("UPDATE 1") + ready('T')).hears("C(UPDATE 1) Z(T)");
  c.client(query(select("8"))).control(FindDone{{{0, false, true}}});
  c.shard(guard_passed(false) + columns() + complete("SELECT 0") + ready('T'));
  c.hears("T C(SELECT 0) Z(T)");
  // It has come into being on another shard meanwhile.
  c.client(query(select("8"))).control(FindDone{{{1, true}}});
  c.shard(error("26000") + ready('E')).hears("E(40001) Z(E)");
}

TEST(Mapped, rows_without_a_mapping_answer_one_read_only) {
  Conversation c;
  map_keys(c);
  c.client(query(select("7"))).control(FindDone{{{1, false, false}}}).lease(1);
  c.shard(columns() + row() + complete("SELECT 1") + ready());
  c.hears("T D C(SELECT 1) Z(I)").released();
  c.client(query(select("7")));
  EXPECT_FALSE(asked(c).for_write);
}

TEST(Mapped, another_shard_is_no_move) {
  Conversation c;
  map_keys(c);
  c.client(query("BEGIN")).hears("C(BEGIN) Z(T)").client(query(update("7")));
  c.control(FindDone{{{0, true}}}).lease(0);
  c.shard(begun() + guard_passed() + complete("UPDATE 1") + ready('T')).hears("C(UPDATE 1) Z(T)");
  c.client(query(update("8"))).control(FindDone{{{1, true}}});
  c.shard(error("26000") + ready('E')).hears("E(0A000) Z(E)");
}

TEST(Find, a_shard_that_is_not_added_takes_no_part) {
  Conversation c;
  auto snapshot = std::make_shared<routing::Snapshot>(*c.context.snapshot);
  snapshot->shards[1].member = false;
  snapshot->epochs.front().shards = {0, 2};
  c.context.snapshot = snapshot;
  c.client(query("SELECT name FROM users")).lease(0);
  EXPECT_EQ(c.session->wait().kind, Wait::Kind::kLease);
  c.lease(2);
  EXPECT_NE(c.session->wait().kind, Wait::Kind::kLease);
}

}  // namespace
}  // namespace collegedb::session::testing
