#include "proxy/net/pool.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <cstdlib>
#include <utility>

#include "proxy/net/printable.h"
#include "proxy/net/spawn.h"
#include "proxy/wire/frontend.h"

namespace collegedb::net {
namespace {

constexpr Milliseconds kRetryPause{200};

SqlError shutting_down() {
  return make_error("57P01", "terminating connection due to administrator command");
}

metrics::PoolState gauge_of(NodeState state) {
  switch (state) {
    case NodeState::kConnecting:
      return metrics::PoolState::kConnecting;
    case NodeState::kIdle:
      return metrics::PoolState::kIdle;
    default:
      return metrics::PoolState::kLeased;
  }
}

std::string one_line(const SqlError& error) {
  std::string text = error.severity + " " + error.sqlstate + ": " + error.message;
  if (!error.detail.empty()) text += " (" + error.detail + ")";
  return text;
}

}  // namespace

Pool::Pool(Executor executor, const ShardTarget& target, PoolLimits limits,
           metrics::ShardStats& stats, metrics::ShardHealth& health, metrics::Clock clock)
    : executor_(executor),
      target_(target),
      limits_(limits),
      stats_(stats),
      health_(health),
      clock_(clock) {}

Pool::~Pool() = default;

// --- states -----------------------------------------------------------------------------------

void Pool::count(NodeState state, int by) {
  if (state == NodeState::kClosed) return;
  stats_.pool_connections[gauge_of(state)].add(by);
}

void Pool::change(Backend& backend, NodeEvent event) {
  const std::optional<NodeState> next = next_state(backend.node, event);
  if (!next) {
    spdlog::critical("server connection of shard {}: event {} in state {}", target_.name,
                     static_cast<int>(event), name_of(backend.node));
    std::abort();
  }
  if (backend.node == NodeState::kIdle) {
    // Leased from the top, closed from anywhere.
    if (!idle_.empty() && idle_.back() == &backend)
      idle_.pop_back();
    else
      std::erase(idle_, &backend);
  }
  count(backend.node, -1);
  count(*next, +1);
  backend.node = *next;
  if (*next == NodeState::kIdle) idle_.push_back(&backend);
}

// --- leases -----------------------------------------------------------------------------------

Backend* Pool::try_lease() {
  if (!waiters_.empty()) return nullptr;
  while (!idle_.empty()) {
    Backend& backend = *idle_.back();
    const Stream::Peek peek = backend.stream.peek();
    if (!peek.gone && !peek.stray) {
      change(backend, NodeEvent::kLease);
      return &backend;
    }
    close_backend(backend);
  }
  return nullptr;
}

void Pool::wait(Waiter& waiter) {
  if (closed_) {
    waiter.error = shutting_down();
    waiter.event_.set();
    return;
  }
  waiter.since_ns_ = clock_ ? clock_() : 0;
  waiters_.push_back(waiter);
  stats_.pool_waiting.set(static_cast<std::int64_t>(waiters_.size()));
  start_connects();
}

void Pool::forget(Waiter& waiter) {
  if (waiter.is_linked()) {
    waiters_.erase(Waiters::s_iterator_to(waiter));
    stats_.pool_waiting.set(static_cast<std::int64_t>(waiters_.size()));
  } else if (waiter.backend != nullptr) {
    release(*std::exchange(waiter.backend, nullptr));
  }
}

void Pool::grant(Waiter& waiter, Backend& backend) {
  waiters_.erase(Waiters::s_iterator_to(waiter));
  stats_.pool_waiting.set(static_cast<std::int64_t>(waiters_.size()));
  if (clock_) stats_.pool_wait.observe_ns(clock_() - waiter.since_ns_);
  change(backend, NodeEvent::kLease);
  waiter.backend = &backend;
  waiter.event_.set();
}

void Pool::refuse_all(const SqlError& error) {
  while (!waiters_.empty()) {
    Waiter& waiter = waiters_.front();
    waiters_.pop_front();
    waiter.error = error;
    waiter.event_.set();
  }
  stats_.pool_waiting.set(0);
}

// `backend` has just become idle.
void Pool::offer(Backend& backend) {
  if (closed_) {
    close_backend(backend);
    return;
  }
  if (!waiters_.empty()) grant(waiters_.front(), backend);
}

void Pool::release(Backend& backend) {
  backend.user.clear();
  backend.idle_since = Clock::now();
  const bool clean = backend.in.empty() && !backend.busy && !backend.tainted;
  if (closed_ || !clean || too_old(backend, backend.idle_since)) {
    close_backend(backend);
    start_connects();
    return;
  }
  if (backend.in.capacity() > 4 * ReadBuffer::kNormal) backend.in.shrink(ReadBuffer::kNormal);
  if (backend.cancel_on_its_way) {
    change(backend, NodeEvent::kReleaseHeld);
    return;
  }
  change(backend, NodeEvent::kRelease);
  offer(backend);
}

void Pool::discard(Backend& backend) {
  // What still runs there would run on for nobody.
  if (backend.busy) cancel(backend);
  close_backend(backend);
  start_connects();
}

void Pool::close_backend(Backend& backend) {
  change(backend, NodeEvent::kClose);
  std::string goodbye;
  wire::encode_terminate(goodbye);
  static_cast<void>(backend.stream.write_now(goodbye));
  backend.stream.close();
  std::erase_if(backends_, [&](const auto& owned) { return owned.get() == &backend; });
}

bool Pool::too_old(const Backend& backend, TimePoint now) const {
  return limits_.lifetime.count() > 0 && now - backend.connected_at >= limits_.lifetime;
}

Backend* Pool::find(std::uint64_t id) {
  const auto found = std::ranges::find(backends_, id, [](const auto& owned) { return owned->id; });
  return found == backends_.end() ? nullptr : found->get();
}

// --- connecting -------------------------------------------------------------------------------

void Pool::start_connects() {
  if (closed_ || (!backends_.empty() && Clock::now() < retry_at_)) return;
  while (connectors_.size() < waiters_.size() &&
         backends_.size() + connectors_.size() < limits_.size) {
    connect_one();
  }
}

void Pool::connect_one() {
  auto connector = std::make_shared<Connector>(executor_);
  connectors_.push_back(connector);
  count(NodeState::kConnecting, +1);
  spawn(executor_, "server connect", run_connect(this, std::move(connector)));
}

Task<void> Pool::run_connect(Pool* pool, std::shared_ptr<Connector> connector) {
  // First let whoever asked suspend: a failure that comes at once must find it waiting.
  co_await asio::post(pool->executor_, asio::use_awaitable_t<Executor>{});
  ConnectResult result = co_await connector->connect(&pool->target_);
  std::erase(pool->connectors_, connector);
  pool->count(NodeState::kConnecting, -1);
  if (result) {
    pool->on_connected(std::move(*result));
  } else {
    pool->on_connect_failed(std::move(result).error());
  }
}

void Pool::on_connected(std::unique_ptr<Backend> backend) {
  set_up(true);
  last_error_.reset();
  reported_ = backend->reported;
  backend->id = next_id_++;
  backend->idle_since = backend->connected_at;
  Backend& added = *backend;
  backends_.push_back(std::move(backend));
  count(NodeState::kConnecting, +1);
  change(added, NodeEvent::kConnected);
  offer(added);
}

void Pool::on_connect_failed(SqlError error) {
  if (closed_) return;
  set_up(!backends_.empty());
  SqlError told =
      make_error(ErrorCode::kShardUnavailable, "cannot connect to shard \"" + target_.name + "\"",
                 "Check that the server runs and accepts the proxy's login.", one_line(error));
  if (!last_error_ || last_error_->detail != told.detail) {
    spdlog::warn("shard {}: {}", target_.name, printable(told.detail));
  }
  last_error_ = told;
  if (backends_.empty()) {
    // Nothing will come back to the pool: everybody who waits learns the reason now.
    refuse_all(told);
    return;
  }
  // The live connections will serve the waiters; try for more a little later.
  retry_at_ = Clock::now() + kRetryPause;
}

void Pool::set_up(bool up) {
  if (up_ != up) spdlog::info("shard {} is {}", target_.name, up ? "up" : "down");
  up_ = up;
  health_.up.set(up ? 1 : 0);
}

// --- cancel -----------------------------------------------------------------------------------

void Pool::cancel(Backend& backend, std::shared_ptr<void> settled) {
  if (backend.cancel_on_its_way || closed_) return;
  backend.cancel_on_its_way = true;
  PendingCancel cancel{backend.id, backend.address, backend.pid, backend.secret,
                       std::move(settled)};
  if (cancels_.size() < limits_.max_cancels) {
    start_cancel(std::move(cancel));
  } else {
    pending_cancels_.push_back(std::move(cancel));  // at most one for each connection
  }
}

void Pool::start_cancel(PendingCancel cancel) {
  auto connector = std::make_shared<Connector>(executor_);
  cancels_.push_back(connector);
  spawn(executor_, "cancel request", run_cancel(this, std::move(connector), std::move(cancel)));
}

Task<void> Pool::run_cancel(Pool* pool, std::shared_ptr<Connector> connector,
                            PendingCancel cancel) {
  const bool settled = co_await connector->cancel(&pool->target_, cancel.address, cancel.pid,
                                                  cancel.secret, pool->limits_.cancel_timeout);
  std::erase(pool->cancels_, connector);
  pool->on_cancel_settled(cancel.backend_id, settled);
}

void Pool::on_cancel_settled(std::uint64_t backend_id, bool settled) {
  if (!closed_ && !pending_cancels_.empty()) {
    PendingCancel next = std::move(pending_cancels_.front());
    pending_cancels_.erase(pending_cancels_.begin());
    start_cancel(std::move(next));
  }
  Backend* backend = find(backend_id);
  if (backend == nullptr) return;
  backend->cancel_on_its_way = false;
  // Without the EOF the signal may still arrive, at whoever runs there then.
  if (!settled) backend->tainted = true;
  if (backend->node == NodeState::kReserved && !settled) {
    close_backend(*backend);
    start_connects();
    return;
  }
  const bool was_reserved = backend->node == NodeState::kReserved;
  change(*backend, NodeEvent::kCancelSettled);
  if (was_reserved) offer(*backend);
}

// --- upkeep -----------------------------------------------------------------------------------

void Pool::maintain(TimePoint now) {
  if (closed_) return;
  std::vector<Backend*> dead;
  std::size_t kept = backends_.size();
  for (Backend* backend : idle_) {
    const Stream::Peek peek = backend->stream.peek();
    const bool idle_long = limits_.idle_timeout.count() > 0 && kept > limits_.min_size &&
                           now - backend->idle_since >= limits_.idle_timeout;
    if (!peek.gone && !peek.stray && !idle_long && !too_old(*backend, now)) continue;
    dead.push_back(backend);
    --kept;
  }
  for (Backend* backend : dead) close_backend(*backend);
  start_connects();
  // While the shard is down one attempt at a time tells when it is back.
  const std::size_t wanted = std::min(up_ ? limits_.min_size : 1U, limits_.min_size);
  while (backends_.size() + connectors_.size() < std::min<std::size_t>(wanted, limits_.size)) {
    connect_one();
  }
}

void Pool::close() {
  closed_ = true;
  refuse_all(shutting_down());
  pending_cancels_.clear();
  for (const auto& connector : connectors_) connector->abort();
  for (const auto& connector : cancels_) connector->abort();
  while (!idle_.empty()) close_backend(*idle_.back());
  std::vector<Backend*> reserved;
  for (const auto& backend : backends_) {
    if (backend->node == NodeState::kReserved) reserved.push_back(backend.get());
  }
  for (Backend* backend : reserved) close_backend(*backend);
}

Pool::Counts Pool::counts() const {
  Counts counts;
  counts.connecting = connectors_.size();
  counts.waiting = waiters_.size();
  for (const auto& backend : backends_) {
    if (backend->node == NodeState::kIdle) ++counts.idle;
    if (backend->node == NodeState::kLeased) ++counts.leased;
    if (backend->node == NodeState::kReserved) ++counts.reserved;
  }
  return counts;
}

}  // namespace collegedb::net
