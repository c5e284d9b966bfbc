// Where the rows of a table are, compared with where routing will look for them.
#pragma once

#include <string>
#include <vector>

#include "migration/cluster.h"
#include "migration/table_catalog.h"
#include "proxy/wire/error.h"

namespace collegedb::migration {

// What placement says of one group, as the journal has it.
struct GroupPlacement {
  std::string scope;
  std::string group;
  std::vector<std::string> shards;  // of the only epoch: hrw with equal weights
  std::vector<std::pair<std::string, std::string>> exceptions;  // key, shard
  std::vector<RegisteredTable> tables;  // registered and present tables of the group
};

// Reads it. Errors: 0A000 when the placement is one that SQL on a shard cannot evaluate.
[[nodiscard]] Result<GroupPlacement> read_placement(ControlSession& journal,
                                                    const std::string& scope,
                                                    const std::string& group);

struct MisplacedKey {
  std::string key;
  std::string shard;  // where its rows are
};

// The same under mapped placement: rows may be anywhere but where the directory does not have their
// key. Keys without a mapping are left as they are: they get one when they are written, or by
// import. Errors: 23502; 55000 keys with rows on another shard than they are mapped to. REQUIRES:
// writers of the table are kept away.
[[nodiscard]] Result<void> mapped_census(ControlSession& journal, Cluster& shards,
                                         const std::string& scope, const RegisteredTable& table);

// Keys of `table` whose rows are not where routing would look, each on exactly one shard.
// Errors: 23502 rows with a NULL key; 55000 keys with rows on two shards, or that once moved away
// from where their rows are. REQUIRES: writers of the table are kept away.
[[nodiscard]] Result<std::vector<MisplacedKey>> census(Cluster& shards,
                                                       const GroupPlacement& placement,
                                                       const RegisteredTable& table);

}  // namespace collegedb::migration
