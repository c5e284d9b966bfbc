// Changes of the topology: shards join, are drained and leave; an epoch is published. Background
// threads only.
//
// Publication: the manifest is swapped for one with a new epoch in state `publishing` and a new
// generation; the fence of every shard is raised to it, which ends what was begun under an older
// one; the epoch becomes `active`. A crash anywhere leaves a publishing epoch, which any process
// carries on with. A publishing epoch places nothing.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "migration/fence_raise.h"
#include "migration/manifest.h"
#include "migration/schema.h"
#include "proxy/config.h"
#include "proxy/wire/error.h"

namespace collegedb::migration {

struct TopologyOptions {
  std::span<const FunctionStub> stubs;  // what a new shard gets in schema public
  // How long a call waits for transactions that hold the fence; what is left then is finished by
  // resume_topology().
  std::chrono::milliseconds patience{30000};
  // Steps, in order: "manifest read", "prepared" (a new shard has all it needs), "published" (the
  // epoch is in the manifest), "raised" (on all shards), "active"; "removed".
  StepHook step;
};

// What a call has brought about.
struct TopologyChange {
  std::string shard;
  int epoch = 0;  // the newest one that concerns the call
  std::int64_t generation = 0;
  // active; publishing: a fence is still held, recovery goes on; removed; dry_run.
  std::string state;
  std::vector<std::string> steps;  // what was done, or would be
};

// All of them may be called again after any failure, and then go on. Errors are values; before the
// epoch is in the manifest nothing that routing depends on has changed. A change that has been made
// already is a success without a step. `dry_run` changes nothing.

// Makes a configured shard a member: its schema (copied when its database is empty), insert fences,
// numbers for its sequences and reference rows, then an epoch with it. A draining shard is taken
// back.
[[nodiscard]] Result<TopologyChange> add_shard(const Config& config, const std::string& shard,
                                               bool dry_run, const TopologyOptions& options);
// An epoch without the shard: new keys go elsewhere, those it has stay until they are moved. The
// journal shard can be drained, and stays the journal; the last shard cannot.
[[nodiscard]] Result<TopologyChange> drain_shard(const Config& config, const std::string& shard,
                                                 bool dry_run, const TopologyOptions& options);
// Ends the membership of a shard that has nothing any more and is not the journal shard.
[[nodiscard]] Result<TopologyChange> remove_shard(const Config& config, const std::string& shard,
                                                  bool dry_run, const TopologyOptions& options);

// For the recovery loop: carries on with what a dead process has left, for at most `patience`.
// Does nothing while another process is at it. Returns true when something was finished. Throws
// SqlFailure.
bool resume_topology(const Config& config, std::chrono::milliseconds patience);

// Building blocks of the above, for changes made elsewhere.

// Carries on with the publishing epoch, if there is one, until it is active or the patience is used
// up. Returns what still holds it up, one line per shard; empty when no epoch is publishing any
// more. REQUIRES: the topology lock is held in `journal`. Throws SqlFailure.
std::vector<std::string> finish_publication(ControlSession& journal, const Config& config,
                                            std::chrono::milliseconds patience,
                                            const StepHook& step = {});
// raise_fences() on all members; one line per shard that is not done.
std::vector<std::string> raise_members(ControlSession& journal, const Config& config,
                                       std::int64_t generation, std::chrono::milliseconds patience,
                                       KeyChecks checks = KeyChecks::kAsTheyAre);

}  // namespace collegedb::migration
