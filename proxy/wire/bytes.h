// Big-endian cursors over borrowed bytes (Reader) and over a growing string (Writer).
// Pure; a Reader never reads past its end and never throws: one failed read makes it bad for good.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

namespace collegedb::wire {

// The longest message the proxy writes or accepts, by its length word: PostgreSQL's MaxAllocSize
// - 1.
inline constexpr std::uint32_t kMaxMessageLength = 0x3ffffffe;

class Reader {
 public:
  // Why the first bad read failed; PostgreSQL words each differently.
  enum class Fault : std::uint8_t { kNone, kNoByte, kTooShort, kUnterminatedString };

  // `bytes` must outlive the reader and everything it returns.
  explicit Reader(std::string_view bytes) noexcept : rest_(bytes) {}

  std::uint8_t u8() noexcept {
    if (rest_.empty()) return fail(Fault::kNoByte), std::uint8_t{0};
    return static_cast<std::uint8_t>(take(1)[0]);
  }
  std::int16_t i16() noexcept { return static_cast<std::int16_t>(u16()); }
  std::uint16_t u16() noexcept { return static_cast<std::uint16_t>(big_endian<2>()); }
  std::int32_t i32() noexcept { return static_cast<std::int32_t>(u32()); }
  std::uint32_t u32() noexcept { return big_endian<4>(); }

  // Bytes up to the next NUL, which is consumed. No NUL left: bad.
  std::string_view cstring() noexcept {
    const std::size_t end = rest_.find('\0');
    if (end == std::string_view::npos) return fail(Fault::kUnterminatedString), std::string_view{};
    return take(end + 1).substr(0, end);
  }
  // Exactly n bytes. A negative n or fewer bytes left: bad.
  std::string_view bytes(std::int64_t n) noexcept {
    if (n < 0 || static_cast<std::uint64_t>(n) > rest_.size()) {
      return fail(Fault::kTooShort), std::string_view{};
    }
    return take(static_cast<std::size_t>(n));
  }
  // length:Int32 value:Byte[length], where -1 alone means NULL.
  std::optional<std::string_view> nullable() noexcept {
    const std::int32_t length = i32();
    if (length == -1) return std::nullopt;
    return bytes(length);
  }

  [[nodiscard]] bool ok() const noexcept { return fault_ == Fault::kNone; }
  [[nodiscard]] Fault fault() const noexcept { return fault_; }
  [[nodiscard]] bool at_end() const noexcept { return ok() && rest_.empty(); }
  // 0 once bad, so that nothing is sized by a count behind a failed read.
  [[nodiscard]] std::size_t remaining() const noexcept { return rest_.size(); }
  [[nodiscard]] std::string_view rest() const noexcept { return rest_; }

 private:
  void fail(Fault fault) noexcept {
    if (ok()) fault_ = fault;
    rest_ = {};
  }
  std::string_view take(std::size_t n) noexcept {
    const std::string_view taken = rest_.substr(0, n);
    rest_.remove_prefix(n);
    return taken;
  }
  template <std::size_t kSize>
  std::uint32_t big_endian() noexcept {
    if (rest_.size() < kSize) return fail(Fault::kTooShort), 0u;
    std::uint32_t value = 0;
    for (const char c : take(kSize)) value = value << 8 | static_cast<std::uint8_t>(c);
    return value;
  }

  std::string_view rest_;
  Fault fault_ = Fault::kNone;
};

// Appends to a string owned by the caller. begin()/finish() bracket one message: the length word
// is patched at finish(). Messages do not nest.
class Writer {
 public:
  explicit Writer(std::string& out) noexcept : out_(out) {}

  void u8(std::uint8_t value) { out_.push_back(static_cast<char>(value)); }
  void i16(std::int16_t value) { u16(static_cast<std::uint16_t>(value)); }
  void u16(std::uint16_t value) {
    const char wire[2] = {static_cast<char>(value >> 8), static_cast<char>(value)};
    out_.append(wire, sizeof wire);
  }
  void i32(std::int32_t value) { u32(static_cast<std::uint32_t>(value)); }
  void u32(std::uint32_t value) {
    char wire[4];
    store(wire, value);
    out_.append(wire, sizeof wire);
  }
  // Appends the NUL. A String of the protocol cannot hold one: the value ends at its first NUL, so
  // that it can never spill into the next field.
  void cstring(std::string_view value) {
    out_.append(value.substr(0, value.find('\0')));
    out_.push_back('\0');
  }
  void bytes(std::string_view value) { out_.append(value); }
  // REQUIRES: value.size() <= kMaxMessageLength.
  void nullable(std::optional<std::string_view> value) {
    if (!value) return i32(-1);
    u32(static_cast<std::uint32_t>(value->size()));
    bytes(*value);
  }
  // An Int16 count, which the protocol reads as unsigned. More than 65535 would wrap into a message
  // that says something else, so it throws std::length_error: callers check before they encode.
  void count(std::size_t value) {
    if (value > 0xffff) throw std::length_error("more than 65535 items in one message");
    u16(static_cast<std::uint16_t>(value));
  }

  void begin(char tag) {  // typed message
    out_.push_back(tag);
    begin_untagged();
  }
  void begin_untagged() {  // start-up phase packet
    length_at_ = out_.size();
    out_.append(4, '\0');
  }
  // Throws std::length_error above kMaxMessageLength: no receiver would take such a message.
  void finish() {
    const std::size_t length = out_.size() - length_at_;
    if (length > kMaxMessageLength) throw std::length_error("message longer than 1 GB");
    store(out_.data() + length_at_, static_cast<std::uint32_t>(length));
  }

 private:
  static void store(char* at, std::uint32_t value) noexcept {
    for (int i = 0; i < 4; ++i) at[i] = static_cast<char>(value >> (24 - 8 * i));
  }

  std::string& out_;
  std::size_t length_at_ = 0;
};

}  // namespace collegedb::wire
