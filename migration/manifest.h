// The manifest of a scope as its writers see it: read, then compare and swap on `revision`.
// Whatever places keys or makes a shard a member changes through here. Background threads only.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "migration/control_session.h"

namespace collegedb::migration {

inline constexpr std::size_t kMaxEpochs = 8;

// One row of collegedb.epochs.
struct EpochRow {
  int id = 0;
  std::string algorithm;  // hrw, modulo
  std::string state;      // publishing, active
  std::vector<std::string> shards;
  std::vector<std::string> weights;  // empty = all 1
  std::int64_t generation = 0;
};

// One row of collegedb.shards.
struct MemberRow {
  std::string name;
  std::string state;  // active, draining, removed
  int slot = 0;
};

struct Manifest {
  std::int64_t revision = 0;
  std::int64_t generation = 0;
  std::vector<EpochRow> epochs;    // newest first
  std::vector<MemberRow> members;  // by slot; removed ones too

  // nullptr when there is none.
  [[nodiscard]] const EpochRow* newest_active() const;
  [[nodiscard]] const EpochRow* publishing() const;
  [[nodiscard]] const MemberRow* find(std::string_view shard) const;
};

// For sessions that hold the locks below: these end soon after this process or its host.
[[nodiscard]] SessionOptions topology_session();

// In one snapshot. Throws SqlFailure, among others when the scope has no manifest.
[[nodiscard]] Manifest read_manifest(ControlSession& journal, const std::string& scope);

// Writes what belongs to the change, in the transaction that has won the swap: nothing of `before`
// can have changed. `generation` is the one from now on. May throw SqlFailure to refuse.
using ManifestChange =
    std::function<void(ControlSession& journal, const Manifest& before, std::int64_t generation)>;
// Called with the name of a step that has just been done, from the thread that does it. For tests
// and for logs; may throw, which leaves things as a crash there would.
using StepHook = std::function<void(std::string_view step)>;

enum class Bump {
  kRevision,    // everybody reloads
  kGeneration,  // and every write is bound to a new generation; see raise_fence()
};

// Reads, swaps, changes, commits; a lost swap is tried again, five in a row throw
// PLACEMENT_CONFLICT. Returns the generation afterwards. Steps: "manifest read".
std::int64_t change_manifest(ControlSession& journal, const std::string& scope, Bump bump,
                             const ManifestChange& change, const StepHook& step = {});

// Held while the topology changes: one change at a time per scope. Session level, in the session
// given; freed on destruction. REQUIRES: the session outlives it.
class TopologyLock {
 public:
  // Throws SqlFailure (55006) when another holds it for longer than the session's lock_timeout.
  TopologyLock(ControlSession& journal, const std::string& scope);
  // Without waiting; held() tells.
  struct Try {};
  TopologyLock(ControlSession& journal, const std::string& scope, Try);
  ~TopologyLock();
  TopologyLock(const TopologyLock&) = delete;
  TopologyLock& operator=(const TopologyLock&) = delete;

  [[nodiscard]] bool held() const { return held_; }

 private:
  ControlSession& journal_;
  std::string key_;
  bool held_ = false;
};

// How long MembersLock is waited for.
inline constexpr std::chrono::seconds kMembersPatience{30};

// Held while a schema change goes from shard to shard in transactions of its own (kShared), and
// while a new shard gets its schema (kExclusive): it would miss what has passed the shard it is
// copied from. Session level, in the session given; freed on destruction. REQUIRES: the session
// outlives it. Throws SqlFailure (55006).
class MembersLock {
 public:
  enum class Mode { kShared, kExclusive };
  MembersLock(ControlSession& journal, Mode mode);
  ~MembersLock();
  MembersLock(const MembersLock&) = delete;
  MembersLock& operator=(const MembersLock&) = delete;

 private:
  ControlSession& journal_;
  const char* suffix_;
};

// Held while tables and their schema must stay as they are: changes of the registry and schema
// changes through any proxy wait for it. Session level, in the session given; freed on destruction.
// REQUIRES: the session outlives it. Throws SqlFailure.
class RegistryLock {
 public:
  explicit RegistryLock(ControlSession& journal);
  ~RegistryLock();
  RegistryLock(const RegistryLock&) = delete;
  RegistryLock& operator=(const RegistryLock&) = delete;

 private:
  ControlSession& journal_;
};

}  // namespace collegedb::migration
