// A shard on its way into the cluster: what it must be, and what it gets before an epoch names it.
// Background threads only.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "migration/cluster.h"
#include "migration/manifest.h"
#include "migration/schema.h"
#include "migration/table_catalog.h"
#include "proxy/config.h"

namespace collegedb::migration {

class Newcomer {
 public:
  // `config` names all shards, the new one at `index`. REQUIRES: the topology lock is held in
  // `journal`, which outlives this object.
  Newcomer(ControlSession& journal, const Config& config, std::size_t index,
           const Manifest& manifest);

  // Refuses what cannot become a shard: reads only. Returns what is to be done, as text. Throws
  // SqlFailure.
  std::vector<std::string> check();

  // Does it. Everything is idempotent, and nothing routes to the shard yet. REQUIRES: check() has
  // returned; the registry lock is held, so that neither tables nor their schema change before the
  // epoch is in the manifest. Throws SqlFailure.
  void prepare(std::span<const FunctionStub> stubs);

  [[nodiscard]] int slot() const { return slot_; }

 private:
  void check_servers();
  void check_proxies();
  void check_privileges(ControlSession& session);
  void check_tables(ControlSession& session);
  void check_groups(ControlSession& session, bool sequences);
  void copy_schema();
  void install_tables();
  void stride();
  [[nodiscard]] Config pair() const;  // the journal shard and the new one

  ControlSession& journal_;
  const Config& config_;
  const ShardConfig& shard_;
  std::size_t index_;
  Config members_;
  std::vector<RegisteredTable> tables_;
  int slot_ = 0;
  bool empty_ = false;
};

}  // namespace collegedb::migration
