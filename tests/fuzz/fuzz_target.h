// What every fuzz target shares.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

namespace collegedb::test {

// A property that must hold for any input; the fuzzer reports the input that breaks it.
inline void require(bool holds) {
  if (!holds) std::abort();
}

inline std::string_view as_text(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

}  // namespace collegedb::test

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
