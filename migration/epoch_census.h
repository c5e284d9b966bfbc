// Which epochs the rows of the sharded tables depend on. Reads only. Background threads only.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "migration/manifest.h"
#include "migration/table_catalog.h"
#include "proxy/config.h"

namespace collegedb::migration {

// Keys that the directory has on one shard: group -> keys.
using KeysByGroup = std::map<std::string, std::vector<std::string>>;

struct EpochCensus {
  std::map<int, std::int64_t> dependents;  // rows by epoch
  std::int64_t scanned = 0;
};

struct CensusOptions {
  int page_size = 10000;
  int concurrency = 2;
};

// Looks at every row of `tables` on every shard of the configuration, page by page from one
// snapshot per shard. `epochs` newest first, without weights; `exempt` by shard. Throws SqlFailure.
[[nodiscard]] EpochCensus take_epoch_census(const Config& cluster, std::span<const EpochRow> epochs,
                                            std::span<const RegisteredTable> tables,
                                            const std::map<std::string, KeysByGroup>& exempt,
                                            const CensusOptions& options);

// "collegedb.epoch_owner('hrw', '{...}', <key>)"
[[nodiscard]] std::string epoch_owner_sql(const EpochRow& epoch, const std::string& key);

}  // namespace collegedb::migration
