// Values of admin functions between their text form and the client's formats. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "proxy/wire/error.h"
#include "routing/key.h"

namespace collegedb::session {

// Type OIDs of pg_type that admin functions use.
inline constexpr std::uint32_t kBoolOid = 16;
inline constexpr std::uint32_t kInt8Oid = 20;
inline constexpr std::uint32_t kInt2Oid = 21;
inline constexpr std::uint32_t kInt4Oid = 23;
inline constexpr std::uint32_t kTextOid = 25;
inline constexpr std::uint32_t kJsonOid = 114;
inline constexpr std::uint32_t kFloat8Oid = 701;
inline constexpr std::uint32_t kVarcharOid = 1043;
inline constexpr std::uint32_t kTextArrayOid = 1009;
inline constexpr std::uint32_t kIntervalOid = 1186;
inline constexpr std::uint32_t kJsonbOid = 3802;

// The text form of a bound parameter of `type`; NULL stays NULL. 22P03 for bytes of another shape,
// 0A000 for a type that has no text form here.
[[nodiscard]] Result<std::optional<std::string>> parameter_text(const routing::Parameter& parameter,
                                                                std::uint32_t type);

// `text` in the binary format of `type`. 0A000 when there is none here.
[[nodiscard]] Result<std::string> to_binary(std::string_view text, std::uint32_t type);

// Size of a value in RowDescription; -1 = variable.
[[nodiscard]] std::int16_t type_size(std::uint32_t type) noexcept;

}  // namespace collegedb::session
