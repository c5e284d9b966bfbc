// A client's stream after start-up. Whatever decodes must encode to the bytes it came from.
#include "proxy/wire/frame.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/support/wire_reencode.h"

using namespace collegedb;
using test::require;

namespace {

void check_bind(std::string_view payload) {
  const auto bind = wire::Bind::decode(payload);
  if (!bind) return;
  std::string out;
  wire::encode_rebound(out, payload, bind->portal, bind->statement);
  require(std::string_view(out).substr(wire::kFrameHeader) == payload);
  for (std::size_t i = 0; i < bind->parameters.size(); ++i) {
    static_cast<void>(bind->parameter_is_binary(i));
  }
}

void check_sasl(std::string_view payload) {
  const auto message = wire::SaslInitialResponse::decode(payload);
  if (!message) return;
  std::string out;
  message->encode(out);
  require(std::string_view(out).substr(wire::kFrameHeader) == payload);
}

void check(const wire::Frame& frame) {
  const auto again = test::reencode_frontend(frame.tag, frame.payload);
  if (again && again->has_value()) require(**again == frame.raw);
  if (frame.tag == 'B') check_bind(frame.payload);
  if (frame.tag == 'p') check_sasl(frame.payload);
  if (frame.tag == 'F') static_cast<void>(wire::FunctionCallMessage::decode(frame.payload));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view stream = test::as_text(data, size);
  for (;;) {
    const auto result = wire::split(stream, wire::Direction::kFrontend);
    if (result.status == wire::SplitResult::Status::kMalformed) {
      require(SqlError(result.error).sqlstate == "08P01");
    }
    if (result.status != wire::SplitResult::Status::kFrame) return 0;
    require(result.frame.raw.data() == stream.data() && result.need == result.frame.raw.size());
    check(result.frame);
    stream.remove_prefix(result.frame.raw.size());
  }
}
