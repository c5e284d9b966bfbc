// Keyed statements and the guard: what is sent before them, and what happens when it says no.
#include <map>
#include <set>

#include "tests/support/session_script.h"

namespace collegedb::session::testing {
namespace {

std::string guarded(std::string_view rest) {
  return std::string(kGuardStatements) + std::string(kGuard) + std::string(rest);
}

TEST(Guard, a_plain_keyed_read_goes_unguarded) {
  Conversation c;
  const std::string sql = "SELECT name FROM users WHERE id = " + c.key_on(1);
  c.client(query(sql)).lease(1).sent("Q(" + sql + ")").hears_nothing();
  c.shard(columns() + row() + complete("SELECT 1") + ready());
  c.hears("T D C(SELECT 1) Z(I)").released().idle();
}

// 4b row 11: an empty answer may mean that the key has moved away and back.
TEST(Guard, an_empty_read_runs_once_more_under_the_guard) {
  Conversation c;
  const std::string sql = "SELECT name FROM users WHERE id = " + c.key_on(1);
  c.client(query(sql)).lease(1).sent("Q(" + sql + ")");
  c.shard(columns() + complete("SELECT 0") + ready());
  EXPECT_FALSE(c.session->may_flush_client() && !c.session->client_out().empty());
  c.sent(guarded("Q(" + sql + ")"));
  c.shard(guard_passed() + columns() + complete("SELECT 0") + ready());
  c.hears("T C(SELECT 0) Z(I)").released().idle();
}

TEST(Guard, an_empty_read_follows_the_tombstone) {
  Conversation c;
  const std::string key = c.key_on(1);
  const std::string sql = "SELECT name FROM users WHERE id = " + key;
  c.client(query(sql)).lease(1);
  c.shard(columns() + complete("SELECT 0") + ready());
  c.shard(guard_moved("db-north", key)).shard(ready()).released();
  c.lease(2).sent(guarded("Q(" + sql + ")"));
  c.shard(guard_passed() + columns() + row() + complete("SELECT 1") + ready());
  c.hears("T D C(SELECT 1) Z(I)").released().idle();
}

TEST(Guard, a_write_is_guarded_in_the_same_sending) {
  Conversation c;
  const std::string sql = "UPDATE users SET name = 'x' WHERE id = " + c.key_on(0);
  c.client(query(sql)).lease(0).sent(guarded("Q(" + sql + ")"));
  c.shard(guard_passed() + complete("UPDATE 1") + ready()).hears("C(UPDATE 1) Z(I)").released();
  // The server connection knows the guard's statements from now on.
  c.client(query(sql)).lease(0).sent(std::string(kGuard) + "Q(" + sql + ")");
  c.shard(guard_passed(false) + complete("UPDATE 1") + ready()).hears("C(UPDATE 1) Z(I)").idle();
}

TEST(Guard, a_moved_key_is_followed_and_remembered) {
  Conversation c;
  const std::string key = c.key_on(0);
  const std::string sql = "UPDATE users SET name = 'x' WHERE id = " + key;
  c.client(query(sql)).lease(0);
  c.shard(guard_moved("db-west", key));
  c.sent(guarded("Q(" + sql + ") S"));
  c.shard(ready()).released().lease(1);
  c.shard(guard_passed() + complete("UPDATE 1") + ready()).hears("C(UPDATE 1) Z(I)").released();
  c.client(query(sql)).lease(1);  // the directory has not said so yet
}

// Answers every guard with the next tombstone of `next` until the session gives up; the number of
// reloads it asked for. The directory keeps saying the same.
template <class Next>
int led_on(Conversation& c, Next next) {
  int reloads = 0;
  routing::ShardId at = 0;
  std::set<routing::ShardId> known;
  for (int hop = 0; c.session->wait().kind != Wait::Kind::kClient && hop < 40; ++hop) {
    if (c.session->wait().kind == Wait::Kind::kControl) {
      ++reloads;
      c.control(ReloadDone{c.context.snapshot});
    }
    if (c.session->wait().kind == Wait::Kind::kLease) {
      at = c.session->wait().shard;
      c.lease(at);
    }
    c.shard(next(at, hop, known.insert(at).second)).shard(ready());
    if (c.session->wait().kind != Wait::Kind::kControl) c.released();
  }
  return reloads;
}

// The key may have moved on meanwhile, so the search begins anew twice.
TEST(Guard, more_than_four_hops_are_refused_after_two_reloads) {
  Conversation c;
  const std::string key = c.key_on(0);
  c.client(query("DELETE FROM users WHERE id = " + key));
  const char* const names[] = {"db-east", "db-west", "db-north"};
  int hops = 0;
  EXPECT_EQ(led_on(c,
                   [&](routing::ShardId at, int hop, bool fresh) {
                     ++hops;
                     return guard_moved(names[(at + 1) % 3], key, "op-" + std::to_string(hop),
                                        fresh);
                   }),
            2);
  EXPECT_EQ(hops, 3 * 5);
  c.hears("E(58000) Z(I)").idle();
}

TEST(Guard, tombstones_in_a_circle_are_refused_after_two_reloads) {
  Conversation c;
  const std::string key = c.key_on(0);
  c.client(query("DELETE FROM users WHERE id = " + key));
  EXPECT_EQ(led_on(c,
                   [&](routing::ShardId at, int, bool fresh) {
                     return guard_moved(at == 0 ? "db-west" : "db-east", key,
                                        at == 0 ? "op-1" : "op-2", fresh);
                   }),
            2);
  c.hears("E(58000) Z(I)").idle();
}

// The directory's news about other keys says nothing about this one.
TEST(Guard, a_newer_snapshot_that_lacks_the_move_does_not_forget_it) {
  Conversation c;
  const std::string key = c.key_on(0);
  const std::string sql = "UPDATE users SET name = 'x' WHERE id = " + key;
  c.client(query(sql)).lease(0).shard(guard_moved("db-west", key)).shard(ready()).released();
  c.lease(1).shard(guard_passed() + complete("UPDATE 1") + ready()).hears("C(UPDATE 1) Z(I)");
  auto newer = std::make_shared<routing::Snapshot>(*c.context.snapshot);
  ++newer->version;
  c.context.snapshot = newer;
  c.client(query(sql)).lease(1);
}

TEST(Guard, the_directory_ends_what_a_tombstone_taught) {
  Conversation c;
  const std::string key = c.key_on(0);
  const std::string sql = "UPDATE users SET name = 'x' WHERE id = " + key;
  c.client(query(sql)).lease(0).shard(guard_moved("db-west", key)).shard(ready()).released();
  c.lease(1).shard(guard_passed() + complete("UPDATE 1") + ready()).hears("C(UPDATE 1) Z(I)");
  auto newer = std::make_shared<routing::Snapshot>(*c.context.snapshot);
  ++newer->version;
  auto exceptions = std::make_shared<routing::ExceptionMap>();
  exceptions->emplace(routing::GroupKey{"public.users", key}, 2);
  newer->exceptions = exceptions;
  c.context.snapshot = newer;
  c.client(query(sql)).lease(2);
}

// The savepoint took the guard along, so the key could leave: that is worth another try.
TEST(Guard, a_key_that_left_after_its_savepoint_is_a_serialization_failure) {
  Conversation c;
  const std::string key = c.key_on(0);
  const std::string sql = "UPDATE users SET name = 'x' WHERE id = " + key;
  c.client(query("BEGIN") + query("SAVEPOINT a") + query(sql)).lease(0);
  c.shard(begun() + ran("SAVEPOINT") + guard_passed() + complete("UPDATE 1") + ready('T'));
  c.client(query("ROLLBACK TO a")).shard(complete("ROLLBACK") + ready('T'));
  auto newer = std::make_shared<routing::Snapshot>(*c.context.snapshot);
  ++newer->version;
  auto exceptions = std::make_shared<routing::ExceptionMap>();
  exceptions->emplace(routing::GroupKey{"public.users", key}, 2);
  newer->exceptions = exceptions;
  c.context.snapshot = newer;
  c.hears("C(BEGIN) Z(T) C(SAVEPOINT) Z(T) C(UPDATE 1) Z(T) C(ROLLBACK) Z(T)");
  c.client(query(sql)).shard(error("22012") + ready('E')).hears("E(40001) Z(E)");
}

// The owner's columns are others than the proxy knows: reloaded and planned again, once.
TEST(Guard, a_write_of_another_key_than_planned_is_planned_again) {
  Conversation c;
  const std::string key = c.key_on(0);
  const std::string sql = "INSERT INTO users VALUES ('x', " + key + ", 'e')";
  c.client(query(sql)).lease(0).shard(guard_passed() + error("CDB06") + ready());
  ASSERT_EQ(c.session->wait().kind, Wait::Kind::kControl);
  auto newer = std::make_shared<routing::Snapshot>(*c.context.snapshot);
  ++newer->version;
  ++newer->registry_version;
  std::swap(newer->tables[0].columns[0], newer->tables[0].columns[2]);
  c.control(ReloadDone{newer});
  c.shard(guard_passed(false) + error("CDB06") + ready());
  c.hears("E(0A000) Z(I)").released().idle();
}

// The statement before it in the same implicit transaction has been acknowledged and is gone with
// the error: to run this one again, alone, would lose it without a word.
TEST(Guard, behind_another_write_of_its_batch_nothing_is_tried_again) {
  for (const char* code : {"40P01", "CDB06"}) {
    Conversation c({"db-east"});
    const auto write = [](const char* id) {
      return parse("", std::string("UPDATE users SET name = 'x' WHERE id = ") + id) + bind("") +
             execute();
    };
    c.client(write("1") + flush()).lease(0);
    c.shard(guard_passed() + parsed() + bound() + complete("UPDATE 1"));
    c.hears("1 2 C(UPDATE 1)");
    c.client(write("2") + sync());
    c.shard(guard_passed(false) + parsed() + bound() + error(code) + ready());
    const std::string heard = letters(c.heard(), wire::Direction::kBackend);
    EXPECT_NE(heard.find("E("), std::string::npos) << heard;
    c.released().idle();
  }
}

TEST(Guard, what_the_fence_says_in_a_statement_is_put_in_words) {
  for (const auto& [code, sqlstate] : std::map<std::string, std::string>{
           {"CDB02", "40001"}, {"CDB04", "40001"}, {"CDB05", "58000"}, {"CDB06", "0A000"}}) {
    Conversation c;
    c.client(query("BEGIN") + query("UPDATE users SET name = 'x' WHERE id = " + c.key_on(0)));
    c.lease(0).shard(begun() + guard_passed() + error(code) + ready('E'));
    c.hears("C(BEGIN) Z(T) E(" + sqlstate + ") Z(E)");
  }
}

TEST(Guard, a_key_beyond_ASCII_needs_UTF8) {
  Conversation c;
  const std::string set = "SET client_encoding = 'LATIN1'";
  c.client(query(set)).lease(0);
  c.shard(complete("SET") + status("client_encoding", "LATIN1") + ready()).released();
  c.hears("C(SET) S(client_encoding) Z(I)");
  c.client(query("DELETE FROM accounts WHERE code = '\xe9'")).hears("E(0A000) Z(I)");
  c.client(query("DELETE FROM accounts WHERE code = 'e'"));
  EXPECT_EQ(c.session->wait().kind, Wait::Kind::kLease);
}

TEST(Guard, hints_in_comments_are_refused_until_they_mean_something) {
  Conversation c;
  c.client(query("/* collegedb.key = '1' */ DELETE FROM users WHERE id = 1"))
      .hears("E(0A000) Z(I)");
  c.client(query("/* of the application */ DELETE FROM users WHERE id = 1"));
  EXPECT_EQ(c.session->wait().kind, Wait::Kind::kLease);
}

// A guarded key cannot leave while its transaction is open, whatever a snapshot says.
TEST(Guard, a_guarded_key_stays_with_its_transaction) {
  Conversation c;
  const std::string key = c.key_on(0);
  const std::string sql = "UPDATE users SET name = 'x' WHERE id = " + key;
  c.client(query("BEGIN")).hears("C(BEGIN) Z(T)");
  c.client(query(sql)).lease(0);
  c.shard(begun() + guard_passed() + complete("UPDATE 1") + ready('T')).hears("C(UPDATE 1) Z(T)");
  auto newer = std::make_shared<routing::Snapshot>(*c.context.snapshot);
  ++newer->version;
  auto exceptions = std::make_shared<routing::ExceptionMap>();
  exceptions->emplace(routing::GroupKey{"public.users", key}, 2);
  newer->exceptions = exceptions;
  c.context.snapshot = newer;
  c.client(query(sql)).shard(complete("UPDATE 1") + ready('T')).hears("C(UPDATE 1) Z(T)");
}

TEST(Guard, a_tombstone_to_an_unknown_shard_is_refused) {
  Conversation c;
  const std::string key = c.key_on(0);
  c.client(query("DELETE FROM users WHERE id = " + key)).lease(0);
  c.shard(guard_moved("db-south", key)).shard(ready()).hears("E(58000) Z(I)").released().idle();
}

TEST(Guard, a_stale_generation_reloads_once) {
  Conversation c;
  const std::string stale = guard_parsed() + guard_queue() + bound() + error("CDB01", "6");
  c.client(query("DELETE FROM users WHERE id = " + c.key_on(0))).lease(0).shard(stale);
  c.shard(ready());
  ASSERT_EQ(c.session->wait().kind, Wait::Kind::kControl);
  EXPECT_EQ(std::get<Reload>(c.session->wait().control->what).newer_than, 1U);
  auto newer = std::make_shared<routing::Snapshot>(*c.context.snapshot);
  newer->version = 2;
  newer->generation = 6;
  c.control(ReloadDone{newer});
  c.sent(guarded("Q(DELETE FROM users WHERE id = " + c.key_on(0) + ") S") + " " +
         std::string(kGuard) + "Q(DELETE FROM users WHERE id = " + c.key_on(0) + ")");
  c.shard(guard_queue() + bound() + error("CDB01", "7")).shard(ready());
  c.hears("E(40001) Z(I)").released().idle();
}

// 4b rows 14 and 15: the guard's own serialization failure or deadlock is nobody's business.
TEST(Guard, its_serialization_failure_is_tried_again) {
  for (const char* code : {"40001", "40P01"}) {
    Conversation c;
    const std::string sql = "DELETE FROM users WHERE id = " + c.key_on(0);
    c.client(query(sql)).lease(0);
    c.shard(guard_parsed() + guard_queue() + bound() + error(code)).shard(ready());
    ASSERT_EQ(c.session->wait().kind, Wait::Kind::kDelay);
    c.deadline().shard(guard_passed(false) + complete("DELETE 1") + ready());
    c.hears("C(DELETE 1) Z(I)").released().idle();
  }
}

TEST(Guard, an_arriving_key_is_waited_for) {
  Conversation c;
  c.client(query("DELETE FROM users WHERE id = " + c.key_on(0))).lease(0);
  bool fresh = true;
  int delays = 0;
  while (c.session->wait().kind != Wait::Kind::kClient && delays < 2000) {
    c.shard((fresh ? guard_parsed() : "") + guard_queue() + bound() + error("CDB04"))
        .shard(ready());
    fresh = false;
    if (c.session->wait().kind == Wait::Kind::kDelay) {
      ++delays;
      c.deadline();
    }
  }
  EXPECT_EQ(delays, 1000);  // write_hold of 5 s, 5 ms each
  c.hears("E(40001) Z(I)").released().idle();
}

TEST(Guard, a_wait_longer_than_write_hold_is_cancelled) {
  Conversation c;
  c.client(query("DELETE FROM users WHERE id = " + c.key_on(0))).lease(0);
  EXPECT_EQ(c.session->wait().timeout_ms, 5000U);
  c.deadline().cancelled();
  c.shard(guard_parsed() + bound() + error("57014")).shard(ready());
  const std::string said = c.heard();
  EXPECT_EQ(letters(said, wire::Direction::kBackend), "E(40001) Z(I)");
  EXPECT_NE(said.find("MIGRATION_CUTOVER_PENDING"), std::string::npos);
}

// A cancel request that comes too late for the guard meets the statement.
TEST(Guard, a_cancelled_wait_is_a_pending_cutover_whatever_it_hits) {
  Conversation c;
  c.client(query("DELETE FROM users WHERE id = " + c.key_on(0))).lease(0);
  c.deadline().cancelled().shard(guard_passed() + error("57014") + ready());
  c.hears("E(40001) Z(I)").released().idle();
}

TEST(Guard, a_gate_without_its_row_lets_nothing_through) {
  Conversation c;
  c.client(query("DELETE FROM users WHERE id = " + c.key_on(0))).lease(0);
  c.shard(guard_parsed() + guard_queue() + bound() + error("CDB05")).shard(ready());
  const std::string said = c.heard();
  EXPECT_EQ(letters(said, wire::Direction::kBackend), "E(58000) Z(I)");
  EXPECT_NE(said.find("MIGRATION_LOOKUP_UNAVAILABLE"), std::string::npos);
  c.released().idle();
}

TEST(Guard, a_gate_without_its_row_fails_a_transaction) {
  Conversation c;
  const std::string write = "DELETE FROM users WHERE id = " + c.key_on(0);
  c.client(query("BEGIN") + query(write)).lease(0);
  c.shard(begun() + guard_parsed() + guard_queue() + bound() + error("CDB05")).shard(ready('E'));
  c.shard(complete("ROLLBACK") + ready()).hears("C(BEGIN) Z(T) E(58000) Z(E)").released();

  c.client(query("ROLLBACK") + query("BEGIN") + query("SELECT now()"));
  const routing::ShardId shard = c.lease_any();
  c.shard(begun() + columns() + row() + complete("SELECT 1") + ready('T'));
  c.client(query("DELETE FROM users WHERE id = " + c.key_on(shard)));
  const std::string fresh = shard == 0 ? "" : guard_parsed();
  c.shard(fresh + guard_queue() + bound() + error("CDB05")).shard(ready('E'));
  c.hears("C(ROLLBACK) Z(I) C(BEGIN) Z(T) T D C(SELECT 1) Z(T) E(58000) Z(E)").holds(1);
}

// The guard raises; a server that answers without a row has run what was behind it, or not.
TEST(Guard, a_gate_that_answers_without_a_row_leaves_the_write_unknown) {
  Conversation c;
  c.client(query("DELETE FROM users WHERE id = " + c.key_on(0))).lease(0);
  c.shard(guard_parsed() + guard_queue() + bound() + complete("SELECT 0"));
  c.hears("E(08007) Z(I)").discarded().idle();
}

// --- transactions -------------------------------------------------------------------------------

TEST(Guard, a_transaction_begins_with_its_first_routed_statement) {
  Conversation c;
  const std::string key = c.key_on(1);
  c.client(query("BEGIN")).hears("C(BEGIN) Z(T)").holds(0);
  const std::string sql = "SELECT name FROM users WHERE id = " + key;
  c.client(query(sql)).lease(1).sent("P() B() E " + guarded("Q(" + sql + ")"));
  c.shard(begun() + guard_passed() + columns() + row() + complete("SELECT 1") + ready('T'));
  c.hears("T D C(SELECT 1) Z(T)").holds(1);
  // The key is held: no second guard.
  c.client(query("UPDATE users SET name = 'x' WHERE id = " + key));
  c.sent("Q(UPDATE users SET name = 'x' WHERE id = " + key + ")");
  c.shard(complete("UPDATE 1") + ready('T')).hears("C(UPDATE 1) Z(T)");
  c.client(query("COMMIT")).sent("Q(COMMIT)").shard(complete("COMMIT") + ready('I'));
  c.hears("C(COMMIT) Z(I)").released().idle();
}

TEST(Guard, the_first_statement_of_a_transaction_follows_a_moved_key) {
  Conversation c;
  const std::string key = c.key_on(0);
  const std::string sql = "UPDATE users SET name = 'x' WHERE id = " + key;
  c.client(query("BEGIN")).hears("C(BEGIN) Z(T)").client(query(sql)).lease(0);
  c.shard(begun() + guard_moved("db-west", key)).shard(ready('E'));
  c.sent("P() B() E " + guarded("Q(" + sql + ") S Q(ROLLBACK)"));
  c.shard(complete("ROLLBACK") + ready('I')).released();
  c.lease(1).sent("P() B() E " + guarded("Q(" + sql + ")"));
  c.shard(begun() + guard_passed() + complete("UPDATE 1") + ready('T'));
  c.hears("C(UPDATE 1) Z(T)").holds(1);
}

TEST(Guard, a_key_that_moved_later_in_a_transaction_is_a_serialization_failure) {
  Conversation c;
  const std::string key = c.key_on(0);
  c.client(query("BEGIN")).hears("C(BEGIN) Z(T)");
  c.client(query("SELECT now()")).lease_any();
  c.shard(begun() + columns() + row() + complete("SELECT 1") + ready('T'));
  c.hears("T D C(SELECT 1) Z(T)");
  c.client(query("DELETE FROM users WHERE id = " + c.key_on(0)));
  c.shard(guard_moved("db-west", key)).shard(ready('E')).hears("E(40001) Z(E)");
  c.client(query("COMMIT")).shard(complete("ROLLBACK") + ready('I'));
  c.hears("C(ROLLBACK) Z(I)").released().idle();
}

// 4b row 1: what was taken after a savepoint is gone with it.
TEST(Guard, a_rolled_back_savepoint_forgets_its_guards) {
  Conversation c;
  const std::string key = c.key_on(0);
  const std::string update = "UPDATE users SET name = 'x' WHERE id = " + key;
  c.client(query("BEGIN")).client(query("SAVEPOINT s")).hears("C(BEGIN) Z(T) C(SAVEPOINT) Z(T)");
  c.client(query(update)).lease(0).sent("P() B() E P() B() E " + guarded("Q(" + update + ")"));
  c.shard(begun() + ran("SAVEPOINT") + guard_passed() + complete("UPDATE 1") + ready('T'));
  c.client(query("ROLLBACK TO s")).shard(complete("ROLLBACK") + ready('T'));
  c.client(query(update)).sent("Q(ROLLBACK TO s) " + std::string(kGuard) + "Q(" + update + ")");
}

TEST(Guard, a_second_shard_in_a_transaction_is_refused_and_aborts_it) {
  Conversation c;
  c.client(query("BEGIN")).client(query("DELETE FROM users WHERE id = " + c.key_on(0))).lease(0);
  c.shard(begun() + guard_passed() + complete("DELETE 1") + ready('T'));
  c.hears("C(BEGIN) Z(T) C(DELETE 1) Z(T)");
  c.client(query("DELETE FROM users WHERE id = " + c.key_on(1)));
  c.shard(error("26000") + ready('E')).hears("E(0A000) Z(E)");
  c.client(query("COMMIT")).shard(complete("ROLLBACK") + ready('I')).hears("C(ROLLBACK) Z(I)");
}

// --- lost servers -------------------------------------------------------------------------------

TEST(Guard, a_write_lost_in_flight_has_an_unknown_outcome) {
  Conversation c;
  c.client(query("DELETE FROM users WHERE id = " + c.key_on(0))).lease(0).lost();
  c.hears("E(08007) Z(I)").discarded().idle();
}

TEST(Guard, a_read_lost_in_flight_was_not_applied) {
  Conversation c;
  c.client(query("SELECT * FROM users WHERE id = " + c.key_on(0))).lease(0).lost();
  c.hears("E(08006) Z(I)").discarded().idle();
}

TEST(Guard, a_server_lost_in_a_transaction_ends_the_session) {
  Conversation c;
  c.client(query("BEGIN")).client(query("DELETE FROM users WHERE id = " + c.key_on(0))).lease(0);
  c.lost().hears("C(BEGIN) Z(T) E(08006)").discarded();
  EXPECT_EQ(c.session->wait().kind, Wait::Kind::kClosed);
}

// --- extended protocol --------------------------------------------------------------------------

const std::string kUpdate = "UPDATE users SET name = $2 WHERE id = $1";

TEST(Guard, extended_write_in_one_sending) {
  Conversation c;
  c.client(parse("", kUpdate) + bind("", {c.key_on(1), "x"}) + execute() + sync()).lease(1);
  c.sent(guarded("P() B() E S"));
  c.shard(guard_passed() + parsed() + bound() + complete("UPDATE 1") + ready());
  c.hears("1 2 C(UPDATE 1) Z(I)").released().idle();
}

TEST(Guard, extended_write_follows_a_moved_key) {
  Conversation c;
  const std::string key = c.key_on(1);
  c.client(parse("", kUpdate) + bind("", {key, "x"}) + execute() + sync()).lease(1);
  c.shard(guard_moved("db-north", key) + ready()).released();
  c.lease(2).sent(guarded("P() B() E S"));
  c.shard(guard_passed() + parsed() + bound() + complete("UPDATE 1") + ready());
  c.hears("1 2 C(UPDATE 1) Z(I)").released().idle();
}

TEST(Guard, prepared_statement_is_parsed_on_every_shard_that_needs_it) {
  Conversation c;
  c.client(parse("s", kUpdate) + sync());
  const routing::ShardId first = c.lease_any();
  c.sent("P(collegedb_1) S").shard(parsed() + ready()).hears("1 Z(I)").released();
  for (routing::ShardId shard = 0; shard < 3; ++shard) {
    c.client(bind("s", {c.key_on(shard), "x"}) + execute() + sync()).lease(shard);
    const bool known = shard == first;
    c.sent(guarded(known ? "B(collegedb_1) E S" : "P(collegedb_1) B(collegedb_1) E S"));
    c.shard(guard_passed() + (known ? "" : parsed()) + bound() + complete("UPDATE 1") + ready());
    c.hears("2 C(UPDATE 1) Z(I)").released();
  }
}

TEST(Guard, extended_empty_read_is_replayed_whole) {
  Conversation c;
  const std::string sql = "SELECT name FROM users WHERE id = $1";
  c.client(parse("", sql) + bind("", {c.key_on(2)}) + describe(wire::Target::kPortal) + execute() +
           sync());
  c.lease(2).sent("P() B() D E S");
  c.shard(parsed() + bound() + columns() + complete("SELECT 0") + ready());
  c.sent(guarded("P() B() D E S"));
  c.shard(guard_passed() + parsed() + bound() + columns() + complete("SELECT 0") + ready());
  c.hears("1 2 T C(SELECT 0) Z(I)").released().idle();
}

TEST(Guard, a_pipeline_of_writes_is_one_attempt) {
  Conversation c;
  const std::string key = c.key_on(0);
  c.client(parse("", kUpdate) + bind("", {key, "x"}) + execute() + bind("", {key, "y"}) +
           execute() + sync());
  c.lease(0).sent(guarded("P() B() E B() E S"));
  c.shard(guard_passed() + parsed() + bound() + complete("UPDATE 1") + bound() +
          complete("UPDATE 1") + ready());
  c.hears("1 2 C(UPDATE 1) 2 C(UPDATE 1) Z(I)").released().idle();
}

}  // namespace
}  // namespace collegedb::session::testing
