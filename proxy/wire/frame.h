// Splits a byte stream into typed protocol messages.
//
//   frame = tag:Byte1 length:Int32 payload:Byte[length - 4]
//
// Source: PostgreSQL documentation, "Message Formats". Pure, no copies: a frame's payload is a view
// of the caller's buffer.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "proxy/wire/bytes.h"
#include "proxy/wire/error.h"

namespace collegedb::wire {

inline constexpr std::size_t kFrameHeader = 5;

struct Frame {
  char tag = 0;
  std::string_view payload;  // valid as long as the bytes given to split()
  std::string_view raw;      // the whole message, header included
};

// Which side sent the stream: decides the known tags and their limits.
enum class Direction : std::uint8_t { kFrontend, kBackend };

// Why a stream cannot be trusted. Small, so that split() costs nothing on the good path; turns into
// the SqlError to tell the peer: FATAL 08P01, in PostgreSQL's words for a frontend stream.
struct FramingFault {
  enum class Kind : std::uint8_t { kNone, kUnknownType, kLength };
  Kind kind = Kind::kNone;
  Direction direction = Direction::kFrontend;
  char tag = 0;

  [[nodiscard]] SqlError to_error() const;
  operator SqlError() const { return to_error(); }  // implicit: used as the error it stands for
};

struct SplitResult {
  enum class Status : std::uint8_t {
    kFrame,     // `frame` is complete; consume frame.raw.size() bytes
    kNeedMore,  // fewer bytes than one message; `need` = bytes of the whole message when its header
                // is there (frame.tag is set then, too), else 0
    kMalformed,  // the stream cannot be trusted any more; `error` is what to tell the peer (FATAL)
  };
  Status status = Status::kNeedMore;
  Frame frame;
  std::uint64_t need = 0;
  FramingFault error;
};

namespace detail {

// By tag: the greatest legal length word; 0 = no such message in this direction.
using LengthLimits = std::array<std::uint32_t, 256>;

struct TagLimit {
  std::string_view tags;
  std::uint32_t length;
};

constexpr LengthLimits make_limits(std::initializer_list<TagLimit> rows) {
  LengthLimits limits{};
  for (const TagLimit& row : rows) {
    for (const char tag : row.tags) limits[static_cast<std::uint8_t>(tag)] = row.length;
  }
  return limits;
}

// PostgreSQL's PQ_LARGE_MESSAGE_LIMIT, PQ_SMALL_MESSAGE_LIMIT and PG_MAX_AUTH_TOKEN_LENGTH.
inline constexpr LengthLimits kFrontendLimits = make_limits({
    {"QPBFd", kMaxMessageLength},
    {"EDCHSXcf", 10'000},
    {"p", 65'535},
});

// As libpq: only these may be long. Where libpq has no separate bound, what 65535 columns or
// parameters need. Messages without a body have the length of the length word alone.
inline constexpr LengthLimits kBackendLimits = make_limits({
    {"TDdVENA", kMaxMessageLength},
    {"t", 4 + 2 + 4 * 65'535},
    {"GHW", 4 + 1 + 2 + 2 * 65'535},
    {"RKSCv", 30'000},
    {"Z", 4 + 1},
    {"123Incs", 4},
});

}  // namespace detail

// Looks at the first message of `bytes`. Never allocates from a declared length. Inline: this runs
// once per row that passes through.
[[nodiscard]] inline SplitResult split(std::string_view bytes, Direction direction) noexcept {
  SplitResult result;
  if (bytes.empty()) return result;
  const char tag = bytes[0];
  const auto& limits =
      direction == Direction::kFrontend ? detail::kFrontendLimits : detail::kBackendLimits;
  const std::uint32_t limit = limits[static_cast<std::uint8_t>(tag)];
  const auto malformed = [&](FramingFault::Kind kind) {
    result.status = SplitResult::Status::kMalformed;
    result.error = {kind, direction, tag};
    return result;
  };
  if (limit == 0) return malformed(FramingFault::Kind::kUnknownType);
  if (bytes.size() < kFrameHeader) return result;
  const std::uint32_t length = Reader(bytes.substr(1, 4)).u32();
  if (length < 4 || length > limit) return malformed(FramingFault::Kind::kLength);
  result.frame.tag = tag;
  const std::uint64_t total = std::uint64_t{length} + 1;
  result.need = total;
  if (bytes.size() < total) return result;
  result.status = SplitResult::Status::kFrame;
  result.frame.raw = bytes.substr(0, total);
  result.frame.payload = result.frame.raw.substr(kFrameHeader);
  return result;
}

}  // namespace collegedb::wire
