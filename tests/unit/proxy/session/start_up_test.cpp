// The first thing a session does: start-up settings are tried on a server before the client is
// greeted (U14, U16, U17), and the greeting says how servers report them.
#include "tests/support/session_script.h"

namespace collegedb::session::testing {
namespace {

using Pairs = std::vector<std::pair<std::string, std::string>>;

constexpr std::string_view kGreeting = "S(application_name) S(DateStyle) S(TimeZone) K Z(I)";

Greeting greeting() {
  return {{{"application_name", ""}, {"DateStyle", "ISO, MDY"}, {"TimeZone", "UTC"}}, 7, "abcd"};
}

Conversation client_with(Pairs parameters) {
  return Conversation({"db-east"}, {"alice", "app", false, std::move(parameters)}, greeting());
}

// name -> value of the ParameterStatus messages in `bytes`.
std::map<std::string, std::string> reports(std::string_view bytes) {
  std::map<std::string, std::string> out;
  for (const wire::Frame& frame : frames(bytes, wire::Direction::kBackend)) {
    if (frame.tag != 'S') continue;
    const auto report = wire::ParameterStatus::decode(frame.payload);
    out[std::string(report->name)] = report->value;
  }
  return out;
}

std::string accepted(std::string_view reports = "") {
  return columns() + row() + complete("SELECT 1") + std::string(reports) + ready();
}

TEST(StartUp, without_settings_no_server_is_asked) {
  Conversation c = client_with({{"user", "alice"}, {"database", "app"}, {"_pq_.x", "1"}});
  EXPECT_EQ(c.session->wait().kind, Wait::Kind::kClient);
  c.hears(kGreeting).idle();
}

// Drivers name themselves at every login: no server can refuse it.
TEST(StartUp, an_application_name_alone_needs_no_server) {
  Conversation c = client_with({{"Application_Name", "psql"}});
  const std::string said = c.heard();
  EXPECT_EQ(letters(said, wire::Direction::kBackend), kGreeting);
  EXPECT_EQ(reports(said)["application_name"], "psql");
  c.idle();
}

TEST(StartUp, settings_are_in_force_on_a_server_before_the_greeting) {
  Conversation c = client_with({{"application_name", "x"}, {"datestyle", "german"}});
  c.lease(0).sent(
      "Q(SELECT pg_catalog.set_config('application_name','x',false), "
      "pg_catalog.set_config('datestyle','german',false))");
  EXPECT_GT(c.session->wait().timeout_ms, 0U);
  c.hears_nothing();
  c.shard(accepted(status("DateStyle", "German, DMY") + status("application_name", "x")));
  const std::string said = c.heard();
  EXPECT_EQ(letters(said, wire::Direction::kBackend), kGreeting);
  EXPECT_EQ(reports(said)["DateStyle"], "German, DMY");
  EXPECT_EQ(reports(said)["application_name"], "x");
  c.released().idle();
  // The server connection has them already.
  c.client(query("SELECT now()")).lease(0).sent("Q(SELECT now())");
}

TEST(StartUp, what_one_server_has_accepted_is_not_tried_again) {
  Conversation c = client_with({{"datestyle", "german"}});
  c.lease(0).shard(accepted(status("DateStyle", "German, DMY"))).released();
  const std::string first = c.heard();
  Session second(c.context, {"bob", "app", false, {{"DateStyle", "german"}}}, greeting());
  EXPECT_EQ(second.wait().kind, Wait::Kind::kClient);
  EXPECT_EQ(second.client_out(), first);
  Session third(c.context, {"bob", "app", false, {{"DateStyle", "iso"}}}, greeting());
  EXPECT_EQ(third.wait().kind, Wait::Kind::kLease);
}

TEST(StartUp, U14_a_setting_that_a_server_refuses_ends_the_login) {
  for (const char* sqlstate : {"42704", "22023"}) {
    Conversation c = client_with({{"nosuch", "1"}});
    c.lease(0).shard(error(sqlstate) + ready());
    const std::string said = c.heard();
    EXPECT_EQ(letters(said, wire::Direction::kBackend), "E(" + std::string(sqlstate) + ")");
    EXPECT_EQ(wire::decode_error(frames(said, wire::Direction::kBackend)[0].payload)->severity,
              "FATAL");
    c.discarded().closed();
  }
}

TEST(StartUp, so_does_one_that_the_proxy_refuses) {
  Conversation c = client_with({{"session_authorization", "bob"}});
  c.hears("E(0A000)").closed();
}

TEST(StartUp, without_a_server_there_is_no_login) {
  Conversation none = client_with({{"datestyle", "german"}});
  none.lease_failed().hears("E(53300)").closed();

  Conversation gone = client_with({{"datestyle", "german"}});
  gone.lease(0).lost().hears("E(08006)").discarded().closed();

  Conversation silent = client_with({{"datestyle", "german"}});
  silent.lease(0).deadline().cancelled().deadline().hears("E(57014)").discarded().closed();
}

TEST(StartUp, a_drain_meanwhile_ends_it) {
  Conversation c = client_with({{"datestyle", "german"}});
  c.lease(0);
  c.session->on_drain();
  c.shard(accepted()).hears(std::string(kGreeting) + " E(57P01)").released().closed();
}

// --- ParameterStatus of later changes (N1) ---

struct Greeted : Conversation {
  explicit Greeted(Pairs parameters = {})
      : Conversation({"db-east"}, {"alice", "app", false, std::move(parameters)}, greeting()) {
    static_cast<void>(heard());
  }
};

TEST(Reports, RESET_returns_to_the_standard_or_the_start_up_value) {
  for (const char* start : {"", "me"}) {
    Greeted c(*start ? Pairs{{"application_name", start}} : Pairs{});
    c.client(query("SET application_name = 'x'")).lease(0);
    c.shard((*start ? accepted() : "") + complete("SET") + status("application_name", "x") +
            ready());
    c.hears("C(SET) S(application_name) Z(I)");
    c.client(query("RESET application_name"));
    const std::string said = c.heard();
    EXPECT_EQ(letters(said, wire::Direction::kBackend), "C(RESET) S(application_name) Z(I)");
    EXPECT_EQ(reports(said)["application_name"], start);
    c.client(query("RESET application_name")).hears("C(RESET) Z(I)");
  }
}

TEST(Reports, a_SET_in_an_open_transaction_is_tried_on_a_server) {
  Greeted c;
  c.client(query("BEGIN") + query("SAVEPOINT a") + query("SET timezone = 'utc'")).lease(0);
  c.sent("Q(BEGIN;\nSAVEPOINT a;\nSET timezone = 'utc') Q(ROLLBACK)");
  c.shard(complete("BEGIN") + complete("SAVEPOINT") + complete("SET") + status("TimeZone", "Etc") +
          ready('T') + complete("ROLLBACK") + status("TimeZone", "UTC") + ready());
  const std::string said = c.heard();
  EXPECT_EQ(letters(said, wire::Direction::kBackend),
            "C(BEGIN) Z(T) C(SAVEPOINT) Z(T) C(SET) S(TimeZone) Z(T)");
  EXPECT_EQ(reports(said)["TimeZone"], "Etc");
  c.released().holds(0);
  // The same value needs no server any more.
  c.client(query("SET timezone = 'utc'")).hears("C(SET) Z(T)");
  // Where the transaction runs the client is not told again; its end gives the old value back.
  c.client(query("SELECT now()"))
      .lease(0)
      .sent("P() B() E P() B() E P() B() E P() B() E Q(SELECT now())");
  c.shard(begun() + ran("SAVEPOINT") + ran("SET") + ran("SET") + columns() + row() +
          complete("SELECT 1") + status("TimeZone", "Etc") + ready('T'));
  c.hears("T D C(SELECT 1) Z(T)").client(query("ROLLBACK"));
  c.shard(complete("ROLLBACK") + status("TimeZone", "UTC") + ready());
  c.hears("C(ROLLBACK) S(TimeZone) Z(I)").released().idle();
}

TEST(Reports, a_transaction_without_a_server_gives_the_old_values_back) {
  for (const char* end : {"ROLLBACK", "COMMIT"}) {
    Greeted c;
    c.client(query("BEGIN") + query("SET LOCAL application_name = 'x'"));
    c.hears("C(BEGIN) Z(T) C(SET) S(application_name) Z(T)");
    c.client(query(end));
    c.hears("C(" + std::string(end) + ") S(application_name) Z(I)").idle();
  }
  Greeted c;
  c.client(query("BEGIN") + query("SAVEPOINT a") + query("SET application_name = 'x'") +
           query("ROLLBACK TO a"));
  c.hears(
      "C(BEGIN) Z(T) C(SAVEPOINT) Z(T) C(SET) S(application_name) Z(T) "
      "C(ROLLBACK) S(application_name) Z(T)");
}

TEST(Reports, a_SET_refused_in_an_open_transaction_fails_it) {
  {
    Greeted c;
    c.client(query("BEGIN") + query("SET work_mem = 'x'")).lease(0);
    c.shard(complete("BEGIN") + error("22023") + ready('E') + complete("ROLLBACK") + ready());
    c.hears("C(BEGIN) Z(T) E(22023) Z(E)").released();
    c.client(query("COMMIT")).hears("C(ROLLBACK) Z(I)").idle();
  }
  {
    Greeted c;
    c.client(parse("", "BEGIN") + bind("") + execute() + parse("", "SET work_mem = 'x'") +
             bind("", {}, "p") + execute("p") + parse("", "SELECT 1") + bind("") + execute() +
             sync());
    c.lease(0).shard(complete("BEGIN") + error("22023") + ready('E') + complete("ROLLBACK") +
                     ready());
    c.hears("1 2 C(BEGIN) 1 2 E(22023) Z(E)").released().holds(0);
  }
  {
    Greeted c;
    c.client(query("BEGIN") + query("SET work_mem = 'x'")).lease(0);
    c.lost().hears("C(BEGIN) Z(T) E(08006) Z(E)").discarded();
    c.client(query("ROLLBACK") + query("BEGIN") + query("SET work_mem = 'y'"));
    c.lease_failed().hears("C(ROLLBACK) Z(I) C(BEGIN) Z(T) E(53300) Z(E)");
  }
}

TEST(Reports, a_SET_tried_in_the_extended_protocol) {
  Greeted c;
  c.client(parse("", "BEGIN") + bind("") + execute() + parse("", "SET timezone = 'x'") +
           bind("", {}, "p") + execute("p") + sync());
  c.lease(0).shard(complete("BEGIN") + complete("SET") + status("TimeZone", "X") + ready('T') +
                   complete("ROLLBACK") + status("TimeZone", "UTC") + ready());
  c.hears("1 2 C(BEGIN) 1 2 C(SET) S(TimeZone) Z(T)").released().holds(0);
}

// A setting of the application's own takes any value: no server has to be asked.
TEST(Reports, a_custom_setting_needs_no_server) {
  Greeted c;
  c.client(query("BEGIN") + query("SET LOCAL app.tenant = '7'")).hears("C(BEGIN) Z(T) C(SET) Z(T)");
}

// What is SET becomes what the server makes of it: another server must not read it otherwise.
TEST(Reports, the_value_kept_is_the_server_s) {
  Conversation c({"db-east", "db-west"}, {"alice", "app", false, {}}, greeting());
  static_cast<void>(c.heard());
  c.client(query("SET datestyle = 'german'"));
  const routing::ShardId shard = c.lease_any();
  c.shard(complete("SET") + status("DateStyle", "German, DMY") + ready());
  c.hears("C(SET) S(DateStyle) Z(I)").released();
  c.client(query("SELECT v FROM users WHERE id = " + c.key_on(1 - shard))).lease(1 - shard);
  c.sent("Q(SELECT pg_catalog.set_config('datestyle','German, DMY',false))");
}

}  // namespace
}  // namespace collegedb::session::testing
