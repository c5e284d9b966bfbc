// Idle control sessions that moves have used and will use again. A move needs one on the journal
// shard and up to two on others; opening one costs a fork, a login and cold catalogue caches on
// the server, more than the rest of a small move. Thread-safe.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "migration/control_session.h"

namespace collegedb::migration {

class SessionPool {
 public:
  // A session that has answered just now, as if opened with these options: an idle one, or a new
  // one. Throws SqlFailure. The caller owns it.
  [[nodiscard]] std::unique_ptr<ControlSession> take(const ShardConfig& shard,
                                                     const SessionOptions& options);
  // Keeps it, unless it is broken or inside a transaction: then it is closed, and the server rolls
  // back. REQUIRES: it holds no session-level lock. nullptr is ignored.
  void give_back(std::unique_ptr<ControlSession> session) noexcept;

 private:
  struct Idle {
    std::unique_ptr<ControlSession> session;
    std::chrono::steady_clock::time_point since;
  };
  std::unique_ptr<ControlSession> take_idle(const ShardConfig& shard);
  std::vector<std::unique_ptr<ControlSession>> take_old();

  std::mutex mutex_;
  std::vector<Idle> idle_;  // oldest first
};

}  // namespace collegedb::migration
