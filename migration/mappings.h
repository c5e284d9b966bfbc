// The rows of collegedb.mappings on the journal shard: where keys live under mapped placement.
// Whoever puts a key somewhere does it through here or by a move. Background threads only.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "migration/control_session.h"
#include "routing/strategy.h"

namespace collegedb::migration {

// Throw SqlFailure, all of them.

// True when the scope has mapped placement, which never changes.
[[nodiscard]] bool has_mapped_placement(ControlSession& journal, const std::string& scope);

[[nodiscard]] std::optional<std::string> read_mapping(ControlSession& journal,
                                                      const std::string& scope,
                                                      const std::string& group,
                                                      const std::string& key);
// Shards of those of the keys that have a mapping.
using MappedShards = std::map<std::string, std::string>;
[[nodiscard]] MappedShards read_mappings(ControlSession& journal, const std::string& scope,
                                         const std::string& group,
                                         const std::vector<std::string>& keys);

// Puts keys that have no mapping on `shard` and returns where each of them is then: who was first
// wins. `strategy` goes into the ledger (collegedb.allocations); empty: the keys have rows there
// and are only entered. SQLSTATE CDB01 unless `generation` is the manifest's and, with a strategy,
// the newest active epoch names the shard. Not undone by a later failure of the caller.
[[nodiscard]] MappedShards map_keys(ControlSession& journal, const std::string& scope,
                                    const std::string& group, const std::vector<std::string>& keys,
                                    const std::string& shard, std::string_view strategy,
                                    std::int64_t generation);

// The shards of the newest active epoch in its order, with what the cluster knows of them.
[[nodiscard]] std::vector<routing::Taker> read_takers(ControlSession& journal,
                                                      const std::string& scope);
// Counts the keys of a group that were placed in turn, from 0.
[[nodiscard]] std::uint64_t next_turn(ControlSession& journal, const std::string& scope,
                                      const std::string& group);

}  // namespace collegedb::migration
