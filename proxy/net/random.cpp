#include "proxy/net/random.h"

#include <openssl/evp.h>
#include <openssl/rand.h>
#include <spdlog/spdlog.h>

#include <cstdlib>
#include <cstring>

namespace collegedb::net {

std::string random_bytes(std::size_t n) {
  std::string bytes(n, '\0');
  if (RAND_bytes(reinterpret_cast<unsigned char*>(bytes.data()), static_cast<int>(n)) != 1) {
    spdlog::critical("the random number generator failed");
    std::abort();
  }
  return bytes;
}

std::string random_base64(std::size_t n) {
  const std::string bytes = random_bytes(n);
  std::string text(4 * ((n + 2) / 3) + 1, '\0');
  const int length =
      EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()),
                      reinterpret_cast<const unsigned char*>(bytes.data()), static_cast<int>(n));
  text.resize(static_cast<std::size_t>(length));
  return text;
}

std::uint32_t random_u32() {
  const std::string bytes = random_bytes(sizeof(std::uint32_t));
  std::uint32_t value = 0;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

}  // namespace collegedb::net
