#include "proxy/wire/backend.h"

#include "proxy/wire/bytes.h"
#include "proxy/wire/decode.h"

namespace collegedb::wire {

using detail::finished;
using detail::format_error;

// Authentication = kind:Int32 body
//   body of 5 (MD5Password)                        = salt:Byte4
//   body of 8, 11, 12 (GSSContinue, SASLContinue, SASLFinal) = data:Byte*
//   body of 10 (SASL)                              = { mechanism:String } Byte1(0)
//   body of 0, 3, 7, 9                             = nothing
Result<Authentication> Authentication::decode(std::string_view payload) {
  Reader reader(payload);
  Authentication message;
  const std::int32_t kind = reader.i32();
  message.kind = static_cast<AuthenticationKind>(kind);
  switch (message.kind) {
    case AuthenticationKind::kOk:
    case AuthenticationKind::kCleartextPassword:
    case AuthenticationKind::kGss:
    case AuthenticationKind::kSspi:
      break;
    case AuthenticationKind::kMd5Password:
      message.data = reader.bytes(4);
      break;
    case AuthenticationKind::kGssContinue:
    case AuthenticationKind::kSaslContinue:
    case AuthenticationKind::kSaslFinal:
      message.data = reader.bytes(static_cast<std::int64_t>(reader.remaining()));
      break;
    case AuthenticationKind::kSasl:
      for (auto name = reader.cstring(); !name.empty(); name = reader.cstring()) {
        message.mechanisms.push_back(name);
      }
      break;
    default:
      return make_error("08P01",
                        "authentication method " + std::to_string(kind) + " not supported");
  }
  return finished(reader, std::move(message));
}

void Authentication::encode(std::string& out) const {
  Writer writer(out);
  writer.begin('R');
  writer.i32(static_cast<std::int32_t>(kind));
  writer.bytes(data);
  if (kind == AuthenticationKind::kSasl) {
    for (const auto mechanism : mechanisms) writer.cstring(mechanism);
    writer.u8(0);
  }
  writer.finish();
}

// ParameterStatus = name:String value:String
Result<ParameterStatus> ParameterStatus::decode(std::string_view payload) {
  Reader reader(payload);
  ParameterStatus message;
  message.name = reader.cstring();
  message.value = reader.cstring();
  return finished(reader, message);
}

void ParameterStatus::encode(std::string& out) const {
  Writer writer(out);
  writer.begin('S');
  writer.cstring(name);
  writer.cstring(value);
  writer.finish();
}

// BackendKeyData = pid:Int32 secret:Byte[4 to 256]
Result<BackendKeyData> BackendKeyData::decode(std::string_view payload) {
  Reader reader(payload);
  BackendKeyData message;
  message.pid = reader.i32();
  if (reader.ok() && (reader.remaining() < 4 || reader.remaining() > 256)) {
    return make_error("08P01", "invalid cancel key length in message");
  }
  message.secret = reader.bytes(static_cast<std::int64_t>(reader.remaining()));
  return finished(reader, message);
}

void BackendKeyData::encode(std::string& out) const {
  Writer writer(out);
  writer.begin('K');
  writer.i32(pid);
  writer.bytes(secret);
  writer.finish();
}

// ReadyForQuery = status:Byte1('I' | 'T' | 'E')
Result<ReadyForQuery> ReadyForQuery::decode(std::string_view payload) {
  Reader reader(payload);
  ReadyForQuery message{static_cast<TransactionStatus>(reader.u8())};
  switch (message.status) {
    case TransactionStatus::kIdle:
    case TransactionStatus::kInTransaction:
    case TransactionStatus::kFailed:
      return finished(reader, message);
  }
  if (!reader.ok()) return format_error(reader);
  return make_error("08P01", "invalid transaction status in message");
}

void ReadyForQuery::encode(std::string& out) const {
  Writer writer(out);
  writer.begin('Z');
  writer.u8(static_cast<std::uint8_t>(status));
  writer.finish();
}

// RowDescription = count:Int16 { field } * count
//   field = name:String table_oid:Int32 column:Int16
//           type_oid:Int32 type_size:Int16 type_modifier:Int32 format:Int16
Result<RowDescription> RowDescription::decode(std::string_view payload) {
  constexpr std::size_t kSmallestField = 1 + 4 + 2 + 4 + 2 + 4 + 2;
  Reader reader(payload);
  RowDescription message;
  const std::size_t count = reader.u16();
  message.fields.reserve(detail::bounded(count, reader, kSmallestField));
  for (std::size_t i = 0; i < count && reader.ok(); ++i) {
    FieldDescription& field = message.fields.emplace_back();
    field.name = reader.cstring();
    field.table_oid = reader.u32();
    field.column = reader.i16();
    field.type_oid = reader.u32();
    field.type_size = reader.i16();
    field.type_modifier = reader.i32();
    field.format = reader.i16();
  }
  return finished(reader, std::move(message));
}

void RowDescription::encode(std::string& out) const {
  Writer writer(out);
  writer.begin('T');
  writer.count(fields.size());
  for (const auto& field : fields) {
    writer.cstring(field.name);
    writer.u32(field.table_oid);
    writer.i16(field.column);
    writer.u32(field.type_oid);
    writer.i16(field.type_size);
    writer.i32(field.type_modifier);
    writer.i16(field.format);
  }
  writer.finish();
}

// ParameterDescription = count:Int16 { type_oid:Int32 } * count
Result<ParameterDescription> ParameterDescription::decode(std::string_view payload) {
  Reader reader(payload);
  ParameterDescription message;
  message.types = detail::read_list<std::uint32_t>(reader);
  return finished(reader, std::move(message));
}

void ParameterDescription::encode(std::string& out) const {
  Writer writer(out);
  writer.begin('t');
  detail::write_list(writer, types);
  writer.finish();
}

// DataRow = count:Int16 { length:Int32 value:Byte[length] } * count      length -1 = NULL
Result<DataRow> DataRow::decode(std::string_view payload) {
  Reader reader(payload);
  DataRow message;
  detail::read_values(reader, message.values);
  return finished(reader, std::move(message));
}

bool DataRow::assign(std::string_view payload) {
  Reader reader(payload);
  detail::read_values(reader, values);
  return reader.at_end();
}

void DataRow::encode(std::string& out) const {
  Writer writer(out);
  writer.begin('D');
  detail::write_values(writer, values);
  writer.finish();
}

// CommandComplete = tag:String
Result<CommandComplete> CommandComplete::decode(std::string_view payload) {
  Reader reader(payload);
  return finished(reader, CommandComplete{reader.cstring()});
}

void CommandComplete::encode(std::string& out) const {
  Writer writer(out);
  writer.begin('C');
  writer.cstring(tag);
  writer.finish();
}

// NotificationResponse = pid:Int32 channel:String payload:String
Result<NotificationResponse> NotificationResponse::decode(std::string_view bytes) {
  Reader reader(bytes);
  NotificationResponse message;
  message.pid = reader.i32();
  message.channel = reader.cstring();
  message.payload = reader.cstring();
  return finished(reader, message);
}

void NotificationResponse::encode(std::string& out) const {
  Writer writer(out);
  writer.begin('A');
  writer.i32(pid);
  writer.cstring(channel);
  writer.cstring(payload);
  writer.finish();
}

// CopyInResponse, CopyOutResponse, CopyBothResponse =
//   format:Int8(0 text | 1 binary) count:Int16 { column_format:Int16 } * count
Result<CopyResponse> CopyResponse::decode(char tag, std::string_view payload) {
  Reader reader(payload);
  CopyResponse message;
  message.tag = tag;
  const std::uint8_t format = reader.u8();
  message.binary = format == 1;
  message.column_formats = detail::read_list<std::int16_t>(reader);
  if (format > 1) return make_error("08P01", "invalid copy format in message");
  return finished(reader, std::move(message));
}

void CopyResponse::encode(std::string& out) const {
  Writer writer(out);
  writer.begin(tag);
  writer.u8(binary ? 1 : 0);
  detail::write_list(writer, column_formats);
  writer.finish();
}

// FunctionCallResponse = length:Int32 value:Byte[length]      length -1 = NULL
void encode_function_call_response(std::string& out, std::optional<std::string_view> value) {
  Writer writer(out);
  writer.begin('V');
  writer.nullable(value);
  writer.finish();
}

namespace {

void encode_empty(std::string& out, char tag) {
  Writer writer(out);
  writer.begin(tag);
  writer.finish();
}

}  // namespace

void encode_parse_complete(std::string& out) {
  encode_empty(out, '1');
}
void encode_bind_complete(std::string& out) {
  encode_empty(out, '2');
}
void encode_close_complete(std::string& out) {
  encode_empty(out, '3');
}
void encode_no_data(std::string& out) {
  encode_empty(out, 'n');
}
void encode_empty_query_response(std::string& out) {
  encode_empty(out, 'I');
}
void encode_portal_suspended(std::string& out) {
  encode_empty(out, 's');
}

}  // namespace collegedb::wire
