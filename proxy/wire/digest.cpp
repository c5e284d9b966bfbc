#include "proxy/wire/digest.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <array>
#include <cstdint>
#include <stdexcept>

namespace collegedb::wire::detail {
namespace {

const unsigned char* raw(std::string_view bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}
unsigned char* raw(std::string& bytes) {
  return reinterpret_cast<unsigned char*>(bytes.data());
}

constexpr std::string_view kAlphabet =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

constexpr std::array<std::int8_t, 256> make_values() {
  std::array<std::int8_t, 256> values{};
  values.fill(-1);
  for (std::size_t i = 0; i < kAlphabet.size(); ++i) {
    values[static_cast<std::uint8_t>(kAlphabet[i])] = static_cast<std::int8_t>(i);
  }
  return values;
}
constexpr auto kValues = make_values();

}  // namespace

std::string sha256(std::string_view data) {
  std::string digest(kSha256Size, '\0');
  unsigned size = 0;
  if (EVP_Digest(data.data(), data.size(), raw(digest), &size, EVP_sha256(), nullptr) != 1) {
    throw std::runtime_error("SHA-256 is not available");
  }
  return digest;
}

std::string hmac_sha256(std::string_view key, std::string_view data) {
  std::string digest(kSha256Size, '\0');
  unsigned size = 0;
  // OpenSSL takes a null key for none given.
  const char* key_data = key.empty() ? "" : key.data();
  if (HMAC(EVP_sha256(), key_data, static_cast<int>(key.size()), raw(data), data.size(),
           raw(digest), &size) == nullptr) {
    throw std::runtime_error("HMAC-SHA-256 is not available");
  }
  return digest;
}

std::string pbkdf2_sha256(std::string_view password, std::string_view salt, int iterations) {
  std::string key(kSha256Size, '\0');
  if (PKCS5_PBKDF2_HMAC(password.data(), static_cast<int>(password.size()), raw(salt),
                        static_cast<int>(salt.size()), iterations, EVP_sha256(),
                        static_cast<int>(key.size()), raw(key)) != 1) {
    throw std::runtime_error("PBKDF2 is not available");
  }
  return key;
}

std::string md5_hex(std::string_view data) {
  constexpr std::string_view kHex = "0123456789abcdef";
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned size = 0;
  if (EVP_Digest(data.data(), data.size(), digest.data(), &size, EVP_md5(), nullptr) != 1) {
    return {};
  }
  std::string hex;
  for (unsigned i = 0; i < size; ++i) {
    hex.push_back(kHex[digest[i] >> 4]);
    hex.push_back(kHex[digest[i] & 15]);
  }
  return hex;
}

std::string base64_encode(std::string_view data) {
  std::string text;
  text.reserve((data.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < data.size(); i += 3) {
    const auto byte = [&](std::size_t at) -> std::uint32_t {
      return at < data.size() ? static_cast<std::uint8_t>(data[at]) : 0;
    };
    const std::uint32_t group = byte(i) << 16 | byte(i + 1) << 8 | byte(i + 2);
    text.push_back(kAlphabet[group >> 18]);
    text.push_back(kAlphabet[group >> 12 & 63]);
    text.push_back(i + 1 < data.size() ? kAlphabet[group >> 6 & 63] : '=');
    text.push_back(i + 2 < data.size() ? kAlphabet[group & 63] : '=');
  }
  return text;
}

std::optional<std::string> base64_decode(std::string_view text) {
  if (text.size() % 4 != 0) return std::nullopt;
  std::size_t padding = 0;
  while (padding < 2 && padding < text.size() && text[text.size() - 1 - padding] == '=') ++padding;
  std::string data;
  data.reserve(text.size() / 4 * 3);
  std::uint32_t bits = 0;
  for (std::size_t i = 0; i < text.size() - padding; ++i) {
    const int value = kValues[static_cast<std::uint8_t>(text[i])];
    if (value < 0) return std::nullopt;
    bits = bits << 6 | static_cast<std::uint32_t>(value);
    if (i % 4 == 1) data.push_back(static_cast<char>(bits >> 4));
    if (i % 4 == 2) data.push_back(static_cast<char>(bits >> 2));
    if (i % 4 == 3) data.push_back(static_cast<char>(bits));
  }
  const std::uint32_t unused = padding == 2 ? bits & 15 : padding == 1 ? bits & 3 : 0;
  if (unused != 0) return std::nullopt;
  return data;
}

std::string exclusive_or(std::string_view a, std::string_view b) {
  std::string result(a);
  for (std::size_t i = 0; i < result.size(); ++i) result[i] = static_cast<char>(result[i] ^ b[i]);
  return result;
}

}  // namespace collegedb::wire::detail
