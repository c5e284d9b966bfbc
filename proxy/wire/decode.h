// Shared by the decoders of this folder: how a Reader's end turns into a result.
#pragma once

#include <algorithm>
#include <optional>
#include <string_view>
#include <vector>

#include "proxy/wire/bytes.h"
#include "proxy/wire/error.h"

namespace collegedb::wire::detail {

// The error of a message that does not fit its grammar, in PostgreSQL's words (08P01). REQUIRES:
// the reader is bad, or stands before bytes that should not be there.
[[nodiscard]] inline SqlError format_error(const Reader& reader) {
  switch (reader.fault()) {
    case Reader::Fault::kNoByte:
      return make_error("08P01", "no data left in message");
    case Reader::Fault::kTooShort:
      return make_error("08P01", "insufficient data left in message");
    case Reader::Fault::kUnterminatedString:
      return make_error("08P01", "invalid string in message");
    case Reader::Fault::kNone:
      break;
  }
  return make_error("08P01", "invalid message format");
}

// `message` when the reader ate the payload to its last byte without a fault.
template <class Message>
[[nodiscard]] Result<Message> finished(const Reader& reader, Message message) {
  if (!reader.at_end()) return format_error(reader);
  return message;
}

// How many items to reserve for a declared count: never more than the bytes left can hold.
[[nodiscard]] inline std::size_t bounded(std::size_t count, const Reader& reader,
                                         std::size_t item_size) {
  return std::min(count, reader.remaining() / item_size);
}

// count:Int16 { item:Int16 or Int32 } * count
template <class Int>
[[nodiscard]] std::vector<Int> read_list(Reader& reader) {
  static_assert(sizeof(Int) == 2 || sizeof(Int) == 4);
  const std::size_t count = reader.u16();
  std::vector<Int> items;
  items.reserve(bounded(count, reader, sizeof(Int)));
  for (std::size_t i = 0; i < count && reader.ok(); ++i) {
    if constexpr (sizeof(Int) == 2) {
      items.push_back(static_cast<Int>(reader.u16()));
    } else {
      items.push_back(static_cast<Int>(reader.u32()));
    }
  }
  return items;
}

template <class Int>
void write_list(Writer& writer, const std::vector<Int>& items) {
  writer.count(items.size());
  for (const Int item : items) {
    if constexpr (sizeof(Int) == 2) {
      writer.i16(static_cast<std::int16_t>(item));
    } else {
      writer.u32(static_cast<std::uint32_t>(item));
    }
  }
}

// count:Int16 { length:Int32 value:Byte[length] } * count, into a vector whose memory is reused.
inline void read_values(Reader& reader, std::vector<std::optional<std::string_view>>& values) {
  const std::size_t count = reader.u16();
  values.clear();
  values.reserve(bounded(count, reader, 4));
  for (std::size_t i = 0; i < count && reader.ok(); ++i) values.push_back(reader.nullable());
}

inline void write_values(Writer& writer,
                         const std::vector<std::optional<std::string_view>>& values) {
  writer.count(values.size());
  for (const auto& value : values) writer.nullable(value);
}

}  // namespace collegedb::wire::detail
