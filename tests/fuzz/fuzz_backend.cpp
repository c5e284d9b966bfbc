// A server's stream. Whatever decodes must encode to the bytes it came from; errors and notices,
// whose odd fields are dropped, to bytes that decode to the same.
#include "proxy/wire/frame.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/support/wire_reencode.h"

using namespace collegedb;
using test::require;

namespace {

void check_error(std::string_view payload) {
  const auto error = wire::decode_error(payload);
  if (!error) return;
  require(error->sqlstate.size() == 5 && error->position >= 0);
  std::string out;
  wire::encode_error(out, *error);
  const auto again = wire::decode_error(std::string_view(out).substr(wire::kFrameHeader));
  require(again.has_value() && *again == *error);
}

void check(const wire::Frame& frame) {
  if (frame.tag == 'E' || frame.tag == 'N') return check_error(frame.payload);
  const auto again = test::reencode_backend(frame.tag, frame.payload);
  if (again && again->has_value()) require(**again == frame.raw);
  if (frame.tag == 'D') {
    wire::DataRow row;
    require(row.assign(frame.payload) == again->has_value());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view stream = test::as_text(data, size);
  for (;;) {
    const auto result = wire::split(stream, wire::Direction::kBackend);
    if (result.status == wire::SplitResult::Status::kMalformed) {
      require(SqlError(result.error).sqlstate == "08P01");
    }
    if (result.status != wire::SplitResult::Status::kFrame) return 0;
    require(result.frame.raw.data() == stream.data() && result.need == result.frame.raw.size());
    check(result.frame);
    stream.remove_prefix(result.frame.raw.size());
  }
}
