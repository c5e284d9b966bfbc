// Moves every key whose rows are not on its owner under the newest active epoch, except those that
// an operator has put where they are. Draining a shard is the same with a source.
//
// It may be called again after anything that happened to it: what is in its place is left alone,
// and what a dead process has begun is finished by recovery.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "migration/runner.h"
#include "proxy/wire/error.h"

namespace collegedb::migration {

struct RebalanceRequest {
  std::vector<std::string> groups{};  // empty = all
  bool dry_run = false;
  std::optional<std::int64_t> max_keys{};
  std::optional<int> concurrency{};  // operations at once; bounded by max_concurrent_moves too
  std::optional<std::string> source{};
  std::optional<std::string> destination{};
  std::function<bool()> stopping{};  // true: end soon, after the operations that have begun
};

// Keys of one group that go from one shard to another.
struct RebalanceShare {
  std::string group{};
  std::string source{};
  std::string destination{};
  std::int64_t keys = 0;
};

struct RebalanceFailure {
  RebalanceShare share{};
  std::string key{};  // the only one, or the first of several
  std::string error{};
};

// Distinct keys of each group on each shard that was looked at. What max_keys, the destination or
// a cancellation left out is in `examined` alone.
struct RebalanceResult {
  std::string id{};  // row of collegedb.rebalances; empty without a journal shard
  std::int64_t examined = 0;
  std::int64_t agreed = 0;  // in their place, or put elsewhere by an operator
  std::int64_t moved = 0;   // dry run: would be moved
  std::int64_t failed = 0;
  std::vector<RebalanceFailure> failures{};  // the first 1000
  std::vector<RebalanceShare> plan{};        // misplaced keys found
};

inline constexpr std::size_t kMaxFailures = 1000;

// Blocks until all is done or was cancelled. One at a time per scope: 55006 while another one runs.
// Errors are about the whole; what failed for some keys is in the result.
[[nodiscard]] Result<RebalanceResult> rebalance(Runner& runner, const RebalanceRequest& request);

// The plan alone, for a cluster without a journal shard: placement and registry are the snapshot's.
[[nodiscard]] Result<RebalanceResult> rehearse_rebalance(const std::vector<ShardConfig>& shards,
                                                         const routing::Snapshot& snapshot,
                                                         const RebalanceRequest& request);

// Holds back every move of the scope that has not begun, in all processes, until resumed. A running
// rebalance waits. True when it was not so before. Throw SqlFailure.
bool pause_moves(ControlSession& journal, const std::string& scope);
bool resume_moves(ControlSession& journal, const std::string& scope);

// Asks a running rebalance to stop after the operations it has begun; its state then, nullopt when
// there is none of that id. Throws SqlFailure.
[[nodiscard]] std::optional<std::string> cancel_rebalance(ControlSession& journal,
                                                          const std::string& id);

}  // namespace collegedb::migration
