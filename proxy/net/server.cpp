#include "proxy/net/server.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <csignal>
#include <future>
#include <stdexcept>
#include <utility>

#include "proxy/net/random.h"

namespace collegedb::net {
namespace {

constexpr Milliseconds kDrainPoll{20};
constexpr std::chrono::seconds kAnswer{5};

// Above max_clients a client is told so after its start-up packet, and cancel requests are still
// served; this many sockets more are taken for that.
std::size_t overflow(std::size_t max_clients) {
  return std::max<std::size_t>(64, max_clients / 8);
}

std::vector<ShardTarget> make_targets(const Config& config) {
  std::vector<ShardTarget> targets;
  for (const ShardConfig& shard : config.shards) {
    auto target = parse_target(shard.conninfo);
    if (!target)
      throw std::runtime_error("shard \"" + shard.name + "\": " + target.error().message);
    auto tls = make_server_side_tls(*target);
    if (!tls) throw std::runtime_error("shard \"" + shard.name + "\": " + tls.error().message);
    target->checks_keys = config.shards.size() > 1;
    targets.push_back({shard.name, std::move(*target), std::move(*tls)});
  }
  return targets;
}

TlsContext make_client_tls(const Config& config) {
  auto tls = make_client_side_tls(config.tls);
  if (!tls) throw std::runtime_error("tls: " + tls.error().message);
  return std::move(*tls);
}

}  // namespace

std::size_t Server::worker_count(const Config& config) {
  const unsigned wanted =
      config.proxy.workers != 0 ? config.proxy.workers : std::thread::hardware_concurrency();
  return std::max(1U, std::min(wanted, config.pool.size));
}

Server::Server(const Config& config, session::ControlPlane& control,
               std::span<const session::AdminFunction> functions, metrics::Registry& registry)
    : shared_{.config = config,
              .control = control,
              .admin_functions = functions,
              .registry = registry,
              .shards = make_targets(config),
              .client_tls = make_client_tls(config),
              .login_secret = random_bytes(32),
              .workers = {},
              .keys = {}},
      listener_(std::make_unique<Listener>(
          accept_io_.get_executor(), [this](Accepted accepted) { deal(std::move(accepted)); })) {
  // OpenSSL writes to sockets with write(): a peer that left must be an error, not a signal.
  std::signal(SIGPIPE, SIG_IGN);
}

Server::~Server() {
  stop();
}

void Server::start(std::shared_ptr<const routing::Snapshot> snapshot) {
  listener_->bind(shared_.config.proxy.listen);
  const std::size_t count = worker_count(shared_.config);
  {
    const std::lock_guard lock(mutex_);
    acknowledged_.assign(count, snapshot->version);
  }
  for (std::size_t i = 0; i < count; ++i) {
    workers_.push_back(std::make_unique<Worker>(i, count, shared_, snapshot));
    shared_.workers.push_back(workers_.back().get());
  }
  for (const auto& worker : workers_) threads_.emplace_back(&Worker::run, worker.get());
  listener_->start();
  accept_thread_ = std::thread([this] { accept_io_.run(); });
  started_ = true;
}

// On the accept thread.
void Server::deal(Accepted accepted) {
  const std::size_t open = shared_.clients.fetch_add(1);
  const std::size_t max = shared_.config.proxy.max_clients;
  if (open >= max + overflow(max)) {
    shared_.clients.fetch_sub(1);
    return;
  }
  Worker& worker = *workers_[next_worker_++ % workers_.size()];
  worker.accept(std::move(accepted.fd), std::move(accepted.address), accepted.local, open >= max);
}

void Server::publish(std::shared_ptr<const routing::Snapshot> snapshot) {
  const std::uint64_t version = snapshot->version;
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    workers_[i]->publish(snapshot, [this, i, version] {
      const std::lock_guard lock(mutex_);
      acknowledged_[i] = std::max(acknowledged_[i], version);
      acknowledged_changed_.notify_all();
    });
  }
}

bool Server::wait_acknowledged(std::uint64_t version, Milliseconds timeout) {
  std::unique_lock lock(mutex_);
  return acknowledged_changed_.wait_for(lock, timeout, [&] {
    return std::ranges::all_of(acknowledged_, [&](std::uint64_t has) { return has >= version; });
  });
}

Result<void> Server::reload(const Config& config) {
  auto tls = make_client_side_tls(config.tls);
  if (!tls) return tls.error();
  for (const auto& worker : workers_) worker->reload(config, *tls);
  return {};
}

void Server::stop_listening() {
  if (!accept_thread_.joinable()) return;
  asio::post(accept_io_, [this] { listener_->stop(); });
  accept_thread_.join();
}

void Server::begin_drain() {
  const std::lock_guard lock(stop_mutex_);
  if (!started_ || stopped_) return;
  stop_listening();
  for (const auto& worker : workers_) worker->drain();
}

void Server::drain() {
  begin_drain();
  const TimePoint limit = Clock::now() + shared_.config.proxy.drain_timeout;
  while (open_clients() > 0 && Clock::now() < limit) std::this_thread::sleep_for(kDrainPoll);
  const std::size_t left = open_clients();
  if (left == 0) return;
  spdlog::warn("drain timeout: {} clients are still connected and will be closed", left);
  stop();
}

void Server::stop() {
  const std::lock_guard lock(stop_mutex_);
  if (stopped_) return;
  stopped_ = true;
  stop_listening();
  for (const auto& worker : workers_) worker->stop();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
  for (const auto& worker : workers_) worker->mailbox().close();
}

template <class Info>
std::vector<Info> Server::collect(std::vector<Info> (Worker::*read)() const) {
  std::vector<std::future<std::vector<Info>>> answers;
  for (const auto& worker : workers_) {
    auto promise = std::make_shared<std::promise<std::vector<Info>>>();
    auto answer = promise->get_future();
    Worker* target = worker.get();
    const bool posted =
        target->mailbox().post([target, promise, read] { promise->set_value((target->*read)()); });
    if (posted) answers.push_back(std::move(answer));
  }
  std::vector<Info> all;
  for (auto& answer : answers) {
    // A stopped worker does not answer any more.
    if (answer.wait_for(kAnswer) != std::future_status::ready) continue;
    std::ranges::move(answer.get(), std::back_inserter(all));
  }
  return all;
}

std::vector<ClientInfo> Server::clients() {
  return collect<ClientInfo>(&Worker::clients);
}
std::vector<PoolInfo> Server::pools() {
  return collect<PoolInfo>(&Worker::pools);
}
std::vector<ServerInfo> Server::servers() {
  return collect<ServerInfo>(&Worker::servers);
}
std::vector<session::HotKey> Server::hot_keys(std::size_t limit) {
  return session::hottest(collect<session::HotKey>(&Worker::hot_keys), limit);
}

}  // namespace collegedb::net
