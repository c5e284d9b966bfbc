// One control session per configured shard, with a transaction open on each.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>
#include <vector>

#include "migration/control_session.h"
#include "proxy/config.h"

namespace collegedb::migration {

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
