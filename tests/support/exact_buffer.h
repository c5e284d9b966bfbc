// Bytes on the heap in a block of exactly their size, so that AddressSanitizer sees the first byte
// read past the end. A string_view of a literal or of a std::string would hide it.
#pragma once

#include <cstring>
#include <memory>
#include <string_view>

namespace collegedb::test {

class ExactBuffer {
 public:
  explicit ExactBuffer(std::string_view bytes)
      : bytes_(new char[bytes.size()]), size_(bytes.size()) {
    if (size_ > 0) std::memcpy(bytes_.get(), bytes.data(), size_);
  }
  [[nodiscard]] std::string_view view() const { return {bytes_.get(), size_}; }

 private:
  std::unique_ptr<char[]> bytes_;
  std::size_t size_;
};

}  // namespace collegedb::test
