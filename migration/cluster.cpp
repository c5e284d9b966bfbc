#include "migration/cluster.h"

#include <algorithm>
#include <set>

namespace collegedb::migration {

Config member_config(ControlSession& journal, const Config& config) {
  const Rows rows =
      journal.run("SELECT shard FROM collegedb.shards WHERE scope = $1 AND state <> 'removed'",
                  {config.journal.scope});
  if (rows.empty()) {
    return config;
  }
  std::set<std::string> members;
  for (int i = 0; i < rows.size(); ++i) {
    members.insert(rows.text(i, 0));
  }
  Config out = config;
  std::erase_if(out.shards,
                [&](const ShardConfig& shard) { return members.erase(shard.name) == 0; });
  if (!members.empty()) {
    throw SqlFailure(
        make_error(ErrorCode::kPlacementUnverified,
                   "shard \"" + *members.begin() + "\" of the cluster is not configured here",
                   "Add it to the configuration of this proxy and restart it."),
        journal.shard());
  }
  // Named even where it was the only one: a single shard is its own journal.
  out.journal.shard = journal.shard();
  return out;
}

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
