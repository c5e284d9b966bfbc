// Keys: from a literal or a parameter of any format to the canonical text of the key column's type.
// Rules: docs/routing.md ("Keys"). Two spellings of one value give the same text; nothing else
// does.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "parser/statement.h"
#include "proxy/wire/error.h"

namespace collegedb::routing {

enum class KeyType : std::uint8_t {
  kInt2,
  kInt4,
  kInt8,
  kUuid,
  kText,
  kVarchar,
  kBpchar,
  kBytea,
  kBool,
  kDate,
  kCitext,
  kNumeric0,
};

// The key type of a column by its type OID (citext and domains by name/base type); nullopt for a
// type that cannot be a key (float, numeric with scale, timestamptz, json, arrays, ...).
[[nodiscard]] std::optional<KeyType> key_type_of(std::uint32_t type_oid, std::string_view type_name,
                                                 std::int32_t typmod);
[[nodiscard]] std::string_view name_of(KeyType type) noexcept;

// A bound parameter. `value` borrows from the Bind message; nullopt is NULL. `type` is the OID the
// client declared in Parse, 0 when it left the type to the server.
struct Parameter {
  std::optional<std::string_view> value;
  bool binary = false;
  std::uint32_t type = 0;
};

// Outcomes that are not a key.
struct NullKey {};  // NULL: matches nothing; refused for INSERT (23502)
struct NoMatch {};  // a value that no row can equal (out of range, 4.5 for an int8 column)
struct Unknown {};  // cannot be decided here: not a usable key
using KeyResult = std::variant<std::string, NullKey, NoMatch, Unknown>;

// `for_insert`: the value is assigned (4.5 is rounded by the server: Unknown), not compared.
// A value the server itself would refuse (bad uuid text) is Unknown; one that is out of the type's
// range is NoMatch when compared: any shard gives the server's own error.
[[nodiscard]] KeyResult canonical_key(KeyType type, const parser::Value& literal, bool for_insert);
[[nodiscard]] KeyResult canonical_key(KeyType type, const Parameter& parameter, bool for_insert);
// The same for `$n::cast`; an empty cast is none. `repeated`: the statement names $n more than
// once, so a type the client left open may have been settled elsewhere in it.
[[nodiscard]] KeyResult canonical_key(KeyType type, const Parameter& parameter,
                                      const parser::QualifiedName& cast, bool repeated,
                                      bool for_insert);
// The text the operator wrote in collegedb_reassign('042', ...), as if cast to the column's type.
[[nodiscard]] Result<std::string> canonical_key_from_text(KeyType type, std::string_view text);

// SQL that gives, on a server, the canonical text of a key column (NULL for NULL), whatever the
// session's settings: everything in it is qualified by pg_catalog. `quoted_column` is spliced as
// is.
[[nodiscard]] std::string sql_key_expression(KeyType type, std::string_view quoted_column);
// SQL that turns canonical text (an expression of type text) back into a value for the column:
// `column = value` finds exactly the rows of that key. citext stays text, since its own operators
// live in the extension's schema: compare sql_key_expression(column) with it instead.
[[nodiscard]] std::string sql_key_from_text(KeyType type, std::string_view sql_text_expression);
// What a literal of the column's own type says for this canonical text: `'<literal>'::type` is the
// value that sql_key_from_text gives.
[[nodiscard]] std::string sql_key_literal(KeyType type, std::string_view canonical);
// The condition "this column holds that key", in the form an index on the column can serve (for
// citext: an index on the expression).
[[nodiscard]] std::string sql_key_condition(KeyType type, std::string_view quoted_column,
                                            std::string_view sql_text_expression);

}  // namespace collegedb::routing
