#include "routing/hash.h"

#include <boost/container/small_vector.hpp>

namespace collegedb::routing {
namespace {

constexpr std::uint32_t rotate(std::uint32_t value, int bits) noexcept {
  return (value << bits) | (value >> (32 - bits));
}

// The three-word state of lookup3.
struct State {
  std::uint32_t a = 0;
  std::uint32_t b = 0;
  std::uint32_t c = 0;

  void mix() noexcept {
    a -= c, a ^= rotate(c, 4), c += b;
    b -= a, b ^= rotate(a, 6), a += c;
    c -= b, c ^= rotate(b, 8), b += a;
    a -= c, a ^= rotate(c, 16), c += b;
    b -= a, b ^= rotate(a, 19), a += c;
    c -= b, c ^= rotate(b, 4), b += a;
  }

  void finish() noexcept {
    c ^= b, c -= rotate(b, 14);
    a ^= c, a -= rotate(c, 11);
    b ^= a, b -= rotate(a, 25);
    c ^= b, c -= rotate(b, 16);
    a ^= c, a -= rotate(c, 4);
    b ^= a, b -= rotate(a, 14);
    c ^= b, c -= rotate(b, 24);
  }
};

std::uint32_t byte_at(const char* bytes, int shift, std::size_t index) noexcept {
  return static_cast<std::uint32_t>(static_cast<unsigned char>(bytes[index])) << shift;
}

// Four bytes as a little-endian word.
std::uint32_t load_word(const char* bytes) noexcept {
  return byte_at(bytes, 0, 0) | byte_at(bytes, 8, 1) | byte_at(bytes, 16, 2) |
         byte_at(bytes, 24, 3);
}

// Up to four bytes as a little-endian word; bytes past the end are zero.
std::uint32_t load_tail(std::string_view bytes) noexcept {
  if (bytes.size() >= 4) return load_word(bytes.data());
  std::uint32_t word = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    word |= byte_at(bytes.data(), static_cast<int>(8 * i), i);
  }
  return word;
}

std::uint64_t hash_pair(std::string_view first, std::string_view second) {
  boost::container::small_vector<char, 256> joined;
  joined.insert(joined.end(), first.begin(), first.end());
  joined.push_back('\x01');
  joined.insert(joined.end(), second.begin(), second.end());
  return hash_bytes_extended({joined.data(), joined.size()}, 0);
}

// One code point of `text` at `pos`, which is moved behind it. A byte that starts no valid sequence
// counts alone as U+FFFD, as every UTF-8 decoder that must not fail reads it.
char32_t next_code_point(std::string_view text, std::size_t& pos) noexcept {
  constexpr char32_t kReplacement = 0xfffd;
  const auto byte = [&](std::size_t at) { return static_cast<unsigned char>(text[at]); };
  const unsigned char lead = byte(pos);
  const std::size_t start = pos++;
  if (lead < 0x80) return lead;
  const int length = lead >= 0xf0 && lead <= 0xf4  ? 4
                     : lead >= 0xe0 && lead < 0xf0 ? 3
                     : lead >= 0xc2 && lead < 0xe0 ? 2
                                                   : 0;
  if (length == 0 || start + static_cast<std::size_t>(length) > text.size()) return kReplacement;
  char32_t point = lead & (0xff >> (length + 1));
  for (int i = 1; i < length; ++i) {
    const unsigned char next = byte(start + static_cast<std::size_t>(i));
    if ((next & 0xc0) != 0x80) return kReplacement;
    point = (point << 6) | (next & 0x3f);
  }
  constexpr char32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  if (point < kSmallest[length] || point > 0x10ffff || (point >= 0xd800 && point < 0xe000)) {
    return kReplacement;
  }
  pos = start + static_cast<std::size_t>(length);
  return point;
}

}  // namespace

std::uint64_t hash_bytes_extended(std::string_view bytes, std::uint64_t seed) noexcept {
  State s;
  s.a = s.b = s.c = 0x9e3779b9u + static_cast<std::uint32_t>(bytes.size()) + 3923095u;
  if (seed != 0) {
    s.a += static_cast<std::uint32_t>(seed >> 32);
    s.b += static_cast<std::uint32_t>(seed);
    s.mix();
  }
  std::string_view rest = bytes;
  for (; rest.size() >= 12; rest.remove_prefix(12)) {
    s.a += load_word(rest.data());
    s.b += load_word(rest.data() + 4);
    s.c += load_word(rest.data() + 8);
    s.mix();
  }
  // The low byte of c is kept for the length, so the last word starts at its second byte.
  s.a += load_tail(rest);
  if (rest.size() > 4) s.b += load_tail(rest.substr(4));
  if (rest.size() > 8) s.c += load_tail(rest.substr(8)) << 8;
  s.finish();
  return (static_cast<std::uint64_t>(s.b) << 32) | s.c;
}

std::int32_t gate_bucket(std::string_view group, std::string_view key) {
  return static_cast<std::int32_t>(hash_pair(group, key) & (kGateBuckets - 1));
}

std::int64_t hrw_score(std::string_view shard, std::string_view key) {
  return static_cast<std::int64_t>(hash_pair(shard, key));
}

std::int32_t college_hash(std::string_view utf8) noexcept {
  std::uint32_t hash = 0;
  const auto add = [&](std::uint32_t unit) { hash = (hash << 5) - hash + unit; };
  for (std::size_t pos = 0; pos < utf8.size();) {
    const char32_t point = next_code_point(utf8, pos);
    if (point < 0x10000) {
      add(point);
    } else {
      add(0xd800 + ((point - 0x10000) >> 10));
      add(0xdc00 + ((point - 0x10000) & 0x3ff));
    }
  }
  return static_cast<std::int32_t>(hash);
}

}  // namespace collegedb::routing
