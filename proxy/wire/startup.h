// The untagged packets a client may open with. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "proxy/wire/error.h"

namespace collegedb::wire {

inline constexpr std::int32_t kProtocol30 = 196608;
inline constexpr std::int32_t kProtocol32 = 196610;
inline constexpr std::int32_t kSslRequestCode = 80877103;
inline constexpr std::int32_t kGssEncRequestCode = 80877104;
inline constexpr std::int32_t kCancelRequestCode = 80877102;
inline constexpr std::size_t kMaxStartupPacket = 10004;

struct StartupMessage {
  std::int32_t protocol = kProtocol30;
  std::string user;      // truncated to 63 bytes; never empty after decode
  std::string database;  // defaults to user
  // Start-up GUCs, each name once (names compare without case; the last value wins). `options` is
  // already split into these (-c k=v, -ck=v, --k=v with backslash escapes) and stands before the
  // GUCs given by name, as PostgreSQL applies them. `replication` stays here when given, and is
  // then "true", "false" or "database".
  std::vector<std::pair<std::string, std::string>> parameters;
  std::vector<std::string> protocol_extensions;  // names that start with _pq_.
};
struct SslRequest {};
struct GssEncRequest {};
struct CancelRequest {
  std::int32_t pid = 0;
  std::string secret;  // 4 bytes for protocol 3.0
};
struct NeedMore {};
// Not a packet we can answer. silent: close without a word (U1, U2); old_style: protocol 2.0, the
// error goes out as 'E' text NUL (U4); otherwise a FATAL ErrorResponse.
struct BadPacket {
  bool silent = false;
  bool old_style = false;
  SqlError error;
};
using StartupPacket =
    std::variant<NeedMore, StartupMessage, SslRequest, GssEncRequest, CancelRequest, BadPacket>;

struct StartupDecode {
  StartupPacket packet;
  std::size_t consumed = 0;
};
// Looks at the first packet of `bytes`; refuses as soon as the length word shows a packet no client
// sends, so that never more than kMaxStartupPacket bytes are waited for.
[[nodiscard]] StartupDecode decode_startup(std::string_view bytes);

// The bytes of a BadPacket's answer; none when it is silent.
void encode_bad_packet(std::string& out, const BadPacket& bad);
// FATAL 0A000 for a request code or version we do not speak, also for an encryption request that
// comes a second time.
[[nodiscard]] SqlError unsupported_protocol(std::int32_t code);

// What we send to a shard: protocol 3.0. REQUIRES: names are not empty.
void encode_startup(std::string& out,
                    const std::vector<std::pair<std::string, std::string>>& parameters);
void encode_ssl_request(std::string& out);
void encode_cancel_request(std::string& out, std::int32_t pid, std::string_view secret);

// 'v' NegotiateProtocolVersion: newest version we speak and the extension names we do not know.
// Goes out before any Authentication message.
[[nodiscard]] bool needs_negotiation(const StartupMessage& message);
void encode_negotiate_protocol_version(std::string& out, const StartupMessage& message);

}  // namespace collegedb::wire
