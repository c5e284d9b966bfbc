// Raises the generation that shards accept, which at the same time drains: when it is done, every
// guarded write, bulk write and scatter that began under an older generation has ended, and none
// can begin. Background threads only.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "migration/control_session.h"
#include "proxy/config.h"

namespace collegedb::migration {

struct FenceRaise {
  std::string shard;
  bool done = false;
  bool bulk_raised = false;  // topology.min_generation: bulk writes and scatters
  int buckets_left = 0;      // of the gate
  // Not done: who holds what is left, one line per session or prepared transaction; or why the
  // shard did not answer.
  std::vector<std::string> waiting_for;
};

enum class KeyChecks {
  kAsTheyAre,
  kEveryKey,  // check_moved() is called from now on for every key, not only where keys have moved
};

// Raises topology.min_generation (which excludes sweeps for a moment) and then every gate row, each
// bucket behind its fair queue. Buckets that are free go in batches by try-lock; of the others one
// at a time is waited for, for a fraction of a second with a longer pause after it, so that an idle
// transaction does not keep the writers of its bucket waiting. Gives up after `patience`, and goes
// on from there when called again: only what is below `generation` is touched. A generation above
// is left alone. Throws SqlFailure.
// REQUIRES: no transaction is open in the session.
[[nodiscard]] FenceRaise raise_fence(ControlSession& session, const std::string& scope,
                                     std::int64_t generation, std::chrono::milliseconds patience,
                                     KeyChecks checks = KeyChecks::kAsTheyAre);

// The same on all shards of the configuration beside each other. Never throws SqlFailure: a shard
// that cannot be reached is one that is not done.
[[nodiscard]] std::vector<FenceRaise> raise_fences(const Config& cluster, std::int64_t generation,
                                                   std::chrono::milliseconds patience,
                                                   KeyChecks checks = KeyChecks::kAsTheyAre);

}  // namespace collegedb::migration
