// One SELECT on every shard: exact, or an error; never a row too many.
#include "tests/support/session_script.h"

namespace collegedb::session::testing {
namespace {

const std::string kRows = "SELECT name FROM users";
const std::string kCount = "SELECT count(*) FROM users";

std::string lock(std::string_view shard, int timeout = 20) {
  return "Q(BEGIN ISOLATION LEVEL REPEATABLE READ; SAVEPOINT collegedb_sweep; SET LOCAL "
         "lock_timeout = " +
         std::to_string(timeout) +
         "; LOCK TABLE collegedb.sweep IN SHARE MODE; SELECT min_generation FROM "
         "collegedb.topology WHERE scope = 'default' AND shard = '" +
         std::string(shard) + "')";
}
std::string locked(std::string_view generation = "5") {
  return complete("BEGIN") + complete("SAVEPOINT") + complete("SET") + complete("LOCK TABLE") +
         columns() + row(generation) + complete("SELECT 1") + ready('T');
}
std::string result(const std::string& rows, std::string_view tag) {
  return complete("ROLLBACK") + ready('T') + columns() + rows + complete(tag) + ready('T') +
         complete("COMMIT") + ready();
}
const std::string kRollback = complete("ROLLBACK") + ready();

Conversation& leased(Conversation& c, const std::string& sql) {
  return c.client(query(sql)).lease(0).lease(1).lease(2);
}
Conversation& all_locked(Conversation& c) {
  return c.shard(locked()).shard(locked()).shard(locked());
}

TEST(Scatter, rows_of_all_shards_and_one_tag) {
  Conversation c;
  leased(c, kRows);
  c.sent_to(0, lock("db-east")).sent_to(1, lock("db-west")).sent_to(2, lock("db-north"));
  all_locked(c);
  c.sent_to(1, "Q(ROLLBACK TO SAVEPOINT collegedb_sweep) Q(" + kRows + ") Q(COMMIT)");
  c.shard(result(row() + row(), "SELECT 2")).shard(result("", "SELECT 0"));
  c.shard(result(row(), "SELECT 1"));
  c.hears("T D D D C(SELECT 3) Z(I)").released().released().released().idle();
}

TEST(Scatter, counts_are_summed) {
  Conversation c;
  all_locked(leased(c, kCount));
  c.shard(result(row("40"), "SELECT 1")).shard(result(row("2"), "SELECT 1"));
  c.shard(result(row("0"), "SELECT 1"));
  const std::string said = c.heard();
  EXPECT_EQ(letters(said, wire::Direction::kBackend), "T D C(SELECT 1) Z(I)");
  EXPECT_NE(said.find(row("42")), std::string::npos);
}

TEST(Scatter, counts_in_binary) {
  Conversation c;
  c.client(parse("", kCount) + bind("", {}, "", {1}) + execute() + sync());
  c.lease(0).lease(1).lease(2);
  all_locked(c);
  const auto answer = [](char value) {
    return complete("ROLLBACK") + ready('T') + parsed() + bound() + columns() +
           row(std::string("\0\0\0\0\0\0\0", 7) + value) + complete("SELECT 1") + ready('T') +
           complete("COMMIT") + ready();
  };
  c.sent_to(0,
            lock("db-east") + " Q(ROLLBACK TO SAVEPOINT collegedb_sweep) P() B() D E S Q(COMMIT)");
  c.shard(answer(2)).shard(answer(3)).shard(answer(4));
  const std::string said = c.heard();
  EXPECT_EQ(letters(said, wire::Direction::kBackend), "1 2 D C(SELECT 1) Z(I)");
  EXPECT_NE(said.find(row(std::string("\0\0\0\0\0\0\0\x09", 8))), std::string::npos);
}

TEST(Scatter, a_count_that_is_none_is_an_error) {
  Conversation c;
  all_locked(leased(c, kCount));
  c.shard(result(row("x"), "SELECT 1")).shard(result(row("2"), "SELECT 1"));
  c.shard(result(row("2"), "SELECT 1"));
  EXPECT_TRUE(letters(c.heard(), wire::Direction::kBackend).ends_with("E(22003) Z(I)"));
}

TEST(Scatter, columns_are_described_by_one_shard) {
  Conversation c;
  c.client(parse("", kRows) + describe(wire::Target::kStatement) + sync()).lease_any();
  c.sent("P() D S").shard(parsed() + parameters() + columns() + ready());
  c.hears("1 t T Z(I)").released().idle();
  c.client(bind("") + describe(wire::Target::kPortal) + execute() + sync()).lease_any();
  c.shard(parsed() + bound() + columns()).shard(ready()).released();
  c.lease(0).lease(1).lease(2);
}

// 4b row 18: who cannot have all locks at once takes them in the order of names.
TEST(Scatter, a_missed_lock_is_waited_for_in_order) {
  Conversation c;
  leased(c, kRows);
  const std::string missed =
      complete("BEGIN") + complete("SAVEPOINT") + complete("SET") + error("55P03") + ready('E');
  c.shard(locked()).shard(missed).shard(locked());
  c.shard(kRollback).shard(kRollback).shard(kRollback);
  c.sent_to(0, lock("db-east") + " Q(ROLLBACK) " + lock("db-east", 5000));
  c.sent_to(2, lock("db-north") + " Q(ROLLBACK)");
  c.shard(locked()).sent_to(2, lock("db-north", 5000));
  c.sent_to(1, lock("db-west") + " Q(ROLLBACK)");
  c.shard(locked()).sent_to(1, lock("db-west", 5000)).shard(locked());
  c.shard(result(row(), "SELECT 1")).shard(result(row(), "SELECT 1"));
  c.shard(result(row(), "SELECT 1")).hears("T D D D C(SELECT 3) Z(I)").idle();
}

TEST(Scatter, a_lock_missed_in_order_is_given_up) {
  Conversation c;
  leased(c, kRows);
  const std::string missed =
      complete("BEGIN") + complete("SAVEPOINT") + complete("SET") + error("55P03") + ready('E');
  c.shard(missed).shard(locked()).shard(locked());
  c.shard(kRollback).shard(kRollback).shard(kRollback);
  c.shard(missed).shard(kRollback).hears("E(40001) Z(I)");
  c.released().released().released().idle();
}

TEST(Scatter, a_stale_generation_reloads_once) {
  Conversation c;
  leased(c, kRows);
  c.shard(locked()).shard(locked("6")).shard(locked());
  c.shard(kRollback).shard(kRollback).shard(kRollback);
  ASSERT_EQ(c.session->wait().kind, Wait::Kind::kControl);
  c.control(ReloadDone{c.context.snapshot});
  c.shard(locked()).shard(locked("6")).shard(locked());
  c.shard(kRollback).shard(kRollback).shard(kRollback).hears("E(40001) Z(I)").idle();
}

TEST(Scatter, a_new_topology_has_more_shards) {
  Conversation c({"db-east", "db-west"});
  c.client(query(kRows)).lease(0).lease(1);
  c.shard(locked("6")).shard(locked("6")).shard(kRollback).shard(kRollback);
  auto newer = std::make_shared<routing::Snapshot>(*c.context.snapshot);
  newer->version = 2;
  newer->generation = 6;
  newer->shards.push_back({"db-north"});
  c.control(ReloadDone{newer}).lease(2);
  c.shard(locked("6")).shard(locked("6")).shard(locked("6"));
  c.shard(result(row(), "SELECT 1")).shard(result(row(), "SELECT 1"));
  c.shard(result(row(), "SELECT 1")).hears("T D D D C(SELECT 3) Z(I)").idle();
}

TEST(Scatter, a_shard_without_its_own_name_is_not_trusted) {
  Conversation c;
  leased(c, kRows);
  c.shard(complete("BEGIN") + complete("SAVEPOINT") + complete("SET") + complete("LOCK TABLE") +
          columns() + complete("SELECT 0") + ready('T'));
  c.shard(locked()).shard(locked()).shard(kRollback).shard(kRollback).shard(kRollback);
  EXPECT_TRUE(letters(c.heard(), wire::Direction::kBackend).starts_with("E("));
  c.idle();
}

TEST(Scatter, an_error_of_one_shard_stops_the_others) {
  Conversation c;
  all_locked(leased(c, kRows));
  c.shard(complete("ROLLBACK") + ready('T') + columns() + row() + error("22012") + ready('E') +
          complete("ROLLBACK") + ready());
  c.cancelled().cancelled();
  const std::string stopped = complete("ROLLBACK") + ready('T') + columns() + row() +
                              error("57014") + ready('E') + complete("ROLLBACK") + ready();
  c.shard(stopped).shard(stopped);
  c.hears("T D E(22012) Z(I)").released().released().released().idle();
}

TEST(Scatter, shards_that_disagree_on_the_columns) {
  Conversation c;
  all_locked(leased(c, kRows));
  c.shard(result(row(), "SELECT 1"));
  c.shard(complete("ROLLBACK") + ready('T') + columns("column", 23) + row() + complete("SELECT 1") +
          ready('T') + complete("COMMIT") + ready());
  c.shard(result(row(), "SELECT 1")).cancelled().hears("T D E(0A000) Z(I)").idle();
}

TEST(Scatter, a_lost_server_is_an_error_whenever_it_comes) {
  Conversation before;
  leased(before, kRows).lost().shard(locked()).shard(locked()).shard(kRollback).shard(kRollback);
  before.hears("E(08006) Z(I)").discarded().released().released().idle();
  Conversation during;
  all_locked(leased(during, kRows)).shard(result(row(), "SELECT 1")).lost();
  during.cancelled().shard(result(row(), "SELECT 1"));
  during.hears("T D E(08006) Z(I)").released().discarded().released().idle();
}

TEST(Scatter, a_server_lost_while_the_next_one_is_leased) {
  Conversation c;
  c.client(query(kRows)).lease(0);
  c.session->on_server_lost(1, "gone");
  c.lease(1).hears("E(08006) Z(I)").discarded().released().idle();
}

TEST(Scatter, a_failed_lease_gives_back_the_others) {
  Conversation c;
  c.client(query(kRows)).lease(0).lease(1).lease_failed();
  c.hears("E(53300) Z(I)").released().released().idle();
}

TEST(Scatter, settings_come_first_and_must_be_accepted) {
  Conversation c({"db-east", "db-west"}, {"alice", "app", false, {{"timezone", "UTC"}}});
  c.client(query(kRows)).lease(0).lease(1);
  c.sent_to(0, "Q(SELECT pg_catalog.set_config('timezone','UTC',false)) " + lock("db-east"));
  const std::string set = columns() + row() + complete("SELECT 1") + ready();
  c.shard(error("22023") + ready() + locked()).shard(set + locked());
  c.shard(kRollback).shard(kRollback).hears("E(22023) Z(I)").discarded().released().idle();
}

TEST(Scatter, in_a_block_it_is_refused_and_fails_it) {
  Conversation c;
  c.client(query("BEGIN") + query(kRows)).hears("C(BEGIN) Z(T) E(0A000) Z(E)").idle();
}

TEST(Scatter, behind_statements_without_a_Sync_it_is_refused) {
  Conversation c;
  c.client(parse("", "SELECT now()") + bind("") + execute() + parse("", kRows) + bind("") +
           execute() + sync());
  c.lease_any();
  c.shard(parsed() + bound() + row() + complete("SELECT 1"));
  c.shard(error("26000") + ready()).hears("1 2 D C(SELECT 1) 1 2 E(0A000) Z(I)").idle();
}

TEST(Scatter, may_be_forbidden) {
  Conversation c;
  c.context.fanout_unroutable = false;
  c.client(query(kRows)).hears("E(0A000) Z(I)").idle();
}

TEST(Scatter, a_client_that_goes_leaves_nothing) {
  Conversation c;
  all_locked(leased(c, kRows)).gone();
  c.hears("").discarded().discarded().discarded().closed();
}

}  // namespace
}  // namespace collegedb::session::testing
