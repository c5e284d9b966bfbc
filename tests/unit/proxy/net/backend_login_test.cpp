#include "proxy/net/backend_login.h"

#include <gtest/gtest.h>

#include <string>

#include "proxy/wire/frontend.h"

namespace collegedb::net {
namespace {

using Step = BackendLogin::Step;

Target target() {
  Target value;
  value.user = "app";
  value.database = "shop";
  value.options = "-c geqo=off";
  return value;
}

// Feeds every message in `bytes`; the step after the last one.
Step feed(BackendLogin& login, std::string_view bytes) {
  Step step = Step::kContinue;
  while (!bytes.empty() && step == Step::kContinue) {
    const auto split = wire::split(bytes, wire::Direction::kBackend);
    EXPECT_EQ(split.status, wire::SplitResult::Status::kFrame);
    if (split.status != wire::SplitResult::Status::kFrame) return Step::kFailed;
    step = login.on_frame(split.frame);
    bytes.remove_prefix(split.frame.raw.size());
  }
  return step;
}

std::string authentication(wire::AuthenticationKind kind, std::string_view data = {}) {
  std::string bytes;
  wire::Authentication message{.kind = kind, .data = data, .mechanisms = {}};
  if (kind == wire::AuthenticationKind::kSasl) {
    message.mechanisms = {"SCRAM-SHA-256-PLUS", "SCRAM-SHA-256"};
  }
  message.encode(bytes);
  return bytes;
}

std::string end_of_login() {
  std::string bytes;
  wire::ParameterStatus{.name = "server_version", .value = "15.18"}.encode(bytes);
  wire::BackendKeyData{.pid = 99, .secret = "kkkk"}.encode(bytes);
  wire::ReadyForQuery{}.encode(bytes);
  return bytes;
}

TEST(BackendLogin, TrustCollectsWhatTheServerReports) {
  BackendLogin login(target(), "", "nonce");
  EXPECT_NE(login.out().find("shop"), std::string::npos);
  EXPECT_NE(login.out().find("-c geqo=off"), std::string::npos);
  EXPECT_NE(login.out().find("UTF8"), std::string::npos);
  std::string notice;
  wire::encode_notice(notice, make_error("00000", "welcome"));
  EXPECT_EQ(
      feed(login, notice + authentication(wire::AuthenticationKind::kOk) + notice + end_of_login()),
      Step::kReady);
  EXPECT_EQ(login.pid(), 99);
  EXPECT_EQ(login.secret(), "kkkk");
  ASSERT_EQ(login.parameters().size(), 1U);
  EXPECT_EQ(login.parameters()[0].second, "15.18");
}

TEST(BackendLogin, CleartextAndMd5) {
  BackendLogin clear(target(), "pw", "nonce");
  clear.out().clear();
  feed(clear, authentication(wire::AuthenticationKind::kCleartextPassword));
  std::string expected;
  wire::PasswordMessage{"pw"}.encode(expected);
  EXPECT_EQ(clear.out(), expected);
  BackendLogin md5(target(), "pw", "nonce");
  md5.out().clear();
  feed(md5, authentication(wire::AuthenticationKind::kMd5Password, "salt"));
  expected.clear();
  const std::string response = wire::md5_response(wire::md5_password_hash("pw", "app"), "salt");
  wire::PasswordMessage{response}.encode(expected);
  EXPECT_EQ(md5.out(), expected);
}

struct ScramExchange {
  BackendLogin login{target(), "pw", "AAAAAAAAAAAAAAAAAAAAAAAA"};
  wire::ScramServer server{wire::ScramVerifier::from_password("pw", "0123456789abcdef", 4096),
                           "BBBBBBBBBBBBBBBBBBBBBBBB", false};

  // Up to the client's final message; returns the server's final data.
  std::string run() {
    login.out().clear();
    feed(login, authentication(wire::AuthenticationKind::kSasl));
    const auto first_frame = wire::split(login.out(), wire::Direction::kFrontend);
    const auto initial = wire::SaslInitialResponse::decode(first_frame.frame.payload);
    EXPECT_TRUE(initial);
    const auto first = server.first(initial->mechanism, *initial->data);
    EXPECT_TRUE(first);
    login.out().clear();
    feed(login, authentication(wire::AuthenticationKind::kSaslContinue, *first));
    const auto final_frame = wire::split(login.out(), wire::Direction::kFrontend);
    const auto last = server.final(final_frame.frame.payload);
    EXPECT_TRUE(last);
    return last ? *last : std::string{};
  }
};

TEST(BackendLogin, Scram) {
  ScramExchange exchange;
  const std::string last = exchange.run();
  EXPECT_EQ(
      feed(exchange.login, authentication(wire::AuthenticationKind::kSaslFinal, last) +
                               authentication(wire::AuthenticationKind::kOk) + end_of_login()),
      Step::kReady);
}

TEST(BackendLogin, AServerThatCannotProveItselfIsRefused) {
  ScramExchange skipped;
  skipped.run();
  EXPECT_EQ(feed(skipped.login, authentication(wire::AuthenticationKind::kOk)), Step::kFailed);
  ScramExchange forged;
  forged.run();
  EXPECT_EQ(feed(forged.login, authentication(wire::AuthenticationKind::kSaslFinal,
                                              "v=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=")),
            Step::kFailed);
}

TEST(BackendLogin, ServersErrorIsKept) {
  BackendLogin login(target(), "", "nonce");
  std::string bytes;
  SqlError error = make_error("57P03", "the database system is starting up");
  error.severity = "FATAL";
  wire::encode_error(bytes, error);
  EXPECT_EQ(feed(login, bytes), Step::kFailed);
  EXPECT_EQ(login.error().sqlstate, "57P03");
  EXPECT_EQ(login.error().message, "the database system is starting up");
}

TEST(BackendLogin, HostileServers) {
  struct Case {
    std::string name, bytes;
  };
  std::string ready, row, twice;
  wire::ReadyForQuery{}.encode(ready);
  wire::DataRow{.values = {}}.encode(row);
  twice = authentication(wire::AuthenticationKind::kOk) +
          authentication(wire::AuthenticationKind::kCleartextPassword);
  std::string in_transaction = authentication(wire::AuthenticationKind::kOk);
  wire::ReadyForQuery{.status = wire::TransactionStatus::kInTransaction}.encode(in_transaction);
  std::string endless = authentication(wire::AuthenticationKind::kOk);
  for (int i = 0; i < 300; ++i) {
    const std::string name = "p" + std::to_string(i);
    wire::ParameterStatus{.name = name, .value = "v"}.encode(endless);
  }
  const std::vector<Case> cases = {
      {"ready before authentication", ready},
      {"row during login", row},
      {"authentication twice", twice},
      {"not idle", in_transaction},
      {"endless parameters", endless},
      {"gss", authentication(wire::AuthenticationKind::kGss)},
      {"sasl final first", authentication(wire::AuthenticationKind::kSaslFinal, "v=x")},
  };
  for (const Case& one : cases) {
    BackendLogin login(target(), "pw", "nonce");
    EXPECT_EQ(feed(login, one.bytes), Step::kFailed) << one.name;
    EXPECT_FALSE(login.error().message.empty()) << one.name;
  }
}

TEST(BackendLogin, NoPasswordConfigured) {
  BackendLogin login(target(), "", "nonce");
  EXPECT_EQ(feed(login, authentication(wire::AuthenticationKind::kSasl)), Step::kFailed);
  EXPECT_EQ(login.error().sqlstate, "28P01");
}

}  // namespace
}  // namespace collegedb::net
