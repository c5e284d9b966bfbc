#include "proxy/wire/scram.h"

#include <gtest/gtest.h>

#include "proxy/wire/digest.h"

namespace collegedb::wire {
namespace {

using namespace std::string_literals;

// RFC 7677, section 3. Its client names the user, which ours leaves to the StartupMessage.
constexpr std::string_view kRfcPassword = "pencil";
constexpr std::string_view kRfcSalt = "W22ZaJ0SNY7soEsUEjb6gQ==";
constexpr std::string_view kRfcClientNonce = "rOprNGfwEbeRWgbNEkqO";
constexpr std::string_view kRfcServerNonce = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
constexpr std::string_view kRfcClientFirst = "n,,n=user,r=rOprNGfwEbeRWgbNEkqO";
constexpr std::string_view kRfcServerFirst =
    "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";
constexpr std::string_view kRfcClientFinal =
    "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
    "p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
constexpr std::string_view kRfcServerFinal = "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=";

ScramVerifier rfc_verifier() {
  return ScramVerifier::from_password(kRfcPassword, *detail::base64_decode(kRfcSalt), 4096);
}
ScramServer rfc_server(bool mock = false) {
  return ScramServer(rfc_verifier(), std::string(kRfcServerNonce), mock);
}

TEST(Scram, Rfc7677AsServer) {
  auto server = rfc_server();
  EXPECT_EQ(server.first("SCRAM-SHA-256", kRfcClientFirst).value(), kRfcServerFirst);
  EXPECT_EQ(server.final(kRfcClientFinal).value(), kRfcServerFinal);
}

struct Outcome {
  bool server_accepts = false;
  bool client_accepts = false;
  std::string sqlstate;
};

Outcome exchange(ScramClient client, ScramServer server) {
  Outcome outcome;
  const auto server_first = server.first("SCRAM-SHA-256", client.first());
  if (!server_first) return {false, false, server_first.error().sqlstate};
  const auto client_final = client.final(*server_first);
  if (!client_final) return {false, false, client_final.error().sqlstate};
  const auto server_final = server.final(*client_final);
  if (!server_final) return {false, false, server_final.error().sqlstate};
  outcome.server_accepts = true;
  const auto verified = client.verify(*server_final);
  outcome.client_accepts = verified.has_value() && *verified;
  return outcome;
}

ScramClient client_with(std::string password) {
  return ScramClient(std::move(password), "Y2xpZW50IG5vbmNlIG9mIDI0");
}
ScramServer server_with(ScramVerifier verifier, bool mock = false) {
  return ScramServer(std::move(verifier), "c2VydmVyIG5vbmNlIG9mIDI0", mock);
}

TEST(Scram, ClientAgainstServer) {
  for (const auto& password : {"pencil"s, "p"s, "pass,word=p"s, "\xc3\xa9t\xc3\xa9"s, "\xff\xfe"s,
                               std::string(1000, 'x')}) {
    for (const int iterations : {1, 4096}) {
      const auto verifier = ScramVerifier::from_password(password, "0123456789abcdef", iterations);
      const auto outcome = exchange(client_with(password), server_with(verifier));
      EXPECT_TRUE(outcome.server_accepts) << password;
      EXPECT_TRUE(outcome.client_accepts) << password;
    }
  }
}

TEST(Scram, WrongPassword) {
  const auto outcome = exchange(client_with("pencil2"), server_with(rfc_verifier()));
  EXPECT_FALSE(outcome.server_accepts);
  EXPECT_EQ(outcome.sqlstate, "28P01");
}

TEST(Scram, MockNeverSucceeds) {
  // Even with the very password its keys were made of.
  EXPECT_EQ(exchange(client_with("pencil"), server_with(rfc_verifier(), true)).sqlstate, "28P01");
  EXPECT_EQ(
      exchange(client_with("x"), server_with(mock_verifier("nobody", "secret"), true)).sqlstate,
      "28P01");
}

TEST(Scram, MockVerifierIsSteadyAndSecret) {
  const auto mock = mock_verifier("nobody", "secret");
  EXPECT_EQ(mock.to_string(), mock_verifier("nobody", "secret").to_string());
  EXPECT_NE(mock.salt, mock_verifier("other", "secret").salt);
  EXPECT_NE(mock.salt, mock_verifier("nobody", "another").salt);
  EXPECT_EQ(mock.salt.size(), 16u) << "as long as PostgreSQL's";
  EXPECT_EQ(mock.iterations, ScramVerifier{}.iterations);
  EXPECT_EQ(mock.stored_key.size(), 32u);
  EXPECT_EQ(mock.server_key.size(), 32u);
}

struct FirstCase {
  const char* name;
  std::string mechanism;
  std::string message;
  std::string sqlstate;  // empty: accepted
};

TEST(ScramServer, ClientFirstMessages) {
  const std::string ok = "SCRAM-SHA-256";
  const FirstCase cases[] = {
      {"as libpq", ok, "n,,n=,r=abc", ""},
      {"flag y", ok, "y,,n=,r=abc", ""},
      {"an extension", ok, "n,,n=user,r=abc,x=1", ""},
      {"channel binding", ok, "p=tls-server-end-point,,n=,r=abc", "08P01"},
      {"PLUS", "SCRAM-SHA-256-PLUS", "n,,n=,r=abc", "08P01"},
      {"PLAIN", "PLAIN", "n,,n=,r=abc", "08P01"},
      {"no mechanism", "", "n,,n=,r=abc", "08P01"},
      {"unknown flag", ok, "z,,n=,r=abc", "08P01"},
      {"authzid", ok, "n,a=x,n=,r=abc", "0A000"},
      {"mandatory extension", ok, "n,,m=x,n=,r=abc", "0A000"},
      {"mandatory extension at the end", ok, "n,,n=,r=abc,m=x", "08P01"},
      {"empty", ok, "", "08P01"},
      {"flag alone", ok, "n", "08P01"},
      {"header alone", ok, "n,,", "08P01"},
      {"one comma", ok, "n,n=,r=abc", "08P01"},
      {"no nonce", ok, "n,,n=", "08P01"},
      {"empty nonce", ok, "n,,n=,r=", "08P01"},
      {"nonce first", ok, "n,,r=abc,n=", "08P01"},
      {"no equals sign", ok, "n,,n,r=abc", "08P01"},
      {"comma at the end", ok, "n,,n=,r=abc,", "08P01"},
      {"control character in the nonce", ok, "n,,n=,r=a\x01z", "08P01"},
      {"space in the nonce", ok, "n,,n=,r=a b", "08P01"},
      {"8-bit nonce", ok, "n,,n=,r=a\xff", "08P01"},
      {"NUL at the end", ok, "n,,n=,r=abc\0"s, "08P01"},
      {"greatest", ok, "n,,n=,r=" + std::string(1024 - 8, 'a'), ""},
      {"oversize", ok, "n,,n=,r=" + std::string(1024 - 7, 'a'), "28P01"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.name);
    auto server = rfc_server();
    const auto reply = server.first(c.mechanism, c.message);
    EXPECT_EQ(reply.has_value(), c.sqlstate.empty());
    if (reply.has_error()) {
      EXPECT_EQ(reply.error().sqlstate, c.sqlstate);
      EXPECT_EQ(reply.error().severity, "FATAL");
      EXPECT_TRUE(server.final(kRfcClientFinal).has_error()) << "no way past a refused message";
    }
  }
}

std::string replaced(std::string_view text, std::string_view what, std::string_view with) {
  std::string result(text);
  const std::size_t at = result.find(what);
  EXPECT_NE(at, std::string::npos);
  return result.replace(at, what.size(), with);
}

TEST(ScramServer, ClientFinalMessages) {
  const std::string_view good = kRfcClientFinal;
  const std::string_view nonce = kRfcServerFirst.substr(2, 50);
  const FirstCase cases[] = {
      {"another nonce", "", replaced(good, nonce, "rOprNGfwEbeRWgbNEkqOxxx"), "08P01"},
      {"one byte of the nonce", "", replaced(good, "%hv", "%hw"), "08P01"},
      {"the client's nonce alone", "", replaced(good, nonce, kRfcClientNonce), "08P01"},
      {"another gs2 header", "", replaced(good, "biws", "eSws"), "08P01"},
      {"channel binding data", "", replaced(good, "biws", "cD10bHMtdW5pcXVlLCw="), "08P01"},
      {"another proof", "", replaced(good, "dHzb", "dHzc"), "28P01"},
      {"short proof", "", replaced(good, "dHzb", ""), "08P01"},
      {"proof of 33 bytes", "", replaced(good, "VQ=", "VQAB"), "08P01"},
      {"proof is no base64", "", replaced(good, "dHzb", "d*zb"), "08P01"},
      {"empty proof", "", std::string(good.substr(0, good.find(",p=") + 3)), "08P01"},
      {"no proof", "", std::string(good.substr(0, good.find(",p="))), "08P01"},
      {"an extension the client did not sign", "", replaced(good, ",p=", ",x=1,p="), "28P01"},
      {"bytes after the proof", "", std::string(good) + ",x=1", "08P01"},
      {"two proofs", "", std::string(good) + ",p=abcd", "08P01"},
      {"nonce first", "", "r=abc,c=biws,p=abcd", "08P01"},
      {"empty", "", "", "08P01"},
      {"NUL at the end", "", std::string(good) + '\0', "08P01"},
      {"oversize", "", std::string(good) + "," + std::string(1024, 'x'), "28P01"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.name);
    auto server = rfc_server();
    ASSERT_TRUE(server.first("SCRAM-SHA-256", kRfcClientFirst).has_value());
    const auto reply = server.final(c.message);
    ASSERT_TRUE(reply.has_error());
    EXPECT_EQ(reply.error().sqlstate, c.sqlstate);
    EXPECT_EQ(reply.error().severity, "FATAL");
    EXPECT_TRUE(server.final(kRfcClientFinal).has_error()) << "one attempt per exchange";
  }
}

TEST(ScramServer, AnExtensionThatIsSignedIsAccepted) {
  const auto verifier = ScramVerifier::from_password("pw", "salt", 1);
  auto server = server_with(verifier);
  const std::string server_first = server.first("SCRAM-SHA-256", "y,,n=,r=abc,x=1").value();
  const std::string nonce = server_first.substr(2, server_first.find(',') - 2);
  const std::string without_proof = "c=eSws,r=" + nonce + ",z=ext";
  const std::string auth_message = "n=,r=abc,x=1," + server_first + "," + without_proof;
  const std::string client_key =
      detail::hmac_sha256(detail::pbkdf2_sha256("pw", "salt", 1), "Client Key");
  const std::string proof = detail::exclusive_or(
      client_key, detail::hmac_sha256(detail::sha256(client_key), auth_message));
  EXPECT_TRUE(server.final(without_proof + ",p=" + detail::base64_encode(proof)).has_value());
}

TEST(ScramServer, OneExchangePerObject) {
  auto server = rfc_server();
  EXPECT_TRUE(server.final(kRfcClientFinal).has_error()) << "final before first";
  ASSERT_TRUE(server.first("SCRAM-SHA-256", kRfcClientFirst).has_value());
  EXPECT_TRUE(server.first("SCRAM-SHA-256", kRfcClientFirst).has_error()) << "first twice";
  EXPECT_TRUE(server.final(kRfcClientFinal).has_value());
  EXPECT_TRUE(server.final(kRfcClientFinal).has_error()) << "replay";
}

TEST(ScramServer, ReplayInAnotherExchangeFails) {
  auto server = ScramServer(rfc_verifier(), "another nonce", false);
  ASSERT_TRUE(server.first("SCRAM-SHA-256", kRfcClientFirst).has_value());
  EXPECT_EQ(server.final(kRfcClientFinal).error().sqlstate, "08P01");
}

TEST(ScramClient, ServerFirstMessages) {
  const std::string rest = ",s=QSXCR+Q6sek8bf92,i=4096";
  const std::pair<const char*, std::string> cases[] = {
      {"another nonce", "r=zzzserver" + rest},
      {"our nonce alone", "r=client" + rest},
      {"shorter nonce", "r=clien" + rest},
      {"control character in the nonce", "r=client\x01" + rest},
      {"no salt", "r=clientserver,i=4096"},
      {"empty salt", "r=clientserver,s=,i=4096"},
      {"salt is no base64", "r=clientserver,s=***,i=4096"},
      {"no iterations", "r=clientserver,s=QSXCR+Q6sek8bf92"},
      {"no iteration", "r=clientserver,s=QSXCR+Q6sek8bf92,i=0"},
      {"negative iterations", "r=clientserver,s=QSXCR+Q6sek8bf92,i=-1"},
      {"iterations no number", "r=clientserver,s=QSXCR+Q6sek8bf92,i=4096x"},
      {"too many iterations", "r=clientserver,s=QSXCR+Q6sek8bf92,i=1000001"},
      {"iterations past an int", "r=clientserver,s=QSXCR+Q6sek8bf92,i=99999999999"},
      {"mandatory extension", "r=clientserver" + rest + ",m=x"},
      {"mandatory extension first", "m=x,r=clientserver" + rest},
      {"error", "e=unknown-user"},
      {"empty", ""},
      {"NUL", "r=clientserver" + rest + '\0'},
      {"oversize nonce", "r=client" + std::string(1024, 'x') + rest},
  };
  for (const auto& [name, message] : cases) {
    SCOPED_TRACE(name);
    ScramClient client("pw", "client");
    EXPECT_TRUE(client.final("r=clientserver" + rest).has_error()) << "final before first";
    client.first();
    const auto reply = client.final(message);
    ASSERT_TRUE(reply.has_error());
    EXPECT_EQ(reply.error().sqlstate, "08P01");
    EXPECT_TRUE(client.verify(kRfcServerFinal).has_error()) << "nothing to verify against";
  }
}

TEST(ScramClient, VerifiesTheServer) {
  const auto verifier = ScramVerifier::from_password("pw", "salt", 1);
  auto server = server_with(verifier);
  auto client = client_with("pw");
  const auto final = client.final(server.first("SCRAM-SHA-256", client.first()).value());
  const std::string good = server.final(*final).value();
  EXPECT_TRUE(client.verify(good).value());
  EXPECT_TRUE(client.verify(good + ",x=1").value());
  const std::pair<std::string, const char*> cases[] = {
      {"", "08P01"},
      {"v=", "08P01"},
      {good + ",m=x", "08P01"},
      {good + '\0', "08P01"},
      {good.substr(0, good.size() - 4), "08P01"},
      {good + "," + std::string(1024, 'x'), "08P01"},
      {"v=" + detail::base64_encode(std::string(32, '\0')), "28P01"},
      {"e=invalid-proof", "28P01"},
  };
  for (const auto& [message, sqlstate] : cases) {
    const auto verified = client.verify(message);
    ASSERT_TRUE(verified.has_error()) << message;
    EXPECT_EQ(verified.error().sqlstate, sqlstate) << message;
  }
}

TEST(ScramVerifier, TextForm) {
  const auto verifier = rfc_verifier();
  const std::string text = verifier.to_string();
  // As PostgreSQL stores it for this password, salt and count.
  EXPECT_EQ(text,
            "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$"
            "WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:"
            "wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=");
  const auto parsed = ScramVerifier::parse(text);
  ASSERT_TRUE(parsed.has_value());
  EXPECT_EQ(parsed->to_string(), text);
  EXPECT_EQ(parsed->iterations, 4096);
  EXPECT_EQ(parsed->salt, verifier.salt);
}

TEST(ScramVerifier, RefusesOtherTexts) {
  const std::string text = rfc_verifier().to_string();
  for (const auto& bad :
       {""s, "md5d41d8cd98f00b204e9800998ecf8427e"s, "password"s, replaced(text, "256", "1"),
        replaced(text, "4096", "0"), replaced(text, "4096", "-1"), replaced(text, "4096", ""),
        replaced(text, "4096", "99999999999"), replaced(text, "W22ZaJ0SNY7soEsUEjb6gQ==", ""),
        replaced(text, "W22Z", "W2*Z"), replaced(text, "WG5d", ""), replaced(text, "wfPL", ""),
        text + "A", text + ":", text.substr(0, text.rfind(':')), text.substr(0, text.rfind('$'))}) {
    EXPECT_EQ(ScramVerifier::parse(bad).has_value(), false) << bad;
  }
}

TEST(Md5, AsPgAuthidStoresIt) {
  // SELECT 'md5' || md5('secret' || 'alice')
  const std::string stored = md5_password_hash("secret", "alice");
  EXPECT_EQ(stored, "md5" + detail::md5_hex("secretalice"));
  EXPECT_EQ(md5_response(stored, "salt"), "md5" + detail::md5_hex(stored.substr(3) + "salt"));
  EXPECT_EQ(md5_response("", "salt"), "");
  EXPECT_EQ(md5_response("plain text password", "salt"), "");
}

TEST(EqualConstantTime, ComparesSizeAndBytes) {
  EXPECT_TRUE(equal_constant_time("abc", "abc"));
  EXPECT_TRUE(equal_constant_time("", ""));
  EXPECT_FALSE(equal_constant_time("abc", "abd"));
  EXPECT_FALSE(equal_constant_time("abc", "abcd"));
  EXPECT_FALSE(equal_constant_time("abc", ""));
}

}  // namespace
}  // namespace collegedb::wire
