#include "proxy/net/worker.h"

#include <spdlog/spdlog.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <cstdlib>
#include <utility>

#include "proxy/net/socket_options.h"

namespace collegedb::net {
namespace {

constexpr Milliseconds kUpkeep{1000};

unsigned part_of(unsigned total, std::size_t index, std::size_t parts) {
  return static_cast<unsigned>(total / parts + (index < total % parts ? 1 : 0));
}

std::uint32_t as_ms(Milliseconds time) {
  return static_cast<std::uint32_t>(time.count());
}

PoolLimits limits_of(const Config::Pool& pool, std::size_t index, std::size_t workers) {
  return {.size = part_of(pool.size, index, workers),
          .min_size = part_of(pool.min_size, index, workers),
          .idle_timeout = pool.server_idle_timeout,
          .lifetime = pool.server_lifetime};
}

int major_version(const session::ReportedParameters& reported) {
  for (const auto& [name, value] : reported) {
    if (name == "server_version") return std::atoi(value.c_str());
  }
  return 0;
}

std::uint64_t age_ms(TimePoint since, TimePoint now) {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<Milliseconds>(now - since).count());
}

}  // namespace

bool Mailbox::post(std::function<void()> work) {
  const std::lock_guard lock(mutex_);
  if (io_ == nullptr) return false;
  asio::post(*io_, std::move(work));
  return true;
}

void Mailbox::close() {
  const std::lock_guard lock(mutex_);
  io_ = nullptr;
}

Worker::Worker(std::size_t index, std::size_t workers, ServerShared& shared,
               std::shared_ptr<const routing::Snapshot> snapshot)
    : index_(index),
      shared_(shared),
      stats_(shared.registry.worker(index)),
      policy_(shared.config, shared.login_secret),
      client_tls_(shared.client_tls),
      mailbox_(std::make_shared<Mailbox>(io_)),
      work_(io_.get_executor()),
      watchdog_(io_.get_executor()),
      upkeep_(io_.get_executor()) {
  const Config& config = shared.config;
  context_.snapshot = std::move(snapshot);
  context_.stats = &stats_;
  context_.admin_functions = shared.admin_functions;
  context_.write_hold_ms = as_ms(config.migration.write_hold);
  context_.mapping_life_ns = static_cast<std::uint64_t>(
      std::chrono::nanoseconds(config.routing.mapping_cache_ttl).count());
  context_.query_timeout_ms = as_ms(config.pool.query_timeout);
  context_.idle_transaction_timeout_ms = as_ms(config.pool.idle_transaction_timeout);
  context_.fanout_unroutable = config.routing.fanout_unroutable;
  const PoolLimits limits = limits_of(config.pool, index, workers);
  for (std::size_t shard = 0; shard < shared.shards.size(); ++shard) {
    pools_.push_back(std::make_unique<Pool>(io_.get_executor(), shared.shards[shard], limits,
                                            stats_.shards[shard],
                                            shared.registry.process().shards[shard], stats_.clock));
  }
}

Worker::~Worker() {
  mailbox_->close();
  connections_.clear();
  pools_.clear();
}

void Worker::run() {
  asio::post(io_, [this] { arm_upkeep(); });
  io_.run();
}

// --- any thread -------------------------------------------------------------------------------

void Worker::accept(UniqueFd fd, std::string address, bool local, bool refused) {
  auto owned = std::make_shared<UniqueFd>(std::move(fd));
  const bool posted = mailbox_->post([this, owned, address = std::move(address), local, refused] {
    add(std::move(*owned), address, local, refused);
  });
  if (!posted) shared_.clients.fetch_sub(1);
}

void Worker::publish(std::shared_ptr<const routing::Snapshot> snapshot,
                     std::function<void()> done) {
  mailbox_->post([this, snapshot = std::move(snapshot), done = std::move(done)] {
    context_.snapshot = snapshot;
    if (done) done();
  });
}

void Worker::reload(LoginConfig login, TlsContext client_tls) {
  mailbox_->post([this, login = std::move(login), client_tls = std::move(client_tls)] {
    policy_ = session::LoginPolicy(login, shared_.login_secret);
    client_tls_ = client_tls;
  });
}

void Worker::drain() {
  mailbox_->post([this] {
    draining_ = true;
    for (const auto& [id, connection] : connections_) connection->drain();
  });
}

void Worker::stop() {
  mailbox_->post([this] { begin_stop(); });
}

// --- stopping ---------------------------------------------------------------------------------

void Worker::begin_stop() {
  if (stopping_) return;
  stopping_ = true;
  draining_ = true;
  for (const auto& pool : pools_) pool->close();
  for (const auto& [id, connection] : connections_) connection->terminate();
  if (connections_.empty()) finish_stop();
}

// Nothing is left that would start new work: the io_context runs dry.
void Worker::finish_stop() {
  watchdog_.stop();
  upkeep_.cancel();
  work_.reset();
}

void Worker::remove(Connection& connection) {
  if (connection.pid() != 0) {
    by_pid_.erase(connection.pid());
    shared_.keys.remove(connection.pid());
  }
  connections_.erase(connection.id());
  shared_.clients.fetch_sub(1);
  if (stopping_ && connections_.empty()) finish_stop();
}

// --- the worker's thread ----------------------------------------------------------------------

void Worker::add(UniqueFd fd, std::string address, bool local, bool refused) {
  sockaddr_storage name{};
  socklen_t length = sizeof name;
  Socket socket(executor());
  IoError failure;
  if (::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&name), &length) == 0) {
    const asio::generic::stream_protocol protocol(name.ss_family, 0);
    socket.assign(protocol, fd.get(), failure);
  }
  if (stopping_ || failure || !socket.is_open()) {
    if (socket.is_open()) static_cast<void>(fd.release());
    shared_.clients.fetch_sub(1);
    return;
  }
  static_cast<void>(fd.release());
  set_stream_options(socket);
  const std::uint64_t id = next_id_++;
  auto connection = std::make_shared<Connection>(*this, id, std::move(socket), std::move(address),
                                                 local, refused);
  connections_.emplace(id, connection);
  connection->start();
  if (draining_) connection->drain();
}

Milliseconds Worker::login_timeout() const {
  return shared_.config.pool.client_login_timeout;
}
Milliseconds Worker::wait_timeout() const {
  return shared_.config.pool.wait_timeout;
}

std::vector<std::size_t> Worker::shards_by_preference() const {
  std::vector<std::size_t> order;
  const std::size_t journal = context_.snapshot->journal_shard;
  if (journal < pools_.size()) order.push_back(journal);
  for (std::size_t shard = 0; shard < pools_.size(); ++shard) {
    if (shard != journal) order.push_back(shard);
  }
  return order;
}

session::ReportedParameters Worker::reported() const {
  const session::ReportedParameters* chosen = nullptr;
  const session::ReportedParameters* lowest = nullptr;
  for (const std::size_t shard : shards_by_preference()) {
    const session::ReportedParameters& seen = pools_[shard]->reported();
    if (seen.empty()) continue;
    if (chosen == nullptr) chosen = &seen;
    if (lowest == nullptr || major_version(seen) < major_version(*lowest)) lowest = &seen;
  }
  if (chosen == nullptr) return {};
  // Parameters that older servers do not know are left out together with the higher version.
  return *(major_version(*lowest) < major_version(*chosen) ? lowest : chosen);
}

CancelKeys::Key Worker::add_key(Connection& connection) {
  CancelKeys::Key key = shared_.keys.add(index_);
  by_pid_.emplace(key.pid, &connection);
  return key;
}

bool Worker::route_cancel(std::int32_t pid, std::string_view secret,
                          std::weak_ptr<Connection> from) {
  const std::optional<std::size_t> owner = shared_.keys.find(pid, secret);
  if (!owner) return false;
  // The last holder of this token to let go tells the asker.
  std::shared_ptr<void> token(nullptr, [box = mailbox_, from = std::move(from)](void*) {
    box->post([from] {
      if (const auto connection = from.lock()) connection->on_cancel_settled();
    });
  });
  Worker* worker = shared_.workers[*owner];
  worker->mailbox().post([worker, pid, token = std::move(token)] {
    const auto found = worker->by_pid_.find(pid);
    if (found != worker->by_pid_.end()) found->second->cancel_request(token);
  });
  return true;
}

void Worker::call_control(const session::ControlRequest& request, std::weak_ptr<Connection> from,
                          std::uint64_t ticket) {
  auto done = [box = mailbox_, from = std::move(from), ticket](session::ControlReply reply) {
    auto owned = std::make_shared<session::ControlReply>(std::move(reply));
    box->post([from, ticket, owned] {
      if (const auto connection = from.lock()) {
        connection->on_control_reply(ticket, std::move(*owned));
      }
    });
  };
  shared_.control.call(request, std::move(done));
}

void Worker::arm_upkeep() {
  upkeep_.expires_after(kUpkeep);
  upkeep_.async_wait([this](IoError ec) {
    if (ec || stopping_) return;
    const TimePoint now = Clock::now();
    for (const auto& pool : pools_) pool->maintain(now);
    count_clients();
    arm_upkeep();
  });
}

void Worker::count_clients() {
  using metrics::ClientState;
  std::array<std::int64_t, static_cast<std::size_t>(ClientState::kCount)> counts{};
  for (const auto& [id, connection] : connections_) {
    const std::string_view name = connection->state_name();
    ClientState state = ClientState::kActive;
    if (name == "login") state = ClientState::kLogin;
    if (name == "idle") state = ClientState::kIdle;
    if (name == "idle in transaction") state = ClientState::kIdleInTransaction;
    if (name == "waiting") state = ClientState::kWaiting;
    ++counts[static_cast<std::size_t>(state)];
  }
  for (std::size_t i = 0; i < counts.size(); ++i) {
    stats_.clients[static_cast<ClientState>(i)].set(counts[i]);
  }
}

// --- what the admin functions show ------------------------------------------------------------

std::vector<ClientInfo> Worker::clients() const {
  std::vector<ClientInfo> result;
  const TimePoint now = Clock::now();
  for (const auto& [id, connection] : connections_) result.push_back(connection->info(now));
  return result;
}

std::vector<PoolInfo> Worker::pools() const {
  std::vector<PoolInfo> result;
  for (const auto& pool : pools_) {
    const Pool::Counts counts = pool->counts();
    const std::optional<SqlError>& last = pool->last_error();
    result.push_back({.shard = pool->target().name,
                      .worker = index_,
                      .size = pool->limits().size,
                      .connecting = counts.connecting,
                      .idle = counts.idle,
                      .leased = counts.leased,
                      .reserved = counts.reserved,
                      .waiting = counts.waiting,
                      .up = pool->up(),
                      .last_error = last ? last->detail : ""});
  }
  return result;
}

std::vector<ServerInfo> Worker::servers() const {
  std::vector<ServerInfo> result;
  const TimePoint now = Clock::now();
  for (const auto& pool : pools_) {
    for (const auto& backend : pool->backends()) {
      result.push_back({.shard = pool->target().name,
                        .worker = index_,
                        .state = std::string(name_of(backend->node)),
                        .pid = backend->pid,
                        .address = backend->address.host.text(),
                        .tls = backend->address.tls,
                        .connected_ms = age_ms(backend->connected_at, now),
                        .user = backend->user});
    }
  }
  return result;
}

std::vector<session::HotKey> Worker::hot_keys() const {
  return context_.hot_keys.all(stats_.now_ns());
}

}  // namespace collegedb::net
