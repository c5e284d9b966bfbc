// Drops the epochs that no row depends on. Background threads only.
//
// A row depends on the newest active epoch whose owner is the shard it sits on, unless the
// directory has an exception of kind move for its key there. A mapping alone keeps no epoch: under
// mapped placement all but the newest one are dropped, and nothing of what follows is needed.
//
// While it runs, no move is claimed, tables and schema stay as they are, and a key's first row is
// made only where the newest epoch has it (sql/shard_4.sql): so what the census has not found
// cannot come into being behind it. A crash anywhere leaves a row in collegedb.prunes, which
// resume_topology() finishes; the epochs are then what they were, or already fewer.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "migration/manifest.h"
#include "proxy/config.h"
#include "proxy/wire/error.h"

namespace collegedb::migration {

struct PruneRequest {
  // Text of a text[]: the tables to look at. All sharded ones must be among them, since an epoch
  // may be dropped only when no table needs it. nullopt = all.
  std::optional<std::string> tables;
  // JSON object, table -> key column: must say what the registry says.
  std::optional<std::string> key_columns;
  bool dry_run = false;
  int page_size = 10000;  // rows looked at between two round trips
  int concurrency = 2;    // shards at a time
  std::chrono::milliseconds patience{30000};
  // Steps: "manifest read", "announced", "raised", "counted", "dropped", "finished".
  StepHook step;
};

struct PruneResult {
  std::vector<int> removed;                // or would be
  std::vector<int> retained;               // newest first
  std::map<int, std::int64_t> dependents;  // rows by epoch; epochs without any are left out
  std::int64_t scanned = 0;
};

// Errors are values: PRUNE_REFUSED when the exceptions cannot be read, 55006 while moves run or
// transactions hold the fence.
[[nodiscard]] Result<PruneResult> prune_epochs(const Config& config, const PruneRequest& request);

// Brings the shards back to normal after a prune that has ended anyhow. Returns what holds it up,
// one line per shard; empty when there is nothing to do any more. REQUIRES: the topology lock is
// held in `journal`. Throws SqlFailure.
std::vector<std::string> finish_prune(ControlSession& journal, const Config& config,
                                      std::chrono::milliseconds patience);

}  // namespace collegedb::migration
