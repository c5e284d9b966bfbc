// The work of one rebalance: several threads take turns in reading misplaced keys from the donors
// and moving them in batches. Background threads only.
#pragma once

#include <condition_variable>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "migration/rebalance.h"
#include "migration/rebalance_donor.h"

namespace collegedb::migration {

// What it is about: as it was when the rebalance began.
struct RebalanceField {
  PlacedEpochs epochs;
  std::vector<ShardConfig> sources;
  std::map<std::string, std::vector<RegisteredTable>> groups;
};

class RebalanceWork {
 public:
  // Without `runner` keys are counted and not moved; with `journal` those that an operator has put
  // where they are count as agreed. All outlive it.
  RebalanceWork(const RebalanceField& field, const RebalanceRequest& request, std::string id,
                Runner* runner, const RunnerOptions* journal, int concurrency);

  // The body of each thread: until all is done or stop(). Never throws.
  void run() noexcept;

  // Operations that have begun are finished, no other begins while it is paused.
  void pause(bool paused);
  void stop();
  // Waits for the end of all work, at most for `span`; false when there is more.
  bool wait(std::chrono::milliseconds span);
  [[nodiscard]] RebalanceResult result();

 private:
  using Lock = std::unique_lock<std::mutex>;
  using Route = std::tuple<std::string, std::string, std::string>;  // group, source, destination
  struct Hope {
    int refusals = 0;  // in a row
    std::string error;
  };

  // With the lock held, which they release for as long as they wait for a server.
  bool step(Lock& lock);
  void read(Lock& lock, Donor& donor);
  void move(Lock& lock, Donor& donor, RebalanceBatch batch);

  // The first batch that can start now; end() when there is none.
  [[nodiscard]] std::deque<Donor::Waiting>::iterator startable(Donor& donor) const;
  void take_in(Donor& donor, std::vector<Misplaced> found, const std::set<std::string>& pinned);
  void end_scan(Donor& donor);
  void settle(Donor& donor, const RebalanceBatch& batch, const SqlError& error);
  void again(Donor& donor, RebalanceBatch batch, std::chrono::milliseconds delay);
  void give_up(const Donor& donor, const RebalanceBatch& batch, const std::string& error);
  [[nodiscard]] std::vector<std::string> still_there(const Donor& donor,
                                                     const RebalanceBatch& batch) const;
  [[nodiscard]] bool is_done() const;

  const RebalanceRequest& request_;
  Runner* runner_;
  const RunnerOptions* journal_;
  const int per_donor_;
  std::optional<std::uint64_t> copy_rate_;  // of one operation

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::vector<std::unique_ptr<Donor>> donors_;
  std::size_t turn_ = 0;
  std::set<std::pair<std::string, std::int32_t>> fenced_;  // group and bucket of running operations
  std::map<Route, std::int64_t> plan_;
  std::map<Route, Hope> hope_;
  std::int64_t left_ = INT64_MAX;  // of max_keys
  bool paused_ = false;
  bool stopped_ = false;
  RebalanceResult result_;
};

}  // namespace collegedb::migration
