// Unpredictable bytes (OpenSSL's CSPRNG). Failure of the generator ends the process: nothing here
// may run with guessable keys.
#pragma once

#include <cstdint>
#include <string>

namespace collegedb::net {

[[nodiscard]] std::string random_bytes(std::size_t n);
// base64 of n random bytes; n a multiple of 3.
[[nodiscard]] std::string random_base64(std::size_t n);
[[nodiscard]] std::uint32_t random_u32();

}  // namespace collegedb::net
