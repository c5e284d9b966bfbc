// SET, RESET and SET LOCAL: undone with their transaction, in force on whatever server connection
// the client gets next, never left to another client.
#include "tests/support/session_script.h"

namespace collegedb::session::testing {
namespace {

const std::string kSet = "SET application_name = 'x'";
const std::string kNow = "SELECT now()";
const std::string kForce = "Q(SELECT pg_catalog.set_config('application_name','x',false))";
const std::string kRow = columns() + row() + complete("SELECT 1") + ready();

std::string settings_done() {
  return columns() + row() + complete("SELECT 1") + ready();
}

// SET on some server.
routing::ShardId set(Conversation& c) {
  c.client(query(kSet));
  const routing::ShardId shard = c.lease_any();
  c.sent("Q(" + kSet + ")");
  c.shard(complete("SET") + status("application_name", "x") + ready());
  c.hears("C(SET) S(application_name) Z(I)").released();
  return shard;
}

TEST(Settings, a_SET_is_in_force_before_the_next_statement_elsewhere) {
  Conversation c;
  const routing::ShardId other = (set(c) + 1) % 3;
  const std::string sql = "UPDATE users SET name = 'x' WHERE id = " + c.key_on(other);
  c.client(query(sql)).lease(other).sent(kForce);
  // N3: the client has that ParameterStatus already.
  c.shard(columns() + row() + complete("SELECT 1") + status("application_name", "x") + ready());
  c.sent(std::string(kGuardStatements) + std::string(kGuard) + "Q(" + sql + ")");
  c.shard(guard_passed() + complete("UPDATE 1") + ready()).hears("C(UPDATE 1) Z(I)").released();
  // Known there from now on.
  c.client(query(sql)).lease(other).sent(std::string(kGuard) + "Q(" + sql + ")");
}

TEST(Settings, a_statement_never_runs_without_them) {
  Conversation c;
  const routing::ShardId other = (set(c) + 1) % 3;
  c.client(query("DELETE FROM users WHERE id = " + c.key_on(other))).lease(other).sent(kForce);
  c.shard(error("22023") + ready()).hears("E(22023) Z(I)").discarded().idle();
}

TEST(Settings, a_batch_never_runs_without_them) {
  Conversation c;
  const routing::ShardId other = (set(c) + 1) % 3;
  c.client(parse("", "DELETE FROM users WHERE id = $1") + bind("", {c.key_on(other)}) + execute() +
           sync());
  c.lease(other).sent(kForce).shard(error("22023") + ready());
  c.hears("E(22023) Z(I)").discarded().idle();
}

TEST(Settings, nor_does_a_transaction) {
  Conversation c;
  const routing::ShardId other = (set(c) + 1) % 3;
  c.client(query("BEGIN") + query("DELETE FROM users WHERE id = " + c.key_on(other)));
  c.lease(other).sent(kForce).shard(error("22023") + ready());
  c.hears("C(BEGIN) Z(T) E(22023) Z(E)").discarded();
  c.client(query("COMMIT")).hears("C(ROLLBACK) Z(I)").idle();
}

TEST(Settings, RESET_takes_the_value_off_again) {
  Conversation c({"db-east"});
  set(c);
  c.client(query("RESET application_name")).hears("C(RESET) Z(I)").idle();
  c.client(query(kNow)).lease(0).sent("Q(RESET \"application_name\";)");
  c.shard(complete("RESET") + status("application_name", "") + ready());
  c.shard(kRow).hears("T D C(SELECT 1) Z(I)").released().idle();
}

TEST(Settings, a_RESET_undone_with_its_segment) {
  Conversation c({"db-east"});
  set(c);
  const std::string reset = parse("", "RESET application_name") + bind("") + execute();
  // By an error of the proxy's ...
  c.client(reset + bind("", {}, "nosuch") + execute("unknown") + sync());
  c.hears("1 2 C(RESET) 2 E(34000) Z(I)");
  c.client(query(kNow)).lease(0).sent("Q(" + kNow + ")").shard(kRow).released();
  static_cast<void>(c.heard());
  // ... and of a server that has carried it out meanwhile.
  c.client(reset + parse("", "SELECT now(), 2") + bind("") + execute() + sync()).lease(0);
  c.sent("Q(RESET \"application_name\";)").shard(complete("RESET") + ready());
  c.sent("P() B() E S").shard(error("22012") + ready()).hears("1 2 C(RESET) E(22012) Z(I)");
  c.released().client(query(kNow)).lease(0).sent(kForce);
}

TEST(Settings, start_up_options_are_in_force_and_what_RESET_returns_to) {
  Conversation c({"db-east"}, {"alice", "app", false, {{"Application_Name", "x"}}});
  c.client(query(kNow)).lease(0).sent(kForce).shard(settings_done()).shard(kRow);
  c.hears("T D C(SELECT 1) Z(I)").released();
  c.client(query("SET application_name = 'y'")).lease(0);
  c.shard(complete("SET") + ready()).hears("C(SET) Z(I)").released();
  c.client(query("RESET ALL")).hears("C(RESET) Z(I)");
  c.client(query(kNow)).lease(0).sent(kForce);
}

TEST(Settings, a_SET_undone_with_its_transaction) {
  Conversation c({"db-east"});
  c.client(query("BEGIN") + query(kNow)).lease(0);
  c.shard(begun() + columns() + row() + complete("SELECT 1") + ready('T'));
  c.client(query(kSet)).shard(complete("SET") + ready('T'));
  c.client(query("ROLLBACK")).shard(complete("ROLLBACK") + ready()).released();
  static_cast<void>(c.heard());
  c.client(query(kNow)).lease(0).sent("Q(" + kNow + ")");
}

// Before any server is involved: the SET belongs to the transaction, not to the server connection.
TEST(Settings, a_SET_of_an_unbound_transaction_is_not_left_on_the_server) {
  Conversation c({"db-east"});
  c.client(query("BEGIN") + query(kSet) + query(kNow)).lease(0);
  c.sent("P() B() E P() B() E Q(" + kNow + ")");
  c.shard(begun() + ran("SET") + columns() + row() + complete("SELECT 1") +
          status("application_name", "x") + ready('T'));
  c.client(query("ROLLBACK"))
      .shard(complete("ROLLBACK") + status("application_name", "") + ready());
  c.hears(
      "C(BEGIN) Z(T) C(SET) Z(T) T D C(SELECT 1) S(application_name) Z(T) "
      "C(ROLLBACK) S(application_name) Z(I)");
  c.released();
  c.client(query(kNow)).lease(0).sent("Q(" + kNow + ")");
}

TEST(Settings, a_SET_kept_by_COMMIT) {
  Conversation c({"db-east"});
  c.client(query("BEGIN") + query(kSet) + query("COMMIT"));
  c.hears("C(BEGIN) Z(T) C(SET) Z(T) C(COMMIT) Z(I)").idle();
  c.client(query(kNow)).lease(0).sent(kForce);
}

TEST(Settings, a_SET_undone_with_its_savepoint) {
  Conversation c({"db-east"});
  c.client(query("BEGIN") + query("SAVEPOINT a") + query(kSet) + query("ROLLBACK TO a") +
           query("COMMIT"));
  c.hears("C(BEGIN) Z(T) C(SAVEPOINT) Z(T) C(SET) Z(T) C(ROLLBACK) Z(T) C(COMMIT) Z(I)");
  c.client(query(kNow)).lease(0).sent("Q(" + kNow + ")");
}

TEST(Settings, a_SET_undone_with_a_savepoint_on_the_server) {
  Conversation c({"db-east"});
  c.client(query("BEGIN") + query("SAVEPOINT a") + query(kNow)).lease(0);
  c.shard(begun() + ran("SAVEPOINT") + columns() + row() + complete("SELECT 1") + ready('T'));
  c.client(query(kSet)).shard(complete("SET") + ready('T'));
  c.client(query("ROLLBACK TO a")).shard(complete("ROLLBACK") + ready('T'));
  c.client(query("COMMIT")).shard(complete("COMMIT") + ready()).released();
  c.client(query(kNow)).lease(0).sent("Q(" + kNow + ")");
}

// A COMMIT that fails (a deferred constraint) undoes the SET on the server.
TEST(Settings, a_SET_undone_with_a_failed_COMMIT) {
  Conversation c({"db-east"});
  c.client(query("BEGIN") + query(kSet) + query(kNow)).lease(0);
  c.shard(begun() + ran("SET") + columns() + row() + complete("SELECT 1") + ready('T'));
  c.client(query("COMMIT")).shard(error("23503") + ready()).released();
  static_cast<void>(c.heard());
  c.client(query(kSet)).lease(0).shard(complete("SET") + ready()).released();
  c.client(query(kNow)).lease(0).sent("Q(" + kNow + ")");
}

TEST(Settings, a_SET_undone_with_its_segment) {
  Conversation c({"db-east"});
  c.client(parse("", kSet) + bind("") + execute() + parse("", kNow) + bind("") + execute() +
           sync());
  c.lease(0).sent(kForce).shard(columns() + row() + complete("SELECT 1") + ready());
  c.shard(parsed() + error("22012") + ready());
  c.hears("1 2 C(SET) 1 E(22012) Z(I)").released();
  // What the server connection still carries goes before the next statement.
  c.client(query(kNow)).lease(0).sent("Q(RESET \"application_name\";)");
}

// It names no shard, so the statement after it may run on any.
TEST(Settings, a_SET_before_a_keyed_statement_in_one_batch) {
  Conversation c;
  const std::string set = "SET timezone = 'utc'";
  const std::string sql = "SELECT name FROM users WHERE id = " + c.key_on(2);
  c.client(parse("", set) + bind("") + execute() + parse("", sql) + bind("") + execute() + sync());
  EXPECT_NE(c.lease_any(), 2);
  c.sent("Q(BEGIN;\n" + set + ") Q(ROLLBACK)");
  c.shard(complete("BEGIN") + complete("SET") + status("TimeZone", "UTC") + ready('T') +
          complete("ROLLBACK") + ready());
  c.released().lease(2);
  c.sent("Q(SELECT pg_catalog.set_config('timezone','UTC',false))");
  c.shard(columns() + row() + complete("SELECT 1") + ready());
  c.shard(guard_passed() + parsed() + bound() + row() + complete("SELECT 1") + ready());
  c.released();
}

TEST(Settings, SET_LOCAL_ends_with_its_transaction) {
  Conversation c({"db-east"});
  c.client(query("SET LOCAL application_name = 'x'")).hears("N(25P01) C(SET) Z(I)");
  c.client(query("BEGIN") + query("SET LOCAL application_name = 'x'") + query(kNow)).lease(0);
  c.sent("P() B() E P() B() E Q(" + kNow + ")");
  c.shard(begun() + ran("SET") + columns() + row() + complete("SELECT 1") + ready('T'));
  c.client(query("COMMIT")).shard(complete("COMMIT") + ready()).released();
  c.client(query(kNow)).lease(0).sent("Q(" + kNow + ")");
}

TEST(Settings, SET_LOCAL_TO_DEFAULT_hides_the_session_s_value) {
  Conversation c({"db-east"});
  c.client(query("SET search_path = other")).lease(0).shard(complete("SET") + ready()).released();
  c.client(query("BEGIN") + query("SET LOCAL search_path TO DEFAULT"));
  const std::string locate = "SELECT * FROM collegedb_locate('1', 'users')";
  const auto path = [&] {
    c.client(query(locate));
    EXPECT_EQ(c.session->wait().kind, Wait::Kind::kControl);
    auto found = c.session->wait().control->context.search_path;
    c.control(AdminRows{{{std::string("db-east"), std::string("5")}}});
    return found;
  };
  EXPECT_EQ(path(), (std::vector<std::string>{"alice", "public"}));
  c.client(query("COMMIT"));
  EXPECT_EQ(path(), (std::vector<std::string>{"other"}));
}

TEST(Settings, what_no_server_connection_may_carry_is_refused) {
  for (const char* sql : {"SET SESSION AUTHORIZATION bob", "SET seed = 0.5",
                          "SET transaction_isolation = 'serializable'", "LISTEN x",
                          "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY"}) {
    Conversation c;
    c.client(query(sql)).hears("E(0A000) Z(I)").idle();
  }
}

TEST(Settings, another_role_reads_user_in_the_search_path) {
  Conversation c({"db-east"});
  c.client(query("SET ROLE bob")).lease(0).shard(complete("SET") + ready()).hears("C(SET) Z(I)");
  c.client(query("SELECT * FROM collegedb_locate('1', 'users')"));
  ASSERT_EQ(c.session->wait().kind, Wait::Kind::kControl);
  EXPECT_EQ(c.session->wait().control->context.search_path,
            (std::vector<std::string>{"bob", "public"}));
}

}  // namespace
}  // namespace collegedb::session::testing
