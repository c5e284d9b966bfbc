#include "proxy/net/read_buffer.h"

#include <gtest/gtest.h>

#include <string>

namespace collegedb::net {
namespace {

void put(ReadBuffer& buffer, std::string_view bytes, std::uint64_t need = 0) {
  while (!bytes.empty()) {
    const auto room = buffer.prepare(need, ReadBuffer::kSmall);
    ASSERT_GT(room.size(), 0U);
    const std::size_t n = std::min(room.size(), bytes.size());
    std::memcpy(room.data(), bytes.data(), n);
    buffer.commit(n);
    bytes.remove_prefix(n);
  }
}

TEST(ReadBuffer, KeepsWhatIsNotConsumed) {
  ReadBuffer buffer;
  put(buffer, "hello world");
  buffer.consume(6);
  EXPECT_EQ(buffer.data(), "world");
  put(buffer, "!");
  EXPECT_EQ(buffer.data(), "world!");
  buffer.consume(6);
  EXPECT_TRUE(buffer.empty());
}

TEST(ReadBuffer, BytesSurviveGrowthAndCompaction) {
  ReadBuffer buffer;
  std::string expected;
  for (int i = 0; i < 2000; ++i) {
    const std::string piece = std::to_string(i) + ",";
    put(buffer, piece);
    expected += piece;
    if (i % 3 == 0) {
      const std::size_t n = std::min<std::size_t>(5, expected.size());
      buffer.consume(n);
      expected.erase(0, n);
    }
    ASSERT_EQ(buffer.data(), expected);
  }
}

TEST(ReadBuffer, ADeclaredLengthAloneCostsNothing) {
  ReadBuffer buffer;
  put(buffer, "Q\x3f\xff\xff\xff", 0x3fffffff);
  static_cast<void>(buffer.prepare(0x3fffffff, ReadBuffer::kNormal));
  EXPECT_LE(buffer.capacity(), ReadBuffer::kNormal);
}

TEST(ReadBuffer, GrowsWithTheBytesUpToTheMessage) {
  ReadBuffer buffer;
  const std::string message(100'000, 'x');
  put(buffer, message, message.size());
  EXPECT_EQ(buffer.data(), message);
  EXPECT_LE(buffer.capacity(), 2 * message.size());
  buffer.consume(message.size());
  buffer.shrink(ReadBuffer::kSmall);
  EXPECT_EQ(buffer.capacity(), 0U);
}

}  // namespace
}  // namespace collegedb::net
