// The control plane's door to moves. One Runner per process; every method may be called from any
// background thread and blocks (never call it from a worker). Errors are values here; inside,
// background code throws.
//
// Life of a move: reassign() claims the key in the journal, then a Mover (mover.h) performs the
// commands of the machine until the operation is retired or aborted. A connection that is lost in
// the middle is treated as a death of the mover: the operation is taken over again by this process
// at once, or by any process's Recovery.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "metrics/stats.h"
#include "migration/failpoint.h"
#include "migration/move.h"
#include "migration/session_pool.h"
#include "proxy/config.h"
#include "proxy/wire/error.h"
#include "routing/snapshot.h"

namespace collegedb::migration {

struct RunnerOptions {
  std::vector<ShardConfig> shards;
  std::size_t journal = 0;  // index into shards
  std::string scope = "default";
  Config::Migration limits;
  Config::Routing routing{};  // where new keys go under mapped placement
  // The newest snapshot this process has. Only a hint about where a key is, and the source of the
  // placement; the registry and the directory are read again from the journal.
  std::function<std::shared_ptr<const routing::Snapshot>()> snapshot;
  // Left empty: as COLLEGEDB_FAILPOINTS says.
  std::shared_ptr<Failpoints> failpoints{};
  // Left empty: a pool of its own.
  std::shared_ptr<SessionPool> sessions{};
  // Outlives the runner; null = nothing is counted.
  metrics::ProcessStats* stats = nullptr;
};

// SQLSTATE of the refusal of a key that another operation has.
inline constexpr std::string_view kKeyIsMoving = "55006";

struct BatchOptions {
  std::string rebalance;                   // id of the one it is a part of
  std::optional<std::uint64_t> copy_rate;  // instead of the configured one
  bool patient = true;                     // false: gives up at the first miss of a lock
};

class Runner {
 public:
  // Throws std::runtime_error when COLLEGEDB_FAILPOINTS is set and cannot be obeyed.
  explicit Runner(RunnerOptions options);

  [[nodiscard]] Result<MoveResult> reassign(const MoveRequest& request);
  // Moves several keys of one source to one destination in one operation. Keys are canonical.
  [[nodiscard]] Result<MoveResult> reassign_keys(const std::string& group,
                                                 const std::vector<std::string>& keys,
                                                 const std::string& source,
                                                 const std::string& destination,
                                                 const BatchOptions& batch = {});
  // One recovery round: takes the lease, RECOVERY_IN_PROGRESS when another has it.
  [[nodiscard]] Result<RecoveryResult> recover();
  // Latest operation of the canonical key, nullopt when there is none.
  [[nodiscard]] Result<std::optional<MoveStatus>> status(const std::string& group,
                                                         const std::string& key);
  // Asks the operation to stop before its decision; returns its state afterwards.
  [[nodiscard]] Result<std::string> cancel(const std::string& op);

  [[nodiscard]] const RunnerOptions& options() const { return options_; }

 private:
  class Slot;  // one of max_concurrent_moves

  RunnerOptions options_;
  std::mutex mutex_;
  std::condition_variable freed_;
  unsigned running_ = 0;
};

}  // namespace collegedb::migration
