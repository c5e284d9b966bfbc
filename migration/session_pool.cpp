#include "migration/session_pool.h"

#include <algorithm>
#include <utility>

namespace collegedb::migration {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kIdleTime{60};
constexpr std::size_t kMaxIdle = 64;

}  // namespace

std::unique_ptr<ControlSession> SessionPool::take(const ShardConfig& shard,
                                                  const SessionOptions& options) {
  take_old().clear();  // closed outside the lock
  while (auto session = take_idle(shard)) {
    try {
      session->renew(options);
      return session;
    } catch (const SqlFailure& failure) {
      // The server has ended it meanwhile; the next one, or a new one, tells whether it is up.
      if (!failure.connection_lost() && session->alive()) throw;
    }
  }
  return std::make_unique<ControlSession>(shard, options);
}

void SessionPool::give_back(std::unique_ptr<ControlSession> session) noexcept {
  if (!session || !session->idle()) return;
  const std::lock_guard lock(mutex_);
  if (idle_.size() < kMaxIdle) idle_.push_back({std::move(session), Clock::now()});
}

// The one used last: its caches are the warmest, and the others may grow old.
std::unique_ptr<ControlSession> SessionPool::take_idle(const ShardConfig& shard) {
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(idle_.rbegin(), idle_.rend(), [&](const Idle& each) {
    return each.session->shard() == shard.name && each.session->conninfo() == shard.conninfo;
  });
  if (found == idle_.rend()) return nullptr;
  auto session = std::move(found->session);
  idle_.erase(std::next(found).base());
  return session;
}

std::vector<std::unique_ptr<ControlSession>> SessionPool::take_old() {
  std::vector<std::unique_ptr<ControlSession>> out;
  const std::lock_guard lock(mutex_);
  const auto limit = Clock::now() - kIdleTime;
  const auto young = std::find_if(idle_.begin(), idle_.end(),
                                  [&](const Idle& each) { return each.since >= limit; });
  for (auto each = idle_.begin(); each != young; ++each) out.push_back(std::move(each->session));
  idle_.erase(idle_.begin(), young);
  return out;
}

}  // namespace collegedb::migration
