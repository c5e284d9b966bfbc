// Z6: servers that are lost, or say FATAL, and servers that break the protocol. 08006 says that
// nothing was applied, 08007 that nobody knows.
#include "proxy/session/session_impl.h"
#include "tests/support/session_script.h"

namespace collegedb::session::testing {
namespace {

const std::string kUpdate = "UPDATE users SET name = $2 WHERE id = $1";
const std::string kNow = "SELECT now()";

std::string fatal(std::string_view sqlstate = "57P01") {
  return error(sqlstate, "", "FATAL");
}

TEST(Lost, a_write_flushed_and_not_yet_synced_was_not_applied) {
  Conversation c;
  c.client(parse("", kUpdate) + bind("", {c.key_on(0), "x"}) + execute() + flush()).lease(0);
  c.shard(guard_passed() + parsed() + bound() + complete("UPDATE 1")).hears("1 2 C(UPDATE 1)");
  c.lost().hears("E(08006)").client(sync()).hears("Z(I)").idle();
}

TEST(Lost, its_Sync_in_flight_leaves_it_unknown) {
  Conversation c;
  c.client(parse("", kUpdate) + bind("", {c.key_on(0), "x"}) + execute() + flush()).lease(0);
  c.shard(guard_passed() + parsed() + bound() + complete("UPDATE 1")).hears("1 2 C(UPDATE 1)");
  c.client(sync()).lost().hears("E(08007) Z(I)").discarded().idle();
}

TEST(Lost, a_COMMIT_in_flight_leaves_it_unknown) {
  Conversation c;
  c.client(query("BEGIN") + query("DELETE FROM users WHERE id = " + c.key_on(0))).lease(0);
  c.shard(begun() + guard_passed() + complete("DELETE 1") + ready('T'));
  c.client(query("COMMIT")).lost();
  c.hears("C(BEGIN) Z(T) C(DELETE 1) Z(T) E(08007)").discarded().closed();
}

TEST(Lost, a_ROLLBACK_in_flight_does_not) {
  Conversation c;
  c.client(query("BEGIN") + query("DELETE FROM users WHERE id = " + c.key_on(0))).lease(0);
  c.shard(begun() + guard_passed() + complete("DELETE 1") + ready('T'));
  c.client(query("ROLLBACK")).lost();
  c.hears("C(BEGIN) Z(T) C(DELETE 1) Z(T) E(08006)").discarded().closed();
}

TEST(Lost, FATAL_is_relayed) {
  Conversation outside;
  outside.client(query("DELETE FROM users WHERE id = " + outside.key_on(0))).lease(0);
  outside.shard(fatal()).hears("E(57P01) Z(I)").discarded().idle();

  Conversation inside;
  inside.client(query("BEGIN") + query(kNow)).lease_any();
  inside.shard(begun() + fatal());
  inside.hears("C(BEGIN) Z(T) E(57P01)").discarded().closed();
}

// N7: nothing follows the error.
TEST(Lost, FATAL_in_the_middle_of_rows) {
  Conversation c;
  c.client(query(kNow)).lease_any();
  c.shard(columns() + row() + fatal()).hears("T D E(57P01) Z(I)").discarded().idle();
}

TEST(Lost, outside_its_server_a_block_fails) {
  Conversation c;
  c.client(query("BEGIN") + query("SELECT 1")).lease_any();
  c.lost().hears("C(BEGIN) Z(T) E(08006) Z(E)").discarded();
  c.client(query("COMMIT")).hears("C(ROLLBACK) Z(I)").idle();
}

TEST(Lost, in_the_middle_of_a_batch_the_rest_is_skipped) {
  Conversation c;
  c.client(parse("", kNow) + bind("") + execute() + flush()).lease_any();
  c.shard(parsed()).lost().hears("1 E(08006)").client(bind("") + execute() + sync());
  c.hears("Z(I)").idle();
}

TEST(Lost, one_error_for_one_batch) {
  Conversation c;
  c.client(parse("", kNow) + bind("") + execute() + sync()).lease_any();
  c.shard(parsed() + error("22012")).lost().hears("1 E(22012) Z(I)").discarded().idle();
}

TEST(Lost, settings_of_a_segment_are_lost_with_it) {
  Conversation c({"db-east"});
  c.client(parse("", "SET application_name = 'x'") + bind("") + execute() + parse("", kNow) +
           bind("") + execute() + flush());
  c.lease(0).shard(columns() + row() + complete("SELECT 1") + ready());
  c.shard(parsed() + bound()).lost().discarded();
  c.client(sync()).hears("1 2 C(SET) 1 2 E(08006) Z(I)");
  c.client(query(kNow)).lease(0).sent("Q(" + kNow + ")");
}

TEST(Lost, while_the_topology_is_loaded_nothing_is_applied_twice) {
  Conversation c;
  c.client(query("DELETE FROM users WHERE id = " + c.key_on(0))).lease(0);
  c.shard(guard_parsed() + guard_queue() + bound() + error("CDB01", "6")).shard(ready());
  ASSERT_EQ(c.session->wait().kind, Wait::Kind::kControl);
  c.session->on_server_lost(1, "gone");
  c.hears("E(08006) Z(I)");
  c.session->on_control(ReloadDone{c.context.snapshot});
  c.deadline().discarded().hears("").idle();
}

TEST(Lost, a_server_that_breaks_the_protocol_is_closed) {
  for (const std::string& reply :
       {ready(), parsed(), bound(), closed(), std::string("R\0\0\0\x08\0\0\0\0", 9),
        std::string("Z\0\0\0\x05q", 6), std::string("C\0\0\0\x05x", 6)}) {
    Conversation c;
    c.client(parse("", kNow) + bind("") + execute() + sync()).lease_any();
    c.shard(parsed() + bound() + reply);
    c.hears("1 2 E(08006) Z(I)").discarded().idle();
  }
}

// The guard's answer is a row; nothing else may pass for it.
TEST(Lost, a_guard_answered_without_its_row) {
  for (const char* reply : {"I\0\0\0\x04", "s\0\0\0\x04"}) {
    Conversation c;
    c.client(query("DELETE FROM users WHERE id = " + c.key_on(0))).lease(0);
    c.shard(guard_parsed() + guard_queue() + bound() + std::string(reply, 5));
    c.hears("E(08007) Z(I)").discarded().idle();
  }
}

TEST(Lost, a_COPY_nobody_asked_for) {
  Conversation c;
  c.client(query("DELETE FROM users WHERE id = " + c.key_on(0))).lease(0);
  c.shard(guard_parsed() + bound() + copy_in()).hears("E(08007) Z(I)").discarded().idle();
}

// --- servers that answer nothing, not even to a cancel request ---

TEST(Lost, a_silent_server_is_given_up_and_its_write_unknown) {
  Conversation c;
  c.context.query_timeout_ms = kCancelGraceMs;  // the wait must still be a new one
  c.client(query("DELETE FROM users WHERE id = " + c.key_on(0))).lease(0);
  c.shard(guard_passed());
  EXPECT_EQ(c.session->wait().timeout_ms, kCancelGraceMs);
  c.deadline().cancelled();
  EXPECT_EQ(c.session->wait().kind, Wait::Kind::kServer);
  EXPECT_EQ(c.session->wait().timeout_ms, kCancelGraceMs + 1);
  c.deadline().hears("E(08007) Z(I)").discarded().idle();
}

TEST(Lost, a_silent_server_has_applied_no_read) {
  Conversation c;
  c.context.query_timeout_ms = 100;
  c.client(query(kNow)).lease_any();
  EXPECT_EQ(c.session->wait().timeout_ms, 100U);
  c.deadline().cancelled().deadline().hears("E(57014) Z(I)").discarded().idle();
}

TEST(Lost, a_silent_server_in_a_transaction_ends_the_session) {
  Conversation c;
  c.context.query_timeout_ms = 100;
  c.client(query("BEGIN") + query(kNow)).lease_any();
  c.deadline().cancelled().deadline().hears("C(BEGIN) Z(T) E(57014)").discarded().closed();

  Conversation committing;
  committing.context.query_timeout_ms = 100;
  committing.client(query("BEGIN") + query(kNow)).lease_any();
  committing.shard(begun() + columns() + row() + complete("SELECT 1") + ready('T'));
  committing.client(query("COMMIT")).deadline().cancelled().deadline();
  committing.hears("C(BEGIN) Z(T) T D C(SELECT 1) Z(T) E(08007)").discarded().closed();
}

TEST(Lost, a_server_that_heeds_the_cancel_request_is_kept) {
  Conversation c;
  c.context.query_timeout_ms = 100;
  c.client(query(kNow)).lease_any();
  c.deadline().cancelled().shard(error("57014") + ready()).hears("E(57014) Z(I)").released();
  // The next statement has its whole time again.
  c.client(query(kNow)).lease_any();
  EXPECT_EQ(c.session->wait().timeout_ms, 100U);
}

TEST(Lost, a_silent_gate_leaves_the_write_unknown) {
  Conversation c;
  c.client(query("DELETE FROM users WHERE id = " + c.key_on(0))).lease(0);
  c.deadline().cancelled().deadline().hears("E(08007) Z(I)").discarded().idle();
}

TEST(Lost, silent_servers_of_a_scatter_are_given_up_one_by_one) {
  Conversation c;
  c.context.query_timeout_ms = 100;
  c.client(query("SELECT name FROM users")).lease(0).lease(1).lease(2);
  c.deadline().cancelled().cancelled().cancelled();
  c.deadline().deadline().deadline();
  c.hears("E(08006) Z(I)").discarded().discarded().discarded().idle();
}

TEST(Lost, events_after_the_end_are_nobodys) {
  Conversation c;
  c.client(query("DELETE FROM users WHERE id = " + c.key_on(0)));
  c.session->on_client_gone();
  ServerState state;
  c.session->on_leased(7, state);
  const auto commands = c.session->take_commands();
  ASSERT_EQ(commands.size(), 1U);
  EXPECT_EQ(commands[0].kind, Command::Kind::kDiscard);
  EXPECT_EQ(commands[0].link, 7U);
  c.session->on_lease_failed(0, make_error("53300", "late"));
  c.session->on_deadline();
  c.session->on_drain();
  c.hears("").closed();
}

}  // namespace
}  // namespace collegedb::session::testing
