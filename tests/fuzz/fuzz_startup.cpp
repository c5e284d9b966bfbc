// The first bytes of a connection. A StartupMessage that is sent on means the same again.
#include "proxy/wire/startup.h"
#include "tests/fuzz/fuzz_target.h"

using namespace collegedb;
using test::require;

namespace {

void check(const wire::StartupMessage& message) {
  require(!message.user.empty() && message.user.size() <= 63);
  require(!message.database.empty() && message.database.size() <= 63);
  std::vector<std::pair<std::string, std::string>> pairs = {{"user", message.user},
                                                            {"database", message.database}};
  for (const auto& parameter : message.parameters) {
    require(!parameter.first.empty() && parameter.first != "user" && parameter.first != "database");
    pairs.push_back(parameter);
  }
  std::string out;
  wire::encode_startup(out, pairs);
  if (out.size() > wire::kMaxStartupPacket) return;
  const auto again = wire::decode_startup(out);
  const auto* same = std::get_if<wire::StartupMessage>(&again.packet);
  require(same != nullptr && same->user == message.user && same->database == message.database &&
          same->parameters == message.parameters && same->protocol_extensions.empty());
  out.clear();
  if (wire::needs_negotiation(message)) wire::encode_negotiate_protocol_version(out, message);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes = test::as_text(data, size);
  const auto decoded = wire::decode_startup(bytes);
  require(decoded.consumed <= size);
  if (std::holds_alternative<wire::NeedMore>(decoded.packet)) {
    require(decoded.consumed == 0 && size < wire::kMaxStartupPacket);
  }
  if (const auto* message = std::get_if<wire::StartupMessage>(&decoded.packet)) check(*message);
  if (const auto* bad = std::get_if<wire::BadPacket>(&decoded.packet)) {
    std::string out;
    wire::encode_bad_packet(out, *bad);
    require(bad->silent == out.empty());
  }
  return 0;
}
