// The row of collegedb.rebalances that tells how a rebalance stands, and carries the operator's
// wishes to it. Background threads only.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "migration/rebalance.h"

namespace collegedb::migration {

class RebalanceLog {
 public:
  // Writes the row. Unless it is a dry run, first takes the scope's lock, for as long as this
  // object lives, and calls what dead processes have left interrupted. Throws SqlFailure; 55006
  // when a rebalance is running.
  RebalanceLog(const RunnerOptions& options, const RebalanceRequest& request,
               const std::vector<std::string>& groups, int concurrency);

  struct Wishes {
    bool paused = false;
    bool cancelled = false;
  };
  // Writes how it stands. Throws SqlFailure, among others when the lock was lost with its session
  // and is another's now.
  Wishes report(const RebalanceResult& result);
  // Writes the end.
  void finish(const RebalanceResult& result, std::string_view state, const std::string& error);

  [[nodiscard]] const std::string& id() const { return id_; }
  // On the journal shard, for reads between the calls.
  [[nodiscard]] ControlSession& session() { return *session_; }

 private:
  void connect();
  Rows write(const RebalanceResult& result, std::string_view state, const std::string& error);

  const ShardConfig shard_;
  const std::string scope_;
  const bool locked_;
  std::string id_;
  std::unique_ptr<ControlSession> session_;
};

}  // namespace collegedb::migration
