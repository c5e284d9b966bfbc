// ErrorResponse and NoticeResponse:
//
//   ErrorResponse, NoticeResponse = { code:Byte1 value:String } Byte1(0)
//
// No field is taken for granted: servers before 9.6 send no 'V', and whoever answers on a server's
// port may send anything.
#include <algorithm>
#include <array>
#include <charconv>

#include "proxy/wire/backend.h"
#include "proxy/wire/bytes.h"
#include "proxy/wire/decode.h"

namespace collegedb::wire {
namespace {

constexpr std::array<std::string_view, 8> kSeverities = {"ERROR",  "FATAL", "PANIC", "WARNING",
                                                         "NOTICE", "DEBUG", "INFO",  "LOG"};

bool is_severity(std::string_view text) {
  return std::find(kSeverities.begin(), kSeverities.end(), text) != kSeverities.end();
}

bool is_sqlstate(std::string_view text) {
  return text.size() == 5 && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z');
         });
}

int parse_position(std::string_view text) {
  int position = 0;
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), position);
  const bool whole = fault == std::errc{} && end == text.data() + text.size();
  return whole && position > 0 ? position : 0;
}

void take_field(SqlError& error, bool& severity_is_fixed, char code, std::string_view value) {
  switch (code) {
    case 'S':  // in the server's language; 'V' is not
      if (!severity_is_fixed && is_severity(value)) error.severity = value;
      return;
    case 'V':
      if (!is_severity(value)) return;
      error.severity = value;
      severity_is_fixed = true;
      return;
    case 'C':
      if (is_sqlstate(value)) error.sqlstate = value;
      return;
    case 'M':
      error.message = value;
      return;
    case 'D':
      error.detail = value;
      return;
    case 'H':
      error.hint = value;
      return;
    case 'P':
      error.position = parse_position(value);
      return;
    default:
      error.other_fields.push_back(code);
      error.other_fields.append(value).push_back('\0');
  }
}

void encode_fields(std::string& out, char tag, const SqlError& error) {
  Writer writer(out);
  const auto field = [&writer](char code, std::string_view value) {
    writer.u8(static_cast<std::uint8_t>(code));
    writer.cstring(value);
  };
  writer.begin(tag);
  field('S', error.severity);
  field('V', error.severity);
  field('C', error.sqlstate);
  field('M', error.message);
  if (!error.detail.empty()) field('D', error.detail);
  if (!error.hint.empty()) field('H', error.hint);
  if (error.position > 0) field('P', std::to_string(error.position));
  writer.bytes(error.other_fields);
  writer.u8(0);
  writer.finish();
}

}  // namespace

Result<SqlError> decode_error(std::string_view payload) {
  Reader reader(payload);
  SqlError error;
  bool severity_is_fixed = false;
  for (auto code = static_cast<char>(reader.u8()); code != 0 && reader.ok();
       code = static_cast<char>(reader.u8())) {
    const std::string_view value = reader.cstring();
    if (reader.ok()) take_field(error, severity_is_fixed, code, value);
  }
  using Decoded = Result<SqlError>;
  if (!reader.at_end()) return Decoded(boost::system::in_place_error, detail::format_error(reader));
  return Decoded(boost::system::in_place_value, std::move(error));
}

void encode_error(std::string& out, const SqlError& error) {
  encode_fields(out, 'E', error);
}
void encode_notice(std::string& out, const SqlError& notice) {
  encode_fields(out, 'N', notice);
}

}  // namespace collegedb::wire
