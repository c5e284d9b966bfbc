// COPY in both protocols. Names of tests begin with the case of the wire protocol list.
#include "tests/support/session_script.h"

namespace collegedb::session::testing {
namespace {

const std::string kCopy = "COPY notes FROM STDIN";

Conversation& started(Conversation& c) {
  c.client(query(kCopy)).lease_any();
  c.shard(copy_in()).hears("G");
  return c;
}
Conversation& started_extended(Conversation& c, const std::string& end) {
  c.client(parse("", kCopy) + bind("") + execute() + end).lease_any();
  c.shard(parsed() + bound() + copy_in()).hears("1 2 G");
  return c;
}

TEST(Copy, C1_rows_go_to_the_server) {
  Conversation c;
  started(c).client(copy_data("7\n") + copy_data("8\n") + copy_done());
  c.sent("Q(" + kCopy + ") d d c").shard(complete("COPY 2") + ready());
  c.hears("C(COPY 2) Z(I)").released().idle();
}

TEST(Copy, C1_CopyFail) {
  Conversation c;
  started(c).client(copy_fail("boo")).shard(error("57014") + ready()).hears("E(57014) Z(I)").idle();
}

TEST(Copy, C2_late_data_is_ignored) {
  Conversation c;
  started(c).client(copy_data("x") + copy_done()).shard(error("22P02") + ready());
  c.hears("E(22P02) Z(I)").client(copy_data("7\n") + copy_done() + copy_fail("x")).hears("");
  c.client(query("")).hears("I Z(I)").idle();
}

TEST(Copy, C3_any_other_message_ends_the_session) {
  for (const std::string& message :
       {query("SELECT 1"), parse("", "SELECT 1"), bind(""), execute(), close_statement(""),
        describe(wire::Target::kPortal), function_call()}) {
    Conversation c;
    started(c).client(message).hears("E(08P01)").discarded().closed();
  }
}

TEST(Copy, C4_Sync_and_Flush_are_ignored) {
  Conversation c;
  started(c).client(sync() + flush() + copy_done()).shard(complete("COPY 0") + ready());
  c.hears("C(COPY 0) Z(I)").idle();
}

TEST(Copy, C5_an_early_Sync_is_eaten) {
  Conversation c;
  started_extended(c, sync()).client(copy_data("7\n") + copy_done());
  c.sent("P() B() E S d c").client(sync()).sent("S");
  c.shard(complete("COPY 1") + ready()).hears("C(COPY 1) Z(I)").released().idle();
}

TEST(Copy, C6_with_a_Flush) {
  Conversation c;
  started_extended(c, flush()).client(copy_data("x") + copy_done() + sync());
  c.shard(error("22P02") + ready()).hears("E(22P02) Z(I)").released().idle();
}

TEST(Copy, what_follows_a_COPY_in_one_batch_ends_the_session) {
  Conversation c;
  c.client(parse("", kCopy) + bind("") + execute() + parse("", "SELECT now()") + bind("") +
           execute() + sync());
  c.lease_any();
  c.shard(parsed() + bound() + copy_in()).hears("1 2 G E(08P01)").discarded().closed();
}

TEST(Copy, C9_COPY_out) {
  Conversation c;
  c.client(query("COPY notes TO STDOUT")).lease_any();
  c.shard(copy_out() + copy_data("7\n") + copy_done() + complete("COPY 1") + ready());
  c.hears("H d c C(COPY 1) Z(I)").released().idle();
}

TEST(Copy, C10_two_of_them_in_one_Query) {
  Conversation c;
  c.client(query(kCopy + "; " + kCopy)).lease_any();
  c.shard(copy_in()).client(copy_done()).shard(complete("COPY 0") + copy_in());
  c.hears("G C(COPY 0) G").client(copy_done()).shard(complete("COPY 0") + ready());
  c.hears("C(COPY 0) Z(I)").released().idle();
}

TEST(Copy, a_server_lost_in_the_middle) {
  Conversation simple;
  started(simple).client(copy_data("7\n")).lost();
  EXPECT_TRUE(letters(simple.heard(), wire::Direction::kBackend).ends_with("Z(I)"));
  simple.discarded().client(copy_data("7\n") + copy_done() + query("")).hears("I Z(I)").idle();

  Conversation extended;
  started_extended(extended, sync()).client(copy_data("7\n")).lost().discarded();
  // Its Sync was eaten: the one that comes now is answered.
  EXPECT_EQ(letters(extended.heard(), wire::Direction::kBackend).substr(0, 2), "E(");
  extended.client(copy_done() + sync()).hears("Z(I)").idle();
}

TEST(Copy, lost_after_its_end_the_outcome_is_unknown) {
  Conversation simple;
  started(simple).client(copy_data("7\n") + copy_done()).lost().hears("E(08007) Z(I)");
  Conversation extended;
  started_extended(extended, sync()).client(copy_done() + sync()).lost().hears("E(08007) Z(I)");
}

TEST(Copy, a_client_that_goes_in_the_middle) {
  Conversation c;
  started(c).client(terminate()).discarded().closed();
}

TEST(Copy, data_outside_a_COPY_is_ignored) {
  Conversation c;
  c.client(copy_data("7\n") + copy_done() + copy_fail("x")).hears("").idle();
}

}  // namespace
}  // namespace collegedb::session::testing
