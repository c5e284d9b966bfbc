// The data path as one object: listener, workers, their threads. Everything here may be called from
// any thread but a worker's.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "metrics/stats.h"
#include "proxy/config.h"
#include "proxy/net/info.h"
#include "proxy/net/listener.h"
#include "proxy/net/worker.h"
#include "proxy/session/control.h"

namespace collegedb::net {

class Server {
 public:
  // Threads start() will run: proxy.workers or the number of cores, but never more than pool.size,
  // so that the parts of the workers together never exceed it. For metrics::Registry.
  [[nodiscard]] static std::size_t worker_count(const Config& config);

  // All arguments outlive the server; `registry` has worker_count() workers. Throws
  // std::runtime_error for conninfos or certificates that cannot be used. SIGPIPE is ignored from
  // here on, in the whole process.
  Server(const Config& config, session::ControlPlane& control,
         std::span<const session::AdminFunction> functions, metrics::Registry& registry);
  // Calls stop().
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Binds and starts the threads. Shards of `snapshot` are in the order of Config::shards. Throws
  // std::runtime_error when an address cannot be bound.
  void start(std::shared_ptr<const routing::Snapshot> snapshot);

  // Hands a newer snapshot to every worker.
  void publish(std::shared_ptr<const routing::Snapshot> snapshot);
  // True once every worker plans by `version` or a later one.
  [[nodiscard]] bool wait_acknowledged(std::uint64_t version, Milliseconds timeout);

  // Users, authentication and certificates of `config`, for logins from now on. An error changes
  // nothing.
  [[nodiscard]] Result<void> reload(const Config& config);

  // Stops accepting; each session ends at its next transaction boundary (57P01). Returns at once:
  // open_clients() says how many are left. Idempotent.
  void begin_drain();
  [[nodiscard]] std::size_t open_clients() const { return shared_.clients.load(); }
  // begin_drain(), then blocks until no client is left or proxy.drain_timeout is over, which ends
  // the rest.
  void drain();
  // Ends everything now and joins the threads. Idempotent.
  void stop();

  [[nodiscard]] std::vector<ClientInfo> clients();
  [[nodiscard]] std::vector<PoolInfo> pools();
  [[nodiscard]] std::vector<ServerInfo> servers();
  [[nodiscard]] std::vector<session::HotKey> hot_keys(std::size_t limit);  // hottest first
  // TCP ports in the order of proxy.listen; after start().
  [[nodiscard]] std::vector<std::uint16_t> bound_ports() const { return listener_->ports(); }

 private:
  void deal(Accepted accepted);
  void stop_listening();
  template <class Info>
  std::vector<Info> collect(std::vector<Info> (Worker::*read)() const);

  ServerShared shared_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<std::thread> threads_;
  asio::io_context accept_io_{1};
  std::unique_ptr<Listener> listener_;
  std::thread accept_thread_;
  std::size_t next_worker_ = 0;  // the accept thread's

  std::mutex mutex_;  // guards what follows
  std::condition_variable acknowledged_changed_;
  std::vector<std::uint64_t> acknowledged_;  // by worker
  std::mutex stop_mutex_;
  bool started_ = false;
  bool stopped_ = false;
};

}  // namespace collegedb::net
