#include "proxy/wire/startup.h"

#include <gtest/gtest.h>

#include "tests/support/exact_buffer.h"
#include "tests/support/startup_cases.h"

namespace collegedb::wire {
namespace {

using test::ExactBuffer;
using test::i32;
using test::i8;
using test::startup;
using test::untyped;
using test::with_options;
using test::z;
using Parameters = std::vector<std::pair<std::string, std::string>>;
using namespace std::string_literals;

std::string outcome_of(const StartupPacket& packet) {
  struct Name {
    std::string operator()(const NeedMore&) { return std::string(test::kNeedsMore); }
    std::string operator()(const StartupMessage&) { return std::string(test::kStartup); }
    std::string operator()(const SslRequest&) { return std::string(test::kSsl); }
    std::string operator()(const GssEncRequest&) { return std::string(test::kGss); }
    std::string operator()(const CancelRequest&) { return std::string(test::kCancel); }
    std::string operator()(const BadPacket& bad) {
      return bad.silent ? std::string(test::kSilent) : bad.error.sqlstate;
    }
  };
  return std::visit(Name{}, packet);
}

StartupMessage message_of(const std::string& bytes) {
  const auto decoded = decode_startup(bytes);
  const auto* message = std::get_if<StartupMessage>(&decoded.packet);
  EXPECT_NE(message, nullptr) << outcome_of(decoded.packet);
  return message == nullptr ? StartupMessage{} : *message;
}

SqlError error_of(const std::string& bytes) {
  const auto decoded = decode_startup(bytes);
  const auto* bad = std::get_if<BadPacket>(&decoded.packet);
  EXPECT_NE(bad, nullptr) << outcome_of(decoded.packet);
  return bad == nullptr ? SqlError{} : bad->error;
}

TEST(DecodeStartup, Outcomes) {
  for (const auto& c : test::startup_cases()) {
    SCOPED_TRACE(c.name);
    const ExactBuffer buffer(c.bytes);
    const auto decoded = decode_startup(buffer.view());
    EXPECT_EQ(outcome_of(decoded.packet), c.outcome);
    if (const auto* bad = std::get_if<BadPacket>(&decoded.packet); bad && !bad->silent) {
      EXPECT_EQ(bad->error.severity, "FATAL");
    }
    if (c.outcome == test::kStartup) EXPECT_EQ(decoded.consumed, c.bytes.size());
  }
}

TEST(DecodeStartup, CutAnywhereNeedsMore) {
  for (const auto& c : test::startup_cases()) {
    if (c.outcome == test::kSilent || c.outcome == test::kNeedsMore) continue;
    for (std::size_t size = 0; size < c.bytes.size(); ++size) {
      const ExactBuffer cut(std::string_view(c.bytes).substr(0, size));
      const auto decoded = decode_startup(cut.view());
      EXPECT_TRUE(std::holds_alternative<NeedMore>(decoded.packet))
          << c.name << ", cut to " << size;
      EXPECT_EQ(decoded.consumed, 0u);
    }
  }
}

TEST(DecodeStartup, BytesBehindThePacketAreLeft) {
  const auto decoded = decode_startup(untyped(i32(kSslRequestCode)) + "more");
  EXPECT_TRUE(std::holds_alternative<SslRequest>(decoded.packet));
  EXPECT_EQ(decoded.consumed, 8u);
}

TEST(DecodeStartup, GreatestPacket) {
  const std::string before = z("user") + z("u") + z("a");
  const auto packet = [&](std::size_t size) {
    return startup(before + z(std::string(size - 4 - 4 - before.size() - 2, 'x')) + i8(0));
  };
  ASSERT_EQ(packet(10'004).size(), 10'004u);
  EXPECT_EQ(message_of(packet(10'004)).parameters.size(), 1u);
  EXPECT_EQ(outcome_of(decode_startup(packet(10'005)).packet), test::kSilent);
}

TEST(DecodeStartup, UserAndDatabase) {
  const auto alone = message_of(startup(z("user") + z("u") + i8(0)));
  EXPECT_EQ(alone.user, "u");
  EXPECT_EQ(alone.database, "u");
  const auto empty = message_of(startup(z("user") + z("u") + z("database") + z("") + i8(0)));
  EXPECT_EQ(empty.database, "u");
  const auto both = message_of(startup(z("database") + z("d") + z("user") + z("u") + i8(0)));
  EXPECT_EQ(both.user, "u");
  EXPECT_EQ(both.database, "d");
  EXPECT_TRUE(both.parameters.empty()) << "neither is a GUC";
}

TEST(DecodeStartup, LongNamesAreTruncated) {
  const std::string name(70, 'n');
  const auto message = message_of(startup(z("user") + z(name) + i8(0)));
  EXPECT_EQ(message.user, std::string(63, 'n'));
  EXPECT_EQ(message.database, std::string(63, 'n'));
}

TEST(DecodeStartup, LastOfAKeyWins) {
  const auto message = message_of(startup(z("user") + z("first") + z("a") + z("1") + z("user") +
                                          z("second") + z("b") + z("2") + z("A") + z("3") + i8(0)));
  EXPECT_EQ(message.user, "second");
  EXPECT_EQ(message.parameters, (Parameters{{"b", "2"}, {"A", "3"}}));
}

TEST(DecodeStartup, ManyParameters) {
  std::string pairs = z("user") + z("u");
  for (int i = 0; i < 2000; ++i) pairs += z("a") + z(std::to_string(i % 10));
  EXPECT_EQ(message_of(startup(pairs + i8(0))).parameters, (Parameters{{"a", "9"}}));
}

TEST(DecodeStartup, ProtocolExtensionsAreNoGucs) {
  const auto message = message_of(
      startup(z("user") + z("u") + z("_pq_.foo") + z("1") + z("_pq_.bar") + z("") + i8(0)));
  EXPECT_EQ(message.protocol_extensions, (std::vector<std::string>{"_pq_.foo", "_pq_.bar"}));
  EXPECT_TRUE(message.parameters.empty());
}

struct OptionsCase {
  const char* options;
  Parameters parameters;
};

TEST(DecodeStartup, OptionsAreSplit) {
  const OptionsCase cases[] = {
      {"", {}},
      {"   ", {}},
      {"-c a=1", {{"a", "1"}}},
      {"-ca=1", {{"a", "1"}}},
      {"--a=1", {{"a", "1"}}},
      {"--work-mem=5MB", {{"work_mem", "5MB"}}},
      {"-c work-mem=5MB", {{"work_mem", "5MB"}}},
      {" -c\ta=1\n--b=2 ", {{"a", "1"}, {"b", "2"}}},
      {"-c a=", {{"a", ""}}},
      {"-c a=b=c", {{"a", "b=c"}}},
      {"-c a=x\\ y", {{"a", "x y"}}},
      {"-c a=x\\\\y", {{"a", "x\\y"}}},
      {"-c a=x\\y", {{"a", "xy"}}},
      {"-c a=x\\", {{"a", "x"}}},
      {"-c a=1 -c A=2", {{"A", "2"}}},
      {"-c search_path=a,\\ b", {{"search_path", "a, b"}}},
      {"-c collegedb.key=user-1", {{"collegedb.key", "user-1"}}},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.options);
    EXPECT_EQ(message_of(with_options(c.options)).parameters, c.parameters);
  }
}

TEST(DecodeStartup, GucsByNameOverrideOptions) {
  const auto message = message_of(startup(z("user") + z("u") + z("a") + z("name") + z("options") +
                                          z("-c a=option -c b=option") + i8(0)));
  EXPECT_EQ(message.parameters, (Parameters{{"b", "option"}, {"a", "name"}}));
}

TEST(DecodeStartup, ReplicationIsNormalised) {
  const std::pair<const char*, const char*> cases[] = {
      {"true", "true"},        {"1", "true"},      {"on", "true"},  {"Y", "true"},
      {"t", "true"},           {"off", "false"},   {"0", "false"},  {"of", "false"},
      {"n", "false"},          {"FALSE", "false"}, {"yes", "true"}, {"fal", "false"},
      {"database", "database"}};
  for (const auto& [value, normal] : cases) {
    SCOPED_TRACE(value);
    const auto message =
        message_of(startup(z("user") + z("u") + z("replication") + z(value) + i8(0)));
    EXPECT_EQ(message.parameters, (Parameters{{"replication", normal}}));
  }
}

TEST(DecodeStartup, ErrorsInPostgresqlsWords) {
  const std::string user = z("user") + z("u");
  const std::pair<std::string, const char*> cases[] = {
      {startup(user), "invalid startup packet layout: expected terminator as last byte"},
      {startup(i8(0)), "no PostgreSQL user name specified in startup packet"},
      {startup(user + i8(0), 4 << 16),
       "unsupported frontend protocol 4.0: server supports 3.0 to 3.0"},
      {with_options("-x"), "invalid command-line argument for server process: -x"},
      {with_options("-c x"), "-c x requires a value"},
      {with_options("--x"), "--x requires a value"},
      {with_options("-c =x"), "unrecognized configuration parameter \"\""},
      {startup(user + z("replication") + z("zz") + i8(0)),
       "invalid value for parameter \"replication\": \"zz\""},
  };
  for (const auto& [bytes, text] : cases) EXPECT_EQ(error_of(bytes).message, text);
}

TEST(DecodeStartup, CancelRequest) {
  const auto decoded = decode_startup(untyped(i32(kCancelRequestCode) + i32(-7) + "\0\1\2\3"s));
  const auto* cancel = std::get_if<CancelRequest>(&decoded.packet);
  ASSERT_NE(cancel, nullptr);
  EXPECT_EQ(cancel->pid, -7);
  EXPECT_EQ(cancel->secret, "\0\1\2\3"s);
}

TEST(EncodeBadPacket, OldProtocolGetsAnOldError) {
  const auto answer = [](const std::string& bytes) {
    const auto decoded = decode_startup(bytes);
    std::string out;
    encode_bad_packet(out, std::get<BadPacket>(decoded.packet));
    return out;
  };
  const std::string pairs = z("user") + z("u") + i8(0);
  EXPECT_EQ(answer(startup(pairs, 2 << 16)),
            z("EFATAL:  unsupported frontend protocol 2.0: server supports 3.0 to 3.0\n"));
  EXPECT_EQ(answer(i32(7)), "");
  const std::string text = "unsupported frontend protocol 4.0: server supports 3.0 to 3.0";
  EXPECT_EQ(answer(startup(pairs, 4 << 16)),
            test::typed('E', "S" + z("FATAL") + "V" + z("FATAL") + "C" + z("0A000") + "M" +
                                 z(text) + i8(0)));
}

TEST(UnsupportedProtocol, NamesTheCode) {
  EXPECT_EQ(unsupported_protocol(kSslRequestCode).message,
            "unsupported frontend protocol 1234.5679: server supports 3.0 to 3.0");
  EXPECT_EQ(unsupported_protocol(-1).message,
            "unsupported frontend protocol 65535.65535: server supports 3.0 to 3.0");
}

TEST(Negotiation, NewerMinorOrExtensions) {
  StartupMessage message;
  EXPECT_FALSE(needs_negotiation(message));
  message.protocol = kProtocol32;
  EXPECT_TRUE(needs_negotiation(message));
  std::string out;
  encode_negotiate_protocol_version(out, message);
  EXPECT_EQ(out, test::typed('v', i32(196608) + i32(0)));

  message.protocol = kProtocol30;
  message.protocol_extensions = {"_pq_.foo", "_pq_.bar"};
  EXPECT_TRUE(needs_negotiation(message));
  out.clear();
  encode_negotiate_protocol_version(out, message);
  EXPECT_EQ(out, test::typed('v', i32(196608) + i32(2) + z("_pq_.foo") + z("_pq_.bar")));
}

TEST(EncodeStartup, RoundTrip) {
  std::string out;
  encode_startup(out, {{"user", "u"}, {"database", "d"}, {"application_name", ""}});
  EXPECT_EQ(out, startup(z("user") + z("u") + z("database") + z("d") + z("application_name") +
                         z("") + i8(0)));
  const auto message = message_of(out);
  EXPECT_EQ(message.user, "u");
  EXPECT_EQ(message.database, "d");
  EXPECT_EQ(message.parameters, (Parameters{{"application_name", ""}}));
}

TEST(EncodeRequests, Bytes) {
  std::string out;
  encode_ssl_request(out);
  encode_cancel_request(out, 7, "key4");
  EXPECT_EQ(out, untyped(i32(80877103)) + untyped(i32(80877102) + i32(7) + "key4"));
}

}  // namespace
}  // namespace collegedb::wire
