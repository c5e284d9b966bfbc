// Ends the archives of finished moves. Background threads only.
//
// An archive goes when its operation is retired, `retire_after` has passed since by the journal's
// clock, and a clean verification (verify.h) that began after the end of the move has looked at the
// shards. Only rows of collegedb.archive go: the tombstone stays, because nothing bounds the age of
// the knowledge with which a proxy may come back to a former owner (ADR 0013).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "migration/manifest.h"
#include "migration/runner.h"
#include "proxy/wire/error.h"

namespace collegedb::migration {

struct PurgeRequest {
  std::optional<std::int64_t> max_ops;  // archives purged by this call, at most
  std::size_t batch = 5000;             // rows of an archive per statement
  // Steps: "decided" (journal), "batch" (source), "deleted" (source), "purged" (journal).
  StepHook step;
};

struct PurgeRefusal {
  std::string op;
  std::string code;  // RETENTION_NOT_ELAPSED, NOT_VERIFIED, or of the error that stopped it
};

struct PurgeResult {
  std::vector<std::string> purged;    // by this call, at most kMaxPurged
  std::vector<PurgeRefusal> refused;  // the oldest kMaxRefused
};

inline constexpr std::int64_t kMaxPurged = 10000;
inline constexpr std::int64_t kMaxRefused = 1000;

// Any number of callers at once: each archive is reported by one of them. One that was cut off is
// finished by the next call. Errors are values: 22023 for a negative max_ops.
[[nodiscard]] Result<PurgeResult> purge_retired(const RunnerOptions& options,
                                                const PurgeRequest& request);

}  // namespace collegedb::migration
