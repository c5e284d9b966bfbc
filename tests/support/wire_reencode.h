// Decodes a payload by its tag and encodes what came out: tests and fuzzers compare that with the
// bytes that went in.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "proxy/wire/backend.h"
#include "proxy/wire/frontend.h"

namespace collegedb::test {

template <class Message, class... Args>
Result<std::string> reencode(Args... args) {
  const auto message = Message::decode(args...);
  if (!message) return message.error();
  std::string out;
  message->encode(out);
  return out;
}

inline Result<std::string> reencode_empty(std::string_view payload, void (*encode)(std::string&)) {
  const auto decoded = wire::decode_empty(payload);
  if (!decoded) return decoded.error();
  std::string out;
  encode(out);
  return out;
}

// nullopt: a message without a decoder of its own, such as CopyData.
inline std::optional<Result<std::string>> reencode_frontend(char tag, std::string_view payload) {
  switch (tag) {
    case 'Q':
      return reencode<wire::Query>(payload);
    case 'P':
      return reencode<wire::Parse>(payload);
    case 'B':
      return reencode<wire::Bind>(payload);
    case 'D':
      return reencode<wire::Describe>(payload);
    case 'E':
      return reencode<wire::Execute>(payload);
    case 'C':
      return reencode<wire::CloseMessage>(payload);
    case 'f':
      return reencode<wire::CopyFail>(payload);
    case 'p':
      return reencode<wire::PasswordMessage>(payload);
    case 'S':
      return reencode_empty(payload, wire::encode_sync);
    case 'H':
      return reencode_empty(payload, wire::encode_flush);
    default:
      return std::nullopt;
  }
}

inline Result<std::string> reencode_error(char tag, std::string_view payload) {
  const auto error = wire::decode_error(payload);
  if (!error) return error.error();
  std::string out;
  if (tag == 'E') {
    wire::encode_error(out, *error);
  } else {
    wire::encode_notice(out, *error);
  }
  return out;
}

inline std::optional<Result<std::string>> reencode_backend(char tag, std::string_view payload) {
  switch (tag) {
    case 'R':
      return reencode<wire::Authentication>(payload);
    case 'S':
      return reencode<wire::ParameterStatus>(payload);
    case 'K':
      return reencode<wire::BackendKeyData>(payload);
    case 'Z':
      return reencode<wire::ReadyForQuery>(payload);
    case 'T':
      return reencode<wire::RowDescription>(payload);
    case 't':
      return reencode<wire::ParameterDescription>(payload);
    case 'D':
      return reencode<wire::DataRow>(payload);
    case 'C':
      return reencode<wire::CommandComplete>(payload);
    case 'A':
      return reencode<wire::NotificationResponse>(payload);
    case 'G':
    case 'H':
    case 'W':
      return reencode<wire::CopyResponse>(tag, payload);
    case 'E':
    case 'N':
      return reencode_error(tag, payload);
    default:
      return std::nullopt;
  }
}

}  // namespace collegedb::test
