// A value goes three steps: the literal or parameter is read as its own SQL type (Datum), a cast
// around it is applied, and the result is judged against the type of the key column as the server's
// operator (or assignment) would.
#include "routing/key.h"

#include <algorithm>
#include <array>

#include "routing/key_input.h"

namespace collegedb::routing {
namespace {

using parser::Value;

enum class SqlType : std::uint8_t {
  kUndeclared,  // unknown-type literal or untyped parameter: takes the type of what it meets
  kInt2,
  kInt4,
  kInt8,
  kNumeric,
  kText,
  kVarchar,
  kBpchar,
  kCitext,
  kUuid,
  kBytea,
  kBool,
  kDate,
  kOther,
};

struct TypeName {
  std::string_view name;
  std::uint32_t oid;
  SqlType type;
};
constexpr std::array<TypeName, 13> kTypes{{
    {"bool", 16, SqlType::kBool},
    {"bytea", 17, SqlType::kBytea},
    {"int8", 20, SqlType::kInt8},
    {"int2", 21, SqlType::kInt2},
    {"int4", 23, SqlType::kInt4},
    {"text", 25, SqlType::kText},
    {"unknown", 705, SqlType::kUndeclared},
    {"bpchar", 1042, SqlType::kBpchar},
    {"varchar", 1043, SqlType::kVarchar},
    {"date", 1082, SqlType::kDate},
    {"numeric", 1700, SqlType::kNumeric},
    {"uuid", 2950, SqlType::kUuid},
    {"citext", 0, SqlType::kCitext},
}};

SqlType type_of_oid(std::uint32_t oid) {
  if (oid == 0) return SqlType::kUndeclared;
  for (const TypeName& entry : kTypes) {
    if (entry.oid == oid) return entry.type;
  }
  return SqlType::kOther;
}

SqlType type_of_cast(const parser::QualifiedName& cast) {
  if (cast.name == "citext") return SqlType::kCitext;
  if (!cast.schema.empty() && cast.schema != "pg_catalog") return SqlType::kOther;
  for (const TypeName& entry : kTypes) {
    if (entry.name == cast.name && entry.oid != 705) return entry.type;
  }
  return SqlType::kOther;
}

SqlType type_of_key(KeyType type) {
  switch (type) {
    case KeyType::kInt2:
      return SqlType::kInt2;
    case KeyType::kInt4:
      return SqlType::kInt4;
    case KeyType::kInt8:
      return SqlType::kInt8;
    case KeyType::kUuid:
      return SqlType::kUuid;
    case KeyType::kText:
      return SqlType::kText;
    case KeyType::kVarchar:
      return SqlType::kVarchar;
    case KeyType::kBpchar:
      return SqlType::kBpchar;
    case KeyType::kBytea:
      return SqlType::kBytea;
    case KeyType::kBool:
      return SqlType::kBool;
    case KeyType::kDate:
      return SqlType::kDate;
    case KeyType::kCitext:
      return SqlType::kCitext;
    case KeyType::kNumeric0:
      return SqlType::kNumeric;
  }
  return SqlType::kOther;
}

int bytes_of(SqlType type) {
  if (type == SqlType::kInt2) return 2;
  if (type == SqlType::kInt4) return 4;
  return type == SqlType::kInt8 ? 8 : 0;
}

bool is_int(SqlType type) {
  return bytes_of(type) != 0;
}

// A value of a known SQL type in that type's canonical text (blanks of char(n) stripped). A numeric
// with a fraction has no text.
struct Datum {
  SqlType type = SqlType::kOther;
  std::string text;
  bool fraction = false;
};
using DatumResult = std::variant<Datum, NullKey, NoMatch, Unknown>;

DatumResult datum_of(SqlType type, KeyResult read) {
  if (auto* text = std::get_if<std::string>(&read)) return Datum{type, std::move(*text)};
  if (std::holds_alternative<NoMatch>(read)) return NoMatch{};
  return Unknown{};
}

DatumResult datum_of(std::optional<input::Number> number) {
  if (!number) return Unknown{};
  return Datum{SqlType::kNumeric, std::move(number->integer), number->fraction};
}

DatumResult datum_from_text(SqlType type, std::string_view text) {
  switch (type) {
    case SqlType::kInt2:
    case SqlType::kInt4:
    case SqlType::kInt8:
      return datum_of(type, input::read_int(text, bytes_of(type)));
    case SqlType::kNumeric:
      return datum_of(input::read_numeric(text));
    case SqlType::kUndeclared:
    case SqlType::kText:
    case SqlType::kVarchar:
    case SqlType::kCitext:
      return Datum{type, std::string(text)};
    case SqlType::kBpchar:
      return Datum{type, std::string(input::strip_blanks(text))};
    case SqlType::kUuid:
      return datum_of(type, input::read_uuid(text));
    case SqlType::kBytea:
      return datum_of(type, input::read_bytea(text));
    case SqlType::kBool:
      return datum_of(type, input::read_bool(text));
    case SqlType::kDate:
      return datum_of(type, input::read_date(text));
    case SqlType::kOther:
      break;
  }
  return Unknown{};
}

DatumResult datum_from_binary(SqlType type, std::string_view bytes) {
  switch (type) {
    case SqlType::kInt2:
    case SqlType::kInt4:
    case SqlType::kInt8:
      if (bytes.size() != static_cast<std::size_t>(bytes_of(type))) return Unknown{};
      return datum_of(type, input::read_int_binary(bytes));
    case SqlType::kNumeric:
      return datum_of(input::read_numeric_binary(bytes));
    case SqlType::kText:
    case SqlType::kVarchar:
    case SqlType::kCitext:
    case SqlType::kBpchar:
      return datum_from_text(type, bytes);
    case SqlType::kUuid:
      return datum_of(type, input::read_uuid_binary(bytes));
    case SqlType::kBytea:
      return Datum{type, input::to_hex(bytes)};
    case SqlType::kBool:
      if (bytes.size() != 1) return Unknown{};
      return Datum{type, bytes[0] != 0 ? "t" : "f"};
    case SqlType::kDate:
      return datum_of(type, input::read_date_binary(bytes));
    case SqlType::kUndeclared:
    case SqlType::kOther:
      break;
  }
  return Unknown{};
}

DatumResult cast_number(Datum datum, SqlType target) {
  if (datum.fraction)
    return target == SqlType::kNumeric ? DatumResult(std::move(datum)) : Unknown{};
  if (is_int(target) && !input::fits(datum.text, bytes_of(target))) return NoMatch{};
  const bool to_text =
      target == SqlType::kText || target == SqlType::kVarchar || target == SqlType::kBpchar;
  // The text of a numeric shows its scale, which is not kept here.
  if (to_text && datum.type == SqlType::kNumeric) return Unknown{};
  if (!to_text && !is_int(target) && target != SqlType::kNumeric) return Unknown{};
  return Datum{target, std::move(datum.text)};
}

// An explicit cast.
DatumResult cast_datum(Datum datum, SqlType target) {
  if (datum.type == target) return datum;
  switch (datum.type) {
    case SqlType::kUndeclared:
    case SqlType::kText:
    case SqlType::kVarchar:
      return datum_from_text(target, datum.text);
    case SqlType::kBpchar:
      if (target == SqlType::kText || target == SqlType::kVarchar) {
        return Datum{target, std::move(datum.text)};
      }
      return Unknown{};
    case SqlType::kInt2:
    case SqlType::kInt4:
    case SqlType::kInt8:
    case SqlType::kNumeric:
      return cast_number(std::move(datum), target);
    default:
      return Unknown{};
  }
}

DatumResult datum_of_literal(const Value& literal) {
  switch (literal.kind) {
    case Value::Kind::kString:
      return Datum{SqlType::kUndeclared, literal.text};
    case Value::Kind::kInteger:
      return datum_from_text(SqlType::kInt8, literal.text);
    case Value::Kind::kNumeric:
      return datum_from_text(SqlType::kNumeric, literal.text);
    case Value::Kind::kBool:
      return Datum{SqlType::kBool, literal.text};
    case Value::Kind::kNull:
      return NullKey{};
    default:
      return Unknown{};
  }
}

// ---- against the key column --------------------------------------------------------------------

KeyResult number_key(KeyType type, Datum datum, bool for_insert) {
  if (!is_int(datum.type) && datum.type != SqlType::kNumeric) return Unknown{};
  const int bytes = bytes_of(type_of_key(type));
  if (datum.fraction || (bytes != 0 && !input::fits(datum.text, bytes))) {
    if (for_insert) return Unknown{};
    return NoMatch{};
  }
  return std::move(datum.text);
}

KeyResult folded(std::string text) {
  for (char& c : text) {
    if (static_cast<unsigned char>(c) >= 0x80) return Unknown{};
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return text;
}

KeyResult varchar_key(Datum datum, bool for_insert) {
  // varchar = char(n) ignores the blanks of both sides: rows of several keys could match.
  if (datum.type == SqlType::kBpchar && !for_insert) return Unknown{};
  // varchar(n) drops blanks beyond n when a value is stored.
  if (for_insert && datum.text.ends_with(' ')) return Unknown{};
  return std::move(datum.text);
}

KeyResult bpchar_key(Datum datum, bool for_insert) {
  // char(n) = text compares as text, and a stored char(n) becomes a text without its blanks.
  if (datum.type == SqlType::kText && !for_insert && datum.text.ends_with(' ')) return NoMatch{};
  return std::string(input::strip_blanks(datum.text));
}

KeyResult text_key(KeyType type, Datum datum, bool for_insert) {
  const bool is_text = datum.type == SqlType::kText || datum.type == SqlType::kVarchar ||
                       datum.type == SqlType::kBpchar || datum.type == SqlType::kCitext;
  if (!is_text && !(is_int(datum.type) && for_insert)) return Unknown{};
  if (type == KeyType::kCitext) {
    if (datum.type == SqlType::kBpchar) return Unknown{};
    return folded(std::move(datum.text));
  }
  if (datum.type == SqlType::kCitext) return Unknown{};
  if (type == KeyType::kVarchar) return varchar_key(std::move(datum), for_insert);
  if (type == KeyType::kBpchar) return bpchar_key(std::move(datum), for_insert);
  return std::move(datum.text);
}

KeyResult key_of_datum(KeyType type, Datum datum, bool for_insert) {
  switch (type) {
    case KeyType::kInt2:
    case KeyType::kInt4:
    case KeyType::kInt8:
    case KeyType::kNumeric0:
      return number_key(type, std::move(datum), for_insert);
    case KeyType::kText:
    case KeyType::kVarchar:
    case KeyType::kBpchar:
    case KeyType::kCitext:
      return text_key(type, std::move(datum), for_insert);
    case KeyType::kUuid:
    case KeyType::kBytea:
    case KeyType::kBool:
    case KeyType::kDate:
      if (datum.type == type_of_key(type)) return std::move(datum.text);
      break;
  }
  return Unknown{};
}

KeyResult key_of(KeyType type, DatumResult result, bool for_insert) {
  if (auto* datum = std::get_if<Datum>(&result)) {
    if (datum->type == SqlType::kUndeclared) {
      return key_of(type, datum_from_text(type_of_key(type), datum->text), for_insert);
    }
    return key_of_datum(type, std::move(*datum), for_insert);
  }
  if (std::holds_alternative<NullKey>(result)) return NullKey{};
  if (std::holds_alternative<NoMatch>(result) && !for_insert) return NoMatch{};
  return Unknown{};
}

DatumResult apply_cast(DatumResult result, const parser::QualifiedName& cast) {
  auto* datum = std::get_if<Datum>(&result);
  if (cast.name.empty() || datum == nullptr) return result;
  return cast_datum(std::move(*datum), type_of_cast(cast));
}

// An undeclared parameter that the statement names more than once may have got another type than
// the key column's: only values that mean the same under each of them count.
bool same_under_any_type(const Datum& datum, KeyType type) {
  switch (type_of_key(type)) {
    case SqlType::kInt2:
    case SqlType::kInt4:
    case SqlType::kInt8:
    case SqlType::kNumeric:
      return datum.text.size() <= 15;  // exact as a double
    case SqlType::kText:
    case SqlType::kVarchar:
    case SqlType::kBpchar:
    case SqlType::kCitext:
      return !datum.text.ends_with(' ');
    default:
      return true;
  }
}

}  // namespace

std::optional<KeyType> key_type_of(std::uint32_t type_oid, std::string_view type_name,
                                   std::int32_t typmod) {
  if (type_name == "citext") return KeyType::kCitext;
  switch (type_of_oid(type_oid)) {
    case SqlType::kInt2:
      return KeyType::kInt2;
    case SqlType::kInt4:
      return KeyType::kInt4;
    case SqlType::kInt8:
      return KeyType::kInt8;
    case SqlType::kText:
      return KeyType::kText;
    case SqlType::kVarchar:
      return KeyType::kVarchar;
    case SqlType::kBpchar:
      return KeyType::kBpchar;
    case SqlType::kUuid:
      return KeyType::kUuid;
    case SqlType::kBytea:
      return KeyType::kBytea;
    case SqlType::kBool:
      return KeyType::kBool;
    case SqlType::kDate:
      return KeyType::kDate;
    case SqlType::kNumeric:
      // The low 11 bits of the type modifier are the scale; without one the scale is open.
      if (typmod >= 4 && ((typmod - 4) & 0x7ff) == 0) return KeyType::kNumeric0;
      return std::nullopt;
    default:
      return std::nullopt;
  }
}

std::string_view name_of(KeyType type) noexcept {
  const SqlType sql_type = type_of_key(type);
  for (const TypeName& entry : kTypes) {
    if (entry.type == sql_type) return entry.name;
  }
  return "unknown";
}

KeyResult canonical_key(KeyType type, const Value& literal, bool for_insert) {
  return key_of(type, apply_cast(datum_of_literal(literal), literal.cast), for_insert);
}

KeyResult canonical_key(KeyType type, const Parameter& parameter, bool for_insert) {
  return canonical_key(type, parameter, {}, false, for_insert);
}

KeyResult canonical_key(KeyType type, const Parameter& parameter, const parser::QualifiedName& cast,
                        bool repeated, bool for_insert) {
  if (!parameter.value) return NullKey{};
  SqlType declared = type_of_oid(parameter.type);
  const bool open = declared == SqlType::kUndeclared;
  if (open && !cast.name.empty()) declared = type_of_cast(cast);
  if (open && cast.name.empty() && (parameter.binary || repeated)) declared = type_of_key(type);
  if (open && repeated && parameter.binary) return Unknown{};
  DatumResult result = parameter.binary ? datum_from_binary(declared, *parameter.value)
                                        : datum_from_text(declared, *parameter.value);
  if (open && repeated) {
    const auto* datum = std::get_if<Datum>(&result);
    if (datum == nullptr || !same_under_any_type(*datum, type)) return Unknown{};
  }
  return key_of(type, apply_cast(std::move(result), cast), for_insert);
}

Result<std::string> canonical_key_from_text(KeyType type, std::string_view text) {
  Value literal;
  literal.kind = Value::Kind::kString;
  literal.text = text;
  KeyResult result = canonical_key(type, literal, false);
  if (auto* key = std::get_if<std::string>(&result)) return std::move(*key);
  if (type == KeyType::kCitext) {
    return make_error("0A000", "citext keys with characters beyond ASCII are not supported here",
                      "Only the server knows how its collation folds them.");
  }
  const std::string quoted = "\"" + std::string(text) + "\"";
  if (std::holds_alternative<NoMatch>(result)) {
    return make_error(
        "22003", "value " + quoted + " is out of range for type " + std::string(name_of(type)));
  }
  return make_error("22P02",
                    "invalid input syntax for type " + std::string(name_of(type)) + ": " + quoted);
}

}  // namespace collegedb::routing
