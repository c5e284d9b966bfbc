// Server -> client messages, encode and decode beside each other. Decoded views borrow from the
// payload. The server side is untrusted too: every field is checked, and a message that does not
// fit its grammar is an error 08P01. encode() REQUIRES at most 65535 items and 1 GB (bytes.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "proxy/wire/error.h"

namespace collegedb::wire {

// 'R'
enum class AuthenticationKind : std::int32_t {
  kOk = 0,
  kCleartextPassword = 3,
  kMd5Password = 5,
  kGss = 7,
  kGssContinue = 8,
  kSspi = 9,
  kSasl = 10,
  kSaslContinue = 11,
  kSaslFinal = 12,
};
struct Authentication {
  AuthenticationKind kind = AuthenticationKind::kOk;
  std::string_view data;                     // md5 salt (4 bytes), SASL continue/final data
  std::vector<std::string_view> mechanisms;  // kSasl
  static Result<Authentication> decode(std::string_view payload);
  void encode(std::string& out) const;
};
struct ParameterStatus {  // 'S'
  std::string_view name;
  std::string_view value;
  static Result<ParameterStatus> decode(std::string_view payload);
  void encode(std::string& out) const;
};
struct BackendKeyData {  // 'K'
  std::int32_t pid = 0;
  std::string_view secret;  // 4 bytes for protocol 3.0, up to 256 for 3.2
  static Result<BackendKeyData> decode(std::string_view payload);
  void encode(std::string& out) const;
};
enum class TransactionStatus : char { kIdle = 'I', kInTransaction = 'T', kFailed = 'E' };
struct ReadyForQuery {  // 'Z'
  TransactionStatus status = TransactionStatus::kIdle;
  static Result<ReadyForQuery> decode(std::string_view payload);
  void encode(std::string& out) const;
};
struct FieldDescription {
  std::string_view name;
  std::uint32_t table_oid = 0;
  std::int16_t column = 0;
  std::uint32_t type_oid = 0;
  std::int16_t type_size = -1;
  std::int32_t type_modifier = -1;
  std::int16_t format = 0;
};
struct RowDescription {  // 'T'
  std::vector<FieldDescription> fields;
  static Result<RowDescription> decode(std::string_view payload);
  void encode(std::string& out) const;
};
struct ParameterDescription {  // 't'
  std::vector<std::uint32_t> types;
  static Result<ParameterDescription> decode(std::string_view payload);
  void encode(std::string& out) const;
};
struct DataRow {                                        // 'D'
  std::vector<std::optional<std::string_view>> values;  // nullopt = NULL
  static Result<DataRow> decode(std::string_view payload);
  // decode() into this row, whose memory is reused: no allocation per row of a stream. False (and
  // values unspecified) exactly where decode() gives an error.
  [[nodiscard]] bool assign(std::string_view payload);
  void encode(std::string& out) const;
};
struct CommandComplete {  // 'C'
  std::string_view tag;
  static Result<CommandComplete> decode(std::string_view payload);
  void encode(std::string& out) const;
};
struct NotificationResponse {  // 'A'
  std::int32_t pid = 0;
  std::string_view channel;
  std::string_view payload;
  static Result<NotificationResponse> decode(std::string_view bytes);
  void encode(std::string& out) const;
};

struct CopyResponse {  // 'G' in, 'H' out, 'W' both
  char tag = 'G';
  bool binary = false;
  std::vector<std::int16_t> column_formats;  // one per column
  static Result<CopyResponse> decode(char tag, std::string_view payload);
  void encode(std::string& out) const;
};

// 'E' and 'N'. Missing fields get defaults (severity ERROR, sqlstate XX000); fields without a
// member go to other_fields. encode_* writes 'S' and 'V' alike.
Result<SqlError> decode_error(std::string_view payload);
void encode_error(std::string& out, const SqlError& error);
void encode_notice(std::string& out, const SqlError& notice);

void encode_parse_complete(std::string& out);
void encode_bind_complete(std::string& out);
void encode_close_complete(std::string& out);
void encode_no_data(std::string& out);
void encode_empty_query_response(std::string& out);
void encode_portal_suspended(std::string& out);
void encode_function_call_response(std::string& out, std::optional<std::string_view> value);

}  // namespace collegedb::wire
