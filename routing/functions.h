// Built-in functions that routing must treat specially. Pure tables.
#pragma once

#include <cstdint>
#include <string_view>

namespace collegedb::routing {

enum class FunctionClass : std::uint8_t {
  kPlain,         // depends on its arguments and on data in the statement only, or is harmlessly stable
  kSessionState,  // changes or depends on state of one server session that outlives the
                  // transaction: pg_advisory_lock, setseed, currval, lastval, set_config(.., false) ...
  kTransaction,   // depends on the transaction: now(), txid_current(), random() is kPlain
};

// Class of a function in pg_catalog.
[[nodiscard]] FunctionClass classify_builtin(std::string_view name) noexcept;

// True for the built-in aggregates (count, sum, string_agg, ...).
[[nodiscard]] bool is_builtin_aggregate(std::string_view name) noexcept;

}  // namespace collegedb::routing
