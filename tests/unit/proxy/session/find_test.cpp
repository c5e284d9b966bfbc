// Keys that the active epochs place differently: asked for before anything is sent.
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
