#include "proxy/wire/frame.h"

#include <gtest/gtest.h>

#include "tests/support/exact_buffer.h"
#include "tests/support/wire_bytes.h"
#include "tests/support/wire_cases.h"

namespace collegedb::wire {
namespace {

using test::ExactBuffer;
using test::typed;
using Status = SplitResult::Status;

TEST(Split, FrameHasTagPayloadAndWholeMessage) {
  const ExactBuffer buffer(typed('Q', test::z("select 1")) + "S");
  const auto result = split(buffer.view(), Direction::kFrontend);
  ASSERT_EQ(result.status, Status::kFrame);
  EXPECT_EQ(result.frame.tag, 'Q');
  EXPECT_EQ(result.frame.payload, test::z("select 1"));
  EXPECT_EQ(result.frame.raw.size(), 14u);
  EXPECT_EQ(result.frame.raw.data(), buffer.view().data()) << "a view, not a copy";
}

TEST(Split, NeedIsKnownWithTheHeader) {
  const std::string message = typed('Q', test::z("select 1"));
  for (std::size_t size = 0; size < message.size(); ++size) {
    SCOPED_TRACE(size);
    const ExactBuffer buffer(std::string_view(message).substr(0, size));
    const auto result = split(buffer.view(), Direction::kFrontend);
    EXPECT_EQ(result.status, Status::kNeedMore);
    EXPECT_EQ(result.need, size < kFrameHeader ? 0 : message.size());
    EXPECT_EQ(result.frame.tag, size < kFrameHeader ? 0 : 'Q');
  }
}

struct LimitCase {
  const char* name;
  Direction direction;
  char tag;
  std::int64_t length;  // the length word
  bool fits;
};

TEST(Split, LengthWordIsCheckedWithTheHeaderAlone) {
  constexpr auto kF = Direction::kFrontend;
  constexpr auto kB = Direction::kBackend;
  const LimitCase cases[] = {
      {"Q, 0", kF, 'Q', 0, false},
      {"Q, 3", kF, 'Q', 3, false},
      {"Q, 4", kF, 'Q', 4, true},
      {"Q, -1", kF, 'Q', -1, false},
      {"Q, INT_MIN", kF, 'Q', -2147483648LL, false},
      {"Q, greatest", kF, 'Q', 0x3ffffffe, true},
      {"Q, one more", kF, 'Q', 0x3fffffff, false},
      {"Q, 1 GiB", kF, 'Q', 0x40000000, false},
      {"B, greatest", kF, 'B', 0x3ffffffe, true},
      {"P, greatest", kF, 'P', 0x3ffffffe, true},
      {"F, greatest", kF, 'F', 0x3ffffffe, true},
      {"d, greatest", kF, 'd', 0x3ffffffe, true},
      {"S, greatest", kF, 'S', 10'000, true},
      {"S, one more", kF, 'S', 10'001, false},
      {"E, one more", kF, 'E', 10'001, false},
      {"D, one more", kF, 'D', 10'001, false},
      {"C, one more", kF, 'C', 10'001, false},
      {"H, one more", kF, 'H', 10'001, false},
      {"X, one more", kF, 'X', 10'001, false},
      {"c, one more", kF, 'c', 10'001, false},
      {"f, one more", kF, 'f', 10'001, false},
      {"p, greatest", kF, 'p', 65'535, true},
      {"p, one more", kF, 'p', 65'536, false},
      {"D from a server, greatest", kB, 'D', 0x3ffffffe, true},
      {"D from a server, one more", kB, 'D', 0x3fffffff, false},
      {"D from a server, 3", kB, 'D', 3, false},
      {"t, 65535 parameters", kB, 't', 4 + 2 + 4 * 65'535, true},
      {"t, one more", kB, 't', 4 + 2 + 4 * 65'535 + 1, false},
      {"S from a server, one more", kB, 'S', 30'001, false},
      {"Z", kB, 'Z', 5, true},
      {"Z, one more", kB, 'Z', 6, false},
      {"1, with a body", kB, '1', 5, false},
      {"2, with a body", kB, '2', 5, false},
      {"I, with a body", kB, 'I', 5, false},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.name);
    const ExactBuffer buffer(c.tag + test::i32(c.length));
    const auto result = split(buffer.view(), c.direction);
    if (!c.fits) {
      EXPECT_EQ(result.status, Status::kMalformed);
      EXPECT_EQ(result.error.kind, FramingFault::Kind::kLength);
    } else if (c.length == 4) {
      EXPECT_EQ(result.status, Status::kFrame);
    } else {
      EXPECT_EQ(result.status, Status::kNeedMore);
      EXPECT_EQ(result.need, static_cast<std::uint64_t>(c.length) + 1);
    }
  }
}

TEST(Split, UnknownTagIsRefusedAtItsFirstByte) {
  for (const auto direction : {Direction::kFrontend, Direction::kBackend}) {
    const std::string_view known =
        direction == Direction::kFrontend ? "QPBDECHSFdcfpX" : "RKSZTDCIENA123tnsGHWdcVv";
    for (int tag = 0; tag < 256; ++tag) {
      SCOPED_TRACE(tag);
      const char byte = static_cast<char>(tag);
      const ExactBuffer buffer(std::string(1, byte));
      const auto result = split(buffer.view(), direction);
      const bool is_known = tag != 0 && known.find(byte) != std::string_view::npos;
      EXPECT_EQ(result.status, is_known ? Status::kNeedMore : Status::kMalformed);
    }
  }
}

TEST(Split, ErrorsAreFatalAndInPostgresqlsWords) {
  const SqlError type = split("y", Direction::kFrontend).error;
  EXPECT_EQ(type.severity, "FATAL");
  EXPECT_EQ(type.sqlstate, "08P01");
  EXPECT_EQ(type.message, "invalid frontend message type 121");
  const SqlError high = split("\xff", Direction::kFrontend).error;
  EXPECT_EQ(high.message, "invalid frontend message type 255");
  const SqlError length = split("Q" + test::i32(3), Direction::kFrontend).error;
  EXPECT_EQ(length.message, "invalid message length");
  const SqlError server = split("Q", Direction::kBackend).error;
  EXPECT_EQ(server.message, "invalid message type 81 from the server");
  const SqlError server_length = split("D" + test::i32(0), Direction::kBackend).error;
  EXPECT_EQ(server_length.message, "invalid length of message type 68 from the server");
}

std::string stream_of(const std::vector<test::MessageCase>& cases) {
  std::string stream;
  for (const auto& c : cases) {
    // Framing knows the greatest body of a message, which some malformed ones exceed.
    if (c.error.empty()) stream += typed(c.tag, c.payload);
  }
  return stream;
}

// The frames of `stream` when it arrives in pieces that end at `cuts` and at its end.
std::vector<std::string> frames_of(const std::string& stream, Direction direction,
                                   const std::vector<std::size_t>& cuts) {
  std::vector<std::string> frames;
  std::string held;
  std::size_t from = 0;
  for (std::size_t i = 0; i <= cuts.size(); ++i) {
    const std::size_t to = i < cuts.size() ? cuts[i] : stream.size();
    held += stream.substr(from, to - from);
    from = to;
    for (;;) {
      const ExactBuffer buffer(held);
      const auto result = split(buffer.view(), direction);
      EXPECT_NE(result.status, Status::kMalformed);
      if (result.status != Status::kFrame) break;
      frames.emplace_back(result.frame.raw);
      held.erase(0, result.frame.raw.size());
    }
  }
  EXPECT_TRUE(held.empty());
  return frames;
}

void expect_same_frames_however_cut(const std::string& stream, Direction direction) {
  const auto whole = frames_of(stream, direction, {});
  ASSERT_GT(whole.size(), 10u);
  for (std::size_t cut = 0; cut <= stream.size(); ++cut) {
    ASSERT_EQ(frames_of(stream, direction, {cut}), whole) << "cut at " << cut;
  }
  std::vector<std::size_t> every(stream.size());
  for (std::size_t i = 0; i < every.size(); ++i) every[i] = i;
  EXPECT_EQ(frames_of(stream, direction, every), whole) << "byte by byte";
}

TEST(Split, FrontendStreamCutAnywhere) {
  expect_same_frames_however_cut(stream_of(test::frontend_cases()), Direction::kFrontend);
}

TEST(Split, BackendStreamCutAnywhere) {
  expect_same_frames_however_cut(stream_of(test::backend_cases()), Direction::kBackend);
}

}  // namespace
}  // namespace collegedb::wire
