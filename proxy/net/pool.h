// Server connections of one shard on one worker: a hard cap, waiters in order of arrival, the most
// recently used connection first. One thread; nothing here resumes a waiter inline.
#pragma once

#include <boost/intrusive/list.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "metrics/stats.h"
#include "proxy/net/backend.h"
#include "proxy/net/event.h"

namespace collegedb::net {

struct PoolLimits {
  unsigned size = 1;  // hard cap: connecting, idle, leased and reserved together
  unsigned min_size = 0;
  Milliseconds idle_timeout{600'000};
  Milliseconds lifetime{3'600'000};
  unsigned max_cancels = 8;  // cancel connections at a time
  Milliseconds cancel_timeout{10'000};
};

// A place in the queue. Its owner keeps it alive until done() or Pool::forget().
class Waiter : public boost::intrusive::list_base_hook<> {
 public:
  // `event` is set when the wait is over.
  explicit Waiter(Event& event) : event_(event) {}
  [[nodiscard]] bool done() const { return backend != nullptr || error.has_value(); }

  Backend* backend = nullptr;     // leased
  std::optional<SqlError> error;  // no connection could be made

 private:
  friend class Pool;
  Event& event_;
  std::uint64_t since_ns_ = 0;
};

class Pool {
 public:
  // `target`, `stats`, `health` outlive the pool; the pool outlives every run of `executor`.
  Pool(Executor executor, const ShardTarget& target, PoolLimits limits, metrics::ShardStats& stats,
       metrics::ShardHealth& health, metrics::Clock clock);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // A leased connection at once, or nullptr: none idle, or others wait already.
  [[nodiscard]] Backend* try_lease();
  void wait(Waiter& waiter);
  // Ends a wait; a connection granted meanwhile goes to the next waiter.
  void forget(Waiter& waiter);

  // REQUIRES leased. release: idle and clean; otherwise it is closed instead.
  void release(Backend& backend);
  void discard(Backend& backend);
  // Cancels what runs there. One at a time for each connection: while one is on its way another
  // would say the same.
  // `settled` is released once it has been delivered or given up.
  void cancel(Backend& backend, std::shared_ptr<void> settled = nullptr);

  // Once a second: drops dead, idle and old connections, keeps min_size.
  void maintain(TimePoint now);
  // No more connects; idle ones are closed, waiters get 57P01, attempts are aborted.
  void close();

  struct Counts {
    std::size_t connecting = 0, idle = 0, leased = 0, reserved = 0, waiting = 0;
  };
  [[nodiscard]] Counts counts() const;
  [[nodiscard]] const PoolLimits& limits() const { return limits_; }
  [[nodiscard]] const ShardTarget& target() const { return target_; }
  [[nodiscard]] bool up() const { return up_; }
  [[nodiscard]] const std::optional<SqlError>& last_error() const { return last_error_; }
  // What the last server connection reported at login; empty before the first.
  [[nodiscard]] const session::ReportedParameters& reported() const { return reported_; }
  [[nodiscard]] const std::vector<std::unique_ptr<Backend>>& backends() const { return backends_; }

 private:
  using Waiters = boost::intrusive::list<Waiter>;
  struct PendingCancel {
    std::uint64_t backend_id = 0;
    ServerAddress address;
    std::int32_t pid = 0;
    std::string secret;
    std::shared_ptr<void> settled;
  };

  // The one place where a connection's state changes: leaves the old list, enters the new one.
  void change(Backend& backend, NodeEvent event);
  void count(NodeState state, int by);
  void offer(Backend& backend);
  void grant(Waiter& waiter, Backend& backend);
  void refuse_all(const SqlError& error);
  void start_connects();
  void connect_one();
  void on_connected(std::unique_ptr<Backend> backend);
  void on_connect_failed(SqlError error);
  void close_backend(Backend& backend);
  void start_cancel(PendingCancel cancel);
  void on_cancel_settled(std::uint64_t backend_id, bool settled);
  [[nodiscard]] Backend* find(std::uint64_t id);
  [[nodiscard]] bool too_old(const Backend& backend, TimePoint now) const;
  void set_up(bool up);

  // Coroutines; `pool` outlives the executor's run.
  static Task<void> run_connect(Pool* pool, std::shared_ptr<Connector> connector);
  static Task<void> run_cancel(Pool* pool, std::shared_ptr<Connector> connector,
                               PendingCancel cancel);

  Executor executor_;
  const ShardTarget& target_;
  PoolLimits limits_;
  metrics::ShardStats& stats_;
  metrics::ShardHealth& health_;
  metrics::Clock clock_;

  std::vector<std::unique_ptr<Backend>> backends_;  // all but those that still connect
  std::vector<Backend*> idle_;                      // most recently used last
  Waiters waiters_;
  std::vector<std::shared_ptr<Connector>> connectors_;  // attempts on their way
  std::vector<std::shared_ptr<Connector>> cancels_;
  std::vector<PendingCancel> pending_cancels_;
  std::uint64_t next_id_ = 1;
  TimePoint retry_at_;  // no new attempt before: the last one failed while others live
  session::ReportedParameters reported_;
  std::optional<SqlError> last_error_;
  bool up_ = false;
  bool closed_ = false;
};

}  // namespace collegedb::net
