// SCRAM-SHA-256 (RFC 5802, RFC 7677) as two pure exchanges, plus the md5 form and stored verifiers.
// Randomness is passed in. Proofs are compared in constant time. Uses OpenSSL's digests only.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "proxy/wire/error.h"

namespace collegedb::wire {

// "SCRAM-SHA-256$<iterations>:<salt b64>$<StoredKey b64>:<ServerKey b64>", as in pg_authid.
struct ScramVerifier {
  int iterations = 4096;
  std::string salt;        // raw bytes
  std::string stored_key;  // 32 bytes
  std::string server_key;  // 32 bytes
  static std::optional<ScramVerifier> parse(std::string_view text);
  static ScramVerifier from_password(std::string_view password, std::string_view salt,
                                     int iterations);
  [[nodiscard]] std::string to_string() const;
};

// Server side, towards clients. A verifier of an unknown user is a mock made from a per-process
// secret, so that the exchange looks and times the same; it never succeeds.
class ScramServer {
 public:
  // nonce: at least 18 random bytes, base64 already. mock: authentication must fail at the end.
  ScramServer(ScramVerifier verifier, std::string nonce, bool mock);
  // client-first-message -> server-first-message
  Result<std::string> first(std::string_view mechanism, std::string_view data);
  // client-final-message -> server-final-message; error 28P01 (text filled by the caller's user)
  Result<std::string> final(std::string_view data);

 private:
  ScramVerifier verifier_;
  std::string nonce_;
  bool mock_;
  std::string gs2_header_;
  std::string auth_message_;
};

// Client side, towards shards.
class ScramClient {
 public:
  ScramClient(std::string password, std::string nonce);
  std::string first();                                       // client-first-message
  Result<std::string> final(std::string_view server_first);  // client-final-message
  Result<bool> verify(std::string_view server_final) const;

 private:
  std::string password_;
  std::string nonce_;
  std::string client_first_bare_;
  std::string server_signature_;
};

// "md5" + md5(md5(password + user) + salt); the inner form is also what pg_authid stores.
[[nodiscard]] std::string md5_password_hash(std::string_view password, std::string_view user);
[[nodiscard]] std::string md5_response(std::string_view stored_hash, std::string_view salt);
[[nodiscard]] bool equal_constant_time(std::string_view a, std::string_view b) noexcept;
// A mock verifier for `user`, the same for the life of `secret`.
[[nodiscard]] ScramVerifier mock_verifier(std::string_view user, std::string_view secret);

}  // namespace collegedb::wire
