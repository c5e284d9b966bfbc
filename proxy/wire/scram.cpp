#include "proxy/wire/scram.h"

#include <openssl/crypto.h>

#include <charconv>
#include <utility>

#include "proxy/wire/digest.h"
#include "proxy/wire/scram_attributes.h"

namespace collegedb::wire {

using detail::base64_decode;
using detail::base64_encode;
using detail::exclusive_or;
using detail::hmac_sha256;
using detail::ScramAttributes;
using detail::sha256;

namespace {

constexpr std::string_view kVerifierPrefix = "SCRAM-SHA-256$";
constexpr std::string_view kClientGs2Header = "n,,";

SqlError malformed(std::string_view detail) {
  return make_fatal("08P01", "malformed SCRAM message", {}, detail);
}

// The caller puts the user's name into the text.
SqlError authentication_failed() {
  return make_fatal("28P01", "password authentication failed");
}

std::optional<int> parse_iterations(std::string_view text) {
  int value = 0;
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (fault != std::errc{} || end != text.data() + text.size() || value < 1) return std::nullopt;
  return value;
}

// Splits `text` at the first `mark`; what stands before it is returned and removed with the mark.
std::optional<std::string_view> cut(std::string_view& text, char mark) {
  const std::size_t at = text.find(mark);
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view head = text.substr(0, at);
  text.remove_prefix(at + 1);
  return head;
}

std::optional<std::string> parse_key(std::string_view text) {
  auto key = base64_decode(text);
  if (!key || key->size() != detail::kSha256Size) return std::nullopt;
  return key;
}

// Limits and bytes that no SCRAM message may break.
std::optional<SqlError> refuse(std::string_view message) {
  if (message.empty()) return malformed("The message is empty.");
  if (message.find('\0') != std::string_view::npos) {
    return malformed("Message length does not match input length.");
  }
  return std::nullopt;
}

}  // namespace

// verifier = "SCRAM-SHA-256$" iterations ":" salt "$" stored_key ":" server_key
std::optional<ScramVerifier> ScramVerifier::parse(std::string_view text) {
  if (!text.starts_with(kVerifierPrefix)) return std::nullopt;
  text.remove_prefix(kVerifierPrefix.size());
  const auto iterations_text = cut(text, ':');
  const auto salt_text = cut(text, '$');
  const auto stored_key_text = cut(text, ':');
  if (!iterations_text || !salt_text || !stored_key_text) return std::nullopt;
  const auto iterations = parse_iterations(*iterations_text);
  auto salt = base64_decode(*salt_text);
  auto stored_key = parse_key(*stored_key_text);
  auto server_key = parse_key(text);
  if (!iterations || !salt || salt->empty() || !stored_key || !server_key) return std::nullopt;
  return ScramVerifier{*iterations, std::move(*salt), std::move(*stored_key),
                       std::move(*server_key)};
}

ScramVerifier ScramVerifier::from_password(std::string_view password, std::string_view salt,
                                           int iterations) {
  const std::string salted = detail::pbkdf2_sha256(password, salt, iterations);
  return ScramVerifier{iterations, std::string(salt), sha256(hmac_sha256(salted, "Client Key")),
                       hmac_sha256(salted, "Server Key")};
}

std::string ScramVerifier::to_string() const {
  std::string text(kVerifierPrefix);
  text.append(std::to_string(iterations)).append(":").append(base64_encode(salt));
  text.append("$").append(base64_encode(stored_key));
  text.append(":").append(base64_encode(server_key));
  return text;
}

ScramServer::ScramServer(ScramVerifier verifier, std::string nonce, bool mock)
    : verifier_(std::move(verifier)), nonce_(std::move(nonce)), mock_(mock) {}

// client-first-message = gs2-header client-first-message-bare
//   gs2-header = ( "n" | "y" ) "," [ "a=" authzid ] ","
//   client-first-message-bare = "n=" user "," "r=" nonce { "," extension }
// server-first-message = "r=" nonce "," "s=" salt "," "i=" iterations
//
// The user is that of the StartupMessage; the one in here is ignored, as PostgreSQL does.
Result<std::string> ScramServer::first(std::string_view mechanism, std::string_view data) {
  if (!auth_message_.empty()) return malformed("The exchange has begun already.");
  if (mechanism != kScramSha256) {
    return make_fatal("08P01", "client selected an invalid SASL authentication mechanism");
  }
  if (data.size() > kMaxSaslMessage) return authentication_failed();
  if (auto error = refuse(data)) return std::move(*error);

  if (data.front() == 'p') {
    return malformed(
        "The client selected SCRAM-SHA-256 without channel binding, but the SCRAM message includes "
        "channel binding data.");
  }
  if (data.front() != 'n' && data.front() != 'y') {
    return malformed("Unexpected channel-binding flag.");
  }
  if (data.substr(1, 2) == ",a") {
    return make_fatal("0A000", "client uses authorization identity, but it is not supported");
  }
  if (data.substr(1, 2) != ",,") return malformed("Comma expected in the GS2 header.");
  gs2_header_ = data.substr(0, 3);
  const std::string_view bare = data.substr(3);
  if (bare.starts_with('m')) {
    return make_fatal("0A000", "client requires an unsupported SCRAM extension");
  }

  ScramAttributes attributes(bare);
  const auto user = attributes.expect('n');
  const auto client_nonce = attributes.expect('r');
  if (!user || !client_nonce || !attributes.skip_extensions()) {
    return malformed("Attributes of client-first-message are not as expected.");
  }
  if (!detail::is_nonce(*client_nonce)) {
    return make_fatal("08P01", "non-printable characters in SCRAM nonce");
  }
  nonce_.insert(0, *client_nonce);
  std::string reply = "r=" + nonce_ + ",s=" + base64_encode(verifier_.salt) +
                      ",i=" + std::to_string(verifier_.iterations);
  auth_message_.append(bare).append(",").append(reply).append(",");
  return reply;
}

// client-final-message = client-final-message-without-proof "," "p=" proof
//   client-final-message-without-proof = "c=" base64(gs2-header) "," "r=" nonce { "," extension }
// server-final-message = "v=" base64(ServerSignature)
Result<std::string> ScramServer::final(std::string_view data) {
  const std::string before = std::exchange(auth_message_, {});
  if (before.empty()) return malformed("The exchange has not begun.");
  if (data.size() > kMaxSaslMessage) return authentication_failed();
  if (auto error = refuse(data)) return std::move(*error);

  ScramAttributes attributes(data);
  const auto binding = attributes.expect('c');
  const auto nonce = attributes.expect('r');
  if (!binding || !nonce) {
    return malformed("Attributes of client-final-message are not as expected.");
  }
  const auto without_proof = attributes.skip_to('p');
  const auto proof_text = attributes.expect('p');
  if (!without_proof || !proof_text) return malformed("No proof in client-final-message.");
  if (!attributes.at_end()) return malformed("Garbage found at the end of client-final-message.");
  if (*binding != base64_encode(gs2_header_)) {
    return make_fatal("08P01",
                      "unexpected SCRAM channel-binding attribute in client-final-message");
  }
  if (*nonce != nonce_) {
    return make_fatal("08P01", "invalid SCRAM response", {}, "Nonce does not match.");
  }
  const auto proof = parse_key(*proof_text);
  if (!proof) return malformed("Malformed proof in client-final-message.");

  const std::string auth_message = before + std::string(*without_proof);
  const std::string signature = hmac_sha256(verifier_.stored_key, auth_message);
  const bool matches =
      equal_constant_time(sha256(exclusive_or(*proof, signature)), verifier_.stored_key);
  std::string reply = "v=" + base64_encode(hmac_sha256(verifier_.server_key, auth_message));
  if (!matches || mock_) return authentication_failed();
  return reply;
}

ScramClient::ScramClient(std::string password, std::string nonce)
    : password_(std::move(password)), nonce_(std::move(nonce)) {}

// The user name stays empty: PostgreSQL takes that of the StartupMessage.
std::string ScramClient::first() {
  client_first_bare_ = "n=,r=" + nonce_;
  return std::string(kClientGs2Header) + client_first_bare_;
}

Result<std::string> ScramClient::final(std::string_view server_first) {
  server_signature_.clear();
  if (client_first_bare_.empty()) return malformed("The exchange has not begun.");
  if (server_first.size() > kMaxSaslMessage) return malformed("The server's message is too long.");
  if (auto error = refuse(server_first)) return std::move(*error);

  ScramAttributes attributes(server_first);
  const auto nonce = attributes.expect('r');
  const auto salt_text = attributes.expect('s');
  const auto iterations_text = attributes.expect('i');
  if (!nonce || !salt_text || !iterations_text || !attributes.skip_extensions()) {
    return malformed("Attributes of server-first-message are not as expected.");
  }
  if (!nonce->starts_with(nonce_) || nonce->size() == nonce_.size() || !detail::is_nonce(*nonce)) {
    return malformed("The server's nonce does not continue ours.");
  }
  const auto salt = base64_decode(*salt_text);
  if (!salt || salt->empty()) return malformed("Invalid salt in server-first-message.");
  const auto iterations = parse_iterations(*iterations_text);
  if (!iterations || *iterations > kMaxScramIterations) {
    return malformed("Invalid iteration count in server-first-message.");
  }

  const std::string salted = detail::pbkdf2_sha256(password_, *salt, *iterations);
  const std::string client_key = hmac_sha256(salted, "Client Key");
  std::string message = "c=" + base64_encode(kClientGs2Header) + ",r=" + std::string(*nonce);
  const std::string auth_message =
      client_first_bare_ + "," + std::string(server_first) + "," + message;
  const std::string signature = hmac_sha256(sha256(client_key), auth_message);
  server_signature_ = hmac_sha256(hmac_sha256(salted, "Server Key"), auth_message);
  message += ",p=" + base64_encode(exclusive_or(client_key, signature));
  return message;
}

// server-final-message = ( "v=" base64(ServerSignature) | "e=" error ) { "," extension }
Result<bool> ScramClient::verify(std::string_view server_final) const {
  if (server_signature_.empty()) return malformed("The exchange has not come this far.");
  if (server_final.size() > kMaxSaslMessage) return malformed("The server's message is too long.");
  if (auto error = refuse(server_final)) return std::move(*error);
  if (server_final.starts_with("e=")) {
    return make_fatal("28P01", "the server refused the SCRAM proof");
  }
  ScramAttributes attributes(server_final);
  const auto signature_text = attributes.expect('v');
  if (!signature_text || !attributes.skip_extensions()) {
    return malformed("Attributes of server-final-message are not as expected.");
  }
  const auto signature = parse_key(*signature_text);
  if (!signature) return malformed("Malformed signature in server-final-message.");
  if (!equal_constant_time(*signature, server_signature_)) {
    return make_fatal("28P01", "the server does not know the password of this login");
  }
  return true;
}

std::string md5_password_hash(std::string_view password, std::string_view user) {
  const std::string hex = detail::md5_hex(std::string(password).append(user));
  return hex.empty() ? hex : "md5" + hex;
}

std::string md5_response(std::string_view stored_hash, std::string_view salt) {
  if (stored_hash.size() != 35 || !stored_hash.starts_with("md5")) return {};
  const std::string hex = detail::md5_hex(std::string(stored_hash.substr(3)).append(salt));
  return hex.empty() ? hex : "md5" + hex;
}

bool equal_constant_time(std::string_view a, std::string_view b) noexcept {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

ScramVerifier mock_verifier(std::string_view user, std::string_view secret) {
  constexpr std::size_t kSaltSize = 16;  // as PostgreSQL's
  const auto derive = [&](std::string_view purpose) {
    return hmac_sha256(secret, std::string(purpose).append(user));
  };
  ScramVerifier verifier;
  verifier.salt = derive("salt:").substr(0, kSaltSize);
  verifier.stored_key = derive("stored key:");
  verifier.server_key = derive("server key:");
  return verifier;
}

}  // namespace collegedb::wire
