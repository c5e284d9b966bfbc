// The one error type of the data path and the one table from our codes to SQLSTATE.
//
// Errors are values: functions return Result<T>; nothing on the data path throws.
// Pure: no I/O, no clock, no threads. Linked by every folder (target collegedb_error).
#pragma once

#include <boost/system/result.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace collegedb {

// Codes a client can see at the start of a message ("KEY_REQUIRED: ..."). The SQLSTATE of each
// stands in the table in error.cpp; docs/errors.md describes them for operators.
enum class ErrorCode : std::uint8_t {
  kInvalidJournalShard,
  kJournalNotConfigured,
  kMigrationUnsupportedDialect,
  kMigrationNoBatch,
  kMigrationNoAtomicBatch,
  kMigrationCutoverPending,
  kMigrationLookupUnavailable,
  kMigrationChainExceeded,
  kRecoveryInProgress,
  kRecoveryFenced,
  kDestinationConflict,
  kRetentionNotElapsed,
  kNotVerified,
  kMappingNotFound,
  kTooManyEpochs,
  kPlacementConflict,
  kPlacementUnverified,
  kStaleTopology,
  kWriteUnresolved,
  kPruneRefused,
  kCoordinatorNotConfigured,
  kReconcileVerifyRequired,
  kKeyRequired,
  kUnroutableQuery,
  kCrossShardTransaction,
  kKeyUpdate,
  kMovedInTransaction,
  kOperationAlreadyApplied,
  kGeneratedKeyCollision,
  kGeneratedKeyUnavailable,
  kPartialResult,
  kShardUnavailable,
  kPoolTimeout,
  kMoveRefused,   // a move that cannot start or was given up; the reason is in the text (55000)
  kMovesPaused,   // no move begins: collegedb_pause_moves() was called (55000)
  kUnknownShard,  // names no configured shard (22023)
  kUnknownTable,  // names no registered table or group (42P01)
};

// What a client gets in an ErrorResponse or NoticeResponse. Every field owns its bytes.
// sqlstate is always five characters; severity is "ERROR", "FATAL", "PANIC", "WARNING" or "NOTICE".
struct SqlError {
  // Not an aggregate: as one it would be constructible from a string, and Result<std::string> could
  // not tell a value from an error. Made by make_error().
  SqlError() = default;

  std::string sqlstate = "XX000";
  std::string message;
  std::string detail;
  std::string hint;
  std::string severity = "ERROR";
  // 1-based character position in the statement text; 0 = none (field 'P').
  int position = 0;
  // The server's fields that have no member here (where, schema, table, column, constraint, ...),
  // as on the wire: { code:Byte1 value:String }. Repeated by encode_error; of the proxy's own
  // errors only that of a malformed Bind has one.
  std::string other_fields;

  friend bool operator==(const SqlError&, const SqlError&) = default;
};

// The fixed name of a code ("KEY_REQUIRED") and its SQLSTATE. Views of static storage.
[[nodiscard]] std::string_view name_of(ErrorCode code) noexcept;
[[nodiscard]] std::string_view sqlstate_of(ErrorCode code) noexcept;

// "CODE: text" with the SQLSTATE of the code. Every caller says what to do in hint or text.
// Severity is ERROR, but WARNING for an SQLSTATE of class 01.
[[nodiscard]] SqlError make_error(ErrorCode code, std::string_view text, std::string_view hint = {},
                                  std::string_view detail = {});

// Any PostgreSQL SQLSTATE with PostgreSQL's own wording.
[[nodiscard]] SqlError make_error(std::string_view sqlstate, std::string_view text,
                                  std::string_view hint = {}, std::string_view detail = {});

// As above with severity FATAL: the connection ends after it.
[[nodiscard]] SqlError make_fatal(std::string_view sqlstate, std::string_view text,
                                  std::string_view hint = {}, std::string_view detail = {});

template <class T>
using Result = boost::system::result<T, SqlError>;

// Called only by Result::value() on an error: a programming error, never a data path.
[[noreturn]] void throw_exception_from_error(const SqlError& error, const boost::source_location&);

}  // namespace collegedb
