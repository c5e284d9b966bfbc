// One thread: its io_context, its clients, its pools (one for each shard) and what its sessions
// share. Other threads reach it only through the functions marked "any thread", which post.
#pragma once

#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/unordered/unordered_flat_map.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "metrics/stats.h"
#include "proxy/config.h"
#include "proxy/net/cancel_keys.h"
#include "proxy/net/connection.h"
#include "proxy/net/info.h"
#include "proxy/net/pool.h"
#include "proxy/net/unique_fd.h"
#include "proxy/net/watchdog.h"
#include "proxy/session/worker_context.h"

namespace collegedb::net {

class Worker;

// What all workers of a server share. Built before the first thread starts; only the members that
// say so change afterwards.
struct ServerShared {
  const Config& config;
  session::ControlPlane& control;
  std::span<const session::AdminFunction> admin_functions;
  metrics::Registry& registry;
  std::vector<ShardTarget> shards;  // by routing::ShardId
  TlsContext client_tls;            // at start; each worker has its own afterwards
  std::string login_secret;
  std::vector<Worker*> workers;

  CancelKeys keys;                      // any thread
  std::atomic<std::size_t> clients{0};  // any thread; open client sockets
};

// A way into a worker's thread that may be kept longer than the worker lives.
class Mailbox {
 public:
  explicit Mailbox(asio::io_context& io) : io_(&io) {}
  // False: the worker is gone, `work` was dropped. Any thread.
  bool post(std::function<void()> work);
  void close();

 private:
  std::mutex mutex_;
  asio::io_context* io_;
};

class Worker {
 public:
  // `share` of `shares` equal parts of each pool's size. `shared` outlives the worker.
  Worker(std::size_t index, std::size_t workers, ServerShared& shared,
         std::shared_ptr<const routing::Snapshot> snapshot);
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // The thread's body; returns after stop().
  void run();

  // --- any thread
  [[nodiscard]] Mailbox& mailbox() { return *mailbox_; }
  // An accepted socket, counted in ServerShared::clients already.
  void accept(UniqueFd fd, std::string address, bool local, bool refused);
  // `done` runs on the worker's thread once new statements see the snapshot.
  void publish(std::shared_ptr<const routing::Snapshot> snapshot, std::function<void()> done);
  // For logins that start afterwards.
  void reload(LoginConfig login, TlsContext client_tls);
  void drain();
  void stop();

  // --- the worker's thread
  [[nodiscard]] Executor executor() { return io_.get_executor(); }
  [[nodiscard]] std::size_t index() const { return index_; }
  [[nodiscard]] Watchdog& watchdog() { return watchdog_; }
  [[nodiscard]] metrics::WorkerStats& stats() { return stats_; }
  [[nodiscard]] session::WorkerContext& context() { return context_; }
  [[nodiscard]] session::LoginPolicy& policy() { return policy_; }
  [[nodiscard]] SSL_CTX* client_tls() { return client_tls_.get(); }
  [[nodiscard]] Milliseconds login_timeout() const;
  [[nodiscard]] Milliseconds wait_timeout() const;
  // REQUIRES a shard of the configuration.
  [[nodiscard]] Pool& pool(routing::ShardId shard) { return *pools_.at(shard); }
  // The journal shard first.
  [[nodiscard]] std::vector<std::size_t> shards_by_preference() const;
  // ParameterStatus values for clients: the journal shard's, else any shard's, with the lowest
  // server_version of those seen. Empty before the first server connection.
  [[nodiscard]] session::ReportedParameters reported() const;

  void remove(Connection& connection);
  [[nodiscard]] CancelKeys::Key add_key(Connection& connection);
  // False: no such key. Otherwise `from` hears on_cancel_settled() later.
  [[nodiscard]] bool route_cancel(std::int32_t pid, std::string_view secret,
                                  std::weak_ptr<Connection> from);
  void call_control(const session::ControlRequest& request, std::weak_ptr<Connection> from,
                    std::uint64_t ticket);

  [[nodiscard]] std::vector<ClientInfo> clients() const;
  [[nodiscard]] std::vector<PoolInfo> pools() const;
  [[nodiscard]] std::vector<ServerInfo> servers() const;
  [[nodiscard]] std::vector<session::HotKey> hot_keys() const;

 private:
  void add(UniqueFd fd, std::string address, bool local, bool refused);
  void begin_stop();
  void finish_stop();
  void arm_upkeep();
  void count_clients();

  const std::size_t index_;
  ServerShared& shared_;
  metrics::WorkerStats& stats_;
  session::WorkerContext context_;
  session::LoginPolicy policy_;
  TlsContext client_tls_;

  asio::io_context io_{1};
  std::shared_ptr<Mailbox> mailbox_;
  asio::executor_work_guard<Executor> work_;
  Watchdog watchdog_;
  Timer upkeep_;
  std::vector<std::unique_ptr<Pool>> pools_;
  boost::unordered_flat_map<std::uint64_t, std::shared_ptr<Connection>> connections_;
  boost::unordered_flat_map<std::int32_t, Connection*> by_pid_;
  std::uint64_t next_id_ = 1;
  bool draining_ = false;
  bool stopping_ = false;
};

}  // namespace collegedb::net
