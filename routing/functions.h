// Built-in functions that routing must treat specially. Pure tables.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace collegedb::routing {

enum class FunctionClass : std::uint8_t {
  kPlain,  // depends on its arguments and on data in the statement only, or is harmlessly stable
  kSessionState,  // changes or depends on state of one server session that outlives the
                  // transaction: pg_advisory_lock, setseed, currval, lastval, set_config(.., false)
                  // ...
  kTransaction,   // depends on the transaction or the server that runs it: now(), txid_current(),
                  // pg_backend_pid(); random() is kPlain
  kJournal,       // acts on state that a database keeps outside tables and that must have one home,
                  // the journal shard: nextval, lo_*, pg_notify, pg_advisory_xact_lock,
                  // pg_cancel_backend, pg_read_file, replication slots ...
  kOpaque,        // runs SQL, reads tables or converts to types that the statement does not name:
                  // query_to_xml, ts_stat, domain_in
};

// Class of a function in pg_catalog.
[[nodiscard]] FunctionClass classify_builtin(std::string_view name) noexcept;

// Names of the functions that run unknown SQL or act on the server session (kOpaque and
// kSessionState): what must not be hidden in a view or a default either.
[[nodiscard]] std::span<const std::string_view> opaque_builtins() noexcept;
[[nodiscard]] std::span<const std::string_view> session_builtins() noexcept;

// True for the built-in aggregates (count, sum, string_agg, ...).
[[nodiscard]] bool is_builtin_aggregate(std::string_view name) noexcept;

}  // namespace collegedb::routing
