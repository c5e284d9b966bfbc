#include "proxy/wire/error.h"

#include <array>
#include <boost/throw_exception.hpp>
#include <cstddef>
#include <stdexcept>

namespace collegedb {
namespace {

struct Row {
  ErrorCode code;
  std::string_view name;
  std::string_view sqlstate;
};

// In the order of the enum. Conditions that go away when the statement is tried again carry 40001,
// the SQLSTATE that drivers and frameworks already retry on.
constexpr std::array kRows{
    Row{ErrorCode::kInvalidJournalShard, "INVALID_JOURNAL_SHARD", "F0000"},
    Row{ErrorCode::kJournalNotConfigured, "JOURNAL_NOT_CONFIGURED", "55000"},
    Row{ErrorCode::kMigrationUnsupportedDialect, "MIGRATION_UNSUPPORTED_DIALECT", "0A000"},
    Row{ErrorCode::kMigrationNoBatch, "MIGRATION_NO_BATCH", "55000"},
    Row{ErrorCode::kMigrationNoAtomicBatch, "MIGRATION_NO_ATOMIC_BATCH", "55000"},
    Row{ErrorCode::kMigrationCutoverPending, "MIGRATION_CUTOVER_PENDING", "40001"},
    Row{ErrorCode::kMigrationLookupUnavailable, "MIGRATION_LOOKUP_UNAVAILABLE", "58000"},
    Row{ErrorCode::kMigrationChainExceeded, "MIGRATION_CHAIN_EXCEEDED", "58000"},
    Row{ErrorCode::kRecoveryInProgress, "RECOVERY_IN_PROGRESS", "55P03"},
    Row{ErrorCode::kRecoveryFenced, "RECOVERY_FENCED", "40001"},
    Row{ErrorCode::kDestinationConflict, "DESTINATION_CONFLICT", "23505"},
    Row{ErrorCode::kRetentionNotElapsed, "RETENTION_NOT_ELAPSED", "55000"},
    Row{ErrorCode::kNotVerified, "NOT_VERIFIED", "55000"},
    Row{ErrorCode::kMappingNotFound, "MAPPING_NOT_FOUND", "02000"},
    Row{ErrorCode::kTooManyEpochs, "TOO_MANY_EPOCHS", "54000"},
    Row{ErrorCode::kPlacementConflict, "PLACEMENT_CONFLICT", "40001"},
    Row{ErrorCode::kPlacementUnverified, "PLACEMENT_UNVERIFIED", "40001"},
    Row{ErrorCode::kStaleTopology, "STALE_TOPOLOGY", "40001"},
    Row{ErrorCode::kWriteUnresolved, "WRITE_UNRESOLVED", "40001"},
    Row{ErrorCode::kPruneRefused, "PRUNE_REFUSED", "55000"},
    Row{ErrorCode::kCoordinatorNotConfigured, "COORDINATOR_NOT_CONFIGURED", "55000"},
    Row{ErrorCode::kReconcileVerifyRequired, "RECONCILE_VERIFY_REQUIRED", "22023"},
    Row{ErrorCode::kKeyRequired, "KEY_REQUIRED", "0A000"},
    Row{ErrorCode::kUnroutableQuery, "UNROUTABLE_QUERY", "0A000"},
    Row{ErrorCode::kCrossShardTransaction, "CROSS_SHARD_TRANSACTION", "0A000"},
    Row{ErrorCode::kKeyUpdate, "KEY_UPDATE", "0A000"},
    Row{ErrorCode::kMovedInTransaction, "MOVED_IN_TRANSACTION", "40001"},
    Row{ErrorCode::kOperationAlreadyApplied, "OPERATION_ALREADY_APPLIED", "23505"},
    Row{ErrorCode::kGeneratedKeyCollision, "GENERATED_KEY_COLLISION", "23505"},
    Row{ErrorCode::kGeneratedKeyUnavailable, "GENERATED_KEY_UNAVAILABLE", "0A000"},
    Row{ErrorCode::kPartialResult, "PARTIAL_RESULT", "01000"},
    Row{ErrorCode::kShardUnavailable, "SHARD_UNAVAILABLE", "08006"},
    Row{ErrorCode::kPoolTimeout, "POOL_TIMEOUT", "53300"},
    Row{ErrorCode::kMoveRefused, "MOVE_REFUSED", "55000"},
    Row{ErrorCode::kMovesPaused, "MOVES_PAUSED", "55000"},
    Row{ErrorCode::kUnknownShard, "UNKNOWN_SHARD", "22023"},
    Row{ErrorCode::kUnknownTable, "UNKNOWN_TABLE", "42P01"},
};

constexpr bool rows_follow_the_enum() {
  for (std::size_t i = 0; i < kRows.size(); ++i) {
    if (static_cast<std::size_t>(kRows[i].code) != i || kRows[i].sqlstate.size() != 5) return false;
  }
  return true;
}
static_assert(rows_follow_the_enum());

// A value outside the enum can only come from a bad cast; it must still yield a valid error.
constexpr Row row_of(ErrorCode code) noexcept {
  const auto index = static_cast<std::size_t>(code);
  return index < kRows.size() ? kRows[index] : Row{code, "INTERNAL_ERROR", "XX000"};
}

}  // namespace

std::string_view name_of(ErrorCode code) noexcept {
  return row_of(code).name;
}

std::string_view sqlstate_of(ErrorCode code) noexcept {
  return row_of(code).sqlstate;
}

SqlError make_error(ErrorCode code, std::string_view text, std::string_view hint,
                    std::string_view detail) {
  const Row row = row_of(code);
  std::string message(row.name);
  message.append(": ").append(text);
  return make_error(row.sqlstate, message, hint, detail);
}

SqlError make_error(std::string_view sqlstate, std::string_view text, std::string_view hint,
                    std::string_view detail) {
  SqlError error;
  if (sqlstate.size() == 5) error.sqlstate = sqlstate;
  error.message = text;
  error.hint = hint;
  error.detail = detail;
  // Class 01 is "Warning": PostgreSQL never raises it as an error.
  if (error.sqlstate.starts_with("01")) error.severity = "WARNING";
  return error;
}

SqlError make_fatal(std::string_view sqlstate, std::string_view text, std::string_view hint,
                    std::string_view detail) {
  SqlError error = make_error(sqlstate, text, hint, detail);
  error.severity = "FATAL";
  return error;
}

void throw_exception_from_error(const SqlError& error, const boost::source_location& where) {
  boost::throw_exception(std::runtime_error(error.sqlstate + " " + error.message), where);
}

}  // namespace collegedb
