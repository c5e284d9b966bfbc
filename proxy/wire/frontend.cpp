#include "proxy/wire/frontend.h"

#include "proxy/wire/bytes.h"
#include "proxy/wire/decode.h"

namespace collegedb::wire {

using detail::finished;
using detail::format_error;

namespace {

SqlError protocol_violation(std::string_view text) {
  return make_error("08P01", text);
}

// 0 formats: all text. 1: that one for all. Else one each, which decode() has checked or the
// server will.
bool is_binary(const std::vector<std::int16_t>& formats, std::size_t index) noexcept {
  if (formats.size() == 1) return formats.front() == 1;
  return index < formats.size() && formats[index] == 1;
}

// target:Byte1('S' | 'P') name:String
template <class Message>
Result<Message> decode_target(std::string_view payload, std::string_view what) {
  Reader reader(payload);
  const std::uint8_t target = reader.u8();
  Message message;
  message.target = static_cast<Target>(target);
  message.name = reader.cstring();
  if (!reader.at_end()) return format_error(reader);
  if (message.target != Target::kStatement && message.target != Target::kPortal) {
    std::string text = "invalid ";
    text.append(what).append(" message subtype ").append(std::to_string(target));
    return protocol_violation(text);
  }
  return message;
}

void encode_target(std::string& out, char tag, Target target, std::string_view name) {
  Writer writer(out);
  writer.begin(tag);
  writer.u8(static_cast<std::uint8_t>(target));
  writer.cstring(name);
  writer.finish();
}

void encode_empty(std::string& out, char tag) {
  Writer writer(out);
  writer.begin(tag);
  writer.finish();
}

// Formats are none, one for all, or one each.
bool formats_fit(std::size_t formats, std::size_t values) {
  return formats <= 1 || formats == values;
}

std::string counts(std::string_view before, std::size_t first, std::string_view between,
                   std::size_t second, std::string_view after) {
  std::string text(before);
  text.append(std::to_string(first)).append(between).append(std::to_string(second)).append(after);
  return text;
}

// With the context that PostgreSQL gives it.
SqlError value_error(const Reader& reader, const Bind& message) {
  SqlError error = format_error(reader);
  error.other_fields = "W";
  error.other_fields +=
      message.portal.empty() ? "unnamed portal" : "portal \"" + std::string(message.portal) + "\"";
  error.other_fields += " parameter $" + std::to_string(message.parameters.size());
  error.other_fields.push_back('\0');
  return error;
}

}  // namespace

// Query = query:String
Result<Query> Query::decode(std::string_view payload) {
  Reader reader(payload);
  return finished(reader, Query{reader.cstring()});
}

void Query::encode(std::string& out) const {
  Writer writer(out);
  writer.begin('Q');
  writer.cstring(query);
  writer.finish();
}

// Parse = statement:String query:String count:Int16 { parameter_type:Int32 } * count
Result<Parse> Parse::decode(std::string_view payload) {
  Reader reader(payload);
  Parse message;
  message.statement = reader.cstring();
  message.query = reader.cstring();
  message.parameter_types = detail::read_list<std::uint32_t>(reader);
  return finished(reader, std::move(message));
}

void Parse::encode(std::string& out) const {
  Writer writer(out);
  writer.begin('P');
  writer.cstring(statement);
  writer.cstring(query);
  detail::write_list(writer, parameter_types);
  writer.finish();
}

// Bind = portal:String statement:String
//        count:Int16 { parameter_format:Int16 } * count
//        count:Int16 { length:Int32 value:Byte[length] } * count      length -1 = NULL
//        count:Int16 { result_format:Int16 } * count
Result<Bind> Bind::decode(std::string_view payload) {
  Reader reader(payload);
  Bind message;
  message.portal = reader.cstring();
  message.statement = reader.cstring();
  message.parameter_formats = detail::read_list<std::int16_t>(reader);
  const bool before_values = reader.ok();
  detail::read_values(reader, message.parameters);
  if (before_values && !reader.ok() && !message.parameters.empty()) {
    return value_error(reader, message);
  }
  message.result_formats = detail::read_list<std::int16_t>(reader);
  if (!reader.at_end()) return format_error(reader);
  if (!formats_fit(message.parameter_formats.size(), message.parameters.size())) {
    return protocol_violation(counts("bind message has ", message.parameter_formats.size(),
                                     " parameter formats but ", message.parameters.size(),
                                     " parameters"));
  }
  return message;
}

void Bind::encode(std::string& out) const {
  Writer writer(out);
  writer.begin('B');
  writer.cstring(portal);
  writer.cstring(statement);
  detail::write_list(writer, parameter_formats);
  detail::write_values(writer, parameters);
  detail::write_list(writer, result_formats);
  writer.finish();
}

bool Bind::parameter_is_binary(std::size_t index) const noexcept {
  return is_binary(parameter_formats, index);
}

bool Bind::result_is_binary(std::size_t column) const noexcept {
  return is_binary(result_formats, column);
}

void encode_rebound(std::string& out, std::string_view bind_payload, std::string_view portal,
                    std::string_view statement) {
  Reader reader(bind_payload);
  reader.cstring();
  reader.cstring();
  Writer writer(out);
  writer.begin('B');
  writer.cstring(portal);
  writer.cstring(statement);
  writer.bytes(reader.rest());
  writer.finish();
}

// Describe = target name
Result<Describe> Describe::decode(std::string_view payload) {
  return decode_target<Describe>(payload, "DESCRIBE");
}

void Describe::encode(std::string& out) const {
  encode_target(out, 'D', target, name);
}

// Close = target name
Result<CloseMessage> CloseMessage::decode(std::string_view payload) {
  return decode_target<CloseMessage>(payload, "CLOSE");
}

void CloseMessage::encode(std::string& out) const {
  encode_target(out, 'C', target, name);
}

// Execute = portal:String max_rows:Int32
Result<Execute> Execute::decode(std::string_view payload) {
  Reader reader(payload);
  Execute message;
  message.portal = reader.cstring();
  message.max_rows = reader.i32();
  return finished(reader, message);
}

void Execute::encode(std::string& out) const {
  Writer writer(out);
  writer.begin('E');
  writer.cstring(portal);
  writer.i32(max_rows);
  writer.finish();
}

// Sync, Flush = nothing
Result<void> decode_empty(std::string_view payload) {
  if (!payload.empty()) return format_error(Reader(payload));
  return {};
}

void encode_sync(std::string& out) {
  encode_empty(out, 'S');
}
void encode_flush(std::string& out) {
  encode_empty(out, 'H');
}
void encode_terminate(std::string& out) {
  encode_empty(out, 'X');
}

// PasswordMessage = password:String
Result<PasswordMessage> PasswordMessage::decode(std::string_view payload) {
  Reader reader(payload);
  const PasswordMessage message{reader.cstring()};
  if (!reader.at_end()) return make_fatal("08P01", "invalid password packet size");
  return message;
}

void PasswordMessage::encode(std::string& out) const {
  Writer writer(out);
  writer.begin('p');
  writer.cstring(password);
  writer.finish();
}

// SASLInitialResponse = mechanism:String length:Int32 data:Byte[length]      length -1 = no data
Result<SaslInitialResponse> SaslInitialResponse::decode(std::string_view payload) {
  Reader reader(payload);
  SaslInitialResponse message;
  message.mechanism = reader.cstring();
  message.data = reader.nullable();
  if (!reader.at_end()) {
    SqlError error = format_error(reader);
    error.severity = "FATAL";
    return error;
  }
  return message;
}

void SaslInitialResponse::encode(std::string& out) const {
  Writer writer(out);
  writer.begin('p');
  writer.cstring(mechanism);
  writer.nullable(data);
  writer.finish();
}

// SASLResponse = data:Byte*
void SaslResponse::encode(std::string& out) const {
  Writer writer(out);
  writer.begin('p');
  writer.bytes(data);
  writer.finish();
}

// CopyFail = message:String
Result<CopyFail> CopyFail::decode(std::string_view payload) {
  Reader reader(payload);
  return finished(reader, CopyFail{reader.cstring()});
}

void CopyFail::encode(std::string& out) const {
  Writer writer(out);
  writer.begin('f');
  writer.cstring(message);
  writer.finish();
}

// CopyData = data:Byte*
void encode_copy_data(std::string& out, std::string_view data) {
  Writer writer(out);
  writer.begin('d');
  writer.bytes(data);
  writer.finish();
}

// CopyDone = nothing
void encode_copy_done(std::string& out) {
  encode_empty(out, 'c');
}

// FunctionCall = oid:Int32
//                count:Int16 { argument_format:Int16 } * count
//                count:Int16 { length:Int32 argument:Byte[length] } * count      length -1 = NULL
//                result_format:Int16
Result<FunctionCallMessage> FunctionCallMessage::decode(std::string_view payload) {
  Reader reader(payload);
  FunctionCallMessage message;
  message.oid = reader.u32();
  message.argument_formats = detail::read_list<std::int16_t>(reader);
  detail::read_values(reader, message.arguments);
  message.result_format = reader.i16();
  if (!reader.at_end()) return format_error(reader);
  if (!formats_fit(message.argument_formats.size(), message.arguments.size())) {
    return protocol_violation(counts("function call message contains ",
                                     message.argument_formats.size(), " argument formats but ",
                                     message.arguments.size(), " arguments"));
  }
  return message;
}

}  // namespace collegedb::wire
