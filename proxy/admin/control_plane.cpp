#include "proxy/admin/control_plane.h"

#include <spdlog/spdlog.h>

#include <exception>
#include <optional>
#include <utility>

#include "migration/registry.h"
#include "migration/topology.h"
#include "proxy/admin/broadcast.h"
#include "proxy/admin/two_phase.h"

namespace collegedb::admin {
namespace {

using session::ControlReply;

// A round of recovery has more to do than to wait for transactions that hold a fence.
constexpr std::chrono::seconds kTopologyRound{2};

SqlError shutting_down() {
  return make_error("57P01", "terminating connection due to administrator command");
}

}  // namespace

ControlPlane::ControlPlane(const Config& config, store::Store& store, migration::Runner* runner,
                           ControlOptions options)
    : config_(config), options_(options), services_{config, store, runner, {}} {
  const auto nothing = [] { return std::vector<net::ClientInfo>{}; };
  services_.probes = {nothing, [] { return std::vector<net::PoolInfo>{}; },
                      [] { return std::vector<net::ServerInfo>{}; },
                      [](std::size_t) { return std::vector<session::HotKey>{}; }};
  if (runner != nullptr) {
    finder_.emplace(runner->options());
    allocator_.emplace(runner->options());
  }
  for (std::size_t i = 0; i < options_.find_threads; ++i) {
    threads_.emplace_back([this] { work(finds_); });
  }
  for (std::size_t i = 0; i < options_.threads; ++i) {
    threads_.emplace_back([this] { work(slow_); });
  }
  for (std::size_t i = 0; i < options_.reload_threads; ++i) {
    threads_.emplace_back([this] { work(reloads_); });
  }
}

ControlPlane::~ControlPlane() {
  shutdown();
}

ControlPlane::Queue& ControlPlane::queue_of(const session::ControlRequest& request) {
  if (std::holds_alternative<session::Reload>(request.what)) {
    return reloads_;
  }
  return std::holds_alternative<session::Find>(request.what) ? finds_ : slow_;
}

void ControlPlane::call(session::ControlRequest request, std::function<void(ControlReply)> done) {
  std::optional<SqlError> refused;
  {
    const std::lock_guard lock(mutex_);
    Queue& queue = queue_of(request);
    if (stopping_) {
      refused = shutting_down();
    } else if (queue.jobs.size() >= options_.queue) {
      refused = make_error("53300", "too many requests to the control plane are waiting");
    } else {
      queue.jobs.push_back({std::move(request), std::move(done)});
      queue.filled.notify_one();
    }
  }
  if (refused) {
    done(*std::move(refused));
  }
}

void ControlPlane::work(Queue& queue) {
  for (;;) {
    Job job;
    {
      std::unique_lock lock(mutex_);
      queue.filled.wait(lock, [&] { return stopping_ || !queue.jobs.empty(); });
      if (stopping_) {
        return;
      }
      job = std::move(queue.jobs.front());
      queue.jobs.pop_front();
    }
    job.done(perform(job.request));
  }
}

void ControlPlane::shutdown() {
  std::deque<Job> waiting;
  services_.stopping->store(true);
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    for (Queue* queue : {&slow_, &reloads_, &finds_}) {
      for (Job& job : queue->jobs) {
        waiting.push_back(std::move(job));
      }
      queue->jobs.clear();
      queue->filled.notify_all();
    }
  }
  for (const Job& job : waiting) {
    job.done(shutting_down());
  }
  for (std::thread& thread : threads_) {
    if (thread.joinable()) {
      thread.join();
    }
  }
}

void ControlPlane::finish_two_phase() {
  admin::finish_two_phase(config_);
  if (config_.has_journal()) {
    migration::complete_tables(config_);
    migration::resume_topology(config_, kTopologyRound);
  }
}

ControlReply ControlPlane::perform(const session::ControlRequest& request) noexcept {
  try {
    if (const auto* reload = std::get_if<session::Reload>(&request.what)) {
      return session::ReloadDone{
          services_.store.refresh(reload->newer_than, options_.reload_timeout)};
    }
    if (const auto* sought = std::get_if<session::Find>(&request.what)) {
      return find(*sought);
    }
    if (const auto* statement = std::get_if<session::Broadcast>(&request.what)) {
      return run_broadcast(*statement, request.context);
    }
    return admin_call(std::get<session::AdminCall>(request.what), request.context);
  } catch (const migration::SqlFailure& failure) {
    return failure.error();
  } catch (const std::exception& failure) {
    spdlog::error("control plane: {}", failure.what());
    return make_error("XX000", failure.what());
  }
}

ControlReply ControlPlane::find(const session::Find& request) {
  if (!finder_) {
    return make_error(ErrorCode::kPlacementUnverified,
                      "keys cannot be looked for without a journal shard");
  }
  const routing::Snapshot& snapshot = *request.snapshot;
  session::FindDone done;
  for (const routing::RoutedKey& key : request.keys) {
    const auto place = snapshot.placement == routing::Placement::kMapped
                           ? allocator_->find(snapshot, key, request.for_write, request.prefer)
                           : finder_->find(snapshot, key, request.for_write);
    if (place.has_error()) {
      return place.error();
    }
    done.places.push_back({place->shard, place->settled, place->nobody});
  }
  return done;
}

ControlReply ControlPlane::admin_call(const session::AdminCall& call,
                                      const session::SessionContext& context) {
  const std::string name(call.function->name);
  if (call.function->admin_only && !call.is_admin) {
    return make_error("42501", "permission denied for function " + name);
  }
  const Handler handler = handler_of(*call.function);
  if (handler == nullptr) {
    return make_error("42883", "function " + name + " does not exist");
  }
  if (call.function->admin_only) {
    spdlog::info("user {} calls {}", call.user, name);
  }
  auto rows = handler(services_, Arguments(call), context);
  if (rows.has_error()) {
    return rows.error();
  }
  return *std::move(rows);
}

ControlReply ControlPlane::run_broadcast(const session::Broadcast& statement,
                                         const session::SessionContext& context) {
  auto done = broadcast(config_, statement, context, options_.stats);
  // Also after an error: shards that went along before it may have changed.
  services_.store.reload(options_.reload_timeout);
  if (done.has_error()) {
    return done.error();
  }
  return *std::move(done);
}

}  // namespace collegedb::admin
