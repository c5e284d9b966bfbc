// Mapped placement: where a key is that a proxy does not know, and where a new one goes.
//
// A key lives where its row in collegedb.mappings says. One without a row either has rows on the
// shards from before the cluster kept mappings, or it is new. Only a write makes a mapping, and no
// write goes anywhere before its key has one: of two writers the one whose mapping is first decides
// for both (collegedb.map_keys).
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "migration/finder.h"
#include "migration/runner.h"
#include "proxy/wire/error.h"
#include "routing/route.h"
#include "routing/snapshot.h"
#include "routing/strategy.h"

namespace collegedb::migration {

// Thread-safe; blocks.
class Allocator {
 public:
  // Of `options` the shards, journal, scope, strategies, limits and sessions are used. REQUIRES:
  // completed().
  explicit Allocator(RunnerOptions options);

  // The shard of one key for a client's statement. A write gives a key that nobody has to the shard
  // of the write strategy, or to `prefer` if that takes new keys (a transaction that has looked for
  // the key there already); a read of such a key goes where the read strategy says, and writes
  // nothing.
  //
  // Errors: SQLSTATE CDB01 when the topology is not the snapshot's: to be asked again with a newer
  // one. PLACEMENT_UNVERIFIED when the journal shard cannot be asked. UNROUTABLE_QUERY when several
  // shards have rows of a key without a mapping. Otherwise WRITE_UNRESOLVED for a write, else what
  // the shard says that could not be asked. Nothing of the client's has been written then.
  [[nodiscard]] Result<KeyPlace> find(const routing::Snapshot& snapshot,
                                      const routing::RoutedKey& key, bool for_write,
                                      routing::ShardId prefer = routing::kNoShard);

  struct Whereabouts {
    routing::ShardId shard = routing::kNoShard;
    bool mapped = false;  // false: it has rows there and no mapping
  };
  // Where one key is, for operators; nullopt when it has neither a mapping nor rows. `enter`: a key
  // that has rows alone gets its mapping. Errors as above.
  [[nodiscard]] Result<std::optional<Whereabouts>> look(const routing::Snapshot& snapshot,
                                                        const routing::RoutedKey& key, bool enter);

 private:
  class Resolution;

  RunnerOptions options_;
  routing::Strategy read_;
  routing::Strategy write_;
  std::atomic<std::uint64_t> reads_{0};
};

}  // namespace collegedb::migration
