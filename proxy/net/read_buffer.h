// Bytes read and not yet consumed, contiguous. Starts small, grows only to what arrives and never
// from a declared length, gives big blocks back when idle. Views of data() die at prepare().
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>

namespace collegedb::net {

class ReadBuffer {
 public:
  static constexpr std::size_t kSmall = 1024;
  static constexpr std::size_t kNormal = 16 * 1024;

  [[nodiscard]] std::string_view data() const { return {bytes_.get() + begin_, end_ - begin_}; }
  [[nodiscard]] bool empty() const { return begin_ == end_; }
  [[nodiscard]] std::size_t capacity() const { return capacity_; }

  void consume(std::size_t n) {
    begin_ += n;
    if (begin_ == end_) begin_ = end_ = 0;
  }

  // Room to read into. `need`: size of the message that data() starts with, 0 = unknown. Doubles at
  // most, so that a peer pays for memory with bytes.
  [[nodiscard]] std::span<char> prepare(std::uint64_t need, std::size_t usual) {
    const std::size_t held = end_ - begin_;
    std::size_t wanted = std::max(capacity_, usual);
    if (need > wanted) {
      wanted = static_cast<std::size_t>(
          std::min<std::uint64_t>(need, std::max<std::uint64_t>(2 * held, wanted)));
    }
    if (held == wanted) wanted *= 2;
    if (wanted > capacity_) {
      reallocate(wanted);
    } else if (begin_ > 0 && capacity_ - end_ < capacity_ / 2) {
      std::memmove(bytes_.get(), bytes_.get() + begin_, held);
      begin_ = 0;
      end_ = held;
    }
    return {bytes_.get() + end_, capacity_ - end_};
  }
  void commit(std::size_t n) { end_ += n; }

  // REQUIRES empty(). Keeps at most `keep` bytes of memory.
  void shrink(std::size_t keep) {
    if (capacity_ <= keep) return;
    bytes_.reset();
    capacity_ = begin_ = end_ = 0;
  }
  void clear() { begin_ = end_ = 0; }

 private:
  void reallocate(std::size_t capacity) {
    std::unique_ptr<char[]> bytes(new char[capacity]);
    const std::size_t held = end_ - begin_;
    if (held > 0) std::memcpy(bytes.get(), bytes_.get() + begin_, held);
    bytes_ = std::move(bytes);
    capacity_ = capacity;
    begin_ = 0;
    end_ = held;
  }

  std::unique_ptr<char[]> bytes_;
  std::size_t capacity_ = 0;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
};

}  // namespace collegedb::net
