// The digests that authentication is made of, over OpenSSL's EVP, and strict base64. Pure.
//
// A digest of OpenSSL fails only when memory is out or a policy forbids it; SHA-256 then throws
// std::runtime_error, as running out of memory would.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace collegedb::wire::detail {

inline constexpr std::size_t kSha256Size = 32;

// Raw digests of 32 bytes.
[[nodiscard]] std::string sha256(std::string_view data);
[[nodiscard]] std::string hmac_sha256(std::string_view key, std::string_view data);
// PBKDF2-HMAC-SHA-256, RFC 5802's Hi(). REQUIRES: iterations >= 1.
[[nodiscard]] std::string pbkdf2_sha256(std::string_view password, std::string_view salt,
                                        int iterations);
// 32 lower-case hex digits; empty where MD5 is forbidden (FIPS).
[[nodiscard]] std::string md5_hex(std::string_view data);

[[nodiscard]] std::string base64_encode(std::string_view data);
// nullopt unless `text` is exactly what base64_encode() gives: no white space, full padding, unused
// bits zero.
[[nodiscard]] std::optional<std::string> base64_decode(std::string_view text);

// REQUIRES: equal sizes.
[[nodiscard]] std::string exclusive_or(std::string_view a, std::string_view b);

}  // namespace collegedb::wire::detail
