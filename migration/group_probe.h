// What a shard has of some keys of one group: rows in the group's tables, and tombstones.
// Background threads only.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "migration/control_session.h"
#include "migration/table_catalog.h"

namespace collegedb::migration {

struct KeyTraces {
  std::vector<bool> tables;  // parallel to the probe's tables: there are rows in it
  std::optional<std::string> moved_to;

  [[nodiscard]] bool rows() const;
};

class GroupProbe {
 public:
  // Reads the key columns' types from the catalog of the journal shard. Throws SqlFailure for a
  // table that is not what it was registered as; one that does not exist there has no rows.
  GroupProbe(ControlSession& journal, std::string scope, std::string group,
             const std::vector<RegisteredTable>& tables);

  [[nodiscard]] const std::vector<RegisteredTable>& tables() const { return tables_; }
  // Parallel to `keys`. One statement, so one snapshot. Throws SqlFailure.
  [[nodiscard]] std::vector<KeyTraces> look(ControlSession& session,
                                            std::span<const std::string> keys) const;

 private:
  std::string scope_;
  std::string group_;
  std::vector<RegisteredTable> tables_;
  std::string sql_;
};

// Registered tables of one group whose key column is known. Throws SqlFailure.
[[nodiscard]] std::vector<RegisteredTable> group_tables(ControlSession& journal,
                                                        const std::string& scope,
                                                        const std::string& group);

}  // namespace collegedb::migration
