// SCRAM messages of a hostile peer. The input is lines; the first says who is attacked:
//
//   server  mechanism  client-first-message  client-final-message
//   client  server-first-message  server-final-message
//   verifier  text
#include "proxy/wire/scram.h"

#include <algorithm>
#include <vector>

#include "tests/fuzz/fuzz_target.h"

using namespace collegedb;
using test::require;

namespace {

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  for (;;) {
    const std::size_t end = text.find('\n');
    lines.push_back(text.substr(0, end));
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
  lines.resize(std::max<std::size_t>(lines.size(), 4));
  return lines;
}

void attack_server(const std::vector<std::string_view>& lines, bool mock) {
  static const auto verifier = wire::ScramVerifier::from_password("pencil", "salt", 1);
  wire::ScramServer server(verifier, "server-nonce", mock);
  const auto first = server.first(lines[1], lines[2]);
  const auto final = server.final(lines[3]);
  require(first.has_value() || final.has_error());
  require(!mock || final.has_error());
  require(server.final(lines[3]).has_error());
}

void attack_client(const std::vector<std::string_view>& lines) {
  // Rounds cost time and find nothing.
  const std::size_t rounds = lines[1].find(",i=");
  if (rounds != std::string_view::npos && lines[1].size() - rounds > 6) return;
  wire::ScramClient client("pencil", "client-nonce");
  client.first();
  const auto final = client.final(lines[1]);
  const auto verified = client.verify(lines[2]);
  require(final.has_value() || verified.has_error());
  require(verified.has_error() || *verified);
}

void read_verifier(std::string_view text) {
  const auto verifier = wire::ScramVerifier::parse(text);
  if (!verifier) return;
  const auto again = wire::ScramVerifier::parse(verifier->to_string());
  require(again.has_value() && again->to_string() == verifier->to_string());
  require(verifier->iterations > 0 && !verifier->salt.empty());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto lines = lines_of(test::as_text(data, size));
  if (lines[0] == "server") {
    attack_server(lines, false);
    attack_server(lines, true);
  } else if (lines[0] == "client") {
    attack_client(lines);
  } else if (lines[0] == "verifier") {
    read_verifier(lines[1]);
  }
  return 0;
}
