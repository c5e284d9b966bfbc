// The looking part of verify.h: one shard at a time, page by page. Reads only.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "migration/archive.h"
#include "migration/table_catalog.h"
#include "migration/verify.h"

namespace collegedb::migration {

// Registered sharded tables by group.
using GroupTables = std::map<std::string, std::vector<GroupTable>>;
[[nodiscard]] GroupTables read_group_tables(ControlSession& journal, const std::string& scope);

using FindingSink = std::function<void(VerifyFinding)>;

// Operations that nobody moves on, and claims of none.
void find_dangling(const RunnerOptions& options, ControlSession& journal, const FindingSink& sink);

class ShardScan {
 public:
  // All outlive it. Sessions outside a transaction.
  ShardScan(const RunnerOptions& options, ControlSession& journal, ControlSession& shard,
            const FindingSink& sink);
  // Throws SqlFailure.
  void run();

 private:
  struct Tombstone {
    std::string key;
    std::string op;
  };
  void prepared_halves();
  void fences();
  bool stays_open(const RegisteredTable& table);
  void tombstones();
  void ghosts(const std::string& group, const std::vector<Tombstone>& page);
  void operations_of(std::string_view what, const std::string& page_sql);
  const std::optional<GroupCatalog>& catalog_of(const std::string& group);

  const RunnerOptions& options_;
  ControlSession& journal_;
  ControlSession& shard_;
  const FindingSink& sink_;
  GroupTables tables_;
  std::map<std::string, std::optional<GroupCatalog>> catalogs_;
};

// Copies that aborted operations have left on their destinations. `session_of` gives a session by
// shard name, nullptr for a shard that is no member.
void find_stranded_copies(const RunnerOptions& options, ControlSession& journal,
                          const std::function<ControlSession*(const std::string&)>& session_of,
                          const FindingSink& sink);

}  // namespace collegedb::migration
