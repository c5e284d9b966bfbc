// Finds keys that the active epochs place differently: their rows are where they were when the
// older epoch was the newest, or where a move has brought them since.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "migration/runner.h"
#include "proxy/wire/error.h"
#include "routing/route.h"
#include "routing/snapshot.h"

namespace collegedb::migration {

struct KeyPlace {
  routing::ShardId shard = routing::kNoShard;
  // The key stays there until a tombstone says otherwise, and its first row is made nowhere else.
  bool settled = false;
  bool nobody = false;  // has rows: `shard` is as good as any to look on now
};

// Thread-safe; blocks.
class Finder {
 public:
  // Of `options` the shards, scope, limits and sessions are used.
  explicit Finder(RunnerOptions options);

  // The shard of one key, by rows of any table of its group; candidates() of the snapshot are
  // asked, newest owner first, then the shards their tombstones lead to.
  //
  // Nobody has rows, and a write wants to make some: each older owner is fenced and gets a
  // tombstone that leads to the next newer one, oldest first. At every moment the owners without a
  // tombstone are those where a writer may still make the key's first row, and nobody is told the
  // newest one before it is the only one left (4b row 6).
  //
  // Errors: SQLSTATE CDB01 when a shard has a newer topology than the snapshot: to be asked again
  // with a newer one. Otherwise WRITE_UNRESOLVED for a write, else SHARD_UNAVAILABLE or what the
  // shard says; nothing has been written by the client's statement then.
  [[nodiscard]] Result<KeyPlace> find(const routing::Snapshot& snapshot,
                                      const routing::RoutedKey& key, bool for_write);

 private:
  class Search;
  RunnerOptions options_;
};

}  // namespace collegedb::migration
