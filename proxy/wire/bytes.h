// Big-endian cursors over borrowed bytes (Reader) and over a growing string (Writer).
// Pure; a Reader never reads past its end and never throws: one failed read makes it bad for good.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace collegedb::wire {

class Reader {
 public:
  // `bytes` must outlive the reader and everything it returns.
  explicit Reader(std::string_view bytes) noexcept : rest_(bytes) {}

  std::uint8_t u8() noexcept;
  std::int16_t i16() noexcept;
  std::uint16_t u16() noexcept;
  std::int32_t i32() noexcept;
  std::uint32_t u32() noexcept;
  // Bytes up to the next NUL, which is consumed. No NUL left: bad.
  std::string_view cstring() noexcept;
  // Exactly n bytes. A negative n or fewer bytes left: bad.
  std::string_view bytes(std::int64_t n) noexcept;

  [[nodiscard]] bool ok() const noexcept { return ok_; }
  [[nodiscard]] bool at_end() const noexcept { return ok_ && rest_.empty(); }
  [[nodiscard]] std::size_t remaining() const noexcept { return rest_.size(); }
  [[nodiscard]] std::string_view rest() const noexcept { return rest_; }

 private:
  std::string_view rest_;
  bool ok_ = true;
};

// Appends to a string owned by the caller. begin()/finish() bracket one message: the length word
// is patched at finish(). Messages do not nest.
class Writer {
 public:
  explicit Writer(std::string& out) noexcept : out_(out) {}

  void u8(std::uint8_t value);
  void i16(std::int16_t value);
  void u16(std::uint16_t value);
  void i32(std::int32_t value);
  void u32(std::uint32_t value);
  void cstring(std::string_view value);  // appends the NUL
  void bytes(std::string_view value);

  void begin(char tag);       // typed message
  void begin_untagged();      // start-up phase packet
  void finish();

 private:
  std::string& out_;
  std::size_t length_at_ = 0;
};

}  // namespace collegedb::wire
