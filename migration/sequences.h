// Sequences behind sharded tables: each shard gives out its own residue class, so that numbers are
// unique over the shards and a row can move without meeting another's.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "migration/cluster.h"
#include "migration/table_catalog.h"

namespace collegedb::migration {

// Numbers grow by this much; a cluster has at most this many shards over its life.
inline constexpr int kSequenceStride = 64;

// Strides every sequence that a column default or identity of a sharded table uses: on the shard
// with slot s the next numbers are above all that any shard has given out, and congruent to s + 1.
// `slots` is parallel to `shards`. Leaves alone what is already strided; keeps writers of the table
// away where something must be changed. Throws SqlFailure (0A000) for a sequence that cannot be
// strided (descending, CYCLE). REQUIRES: a transaction on every shard.
void stride_sequences(Cluster& shards, const std::vector<int>& slots,
                      std::span<const RegisteredTable> tables);

// Gives every such sequence on one shard the numbers of its slot, above all that any shard has
// given out: for a shard that joins, whose sequences are copies of another's or new. REQUIRES: as
// above, and stride_sequences() was called before for the same shards; nobody writes to that shard.
void stride_newcomer(Cluster& shards, const std::vector<int>& slots, std::size_t newcomer,
                     std::span<const RegisteredTable> tables);

// Slots of the configured shards, in configuration order; assigns free ones to shards that have
// none. REQUIRES: no other process does so, or a transaction that holds the registry lock.
[[nodiscard]] std::vector<int> read_slots(ControlSession& journal, const Config& config);

}  // namespace collegedb::migration
