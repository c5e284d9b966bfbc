#include "proxy/session/admin_value.h"

#include <bit>
#include <charconv>
#include <vector>

#include "proxy/wire/bytes.h"

namespace collegedb::session {
namespace {

SqlError bad_binary(std::uint32_t type) {
  return make_error("22P03",
                    "incorrect binary data format for a parameter of type " + std::to_string(type),
                    "Send the parameter in text format.");
}

template <class T>
std::optional<T> number(std::string_view text) {
  T value{};
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (ec != std::errc{} || end != text.data() + text.size()) {
    return std::nullopt;
  }
  return value;
}

void append_i64(std::string& out, std::uint64_t value) {
  wire::Writer writer(out);
  writer.u32(static_cast<std::uint32_t>(value >> 32));
  writer.u32(static_cast<std::uint32_t>(value));
}

std::uint64_t read_u64(wire::Reader& reader) {
  const std::uint64_t high = reader.u32();
  return (high << 32) | reader.u32();
}

// interval: Int64 microseconds, Int32 days, Int32 months.
std::string interval_text(wire::Reader& reader) {
  const auto microseconds = static_cast<std::int64_t>(read_u64(reader));
  const std::int32_t days = reader.i32();
  const std::int32_t months = reader.i32();
  return std::to_string(months) + " mons " + std::to_string(days) + " days " +
         std::to_string(microseconds) + " microseconds";
}

std::string quoted_element(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
    }
    out += c;
  }
  return out += '"';
}

// text[]: Int32 dimensions, Int32 has nulls, Oid element; per dimension Int32 size, Int32 lower
// bound; per element Int32 length and bytes. One dimension only.
std::optional<std::string> array_text(wire::Reader& reader) {
  const std::int32_t dimensions = reader.i32();
  reader.i32();
  reader.i32();
  if (dimensions == 0 && reader.at_end()) {
    return "{}";
  }
  const std::int32_t size = reader.i32();
  reader.i32();
  if (dimensions != 1 || size < 0 || !reader.ok()) {
    return std::nullopt;
  }
  std::string out = "{";
  for (std::int32_t i = 0; i < size && reader.ok(); ++i) {
    const std::int32_t length = reader.i32();
    out += i > 0 ? "," : "";
    out += length == -1 ? "NULL" : quoted_element(reader.bytes(length));
  }
  return reader.at_end() ? std::optional(out + "}") : std::nullopt;
}

}  // namespace

Result<std::optional<std::string>> parameter_text(const routing::Parameter& parameter,
                                                  std::uint32_t type) {
  if (!parameter.value) {
    return std::optional<std::string>();
  }
  if (!parameter.binary) {
    return std::optional<std::string>(std::string(*parameter.value));
  }
  wire::Reader reader(*parameter.value);
  std::string text;
  switch (type) {
    case kTextOid:
    case kVarcharOid:
    case kJsonOid:
    case 0:
      return std::optional<std::string>(std::string(*parameter.value));
    case kJsonbOid:
      reader.u8();
      return std::optional<std::string>(std::string(reader.rest()));
    case kBoolOid:
      text = reader.u8() != 0 ? "true" : "false";
      break;
    case kInt2Oid:
      text = std::to_string(reader.i16());
      break;
    case kInt4Oid:
      text = std::to_string(reader.i32());
      break;
    case kInt8Oid:
      text = std::to_string(static_cast<std::int64_t>(read_u64(reader)));
      break;
    case kIntervalOid:
      text = interval_text(reader);
      break;
    case kTextArrayOid: {
      auto array = array_text(reader);
      if (!array) {
        return bad_binary(type);
      }
      text = std::move(*array);
      break;
    }
    default:
      return make_error("0A000",
                        "a binary parameter of type " + std::to_string(type) +
                            " cannot be passed to an admin function",
                        "Send the parameter in text format.");
  }
  if (!reader.at_end()) {
    return bad_binary(type);
  }
  return std::optional<std::string>(std::move(text));
}

Result<std::string> to_binary(std::string_view text, std::uint32_t type) {
  std::string out;
  wire::Writer writer(out);
  switch (type) {
    case kTextOid:
    case kVarcharOid:
    case kJsonOid:
      return std::string(text);
    case kJsonbOid:
      return "\x01" + std::string(text);
    case kBoolOid:
      return std::string(1, text == "t" || text == "true" ? '\1' : '\0');
    case kInt2Oid:
      if (const auto value = number<std::int16_t>(text)) {
        writer.i16(*value);
        return out;
      }
      break;
    case kInt4Oid:
      if (const auto value = number<std::int32_t>(text)) {
        writer.i32(*value);
        return out;
      }
      break;
    case kInt8Oid:
      if (const auto value = number<std::int64_t>(text)) {
        append_i64(out, static_cast<std::uint64_t>(*value));
        return out;
      }
      break;
    case kFloat8Oid:
      if (const auto value = number<double>(text)) {
        append_i64(out, std::bit_cast<std::uint64_t>(*value));
        return out;
      }
      break;
    default:
      break;
  }
  return make_error("0A000",
                    "a column of type " + std::to_string(type) + " has no binary format here",
                    "Ask for the result in text format.");
}

std::int16_t type_size(std::uint32_t type) noexcept {
  switch (type) {
    case kBoolOid:
      return 1;
    case kInt2Oid:
      return 2;
    case kInt4Oid:
      return 4;
    case kInt8Oid:
    case kFloat8Oid:
      return 8;
    case kIntervalOid:
      return 16;
    default:
      return -1;
  }
}

}  // namespace collegedb::session
