#include "migration/cluster.h"

namespace collegedb::migration {

Cluster::Cluster(const Config& config, const SessionOptions& options) {
  for (const ShardConfig& shard : config.shards) {
    sessions_.push_back(std::make_unique<ControlSession>(shard, options));
  }
}

void Cluster::begin() {
  for (const auto& session : sessions_) {
    transactions_.push_back(std::make_unique<Transaction>(*session));
  }
}

void Cluster::commit() {
  for (const auto& transaction : transactions_) {
    transaction->commit();
  }
  transactions_.clear();
}

void Cluster::commit(std::size_t index) {
  transactions_[index]->commit();
}

void Cluster::prepare(std::size_t index, std::string_view gid) {
  transactions_[index]->prepare(gid);
}

}  // namespace collegedb::migration
