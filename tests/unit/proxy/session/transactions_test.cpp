// Transactions: answered here until their first routed statement, and never kept after an error of
// the proxy's own. Names of tests begin with the case of the wire protocol list they stand for.
#include "tests/support/session_script.h"

namespace collegedb::session::testing {
namespace {

const std::string kNow = "SELECT now()";

// BEGIN, and a first statement on the shard that is leased.
routing::ShardId bind_transaction(Conversation& c) {
  c.client(query("BEGIN")).client(query(kNow));
  const routing::ShardId shard = c.lease_any();
  c.sent("P() B() E Q(" + kNow + ")");
  c.shard(begun() + columns() + row() + complete("SELECT 1") + ready('T'));
  c.hears("C(BEGIN) Z(T) T D C(SELECT 1) Z(T)");
  return shard;
}

TEST(Transactions, Q1_empty_text_is_answered_once) {
  for (const char* sql : {"", " -- nothing", ";;"}) {
    Conversation c;
    c.client(query(sql)).hears("I Z(I)").idle();
  }
}

TEST(Transactions, Q4_an_error_of_the_server_fails_the_block) {
  Conversation c;
  c.client(query("BEGIN")).client(query("SELECT random()")).lease_any();
  c.shard(begun() + error("22012") + ready('E'));
  c.hears("C(BEGIN) Z(T) E(22012) Z(E)");
  c.client(query(kNow)).hears("E(25P02) Z(E)");
  c.client(query("COMMIT")).shard(complete("ROLLBACK") + ready()).hears("C(ROLLBACK) Z(I)");
  c.released().idle();
}

TEST(Transactions, Q4_the_same_of_a_statement_beside_the_block) {
  Conversation c;
  c.client(query("BEGIN")).client(query("SELECT 1/0")).lease_any();
  c.sent("Q(SELECT 1/0)").shard(error("22012") + ready());
  c.hears("C(BEGIN) Z(T) E(22012) Z(E)").released();
  c.client(query("COMMIT")).hears("C(ROLLBACK) Z(I)").idle();
}

TEST(Transactions, Q5_COMMIT_of_a_failed_block_without_a_server_says_ROLLBACK) {
  Conversation c;
  c.client(query("BEGIN")).client(query("SELEC 1")).hears("C(BEGIN) Z(T) E(42601) Z(E)");
  c.client(query(kNow)).hears("E(25P02) Z(E)");
  c.client(query("COMMIT")).hears("C(ROLLBACK) Z(I)").idle();
}

TEST(Transactions, Q5_an_error_of_the_proxy_fails_the_block_on_the_server_too) {
  Conversation c;
  bind_transaction(c);
  c.client(query("LISTEN x")).sent("B(collegedb_abort) S");
  c.shard(error("26000") + ready('E')).hears("E(0A000) Z(E)");
  c.client(query("COMMIT")).shard(complete("ROLLBACK") + ready()).hears("C(ROLLBACK) Z(I)");
  c.released().idle();
}

TEST(Transactions, Q5_the_same_in_the_extended_protocol) {
  Conversation c;
  bind_transaction(c);
  c.client(parse("", "LISTEN x") + bind("") + execute() + sync());
  c.sent("B(collegedb_abort) S").shard(error("26000") + ready('E')).hears("E(0A000) Z(E)");
  c.client(parse("", "COMMIT") + bind("") + execute() + sync());
  c.shard(parsed() + bound() + complete("ROLLBACK") + ready()).hears("1 2 C(ROLLBACK) Z(I)");
  c.released().idle();
}

TEST(Transactions, Q5_unbound_in_the_extended_protocol) {
  Conversation c;
  c.client(parse("", "BEGIN") + bind("") + execute() + sync()).hears("1 2 C(BEGIN) Z(T)");
  c.client(parse("", "SELEC") + sync()).hears("E(42601) Z(E)");
  c.client(parse("", "COMMIT") + bind("") + execute() + sync()).hears("1 2 C(ROLLBACK) Z(I)");
  c.idle();
}

// A Parse that has reached a server does not make the transaction any less failed.
TEST(Transactions, Q5_unbound_with_a_server_at_hand) {
  Conversation c;
  c.client(query("BEGIN")).hears("C(BEGIN) Z(T)");
  c.client(parse("s", kNow) + parse("", "SELEC")).lease_any();
  c.shard(parsed()).hears("1 E(42601)").shard(error("26000"));
  c.client(sync()).shard(ready()).hears("Z(E)").released();
  c.client(query("COMMIT")).hears("C(ROLLBACK) Z(I)").idle();
}

TEST(Transactions, Q6_BEGIN_twice_and_COMMIT_outside) {
  Conversation c;
  c.client(query("COMMIT")).hears("N(25P01) C(COMMIT) Z(I)");
  c.client(query("ROLLBACK")).hears("N(25P01) C(ROLLBACK) Z(I)");
  c.client(query("BEGIN")).client(query("BEGIN")).hears("C(BEGIN) Z(T) N(25001) C(BEGIN) Z(T)");
  c.client(query("ROLLBACK")).hears("C(ROLLBACK) Z(I)").idle();
}

TEST(Transactions, Q7_AND_CHAIN_keeps_the_server_and_its_guards_no_longer) {
  Conversation c;
  const std::string update = "UPDATE users SET name = 'x' WHERE id = " + c.key_on(0);
  c.client(query("BEGIN")).client(query(update)).lease(0);
  c.shard(begun() + guard_passed() + complete("UPDATE 1") + ready('T'));
  c.client(query("COMMIT AND CHAIN")).shard(complete("COMMIT") + ready('T'));
  c.hears("C(BEGIN) Z(T) C(UPDATE 1) Z(T) C(COMMIT) Z(T)")
      .sent("P() B() E " + std::string(kGuardStatements) + std::string(kGuard) + "Q(" + update +
            ") Q(COMMIT AND CHAIN)");
  c.client(query(update)).sent(std::string(kGuard) + "Q(" + update + ")");
  // Its characteristics may come from anywhere: it is not begun again elsewhere.
  c.shard(guard_moved("db-west", c.key_on(0), "op-1", false)).shard(ready('E'));
  c.hears("E(40001) Z(E)").holds(1);
}

TEST(Transactions, AND_CHAIN_repeats_SET_TRANSACTION) {
  Conversation c;
  c.client(query("BEGIN")).client(query("SET TRANSACTION READ ONLY"));
  c.client(query("COMMIT AND CHAIN")).hears("C(BEGIN) Z(T) C(SET) Z(T) C(COMMIT) Z(T)");
  c.client(query(kNow)).lease_any();
  c.sent("P() B() E P() B() E Q(" + kNow + ")");
}

TEST(Transactions, AND_CHAIN_outside_a_block) {
  Conversation c;
  c.client(query("COMMIT AND CHAIN")).hears("E(25P01) Z(I)").idle();
}

TEST(Transactions, a_free_standing_statement_does_not_keep_its_server) {
  Conversation c;
  c.client(query("BEGIN")).client(query("SELECT 1")).lease_any();
  c.sent("Q(SELECT 1)").shard(columns() + row() + complete("SELECT 1") + ready());
  c.hears("C(BEGIN) Z(T) T D C(SELECT 1) Z(T)").released().idle();
}

TEST(Transactions, what_it_begins_with_may_be_refused) {
  Conversation c;
  c.client(query("BEGIN")).client(query("SET app.mode = 'x'")).client(query(kNow)).lease_any();
  c.sent("P() B() E P() B() E Q(" + kNow + ")");
  c.shard(begun() + parsed() + bound() + error("22023")).sent("S").shard(ready('E'));
  // One error for the one statement, and the one that tells why.
  c.hears("C(BEGIN) Z(T) C(SET) Z(T) E(22023) Z(E)");
  c.client(query("ROLLBACK")).shard(complete("ROLLBACK") + ready()).hears("C(ROLLBACK) Z(I)");
  c.released().idle();
}

TEST(Transactions, what_it_begins_with_may_be_refused_before_a_guard) {
  Conversation c;
  const std::string update = "UPDATE users SET name = 'x' WHERE id = " + c.key_on(0);
  c.client(query("BEGIN")).client(query("SET app.mode = 'x'")).client(query(update)).lease(0);
  c.shard(begun() + parsed() + bound() + error("22023")).shard(ready('E'));
  c.hears("C(BEGIN) Z(T) C(SET) Z(T) E(22023) Z(E)");
  // The guard's statements were not parsed: they are sent again.
  c.client(query("ROLLBACK")).shard(complete("ROLLBACK") + ready()).released();
  c.hears("C(ROLLBACK) Z(I)").client(query(update)).lease(0);
  c.sent(std::string(kGuardStatements) + std::string(kGuard) + "Q(" + update + ")");
}

// The server skips the statement too, and the client's transaction is a failed one: nothing runs
// outside it before the client has ended it.
TEST(Transactions, BEGIN_itself_may_be_refused) {
  const std::string update = "UPDATE users SET name = 'x' WHERE id = ";
  {
    Conversation c;
    c.client(query("BEGIN ISOLATION LEVEL SERIALIZABLE") + query(update + c.key_on(0))).lease(0);
    c.shard(parsed() + bound() + error("0A000")).shard(ready());
    c.hears("C(BEGIN) Z(T) E(0A000) Z(E)").released();
    c.client(query(update + c.key_on(0))).hears("E(25P02) Z(E)");
    c.client(query("COMMIT")).hears("C(ROLLBACK) Z(I)").idle();
  }
  {
    Conversation c;
    c.client(query("BEGIN"));
    c.client(parse("", "SELECT now()") + bind("") + execute() + sync()).lease_any();
    c.sent("P() B() E P() B() E S").shard(parsed() + error("57014") + ready());
    c.hears("C(BEGIN) Z(T) E(57014) Z(E)").released();
    c.client(query("ROLLBACK")).hears("C(ROLLBACK) Z(I)").idle();
  }
}

TEST(Transactions, savepoints_before_any_server) {
  Conversation c;
  c.client(query("SAVEPOINT a")).hears("E(25P01) Z(I)");
  c.client(query("BEGIN")).client(query("SAVEPOINT a")).client(query("SET application_name = 'x'"));
  c.client(query("SAVEPOINT b")).client(query("ROLLBACK TO a"));
  c.hears("C(BEGIN) Z(T) C(SAVEPOINT) Z(T) C(SET) Z(T) C(SAVEPOINT) Z(T) C(ROLLBACK) Z(T)");
  c.client(query("RELEASE b")).hears("E(3B001) Z(E)");
  c.client(query("ROLLBACK TO a")).hears("C(ROLLBACK) Z(T)");
  c.client(query(kNow)).lease_any();
  c.sent("P() B() E P() B() E Q(" + kNow + ")");
}

TEST(Transactions, a_failed_lease_fails_the_block) {
  Conversation c;
  c.client(query("BEGIN")).client(query("DELETE FROM users WHERE id = " + c.key_on(0)));
  c.lease_failed().hears("C(BEGIN) Z(T) E(53300) Z(E)");
  c.client(query("COMMIT")).hears("C(ROLLBACK) Z(I)").idle();
}

TEST(Transactions, any_other_shard_will_do_for_a_statement_of_no_shard) {
  Conversation c;
  c.client(query(kNow)).lease_failed().lease_failed();
  c.lease_any();
  c.shard(columns() + row() + complete("SELECT 1") + ready()).hears("T D C(SELECT 1) Z(I)");
}

TEST(Transactions, nothing_is_left_of_all_shards_but_an_error) {
  Conversation c;
  c.client(query(kNow)).lease_failed().lease_failed().lease_failed().hears("E(53300) Z(I)").idle();
}

// 4b row 3: keys of two groups may share a bucket; each is checked in its own group.
TEST(Transactions, keys_of_two_groups_in_one_bucket_are_checked_apart) {
  Conversation c({"db-east"});
  // 'accounts' and 'users' keys of one bucket.
  std::string user;
  std::string account;
  std::map<std::int32_t, std::string> users;
  for (int i = 1; i < 3000; ++i) {
    users.emplace(routing::gate_bucket("public.users", std::to_string(i)), std::to_string(i));
  }
  for (int i = 1; account.empty() && i < 3000; ++i) {
    const auto found = users.find(routing::gate_bucket("public.accounts", std::to_string(i)));
    if (found != users.end()) {
      account = std::to_string(i);
      user = found->second;
    }
  }
  ASSERT_FALSE(account.empty());
  Conversation d;  // routes of several shards carry keys
  const auto snapshot = d.context.snapshot;
  if (routing::locate(*snapshot, "public.users", user).shard !=
      routing::locate(*snapshot, "public.accounts", account).shard) {
    auto all_on_one = std::make_shared<routing::Snapshot>(*snapshot);
    all_on_one->epochs.front().shards = {0};
    d.context.snapshot = all_on_one;
  }
  const routing::ShardId shard = routing::locate(*d.context.snapshot, "public.users", user).shard;
  const std::string sql = "DELETE FROM users WHERE id = " + user +
                          "; DELETE FROM accounts WHERE code = '" + account + "'";
  d.client(query(sql)).lease(shard);
  d.sent(std::string(kGuardStatements) + "B(collegedb_queue) E B(collegedb_gate) E " +
         std::string(kGuard) + "Q(" + sql + ")");
}

TEST(Transactions, several_statements_of_two_shards_are_refused) {
  Conversation c;
  c.client(query("DELETE FROM users WHERE id = " + c.key_on(0) +
                 "; DELETE FROM users WHERE id = " + c.key_on(1)));
  c.hears("E(0A000) Z(I)").idle();
}

TEST(Transactions, Q11_a_simple_Query_destroys_what_is_unnamed) {
  Conversation c;
  c.client(query("BEGIN"));
  c.client(parse("", kNow) + bind("") + parse("n", kNow) + bind("n", {}, "p") + sync());
  c.lease_any();
  c.shard(begun() + parsed() + bound() + parsed() + bound() + ready('T'));
  c.hears("C(BEGIN) Z(T) 1 2 1 2 Z(T)");
  c.client(query("SELECT 1")).shard(columns() + row() + complete("SELECT 1") + ready('T'));
  c.hears("T D C(SELECT 1) Z(T)");
  c.client(execute("p") + sync()).shard(row() + complete("SELECT 1") + ready('T'));
  c.hears("D C(SELECT 1) Z(T)");
  c.client(bind("")).hears("E(26000)").shard(error("26000"));
  c.client(sync()).shard(ready('E')).hears("Z(E)");
}

TEST(Transactions, an_idle_block_is_ended_after_its_time) {
  Conversation c;
  c.context.idle_transaction_timeout_ms = 100;
  bind_transaction(c);
  EXPECT_EQ(c.session->wait().timeout_ms, 100U);
  c.deadline().hears("E(25P03)").discarded().closed();
}

TEST(Transactions, drain_waits_for_the_end_of_the_block) {
  Conversation c;
  bind_transaction(c);
  c.session->on_drain();
  EXPECT_EQ(c.session->wait().kind, Wait::Kind::kClient);
  c.client(query("COMMIT")).shard(complete("COMMIT") + ready());
  c.hears("C(COMMIT) Z(I) E(57P01)").released().closed();
}

TEST(Transactions, drain_of_an_idle_client_is_at_once) {
  Conversation c;
  c.session->on_drain();
  c.hears("E(57P01)").closed();
}

TEST(Transactions, drain_waits_for_the_Sync_of_what_has_run) {
  Conversation c;
  c.client(parse("", kNow) + bind("") + execute() + flush()).lease_any();
  c.shard(parsed() + bound() + row() + complete("SELECT 1")).hears("1 2 D C(SELECT 1)");
  c.session->on_drain();
  c.client(sync()).shard(ready()).hears("Z(I) E(57P01)").released().closed();
}

TEST(Transactions, Terminate_gives_up_what_is_open) {
  Conversation c;
  bind_transaction(c);
  c.client(terminate()).discarded().closed();
}

}  // namespace
}  // namespace collegedb::session::testing
