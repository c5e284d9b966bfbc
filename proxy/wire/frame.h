// Splits a byte stream into typed protocol messages.
//
//   frame = tag:Byte1 length:Int32 payload:Byte[length - 4]
//
// Source: PostgreSQL documentation, "Message Formats". Pure, no copies: a frame's payload is a view
// of the caller's buffer.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "proxy/wire/error.h"

namespace collegedb::wire {

struct Frame {
  char tag = 0;
  std::string_view payload;  // valid as long as the bytes given to split()
  std::string_view raw;      // the whole message, header included
};

// Which side sent the stream: decides the known tags and their limits (6-wire F2-F4).
enum class Direction : std::uint8_t { kFrontend, kBackend };

struct SplitResult {
  enum class Status : std::uint8_t {
    kFrame,      // `frame` is complete; consume frame.raw.size() bytes
    kNeedMore,   // fewer bytes than one message; `need` = bytes of the whole message when known, else 0
    kMalformed,  // the stream cannot be trusted any more; `error` is what to tell the peer (FATAL)
  };
  Status status = Status::kNeedMore;
  Frame frame;
  std::uint64_t need = 0;
  SqlError error;
};

// Looks at the first message of `bytes`. Never allocates from a declared length.
[[nodiscard]] SplitResult split(std::string_view bytes, Direction direction);

}  // namespace collegedb::wire
