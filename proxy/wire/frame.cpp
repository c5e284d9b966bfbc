#include "proxy/wire/frame.h"

#include <string>

namespace collegedb::wire {

SqlError FramingFault::to_error() const {
  const auto type = std::to_string(static_cast<std::uint8_t>(tag));
  switch (kind) {
    case Kind::kUnknownType:
      if (direction == Direction::kFrontend) {
        return make_fatal("08P01", "invalid frontend message type " + type);
      }
      return make_fatal("08P01", "invalid message type " + type + " from the server");
    case Kind::kLength:
      if (direction == Direction::kFrontend) return make_fatal("08P01", "invalid message length");
      return make_fatal("08P01", "invalid length of message type " + type + " from the server");
    case Kind::kNone:
      break;
  }
  return make_fatal("XX000", "no framing fault");
}

}  // namespace collegedb::wire
