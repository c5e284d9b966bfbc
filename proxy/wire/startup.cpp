#include "proxy/wire/startup.h"

#include <algorithm>
#include <iterator>
#include <optional>

#include "proxy/wire/backend.h"
#include "proxy/wire/bytes.h"
#include "proxy/wire/startup_options.h"

namespace collegedb::wire {
namespace {

constexpr std::size_t kLengthWord = 4;
constexpr std::size_t kRequestCode = 4;
constexpr std::size_t kMaxName = 63;  // PostgreSQL's NAMEDATALEN - 1
constexpr std::string_view kExtensionPrefix = "_pq_.";

using Parameters = std::vector<std::pair<std::string, std::string>>;

std::uint32_t major_of(std::int32_t protocol) {
  return static_cast<std::uint32_t>(protocol) >> 16;
}
std::uint32_t minor_of(std::int32_t protocol) {
  return protocol & 0xffff;
}

BadPacket silent() {
  return BadPacket{.silent = true, .old_style = false, .error = {}};
}

BadPacket fatal(SqlError error) {
  return BadPacket{.silent = false, .old_style = false, .error = std::move(error)};
}

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = lower(c);
  return result;
}

// PostgreSQL's words for a boolean: any prefix of true, false, yes and no; on, off and of; 1 and 0.
std::optional<bool> parse_bool(std::string_view text) {
  const std::string word = lower(text);
  if (word.empty()) return std::nullopt;
  const auto begins = [&word](std::string_view full) { return full.starts_with(word); };
  if (begins("true") || begins("yes") || word == "on" || word == "1") return true;
  if (begins("false") || begins("no") || word == "off" || word == "of" || word == "0") return false;
  return std::nullopt;
}

struct RawStartup {
  std::string user;
  std::string database;
  std::optional<std::string> options;
  std::optional<std::string> replication;
  Parameters parameters;
  std::vector<std::string> protocol_extensions;
};

void take_parameter(RawStartup& raw, std::string_view name, std::string_view value) {
  if (name == "user") {
    raw.user = value;
  } else if (name == "database") {
    raw.database = value;
  } else if (name == "options") {
    raw.options = value;
  } else if (name == "replication") {
    raw.replication = value;
  } else if (name.starts_with(kExtensionPrefix)) {
    raw.protocol_extensions.emplace_back(name);
  } else {
    raw.parameters.emplace_back(name, value);
  }
}

// False: the layout is broken.
bool parse_pairs(Reader reader, RawStartup& raw) {
  while (true) {
    const std::string_view name = reader.cstring();
    if (name.empty()) return reader.at_end();
    const std::string_view value = reader.cstring();
    if (!reader.ok()) return false;
    take_parameter(raw, name, value);
  }
}

// Keeps the last of each name, in the order of those. n log n: this runs before authentication.
Parameters last_of_each_name(Parameters parameters) {
  std::vector<std::pair<std::string, std::size_t>> order;
  order.reserve(parameters.size());
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    order.emplace_back(lower(parameters[i].first), i);
  }
  std::sort(order.begin(), order.end());
  std::vector<std::size_t> kept;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const bool is_last = i + 1 == order.size() || order[i + 1].first != order[i].first;
    if (is_last) kept.push_back(order[i].second);
  }
  std::sort(kept.begin(), kept.end());
  Parameters result;
  result.reserve(kept.size());
  for (const std::size_t i : kept) result.push_back(std::move(parameters[i]));
  return result;
}

// Names that mean something else in a start-up packet. As a GUC (another case, or through
// `options`) PostgreSQL knows none of them, and sent on to a shard they would change who logs in
// where.
bool is_reserved(const std::string& name) {
  const std::string folded = lower(name);
  return folded == "user" || folded == "database" || folded == "options" ||
         folded == "replication" || folded.starts_with(kExtensionPrefix);
}

// The GUCs as PostgreSQL applies them: `options` first, then those given by name.
Result<Parameters> session_parameters(RawStartup& raw) {
  Parameters all;
  if (raw.options) {
    const auto parsed = detail::parse_startup_options(*raw.options, all);
    if (!parsed) return parsed.error();
  }
  std::move(raw.parameters.begin(), raw.parameters.end(), std::back_inserter(all));
  for (const auto& [name, value] : all) {
    if (is_reserved(name)) {
      return make_fatal("42704", "unrecognized configuration parameter \"" + name + "\"");
    }
  }
  if (raw.replication) all.emplace_back("replication", std::move(*raw.replication));
  return last_of_each_name(std::move(all));
}

// In the order of PostgreSQL's own checks.
std::optional<SqlError> check(RawStartup& raw) {
  if (raw.replication && *raw.replication != "database") {
    const auto parsed = parse_bool(*raw.replication);
    if (!parsed) {
      return make_fatal("22023",
                        "invalid value for parameter \"replication\": \"" + *raw.replication + "\"",
                        "Valid values are: \"false\", 0, \"true\", 1, \"database\".");
    }
    raw.replication = *parsed ? "true" : "false";
  }
  if (raw.user.empty()) {
    return make_fatal("28000", "no PostgreSQL user name specified in startup packet");
  }
  return std::nullopt;
}

// StartupMessage = protocol:Int32 { name:String value:String } Byte1(0)
StartupPacket decode_startup_message(std::int32_t protocol, Reader reader) {
  if (major_of(protocol) != major_of(kProtocol30)) {
    BadPacket bad = fatal(unsupported_protocol(protocol));
    bad.old_style = major_of(protocol) < major_of(kProtocol30);
    return bad;
  }
  RawStartup raw;
  if (!parse_pairs(reader, raw)) {
    return fatal(
        make_fatal("08P01", "invalid startup packet layout: expected terminator as last byte"));
  }
  if (auto error = check(raw)) return fatal(std::move(*error));
  auto parameters = session_parameters(raw);
  if (!parameters) return fatal(parameters.error());
  StartupMessage message;
  message.protocol = protocol;
  message.database = (raw.database.empty() ? raw.user : raw.database).substr(0, kMaxName);
  message.user = raw.user.substr(0, kMaxName);
  message.parameters = std::move(*parameters);
  message.protocol_extensions = std::move(raw.protocol_extensions);
  return message;
}

// SSLRequest, GSSENCRequest = code:Int32      what else is in the packet counts for nothing
// CancelRequest = code:Int32 pid:Int32 secret:Byte4
StartupPacket decode_body(std::string_view body) {
  Reader reader(body);
  const std::int32_t code = reader.i32();
  switch (code) {
    case kSslRequestCode:
      return SslRequest{};
    case kGssEncRequestCode:
      return GssEncRequest{};
    case kCancelRequestCode: {
      CancelRequest cancel;
      cancel.pid = reader.i32();
      cancel.secret = reader.bytes(4);
      if (!reader.at_end()) return silent();
      return cancel;
    }
    default:
      return decode_startup_message(code, reader);
  }
}

}  // namespace

// packet = length:Int32 body:Byte[length - 4]      8 <= length <= 10004
StartupDecode decode_startup(std::string_view bytes) {
  if (bytes.size() < kLengthWord) return {NeedMore{}, 0};
  const std::size_t length = Reader(bytes).u32();
  if (length < kLengthWord + kRequestCode || length > kMaxStartupPacket) return {silent(), 0};
  if (bytes.size() < length) return {NeedMore{}, 0};
  return {decode_body(bytes.substr(kLengthWord, length - kLengthWord)), length};
}

void encode_bad_packet(std::string& out, const BadPacket& bad) {
  if (bad.silent) return;
  if (!bad.old_style) return encode_error(out, bad.error);
  // Protocol 2.0: ErrorResponse = Byte1('E') text:String, without a length word.
  Writer writer(out);
  writer.u8('E');
  writer.cstring(bad.error.severity + ":  " + bad.error.message + "\n");
}

SqlError unsupported_protocol(std::int32_t code) {
  return make_fatal("0A000", "unsupported frontend protocol " + std::to_string(major_of(code)) +
                                 "." + std::to_string(minor_of(code)) +
                                 ": server supports 3.0 to 3.0");
}

void encode_startup(std::string& out,
                    const std::vector<std::pair<std::string, std::string>>& parameters) {
  Writer writer(out);
  writer.begin_untagged();
  writer.i32(kProtocol30);
  for (const auto& [name, value] : parameters) {
    writer.cstring(name);
    writer.cstring(value);
  }
  writer.u8(0);
  writer.finish();
}

void encode_ssl_request(std::string& out) {
  Writer writer(out);
  writer.begin_untagged();
  writer.i32(kSslRequestCode);
  writer.finish();
}

void encode_cancel_request(std::string& out, std::int32_t pid, std::string_view secret) {
  Writer writer(out);
  writer.begin_untagged();
  writer.i32(kCancelRequestCode);
  writer.i32(pid);
  writer.bytes(secret);
  writer.finish();
}

bool needs_negotiation(const StartupMessage& message) {
  return minor_of(message.protocol) > minor_of(kProtocol30) || !message.protocol_extensions.empty();
}

// NegotiateProtocolVersion = newest:Int32 count:Int32 { extension:String } * count
void encode_negotiate_protocol_version(std::string& out, const StartupMessage& message) {
  Writer writer(out);
  writer.begin('v');
  writer.i32(kProtocol30);
  writer.u32(static_cast<std::uint32_t>(message.protocol_extensions.size()));
  for (const auto& name : message.protocol_extensions) writer.cstring(name);
  writer.finish();
}

}  // namespace collegedb::wire
