// Builds a Snapshot from what the journal shard has. Blocking SQL; background threads only.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "migration/control_session.h"
#include "proxy/config.h"
#include "routing/snapshot.h"

namespace collegedb::store {

// What of the journal a process has loaded; equal means nothing has changed.
struct Versions {
  std::int64_t revision = -1;
  std::int64_t generation = -1;
  std::int64_t exception_version = -1;
  std::int64_t registry_version = -1;
  friend bool operator==(const Versions&, const Versions&) = default;
};

struct LoadedSnapshot {
  routing::Snapshot snapshot;  // version is left to the caller
  Versions versions;
};

// Throws SqlFailure; 55000 when the scope has no manifest.
[[nodiscard]] Versions read_versions(migration::ControlSession& journal, const std::string& scope);

// One REPEATABLE READ transaction. Throws SqlFailure: PLACEMENT_UNVERIFIED when the manifest names
// a shard that is not configured. A table whose key column is not what was registered is broken,
// and no reason not to load the others. What the versions say is unchanged since `previous` (may be
// null) is taken over from it.
[[nodiscard]] LoadedSnapshot read_snapshot(migration::ControlSession& journal, const Config& config,
                                           const LoadedSnapshot* previous);

// Without a journal: placement and tables from the configuration, columns from the first shard.
[[nodiscard]] LoadedSnapshot static_snapshot(migration::ControlSession& first_shard,
                                             const Config& config);

}  // namespace collegedb::store
