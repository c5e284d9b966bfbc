// Runs one operation in this process: a mover over PostgreSQL, taken over again by ourselves when a
// connection was lost on the way. Shared by runner.h and recovery.h.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "migration/failpoint.h"
#include "migration/journal.h"
#include "migration/mover.h"
#include "migration/runner.h"

namespace collegedb::migration {

struct Finished {
  Outcome outcome = Outcome::kLost;
  MoveRecord record{};
  SqlError error{};
};

// With the parts that were left empty. Throws std::runtime_error when COLLEGEDB_FAILPOINTS is set
// and cannot be obeyed.
[[nodiscard]] RunnerOptions completed(RunnerOptions options);
// Throws StepFailure (kLost) when the journal shard cannot be reached.
[[nodiscard]] std::unique_ptr<PgJournal> open_journal(const RunnerOptions& options);
// nullptr when no shard of that name is configured.
[[nodiscard]] const ShardConfig* find_shard(const RunnerOptions& options, const std::string& name);

// One mover until it stops; no second try. REQUIRES: `journal` holds the operation's lock.
[[nodiscard]] Finished run_once(const RunnerOptions& options, PgJournal& journal, MoveRecord record,
                                Position at);

// Until the operation is final, its evidence is unclear, or it could not be taken over again for
// `patience`. While another process has it, waits for its end.
[[nodiscard]] Finished run_to_end(const RunnerOptions& options, std::unique_ptr<PgJournal> journal,
                                  MoveRecord record, Position at,
                                  std::chrono::milliseconds patience);

}  // namespace collegedb::migration
