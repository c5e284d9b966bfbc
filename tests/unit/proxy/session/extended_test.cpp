// The extended protocol: order of replies, what an error leaves, whose statement is known where.
// Names of tests begin with the case of the wire protocol list they stand for.
#include "proxy/session/server_state.h"
#include "tests/support/session_script.h"

namespace collegedb::session::testing {
namespace {

const std::string kNow = "SELECT now()";
const std::string kUpdate = "UPDATE users SET name = $2 WHERE id = $1";

std::string guarded(std::string_view rest, bool fresh = true) {
  return (fresh ? std::string(kGuardStatements) : "") + std::string(kGuard) + std::string(rest);
}

TEST(Extended, X1_X3_an_error_in_Parse_skips_to_Sync) {
  Conversation c;
  c.client(parse("", "SELEC 1") + bind("") + execute() + sync()).hears("E(42601) Z(I)").idle();
}

TEST(Extended, X2_a_Query_behind_an_error_is_swallowed) {
  Conversation c;
  c.client(parse("", "SELEC 1") + query("SELECT 1")).hears("E(42601)");
  c.client(query("SELECT 1") + sync()).hears("Z(I)").idle();
}

TEST(Extended, a_Query_behind_a_Flush_ends_what_was_only_parsed) {
  Conversation c;
  c.client(parse("s", kNow) + flush()).lease_any();
  c.shard(parsed()).hears("1").client(query("BEGIN"));
  c.sent("P(collegedb_1) H S").shard(ready()).hears("C(BEGIN) Z(T)").released();
}

TEST(Extended, a_Query_behind_what_has_run_needs_a_Sync) {
  Conversation c;
  c.client(parse("", kNow) + bind("") + execute() + flush()).lease_any();
  c.shard(parsed() + bound() + row() + complete("SELECT 1")).hears("1 2 D C(SELECT 1)");
  c.client(query("SELECT 1")).hears("E(0A000)").shard(error("26000"));
  c.client(sync()).shard(ready()).hears("Z(I)").released().idle();
}

TEST(Extended, X4_Terminate_behind_an_error) {
  Conversation c;
  c.client(parse("", "SELEC 1") + flush()).hears("E(42601)").client(terminate()).closed();
}

TEST(Extended, X5_Parse_with_a_Flush) {
  Conversation c;
  c.client(parse("", kNow)).hears("");
  c.client(flush()).lease_any();
  c.sent("P() H").shard(parsed()).hears("1").holds(1);
  c.client(sync()).sent("S").shard(ready()).hears("Z(I)").released().idle();
}

TEST(Extended, X6_every_Sync_is_answered) {
  Conversation c;
  c.client(sync() + sync() + sync()).hears("Z(I) Z(I) Z(I)").idle();
}

TEST(Extended, X7_the_next_segment_runs) {
  Conversation c;
  c.client(parse("", "SELEC") + sync() + parse("", kNow) + bind("") + execute() + sync());
  c.lease_any();
  c.shard(parsed() + bound() + row() + complete("SELECT 1") + ready());
  c.hears("E(42601) Z(I) 1 2 D C(SELECT 1) Z(I)").idle();
}

TEST(Extended, X8_a_segment_is_rolled_back_together) {
  Conversation c;
  c.client(parse("", kUpdate) + bind("", {c.key_on(0), "x"}) + execute() + parse("", "SELEC"));
  c.lease(0).sent(guarded("P() B() E H"));
  c.shard(guard_passed() + parsed() + bound() + complete("UPDATE 1"));
  c.hears("1 2 C(UPDATE 1) E(42601)").sent("B(collegedb_abort) H").shard(error("26000"));
  c.client(bind("") + execute() + sync()).sent("S").shard(ready());
  c.hears("Z(I)").released().idle();
}

TEST(Extended, X8_an_error_of_the_server_in_the_middle) {
  Conversation c;
  c.client(parse("", kUpdate) + bind("", {c.key_on(0), "x"}) + execute() +
           bind("", {c.key_on(0), "y"}) + execute() + close_statement("") + sync());
  c.lease(0).sent(guarded("P() B() E B() E S"));
  c.shard(guard_passed() + parsed() + bound() + error("23505") + ready());
  c.hears("1 2 E(23505) Z(I)").released().idle();
}

TEST(Extended, X9_BEGIN_holds) {
  Conversation c;
  c.client(parse("", "BEGIN") + bind("") + execute() + sync()).hears("1 2 C(BEGIN) Z(T)");
}

TEST(Extended, X11_Close_of_what_is_unknown) {
  Conversation c;
  c.client(close_statement("s") + close_portal("p") + sync()).hears("3 3 Z(I)").idle();
}

// PostgreSQL says at once what it cannot do: no Flush, no Sync has come yet.
TEST(Extended, X3_what_cannot_go_well_is_said_at_once) {
  const std::string malformed[] = {message('B', std::string_view("\0\0\0\0\0\1\0\0\0\x64"
                                                                 "1",
                                                                 11)),
                                   message('D', std::string_view("S\0x", 3)),
                                   message('E', std::string_view("\0\0\0\0", 4)),
                                   message('C', std::string_view("S", 1))};
  for (const std::string& bad : malformed) {
    Conversation c;
    c.client(bad).hears("E(08P01)").client(execute() + sync()).hears("Z(I)").idle();
  }
  const std::pair<std::string, const char*> unknown[] = {
      {bind("nosuch"), "E(26000)"},
      {describe(wire::Target::kStatement, "nosuch"), "E(26000)"},
      {describe(wire::Target::kPortal, "nosuch"), "E(34000)"},
      {execute("nosuch"), "E(34000)"}};
  for (const auto& [request, answer] : unknown) {
    Conversation c;
    c.client(request).hears(answer).client(execute() + sync()).hears("Z(I)").idle();
  }
}

TEST(Extended, X3_what_may_go_well_waits) {
  Conversation c;
  c.client(parse("s", "") + bind("s", {}, "p") + describe(wire::Target::kPortal, "p") +
           execute("p"));
  c.hears_nothing().client(sync()).hears("1 2 n I Z(I)");
  c.client(bind("s") + execute()).hears_nothing().client(close_statement("s") + bind("s"));
  c.hears("2 I 3 E(26000)").client(sync()).hears("Z(I)").idle();
}

// F5, F7, F9: what came before a bad message is answered first.
TEST(Extended, X3_replies_owed_come_before_the_error) {
  const std::string bad_bind = message('B', std::string_view("\0\0\0\0\0\1\0\0\0\x64"
                                                             "1",
                                                             11));
  for (const std::string& bad : {bad_bind, message('D', std::string_view("S\0x", 3))}) {
    Conversation c;
    c.client(parse("", kNow) + bad);
    c.lease_any();
    c.sent("P() H").shard(parsed()).hears("1 E(08P01)").shard(error("26000"));
    c.client(execute() + sync()).shard(ready()).hears("Z(I)").released().idle();
  }
  // Its own error is the first one then.
  Conversation c;
  c.client(parse("", kNow) + bad_bind).lease_any();
  c.shard(error("42P01")).hears("E(42P01)").client(sync()).shard(ready()).hears("Z(I)").idle();
  // An error found only at the first look is not forgotten while the server is fetched.
  Conversation taken;
  taken.client(query("BEGIN") + parse("e", "") + bind("e", {}, "p") + sync());
  taken.client(parse("f", kNow) + bind("f", {}, "p") + sync());
  taken.hears("C(BEGIN) Z(T) 1 2 Z(T)").lease_any();
  taken.shard(parsed());
  taken.shard(error("26000") + ready()).hears("1 E(42P03) Z(E)");
}

TEST(Extended, X12_unknown_names) {
  Conversation c;
  c.client(describe(wire::Target::kStatement, "s") + sync()).hears("E(26000) Z(I)");
  c.client(bind("s") + sync()).hears("E(26000) Z(I)");
  c.client(describe(wire::Target::kPortal, "p") + sync()).hears("E(34000) Z(I)");
  c.client(execute("p") + sync()).hears("E(34000) Z(I)");
  c.client(std::string("D\0\0\0\x06Z\0", 7) + sync()).hears("E(08P01) Z(I)").idle();
}

TEST(Extended, X13_two_statements_in_a_Parse) {
  Conversation c;
  c.client(parse("", "SELECT 1; SELECT 2") + sync()).hears("E(42601) Z(I)").idle();
}

TEST(Extended, X14_empty_text) {
  Conversation c;
  c.client(parse("", "") + describe(wire::Target::kStatement) + bind("") +
           describe(wire::Target::kPortal) + execute() + sync());
  c.hears("1 t n 2 n I Z(I)").idle();
}

TEST(Extended, X15_a_name_is_taken_once) {
  Conversation c;
  c.client(parse("s", "BEGIN") + sync()).hears("1 Z(I)");
  c.client(parse("s", "BEGIN") + sync()).hears("E(42P05) Z(I)");
  c.client(close_statement("s") + parse("s", "COMMIT") + sync()).hears("3 1 Z(I)").idle();
}

TEST(Extended, X15_a_failed_Parse_leaves_its_name_free) {
  Conversation c;
  c.client(parse("s", kNow) + sync()).lease_any();
  c.shard(error("42P01") + ready()).hears("E(42P01) Z(I)").released();
  c.client(bind("s") + sync()).hears("E(26000) Z(I)");
  c.client(parse("s", kNow) + sync()).lease_any();
  c.sent("P(collegedb_1) S");
}

TEST(Extended, X15_a_failed_unnamed_Parse_destroys_the_old_one) {
  Conversation c;
  c.client(parse("", "BEGIN") + sync() + parse("", "SELEC") + sync() + bind("") + sync());
  c.hears("1 Z(I) E(42601) Z(I) E(26000) Z(I)").idle();
}

// The client has not seen its ParseComplete: it may use the name again, and gets no stray one.
TEST(Extended, X15_a_Parse_never_sent_leaves_its_name_free) {
  Conversation c;
  c.client(parse("s", "DELETE FROM users WHERE id = $1") + bind("s", {"no number"}) + execute() +
           sync());
  if (c.session->wait().kind == Wait::Kind::kLease) c.lease_failed();
  while (c.session->wait().kind == Wait::Kind::kLease) c.lease_failed();
  const std::string heard = letters(c.heard(), wire::Direction::kBackend);
  EXPECT_TRUE(heard.ends_with("Z(I)")) << heard;
  c.client(bind("s", {"1"}) + sync()).hears("E(26000) Z(I)");
}

TEST(Extended, X15_a_Parse_lost_with_its_server_leaves_its_name_free) {
  Conversation c;
  c.client(parse("s", kNow) + sync()).lease_any();
  c.lost().hears("E(08006) Z(I)").discarded();
  c.client(bind("s") + sync()).hears("E(26000) Z(I)").idle();
}

// Skipped by an error before it: as if it had never been sent.
TEST(Extended, X15_a_Parse_answered_here_behind_an_error) {
  Conversation c;
  c.client(parse("", kNow) + bind("") + execute() + parse("b", "BEGIN") + sync()).lease_any();
  c.shard(parsed() + error("22012") + ready()).hears("1 E(22012) Z(I)");
  c.client(bind("b") + sync()).hears("E(26000) Z(I)").idle();
}

TEST(Extended, X16_the_unnamed_statement_survives_Sync) {
  Conversation c;
  c.client(parse("", kNow) + sync());
  c.lease_any();
  c.sent("P() S").shard(parsed() + ready()).hears("1 Z(I)").released();
  c.client(bind("") + execute() + sync()).lease_any();
  c.sent("P() B() E S").shard(parsed() + bound() + row() + complete("SELECT 1") + ready());
  c.hears("2 D C(SELECT 1) Z(I)").idle();
}

TEST(Extended, a_Parse_sent_again_that_fails_is_the_Binds_error) {
  Conversation c;
  c.client(parse("s", kUpdate) + sync());
  const routing::ShardId first = c.lease_any();
  c.shard(parsed() + ready()).hears("1 Z(I)").released();
  const routing::ShardId other = (first + 1) % 3;
  c.client(bind("s", {c.key_on(other), "x"}) + execute() + sync()).lease(other);
  c.sent(guarded("P(collegedb_1) B(collegedb_1) E S"));
  c.shard(guard_passed() + error("42P01") + ready()).hears("E(42P01) Z(I)").released();
  // The name is still the client's; the server is asked again.
  c.client(bind("s", {c.key_on(other), "x"}) + execute() + sync()).lease(other);
  c.sent(guarded("P(collegedb_1) B(collegedb_1) E S", false));
}

TEST(Extended, X20_a_portal_is_gone_after_Sync) {
  Conversation c;
  c.client(parse("", kNow) + bind("", {}, "p") + sync()).lease_any();
  c.shard(parsed() + bound() + ready()).hears("1 2 Z(I)").released();
  c.client(execute("p") + sync()).hears("E(34000) Z(I)").idle();
}

TEST(Extended, X20_in_a_block_it_lives) {
  Conversation c;
  c.client(query("BEGIN")).client(parse("", kNow) + bind("", {}, "p") + sync()).lease_any();
  c.shard(begun() + parsed() + bound() + ready('T'));
  c.client(execute("p") + sync()).shard(row() + complete("SELECT 1") + ready('T'));
  c.hears("C(BEGIN) Z(T) 1 2 Z(T) D C(SELECT 1) Z(T)");
  c.client(bind("", {}, "p") + sync()).sent("P() B() E P() B() S E S B() S");
  c.shard(error("42P03") + ready('E')).hears("E(42P03) Z(E)");
}

// A savepoint takes the portals since with it: only the server knows.
TEST(Extended, X20_a_portal_gone_with_its_savepoint) {
  Conversation c;
  c.client(query("BEGIN") + query("SAVEPOINT a"));
  c.client(parse("s", kNow) + bind("s", {}, "p") + sync()).lease_any();
  c.shard(begun() + ran("SAVEPOINT") + parsed() + bound() + ready('T'));
  c.client(query("ROLLBACK TO a")).shard(complete("ROLLBACK") + ready('T'));
  // The insert fence, whose state at the savepoint is not known, comes first.
  c.client(bind("s", {}, "p") + sync());
  c.shard(guard_parsed() + guard_queue() + bound() + ready('T'));
  c.hears("C(BEGIN) Z(T) C(SAVEPOINT) Z(T) 1 2 Z(T) C(ROLLBACK) Z(T) 2 Z(T)");
}

TEST(Extended, X22_a_finished_portal_cannot_run_again) {
  Conversation c;
  c.client(parse("", "BEGIN") + bind("") + execute() + execute() + sync());
  c.hears("1 2 C(BEGIN) E(55000) Z(E)").idle();
}

TEST(Extended, X24_Flush_in_the_middle_keeps_the_server) {
  Conversation c;
  c.client(parse("", kUpdate) + describe(wire::Target::kStatement) + flush());
  const routing::ShardId shard = c.lease_any();
  c.sent("P() D H").shard(parsed() + parameters({20, 25}) + no_data()).hears("1 t n").holds(1);
  c.client(bind("", {c.key_on(shard), "x"}) + execute() + sync());
  c.sent(guarded("B() E S"));
  c.shard(guard_passed() + bound() + complete("UPDATE 1") + ready());
  c.hears("2 C(UPDATE 1) Z(I)").released().idle();
}

TEST(Extended, X24_Bind_for_another_shard_moves_what_was_only_parsed) {
  Conversation c;
  c.client(parse("", kUpdate) + describe(wire::Target::kStatement) + flush());
  const routing::ShardId shard = c.lease_any();
  c.shard(parsed() + parameters({20, 25}) + no_data()).hears("1 t n");
  const routing::ShardId other = (shard + 1) % 3;
  c.client(bind("", {c.key_on(other), "x"}) + execute() + sync()).shard(ready()).released();
  c.lease(other).sent(guarded("P() B() E S"));
  c.shard(guard_passed() + parsed() + bound() + complete("UPDATE 1") + ready());
  c.hears("2 C(UPDATE 1) Z(I)").released().idle();
}

TEST(Extended, X30_a_Parse_refused_in_a_failed_block_leaves_its_name_free) {
  Conversation c;
  c.client(query("BEGIN") + query("SELEC")).hears("C(BEGIN) Z(T) E(42601) Z(E)");
  c.client(parse("s", "BEGIN") + sync()).hears("E(25P02) Z(E)");
  c.client(query("ROLLBACK")).hears("C(ROLLBACK) Z(I)");
  c.client(parse("s", "BEGIN") + sync()).hears("1 Z(I)").idle();
}

TEST(Extended, a_local_portal_does_not_run_in_a_failed_block) {
  Conversation c;
  c.client(query("BEGIN"));
  c.client(parse("s", "SET TimeZone = 'UTC'") + bind("s", {}, "p") + sync());
  c.client(parse("", "SELEC") + sync());
  c.hears("C(BEGIN) Z(T) 1 2 Z(T) E(42601) Z(E)");
  c.client(execute("p") + sync()).hears("E(25P02) Z(E)");
}

// Rule 4: made replies never overtake real ones.
TEST(Extended, made_replies_keep_their_place) {
  Conversation c;
  c.client(parse("a", kNow) + close_statement("x") + parse("b", "BEGIN") + bind("a") + execute() +
           sync());
  c.lease_any();
  c.sent("P(collegedb_1) B(collegedb_1) E S");
  c.shard(parsed()).hears("1 3 1");
  c.shard(bound() + row() + complete("SELECT 1") + ready()).hears("2 D C(SELECT 1) Z(I)");
}

TEST(Extended, ParseComplete_comes_in_the_order_of_messages) {
  Conversation c;
  const std::string key = c.key_on(2);
  c.client(parse("a", kUpdate) + parse("b", kUpdate + " ") + bind("b", {key, "x"}) + execute() +
           bind("a", {key, "y"}) + execute() + sync());
  // Each Parse goes where its Bind will go.
  c.lease(2);
  c.shard(guard_parsed() + guard_queue() + guard_queue() + parsed() + parsed() + bound() +
          complete("UPDATE 1") + bound() + complete("UPDATE 1") + ready());
  c.hears("1 1 2 C(UPDATE 1) 2 C(UPDATE 1) Z(I)").released().idle();
}

// The first statement's ParseComplete is part of what a second one's refused guard starts over.
TEST(Extended, a_replay_answers_every_message_once) {
  Conversation c;
  const std::string key = c.key_on(0);
  c.client(parse("", kUpdate) + bind("", {key, "x"}) + execute() + parse("t", kUpdate) +
           bind("t", {key, "y"}) + execute() + sync());
  c.lease(0).sent(guarded("P() B() E P(collegedb_1) B(collegedb_1) E S"));
  c.shard(guard_parsed() + guard_queue() + bound() + error("40P01") + ready()).deadline();
  c.sent(guarded("P() B() E P(collegedb_1) B(collegedb_1) E S", false));
  c.shard(guard_passed(false) + parsed() + bound() + complete("UPDATE 1") + parsed() + bound() +
          complete("UPDATE 1") + ready());
  c.hears("1 2 C(UPDATE 1) 1 2 C(UPDATE 1) Z(I)").released().idle();
}

TEST(Extended, an_empty_read_behind_a_made_reply_is_guarded_at_once) {
  Conversation c;
  const std::string sql = "SELECT name FROM users WHERE id = $1";
  c.client(parse("b", "BEGIN") + sync()).hears("1 Z(I)");
  c.client(describe(wire::Target::kStatement, "b") + parse("", sql) + bind("", {c.key_on(1)}) +
           execute() + sync());
  c.lease(1).sent(guarded("P() B() E S"));
  c.shard(guard_passed() + parsed() + bound() + complete("SELECT 0") + ready());
  c.hears("t n 1 2 C(SELECT 0) Z(I)").released().idle();
}

TEST(Extended, a_COMMIT_in_a_pipeline_takes_the_guards_with_it) {
  Conversation c;
  const std::string key = c.key_on(1);
  c.client(query("BEGIN"));
  c.client(parse("u", kUpdate) + bind("u", {key, "x"}) + execute() + parse("", "COMMIT") +
           bind("") + execute() + bind("u", {key, "y"}) + execute() + sync());
  c.lease(1).sent("P() B() E " + guarded("P(collegedb_1) B(collegedb_1) E H"));
  c.shard(begun() + guard_passed() + parsed() + bound() + complete("UPDATE 1"));
  c.sent("P() B() E H").shard(parsed() + bound() + complete("COMMIT"));
  c.sent(guarded("B(collegedb_1) E S", false));
  c.shard(guard_passed(false) + bound() + complete("UPDATE 1") + ready());
  c.hears("C(BEGIN) Z(T) 1 2 C(UPDATE 1) 1 2 C(COMMIT) 2 C(UPDATE 1) Z(I)").released().idle();
}

TEST(Extended, a_ROLLBACK_TO_in_a_pipeline_takes_the_guards_with_it) {
  Conversation c;
  const std::string key = c.key_on(1);
  c.client(query("BEGIN") + query("SAVEPOINT a") + parse("u", kUpdate) + bind("u", {key, "x"}) +
           execute() + sync());
  c.lease(1).shard(begun() + ran("SAVEPOINT") + guard_passed() + parsed() + bound() +
                   complete("UPDATE 1") + ready('T'));
  static_cast<void>(c.heard());
  c.client(parse("", "ROLLBACK TO a") + bind("") + execute() + bind("u", {key, "y"}) + execute() +
           sync());
  c.shard(parsed() + bound() + complete("ROLLBACK"));
  c.shard(guard_passed(false) + bound() + complete("UPDATE 1") + ready('T'));
  c.hears("1 2 C(ROLLBACK) 2 C(UPDATE 1) Z(T)").holds(1);
}

TEST(Extended, COMMIT_before_Sync_costs_no_round_trip) {
  Conversation c;
  c.client(query("BEGIN") + query(kNow)).lease_any();
  c.shard(begun() + columns() + row() + complete("SELECT 1") + ready('T'));
  c.client(parse("", "COMMIT") + bind("") + execute() + sync());
  c.sent("P() B() E Q(" + kNow + ") P() B() E S");
}

TEST(Extended, the_least_used_statement_makes_room) {
  Conversation c({"db-east"});
  for (std::size_t i = 0; i <= kMaxServerStatements; ++i) {
    c.client(parse("s" + std::to_string(i), "SELECT now(), " + std::to_string(i)) + sync());
    c.lease(0).shard((i == kMaxServerStatements ? closed() : "") + parsed() + ready());
    c.released();
  }
  static_cast<void>(c.heard());
  // The first one is parsed anew, and the second makes room for it.
  c.client(bind("s0") + execute() + sync()).lease(0);
  static_cast<void>(c.session->wait());
  c.shard(closed() + parsed() + bound() + row() + complete("SELECT 1") + ready());
  c.hears("2 D C(SELECT 1) Z(I)").released().idle();
}

TEST(Extended, an_error_of_a_full_buffer_does_not_lose_the_Sync) {
  Conversation c;
  std::string messages = parse("", kUpdate);
  const std::string value(1000, 'x');
  for (int i = 0; i < 60; ++i) messages += bind("", {c.key_on(0), value}) + execute();
  c.client(messages + sync()).lease(0);
  c.shard(guard_parsed() + guard_queue() + bound() + error("CDB01", "6"));
  // The server is sent a Sync, the topology is loaded, and all of it starts over.
  c.shard(ready());
  c.control(ReloadDone{c.context.snapshot});
  c.shard(guard_queue() + bound() + error("CDB01", "6")).shard(ready());
  c.hears("E(40001) Z(I)").released().idle();
}

TEST(Extended, DEALLOCATE_and_DISCARD_ALL_share_the_names) {
  Conversation c;
  c.client(parse("s", "BEGIN") + parse("t", "BEGIN") + sync()).hears("1 1 Z(I)");
  c.client(query("DEALLOCATE s")).hears("C(DEALLOCATE) Z(I)");
  c.client(bind("s") + sync()).hears("E(26000) Z(I)");
  c.client(query("DEALLOCATE s")).hears("E(26000) Z(I)");
  c.client(query("DISCARD ALL")).hears("C(DISCARD ALL) Z(I)");
  c.client(bind("t") + sync()).hears("E(26000) Z(I)");
  c.client(query("BEGIN") + query("DISCARD ALL")).hears("C(BEGIN) Z(T) E(25001) Z(E)").idle();
}

TEST(Extended, X26_a_changed_result_type_is_told_and_a_new_Parse_works) {
  Conversation c({"db-east"});
  c.client(parse("s", kNow) + sync()).lease(0).shard(parsed() + ready()).hears("1 Z(I)");
  c.client(bind("s") + execute() + sync()).lease(0);
  SqlError changed = make_error("0A000", "cached plan must not change result type");
  std::string bytes;
  wire::encode_error(bytes, changed);
  c.shard(bytes + ready()).hears("E(0A000) Z(I)");
  c.client(parse("t", kNow) + bind("t") + execute() + sync()).lease(0);
  c.sent("P(collegedb_2) B(collegedb_2) E S");
}

TEST(Extended, FunctionCall_is_refused_and_answered) {
  Conversation c;
  c.client(function_call()).hears("E(0A000) Z(I)").idle();
  c.client(parse("", "SELEC") + function_call() + sync()).hears("E(42601) Z(I)").idle();
}

TEST(Extended, a_link_lost_between_messages_invents_no_ReadyForQuery) {
  Conversation c;
  c.client(parse("", kNow) + bind("") + execute() + flush()).lease_any();
  c.shard(parsed() + bound() + row() + complete("SELECT 1")).hears("1 2 D C(SELECT 1)");
  c.lost().hears("E(08006)").discarded();
  c.client(bind("") + sync()).hears("Z(I)").idle();
}

}  // namespace
}  // namespace collegedb::session::testing
