// Logins as byte conversations: what the client sends, what it must see, byte by byte as well.
#include "proxy/session/login.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "proxy/wire/backend.h"
#include "proxy/wire/bytes.h"
#include "proxy/wire/frame.h"
#include "proxy/wire/frontend.h"
#include "proxy/wire/scram.h"
#include "proxy/wire/startup.h"

namespace collegedb::session {
namespace {

using Pairs = std::vector<std::pair<std::string, std::string>>;

const ReportedParameters kReported = {
    {"application_name", "collegedb"},
    {"client_encoding", "UTF8"},
    {"DateStyle", "ISO, MDY"},
    {"is_superuser", "on"},
    {"server_version", "15.18"},
    {"session_authorization", "app"},
    {"TimeZone", "UTC"},
};

LoginConfig config_with(AuthMethod method) {
  LoginConfig config;
  config.databases = {"app", "app2"};
  config.method = method;
  config.admin_users = {"root"};
  config.users = {
      {.name = "ann", .secret = "secret", .admin = false},
      {.name = "vera",
       .secret = wire::ScramVerifier::from_password("secret", "0123456789abcdef", 4096).to_string(),
       .admin = true},
      {.name = "max", .secret = wire::md5_password_hash("secret", "max"), .admin = false},
      {.name = "nobody", .secret = "", .admin = false},
  };
  return config;
}

std::string startup(const Pairs& parameters) {
  std::string bytes;
  wire::encode_startup(bytes, parameters);
  return bytes;
}

std::string startup_of(const std::string& user, const std::string& database = "app") {
  return startup({{"user", user}, {"database", database}});
}

std::string ssl_request() {
  std::string bytes;
  wire::encode_ssl_request(bytes);
  return bytes;
}

std::string code_request(std::int32_t code) {
  std::string bytes;
  wire::Writer writer(bytes);
  writer.begin_untagged();
  writer.i32(code);
  writer.finish();
  return bytes;
}

std::string password(std::string_view text) {
  std::string bytes;
  wire::PasswordMessage{text}.encode(bytes);
  return bytes;
}

// One login and everything it said so far.
struct Conversation {
  explicit Conversation(AuthMethod method = AuthMethod::kTrust, LoginChannel channel = {})
      : Conversation(config_with(method), std::move(channel)) {}
  Conversation(LoginConfig settings, LoginChannel channel)
      : config(std::move(settings)), policy(config, "process secret"), login(policy, [&] {
          channel.nonce = "AAAAAAAAAAAAAAAAAAAAAAAA";
          channel.salt = "salt";
          return std::move(channel);
        }()) {}

  // Feeds `bytes` after what was left over; the reply is taken out of the login.
  LoginStep send(std::string_view bytes) {
    pending.append(bytes);
    const Login::Progress progress = login.on_bytes(pending);
    pending.erase(0, progress.consumed);
    reply = std::exchange(login.out(), {});
    return progress.step;
  }
  LoginStep send_by_byte(std::string_view bytes) {
    LoginStep step = LoginStep::kNeedMore;
    std::string all;
    for (const char byte : bytes) {
      step = send(std::string_view(&byte, 1));
      all += reply;
    }
    reply = all;
    return step;
  }
  // Tags of the messages in the last reply.
  [[nodiscard]] std::string tags() const {
    std::string result;
    std::string_view rest = reply;
    while (!rest.empty()) {
      const auto split = wire::split(rest, wire::Direction::kBackend);
      if (split.status != wire::SplitResult::Status::kFrame) return result + "?";
      result.push_back(split.frame.tag);
      rest.remove_prefix(split.frame.raw.size());
    }
    return result;
  }
  [[nodiscard]] std::string payload(char tag) const {
    std::string_view rest = reply;
    while (!rest.empty()) {
      const auto split = wire::split(rest, wire::Direction::kBackend);
      if (split.status != wire::SplitResult::Status::kFrame) break;
      if (split.frame.tag == tag) return std::string(split.frame.payload);
      rest.remove_prefix(split.frame.raw.size());
    }
    return {};
  }
  [[nodiscard]] SqlError error() const {
    auto decoded = wire::decode_error(payload('E'));
    return decoded ? *decoded : SqlError{};
  }
  [[nodiscard]] std::string sasl_data() const {
    const std::string bytes = payload('R');
    const auto message = wire::Authentication::decode(bytes);
    return message ? std::string(message->data) : std::string{};
  }

  LoginConfig config;
  LoginPolicy policy;
  Login login;
  std::string pending;
  std::string reply;
};

// The client's half of SCRAM; returns the last step.
LoginStep scram(Conversation& talk, const std::string& user, const std::string& secret) {
  talk.send(startup_of(user));
  wire::ScramClient client(secret, "clientnonceclientnonce12");
  std::string bytes;
  const std::string first = client.first();
  wire::SaslInitialResponse{.mechanism = "SCRAM-SHA-256", .data = first}.encode(bytes);
  if (talk.send(bytes) != LoginStep::kNeedMore) return LoginStep::kClose;
  const auto final_message = client.final(talk.sasl_data());
  EXPECT_TRUE(final_message);
  if (!final_message) return LoginStep::kClose;
  bytes.clear();
  wire::SaslResponse{*final_message}.encode(bytes);
  const LoginStep step = talk.send(bytes);
  if (step == LoginStep::kAuthenticated) {
    const auto verified = client.verify(talk.sasl_data());
    EXPECT_TRUE(verified && *verified);
  }
  return step;
}

// --- success ----------------------------------------------------------------------------------

TEST(Login, TrustNeedsNoUserEntry) {
  Conversation talk;
  EXPECT_EQ(talk.send(startup_of("anybody")), LoginStep::kAuthenticated);
  EXPECT_EQ(talk.login.identity().user, "anybody");
  EXPECT_EQ(talk.login.identity().database, "app");
  EXPECT_FALSE(talk.login.identity().is_admin);
}

TEST(Login, WorksOneByteAtATime) {
  Conversation talk(AuthMethod::kPassword);
  EXPECT_EQ(talk.send_by_byte(startup_of("ann")), LoginStep::kNeedMore);
  EXPECT_EQ(talk.tags(), "R");
  EXPECT_EQ(talk.send_by_byte(password("secret")), LoginStep::kAuthenticated);
}

TEST(Login, AuthenticationOkIsItsLastWord) {
  Conversation talk;
  ASSERT_EQ(talk.send(startup({{"user", "root"}, {"database", "app"}, {"datestyle", "german"}})),
            LoginStep::kAuthenticated);
  EXPECT_EQ(talk.tags(), "");
  const Greeting greeting = talk.login.greeting(kReported, 4711, "abcd");
  talk.reply = talk.login.out();
  EXPECT_EQ(talk.tags(), "R");
  EXPECT_EQ(greeting.pid, 4711);
  EXPECT_EQ(greeting.secret, "abcd");
  EXPECT_EQ(greeting.parameters, (ReportedParameters{{"application_name", ""},
                                                     {"client_encoding", "UTF8"},
                                                     {"DateStyle", "ISO, MDY"},
                                                     {"is_superuser", "on"},
                                                     {"server_version", "15.18"},
                                                     {"session_authorization", "root"},
                                                     {"TimeZone", "UTC"}}));
}

TEST(Login, AnOrdinaryUserIsNoSuperuser) {
  Conversation talk;
  ASSERT_EQ(talk.send(startup_of("ann")), LoginStep::kAuthenticated);
  const Greeting greeting = talk.login.greeting(kReported, 1, "abcd");
  EXPECT_EQ(greeting.parameters[3].second, "off");
}

TEST(Login, PasswordIsCheckedAgainstEachKindOfSecret) {
  for (const std::string user : {"ann", "vera", "max"}) {
    Conversation good(AuthMethod::kPassword);
    good.send(startup_of(user));
    EXPECT_EQ(good.send(password("secret")), LoginStep::kAuthenticated) << user;
    Conversation bad(AuthMethod::kPassword);
    bad.send(startup_of(user));
    EXPECT_EQ(bad.send(password("wrong")), LoginStep::kClose) << user;
    EXPECT_EQ(bad.error().sqlstate, "28P01") << user;
  }
}

TEST(Login, Md5WithPlainAndStoredHash) {
  for (const std::string user : {"ann", "max"}) {
    Conversation talk(AuthMethod::kMd5);
    talk.send(startup_of(user));
    const std::string salt = talk.sasl_data();
    EXPECT_EQ(salt, "salt");
    const std::string hash = wire::md5_password_hash("secret", user);
    EXPECT_EQ(talk.send(password(wire::md5_response(hash, salt))), LoginStep::kAuthenticated);
  }
}

TEST(Login, Md5MethodRunsScramForAStoredVerifier) {
  Conversation talk(AuthMethod::kMd5);
  EXPECT_EQ(scram(talk, "vera", "secret"), LoginStep::kAuthenticated);
}

TEST(Login, ScramWithPlainAndVerifierSecrets) {
  for (const std::string user : {"ann", "vera"}) {
    Conversation talk(AuthMethod::kScram);
    EXPECT_EQ(scram(talk, user, "secret"), LoginStep::kAuthenticated) << user;
    EXPECT_EQ(talk.login.identity().is_admin, user == "vera");
  }
}

TEST(Login, AliasIsADatabaseToo) {
  Conversation talk;
  EXPECT_EQ(talk.send(startup_of("ann", "app2")), LoginStep::kAuthenticated);
}

// --- refusals: same text for whatever is wrong with the credentials -----------------------------

TEST(Login, BadCredentialsLookTheSame) {
  struct Case {
    std::string user, secret;
  };
  const std::vector<Case> cases = {
      {"ann", "wrong"}, {"ghost", "secret"}, {"max", "secret"}, {"nobody", "x"}};
  std::string shape;
  for (const Case& one : cases) {
    Conversation talk(AuthMethod::kScram);
    EXPECT_EQ(scram(talk, one.user, one.secret), LoginStep::kClose) << one.user;
    EXPECT_EQ(talk.tags(), "E");
    EXPECT_EQ(talk.error().severity, "FATAL");
    EXPECT_EQ(talk.error().sqlstate, "28P01");
    EXPECT_EQ(talk.error().message, "password authentication failed for user \"" + one.user + "\"");
    EXPECT_TRUE(talk.login.authentication_failed());
  }
}

TEST(Login, SaltAndIterationsDoNotTellKnownFromUnknownAndAreStable) {
  const auto server_first = [](const std::string& user) {
    Conversation talk(AuthMethod::kScram);
    talk.send(startup_of(user));
    std::string bytes;
    wire::SaslInitialResponse{.mechanism = "SCRAM-SHA-256", .data = "n,,n=,r=abc"}.encode(bytes);
    talk.send(bytes);
    return talk.sasl_data();
  };
  EXPECT_EQ(server_first("ann"), server_first("ann"));
  EXPECT_EQ(server_first("ghost"), server_first("ghost"));
  EXPECT_NE(server_first("ghost"), server_first("spirit"));
  EXPECT_EQ(server_first("ann").size(), server_first("ghost").size());
}

TEST(Login, Md5OfUnknownUserFailsAfterTheSameExchange) {
  Conversation talk(AuthMethod::kMd5);
  EXPECT_EQ(talk.send(startup_of("ghost")), LoginStep::kNeedMore);
  EXPECT_EQ(talk.tags(), "R");
  const std::string hash = wire::md5_password_hash("secret", "ghost");
  EXPECT_EQ(talk.send(password(wire::md5_response(hash, "salt"))), LoginStep::kClose);
  EXPECT_EQ(talk.error().sqlstate, "28P01");
}

TEST(Login, EmptyPasswordIsRefused) {
  for (const auto method : {AuthMethod::kPassword, AuthMethod::kMd5}) {
    Conversation talk(method);
    talk.send(startup_of("nobody"));
    EXPECT_EQ(talk.send(password("")), LoginStep::kClose);
    EXPECT_EQ(talk.error().sqlstate, "28P01");
  }
}

TEST(Login, UnknownDatabaseIsNamedOnlyAfterAuthentication) {
  Conversation open;
  EXPECT_EQ(open.send(startup_of("ann", "nosuchdb")), LoginStep::kClose);
  EXPECT_EQ(open.error().sqlstate, "3D000");
  EXPECT_EQ(open.error().message, "database \"nosuchdb\" does not exist");
  Conversation guarded(AuthMethod::kPassword);
  EXPECT_EQ(guarded.send(startup_of("ann", "nosuchdb")), LoginStep::kNeedMore);
  EXPECT_EQ(guarded.send(password("wrong")), LoginStep::kClose);
  EXPECT_EQ(guarded.error().sqlstate, "28P01");
}

TEST(Login, AdministrationDatabasesAreNotServed) {
  for (const std::string name : {"collegedb", "pgbouncer"}) {
    Conversation talk;
    EXPECT_EQ(talk.send(startup_of("root", name)), LoginStep::kClose);
    EXPECT_EQ(talk.error().sqlstate, "3D000");
  }
}

TEST(Login, AboveTheClientLimit) {
  Conversation talk(AuthMethod::kTrust, {.refused = true});
  EXPECT_EQ(talk.send(startup_of("ann")), LoginStep::kClose);
  EXPECT_EQ(talk.error().sqlstate, "53300");
  EXPECT_EQ(talk.error().message, "sorry, too many clients already");
}

TEST(Login, ReplicationIsRefused) {
  Conversation talk;
  EXPECT_EQ(talk.send(startup({{"user", "ann"}, {"database", "app"}, {"replication", "true"}})),
            LoginStep::kClose);
  EXPECT_EQ(talk.error().sqlstate, "0A000");
}

// --- wrong messages -----------------------------------------------------------------------------

TEST(Login, NoStatementRunsBeforeAuthentication) {
  struct Case {
    AuthMethod method;
    std::string text;
  };
  for (const Case& one :
       {Case{AuthMethod::kScram, "expected SASL response, got message type 81"},
        Case{AuthMethod::kPassword, "expected password response, got message type 81"}}) {
    Conversation talk(one.method);
    std::string query;
    wire::Query{"select 1"}.encode(query);
    talk.send(startup_of("ann"));
    EXPECT_EQ(talk.send(query), LoginStep::kClose);
    EXPECT_EQ(talk.error().sqlstate, "08P01");
    EXPECT_EQ(talk.error().message, one.text);
    // And nothing after that is looked at.
    EXPECT_EQ(talk.send(password("secret")), LoginStep::kNeedMore);
    EXPECT_TRUE(talk.reply.empty());
  }
}

TEST(Login, BadSaslMessages) {
  struct Case {
    std::string name, mechanism, data;
  };
  const std::vector<Case> cases = {
      {"plain", "PLAIN", "x"},
      {"plus", "SCRAM-SHA-256-PLUS", "p=tls-server-end-point,,n=,r=abc"},
      {"malformed", "SCRAM-SHA-256", "n,,"},
      {"binding without offer", "SCRAM-SHA-256", "p=tls-server-end-point,,n=,r=abc"},
  };
  for (const Case& one : cases) {
    Conversation talk(AuthMethod::kScram);
    talk.send(startup_of("ann"));
    std::string bytes;
    wire::SaslInitialResponse{.mechanism = one.mechanism, .data = one.data}.encode(bytes);
    EXPECT_EQ(talk.send(bytes), LoginStep::kClose) << one.name;
    EXPECT_EQ(talk.tags(), "E") << one.name;
    EXPECT_EQ(talk.error().severity, "FATAL") << one.name;
  }
}

TEST(Login, OversizedMessagesAreRefusedFromTheHeaderAlone) {
  Conversation sasl(AuthMethod::kScram);
  sasl.send(startup_of("ann"));
  EXPECT_EQ(sasl.send(std::string("p\x00\x00\x04\x10", 5)), LoginStep::kClose);  // 1040 bytes
  EXPECT_EQ(sasl.error().sqlstate, "28P01");
  Conversation plain(AuthMethod::kPassword);
  plain.send(startup_of("ann"));
  EXPECT_EQ(plain.send(std::string("p\x00\x00\x20\x00", 5)), LoginStep::kNeedMore);  // 8 KiB token
  Conversation huge(AuthMethod::kPassword);
  huge.send(startup_of("ann"));
  EXPECT_EQ(huge.send(std::string("p\x40\x00\x00\x00", 5)), LoginStep::kClose);
  Conversation negative(AuthMethod::kPassword);
  negative.send(startup_of("ann"));
  EXPECT_EQ(negative.send("p\xff\xff\xff\xff"), LoginStep::kClose);
  EXPECT_EQ(negative.error().sqlstate, "08P01");
}

TEST(Login, StoredVerifierIsNoProof) {
  // Whoever has stolen the verifier still does not know the password.
  Conversation talk(AuthMethod::kScram);
  EXPECT_EQ(scram(talk, "vera", talk.config.users[1].secret), LoginStep::kClose);
}

// --- packets before StartupMessage
// ------------------------------------------------------------------

TEST(Login, SslRequestWithoutTlsIsAnsweredAndTheLoginGoesOn) {
  Conversation talk;
  EXPECT_EQ(talk.send(ssl_request()), LoginStep::kNeedMore);
  EXPECT_EQ(talk.reply, "N");
  EXPECT_EQ(talk.send(startup_of("ann")), LoginStep::kAuthenticated);
}

TEST(Login, GssThenSslThenStartup) {
  Conversation talk(AuthMethod::kTrust, {.tls_available = true});
  EXPECT_EQ(talk.send(code_request(wire::kGssEncRequestCode)), LoginStep::kNeedMore);
  EXPECT_EQ(talk.reply, "N");
  EXPECT_EQ(talk.send(ssl_request()), LoginStep::kStartTls);
  EXPECT_EQ(talk.reply, "S");
  EXPECT_EQ(talk.login.on_tls_started(false, std::nullopt), LoginStep::kNeedMore);
  EXPECT_TRUE(talk.login.over_tls());
  EXPECT_EQ(talk.send(startup_of("ann")), LoginStep::kAuthenticated);
}

TEST(Login, BytesAfterSslRequestAreRefused) {
  Conversation clear;
  EXPECT_EQ(clear.send(ssl_request() + startup_of("ann")), LoginStep::kClose);
  EXPECT_EQ(clear.reply.substr(0, 1), "N");
  clear.reply.erase(0, 1);
  EXPECT_EQ(clear.error().message, "received unencrypted data after SSL request");
  Conversation tls(AuthMethod::kTrust, {.tls_available = true});
  EXPECT_EQ(tls.send(ssl_request() + startup_of("ann")), LoginStep::kStartTls);
  EXPECT_EQ(tls.login.on_tls_started(true, std::nullopt), LoginStep::kClose);
  tls.reply = tls.login.out();
  EXPECT_EQ(tls.error().sqlstate, "08P01");
}

TEST(Login, NoSecondNegotiation) {
  Conversation talk(AuthMethod::kTrust, {.tls_available = true});
  talk.send(ssl_request());
  static_cast<void>(talk.login.on_tls_started(false, std::nullopt));
  EXPECT_EQ(talk.send(ssl_request()), LoginStep::kClose);
  EXPECT_EQ(talk.error().sqlstate, "0A000");
  Conversation gss(AuthMethod::kTrust, {.tls_available = true});
  gss.send(ssl_request());
  static_cast<void>(gss.login.on_tls_started(false, std::nullopt));
  EXPECT_EQ(gss.send(code_request(wire::kGssEncRequestCode)), LoginStep::kClose);
}

TEST(Login, RequiredTls) {
  LoginConfig config = config_with(AuthMethod::kTrust);
  config.tls_mode = TlsMode::kRequire;
  Conversation clear(config, {.tls_available = true});
  EXPECT_EQ(clear.send(startup_of("ann")), LoginStep::kClose);
  EXPECT_EQ(clear.error().sqlstate, "28000");
  Conversation local(config, {.local = true});
  EXPECT_EQ(local.send(startup_of("ann")), LoginStep::kAuthenticated);
  Conversation tls(config, {.tls_available = true});
  tls.send(ssl_request());
  static_cast<void>(tls.login.on_tls_started(false, std::nullopt));
  EXPECT_EQ(tls.send(startup_of("ann")), LoginStep::kAuthenticated);
}

TEST(Login, CertificateNameMustBeTheUserExactly) {
  const auto attempt = [](std::optional<std::string> name) {
    Conversation talk(AuthMethod::kCert, {.tls_available = true});
    talk.send(ssl_request());
    static_cast<void>(talk.login.on_tls_started(false, std::move(name)));
    const LoginStep step = talk.send(startup_of("ann"));
    if (step == LoginStep::kClose) {
      EXPECT_EQ(talk.error().sqlstate, "28000");
    }
    return step;
  };
  EXPECT_EQ(attempt("ann"), LoginStep::kAuthenticated);
  EXPECT_EQ(attempt("Ann"), LoginStep::kClose);
  EXPECT_EQ(attempt("ann2"), LoginStep::kClose);
  EXPECT_EQ(attempt(std::nullopt), LoginStep::kClose);
}

TEST(Login, CancelRequest) {
  std::string bytes;
  wire::encode_cancel_request(bytes, 77, "wxyz");
  Conversation talk(AuthMethod::kScram, {.refused = true});
  EXPECT_EQ(talk.send(bytes), LoginStep::kCancel);
  EXPECT_EQ(talk.login.cancel().pid, 77);
  EXPECT_EQ(talk.login.cancel().secret, "wxyz");
  EXPECT_TRUE(talk.reply.empty());
}

TEST(Login, NewerMinorAndUnknownOptionsAreNegotiatedDownFirst) {
  std::string bytes;
  wire::Writer writer(bytes);
  writer.begin_untagged();
  writer.i32((3 << 16) | 9999);
  for (const std::string_view text : {"user", "ann", "database", "app", "_pq_.test", "1"}) {
    writer.cstring(text);
  }
  writer.u8(0);
  writer.finish();
  Conversation talk(AuthMethod::kPassword);
  EXPECT_EQ(talk.send(bytes), LoginStep::kNeedMore);
  EXPECT_EQ(talk.tags(), "vR");
  for (const auto& [name, value] : talk.login.identity().parameters) {
    EXPECT_FALSE(name.starts_with("_pq_.")) << name;
  }
}

TEST(Login, Protocol2GetsTheOldErrorForm) {
  std::string bytes;
  wire::Writer writer(bytes);
  writer.begin_untagged();
  writer.i32(2 << 16);
  writer.bytes(std::string(288, '\0'));
  writer.finish();
  Conversation talk;
  EXPECT_EQ(talk.send(bytes), LoginStep::kClose);
  EXPECT_EQ(talk.reply.substr(0, 8), "EFATAL: ");
  EXPECT_EQ(talk.reply.back(), '\0');
}

TEST(Login, GarbageIsClosedWithoutAWord) {
  for (const std::string bytes :
       {std::string("GET / HTTP/1.1\r\n\r\n"), std::string("\0\0\0\x04", 4),
        std::string("\xff\xff\xff\xff", 4), std::string("\x7f\xff\xff\xff", 4)}) {
    Conversation talk;
    EXPECT_EQ(talk.send(bytes), LoginStep::kClose);
    EXPECT_TRUE(talk.reply.empty());
    EXPECT_FALSE(talk.login.error());
  }
}

TEST(Login, FailureAfterAuthenticationIsFatal) {
  Conversation talk;
  ASSERT_EQ(talk.send(startup_of("ann")), LoginStep::kAuthenticated);
  talk.login.fail(make_error("08006", "no shard"));
  talk.reply = talk.login.out();
  EXPECT_EQ(talk.tags(), "E");
  EXPECT_EQ(talk.error().severity, "FATAL");
}

}  // namespace
}  // namespace collegedb::session
