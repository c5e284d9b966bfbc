// Client -> server messages: one struct, encode and decode beside each other, fields named as in
// the PostgreSQL manual ("Message Formats"). Decoded views borrow from the payload.
// decode() is strict: counts against bytes left, trailing bytes refused, -1 alone is NULL. Its
// error is PostgreSQL's own (08P01) and leaves the session alive; only split() gives a stream up.
// encode() REQUIRES at most 65535 items and 1 GB (bytes.h); a string ends at its first NUL.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "proxy/wire/error.h"
#include "proxy/wire/frame.h"

namespace collegedb::wire {

struct Query {  // 'Q'
  std::string_view query;
  static Result<Query> decode(std::string_view payload);
  void encode(std::string& out) const;
};
struct Parse {  // 'P'
  std::string_view statement;
  std::string_view query;
  std::vector<std::uint32_t> parameter_types;
  static Result<Parse> decode(std::string_view payload);
  void encode(std::string& out) const;
};
struct Bind {  // 'B'
  std::string_view portal;
  std::string_view statement;
  std::vector<std::int16_t> parameter_formats;              // 0, 1 or one per parameter
  std::vector<std::optional<std::string_view>> parameters;  // nullopt = NULL
  std::vector<std::int16_t> result_formats;                 // 0, 1 or one per column
  static Result<Bind> decode(std::string_view payload);
  void encode(std::string& out) const;
  [[nodiscard]] bool parameter_is_binary(std::size_t index) const noexcept;
  [[nodiscard]] bool result_is_binary(std::size_t column) const noexcept;
};
enum class Target : char { kStatement = 'S', kPortal = 'P' };
struct Describe {  // 'D'
  Target target = Target::kStatement;
  std::string_view name;
  static Result<Describe> decode(std::string_view payload);
  void encode(std::string& out) const;
};
struct Execute {  // 'E'
  std::string_view portal;
  std::int32_t max_rows = 0;  // <= 0: no limit
  static Result<Execute> decode(std::string_view payload);
  void encode(std::string& out) const;
};
struct CloseMessage {  // 'C'
  Target target = Target::kStatement;
  std::string_view name;
  static Result<CloseMessage> decode(std::string_view payload);
  void encode(std::string& out) const;
};
// Copies a Bind with another statement name (and portal), bytes otherwise untouched. REQUIRES: the
// payload went through Bind::decode().
void encode_rebound(std::string& out, std::string_view bind_payload, std::string_view portal,
                    std::string_view statement);

struct PasswordMessage {      // 'p'
  std::string_view password;  // may be empty, which PostgreSQL refuses (28P01)
  static Result<PasswordMessage> decode(std::string_view payload);
  void encode(std::string& out) const;
};
struct SaslInitialResponse {  // 'p'
  std::string_view mechanism;
  std::optional<std::string_view> data;
  static Result<SaslInitialResponse> decode(std::string_view payload);
  void encode(std::string& out) const;
};
struct SaslResponse {  // 'p'
  std::string_view data;
  void encode(std::string& out) const;
};
struct CopyFail {  // 'f'
  std::string_view message;
  static Result<CopyFail> decode(std::string_view payload);
  void encode(std::string& out) const;
};
struct FunctionCallMessage {  // 'F'
  std::uint32_t oid = 0;
  std::vector<std::int16_t> argument_formats;
  std::vector<std::optional<std::string_view>> arguments;
  std::int16_t result_format = 0;
  static Result<FunctionCallMessage> decode(std::string_view payload);
};

// Sync, Flush: nothing but the header.
Result<void> decode_empty(std::string_view payload);

void encode_sync(std::string& out);
void encode_flush(std::string& out);
void encode_terminate(std::string& out);
void encode_copy_done(std::string& out);
void encode_copy_data(std::string& out, std::string_view data);

}  // namespace collegedb::wire
