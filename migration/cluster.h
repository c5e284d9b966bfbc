// The shards of the cluster, and one control session on each with a transaction open.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>
#include <vector>

#include "migration/control_session.h"
#include "proxy/config.h"

namespace collegedb::migration {

// The configuration with those shards alone that belong to the cluster: rows of collegedb.shards
// that are not removed. A shard that is configured and not added yet has neither tables nor keys;
// statements over all shards leave it out. Before the first start has sown the manifest all of them
// belong. Throws SqlFailure, PLACEMENT_UNVERIFIED when a shard of the cluster is not configured.
[[nodiscard]] Config member_config(ControlSession& journal, const Config& config);

class Cluster {
 public:
  // Connects to all shards in configuration order. Throws SqlFailure.
  explicit Cluster(const Config& config, const SessionOptions& options = {});

  // BEGIN on each; destruction rolls back what commit() has not committed.
  void begin();
  // In configuration order; one that fails leaves the later ones to be rolled back.
  void commit();
  void commit(std::size_t index);
  // PREPARE TRANSACTION on one shard; after that neither commit() nor destruction touches it.
  void prepare(std::size_t index, std::string_view gid);

  [[nodiscard]] std::size_t size() const { return sessions_.size(); }
  [[nodiscard]] ControlSession& operator[](std::size_t index) { return *sessions_[index]; }

 private:
  std::vector<std::unique_ptr<ControlSession>> sessions_;
  std::vector<std::unique_ptr<Transaction>> transactions_;  // dies before sessions_
};

}  // namespace collegedb::migration
