// SCRAM-SHA-256 (RFC 5802, RFC 7677) as two pure exchanges, plus the md5 form and stored verifiers.
// Randomness is passed in. Proofs are compared in constant time. Uses OpenSSL's digests only.
//
// Passwords: PostgreSQL normalises them with SASLprep, which leaves ASCII alone. Here other bytes,
// too, are taken as they are, as PostgreSQL itself does where SASLprep refuses a password. So a
// password that SASLprep would change (say, with a non-breaking space or a full-width letter) does
// not match a verifier that PostgreSQL or libpq made from it.
//
// No channel binding: SCRAM-SHA-256-PLUS is not offered, so a client may say 'n' or 'y', not 'p'.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "proxy/wire/error.h"

namespace collegedb::wire {

inline constexpr std::string_view kScramSha256 = "SCRAM-SHA-256";
// Longer messages are refused in either direction (PostgreSQL's PG_MAX_SASL_MESSAGE_LENGTH).
inline constexpr std::size_t kMaxSaslMessage = 1024;
// A server that asks for more rounds would hold up everybody on this thread.
inline constexpr int kMaxScramIterations = 1'000'000;

// "SCRAM-SHA-256$<iterations>:<salt b64>$<StoredKey b64>:<ServerKey b64>", as in pg_authid.
struct ScramVerifier {
  int iterations = 4096;
  std::string salt;        // raw bytes
  std::string stored_key;  // 32 bytes
  std::string server_key;  // 32 bytes
  static std::optional<ScramVerifier> parse(std::string_view text);
  // REQUIRES: salt is not empty, iterations >= 1.
  static ScramVerifier from_password(std::string_view password, std::string_view salt,
                                     int iterations);
  [[nodiscard]] std::string to_string() const;
};

// Server side, towards clients. A verifier of an unknown user is a mock made from a per-process
// secret, so that the exchange looks and times the same; it never succeeds.
//
// One exchange per object: first(), then final(), each once. Errors are FATAL, with PostgreSQL's
// texts: 08P01 for a message that breaks the grammar, 28P01 for a wrong proof or an oversize
// message (text filled by the caller, who knows the user).
class ScramServer {
 public:
  // nonce: at least 18 random bytes, base64 already. mock: authentication must fail at the end.
  ScramServer(ScramVerifier verifier, std::string nonce, bool mock);
  // client-first-message -> server-first-message
  Result<std::string> first(std::string_view mechanism, std::string_view data);
  // client-final-message -> server-final-message
  Result<std::string> final(std::string_view data);

 private:
  ScramVerifier verifier_;
  std::string nonce_;  // ours; after first() the client's and ours
  bool mock_;
  std::string gs2_header_;
  // AuthMessage up to and with the comma before client-final-message-without-proof. Empty before
  // first() and after final().
  std::string auth_message_;
};

// Client side, towards shards, whose answers are not trusted: 08P01 for a message that breaks the
// grammar or the limits, 28P01 when the server refuses or cannot prove that it knows the password.
class ScramClient {
 public:
  // nonce: at least 18 random bytes, base64 already.
  ScramClient(std::string password, std::string nonce);
  std::string first();                                       // client-first-message
  Result<std::string> final(std::string_view server_first);  // client-final-message
  // true or an error, never false.
  Result<bool> verify(std::string_view server_final) const;

 private:
  std::string password_;
  std::string nonce_;
  std::string client_first_bare_;
  std::string server_signature_;
};

// "md5" + md5(md5(password + user) + salt); the inner form is also what pg_authid stores.
// Empty where MD5 is forbidden (FIPS) or the stored hash is not one: equals no password message.
[[nodiscard]] std::string md5_password_hash(std::string_view password, std::string_view user);
[[nodiscard]] std::string md5_response(std::string_view stored_hash, std::string_view salt);
[[nodiscard]] bool equal_constant_time(std::string_view a, std::string_view b) noexcept;
// A mock verifier for `user`, the same for the life of `secret`.
[[nodiscard]] ScramVerifier mock_verifier(std::string_view user, std::string_view secret);

}  // namespace collegedb::wire
