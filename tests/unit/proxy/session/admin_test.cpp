// collegedb_* functions and statements for every shard: asked of the control plane.
#include "tests/support/session_script.h"

namespace collegedb::session::testing {
namespace {

AdminRows located() {
  return AdminRows{{{std::string("db-west"), std::string("5")}}};
}

const AdminCall& call_of(const Conversation& c) {
  return std::get<AdminCall>(c.session->wait().control->what);
}
std::string argument(const AdminCall& call, std::size_t at) {
  const auto* value = std::get_if<std::optional<std::string>>(&call.arguments[at]);
  return value == nullptr ? "missing" : value->value_or("NULL");
}

TEST(Admin, rows_of_a_call) {
  Conversation c;
  c.client(query("SELECT * FROM collegedb_locate('7', 'users')"));
  EXPECT_EQ(call_of(c).function->name, "collegedb_locate");
  EXPECT_EQ(argument(call_of(c), 0), "7");
  EXPECT_EQ(argument(call_of(c), 1), "users");
  EXPECT_EQ(call_of(c).user, "alice");
  EXPECT_FALSE(call_of(c).is_admin);
  c.control(located()).hears("T D C(SELECT 1) Z(I)").idle();
}

TEST(Admin, named_arguments_and_missing_ones) {
  Conversation c;
  c.client(query("SELECT collegedb_reassign(shard => 'db-west', key => '7')"));
  EXPECT_EQ(argument(call_of(c), 0), "7");
  EXPECT_EQ(argument(call_of(c), 1), "db-west");
  EXPECT_EQ(argument(call_of(c), 2), "missing");
  c.control(AdminRows{{{std::string("op-1")}}}).hears("T D C(SELECT 1) Z(I)").idle();
}

TEST(Admin, calls_that_match_no_function) {
  for (const auto& [sql, code] : std::vector<std::pair<const char*, const char*>>{
           {"SELECT collegedb_nothing()", "42883"},
           {"SELECT collegedb_locate('7')", "42883"},
           {"SELECT collegedb_locate('7', 'users', 'more')", "42883"},
           {"SELECT collegedb_locate('7', nobody => 'users')", "42883"},
           {"SELECT collegedb_locate('7', key => '8')", "42601"},
           {"SELECT shard, nothing FROM collegedb_locate('7', 'users')", "42703"}}) {
    Conversation c;
    c.client(query(sql)).hears("E(" + std::string(code) + ") Z(I)").idle();
  }
}

TEST(Admin, an_unknown_function_is_found_at_Parse) {
  Conversation c;
  c.client(parse("", "SELECT collegedb_nothing($1)") + sync()).hears("E(42883) Z(I)").idle();
}

TEST(Admin, selected_columns_with_their_names) {
  Conversation c;
  c.client(query("SELECT generation AS g FROM collegedb_locate('7', 'users')"));
  c.control(located());
  const std::string said = c.heard();
  EXPECT_NE(said.find(columns("g", 20).substr(7, 2)), std::string::npos);
  EXPECT_NE(said.find(row("5")), std::string::npos);
}

TEST(Admin, extended_with_parameters_and_binary_results) {
  Conversation c;
  c.client(parse("", "SELECT * FROM collegedb_locate($1, $2)") +
           describe(wire::Target::kStatement) + bind("", {"7", "users"}, "", {1}) +
           describe(wire::Target::kPortal) + execute() + sync());
  EXPECT_EQ(argument(call_of(c), 0), "7");
  EXPECT_EQ(argument(call_of(c), 1), "users");
  c.control(located());
  const std::string said = c.heard();
  EXPECT_EQ(letters(said, wire::Direction::kBackend), "1 t T 2 T D C(SELECT 1) Z(I)");
  EXPECT_NE(said.find(std::string("\0\0\0\x08\0\0\0\0\0\0\0\x05", 12)), std::string::npos);
}

TEST(Admin, too_few_parameters) {
  Conversation c;
  c.client(parse("", "SELECT * FROM collegedb_locate($1, $2)") + bind("", {"7"}) + sync());
  c.hears("1 E(08P01) Z(I)").idle();
}

TEST(Admin, a_finished_portal_cannot_run_again) {
  Conversation c;
  c.client(parse("", "SELECT * FROM collegedb_locate('7', 'users')") + bind("") + execute() +
           execute() + sync());
  c.control(located()).hears("1 2 D C(SELECT 1) E(55000) Z(I)").idle();
}

TEST(Admin, an_error_of_the_control_plane) {
  Conversation c;
  c.client(query("SELECT * FROM collegedb_locate('7', 'users')"));
  c.control(make_error("58000", "not now")).hears("E(58000) Z(I)").idle();
  c.client(query("BEGIN") + query("SELECT * FROM collegedb_locate('7', 'users')"));
  c.control(make_error("58000", "not now")).hears("C(BEGIN) Z(T) E(58000) Z(E)");
}

TEST(Admin, a_move_is_not_part_of_a_transaction_that_holds_locks) {
  Conversation c;
  c.client(query("BEGIN") + query("SELECT now()")).lease_any();
  c.shard(begun() + columns() + row() + complete("SELECT 1") + ready('T'));
  c.client(query("SELECT collegedb_reassign('7', 'db-west')"));
  c.shard(error("26000") + ready('E'));
  c.hears("C(BEGIN) Z(T) T D C(SELECT 1) Z(T) E(25001) Z(E)");
}

TEST(Admin, a_statement_for_every_shard) {
  Conversation c;
  c.client(query("CREATE TABLE n (i int)"));
  EXPECT_EQ(std::get<Broadcast>(c.session->wait().control->what).sql, "CREATE TABLE n (i int)");
  EXPECT_TRUE(std::get<Broadcast>(c.session->wait().control->what).transactional);
  SqlError notice = make_error("42P07", "it exists");
  notice.severity = "NOTICE";
  c.control(BroadcastDone{"CREATE TABLE", {notice}}).hears("N(42P07) C(CREATE TABLE) Z(I)").idle();
  c.client(query("BEGIN") + query("CREATE TABLE n (i int)"));
  c.hears("C(BEGIN) Z(T) E(0A000) Z(E)");
}

TEST(Admin, a_statement_for_every_shard_holds_no_locks_of_its_own_batch) {
  Conversation c;
  c.client(parse("s", "SELECT name FROM users WHERE id = 1") +
           parse("", "ALTER TABLE users ADD x int") + bind("") + execute() + sync());
  c.lease_any();
  c.sent("P(collegedb_1) H").shard(parsed()).sent("S").shard(ready()).released();
  ASSERT_EQ(c.session->wait().kind, Wait::Kind::kControl);
  c.control(BroadcastDone{"ALTER TABLE", {}}).hears("1 1 2 C(ALTER TABLE) Z(I)").idle();
}

TEST(Admin, a_statement_for_every_shard_behind_others_is_refused) {
  Conversation c;
  c.client(parse("", "SELECT now()") + bind("") + execute() +
           parse("", "ALTER TABLE users ADD x int") + bind("") + execute() + sync());
  c.lease_any();
  c.shard(parsed() + bound() + row() + complete("SELECT 1"));
  c.shard(error("26000") + ready()).hears("1 2 D C(SELECT 1) 1 2 E(0A000) Z(I)").idle();
}

TEST(Admin, a_reply_that_comes_too_late_is_nobodys) {
  Conversation c;
  c.client(query("SELECT * FROM collegedb_locate('7', 'users')"));
  c.session->on_client_gone();
  c.session->on_control(located());
  c.hears("").closed();
}

}  // namespace
}  // namespace collegedb::session::testing
