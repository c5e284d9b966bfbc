// Performs what sessions ask of the control plane, on a few blocking threads of its own.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "migration/allocator.h"
#include "migration/finder.h"
#include "migration/runner.h"
#include "proxy/admin/handlers.h"
#include "proxy/config.h"
#include "proxy/session/control.h"
#include "store/store.h"

namespace collegedb::admin {

struct ControlOptions {
  std::size_t threads = 8;         // for admin functions and schema changes
  std::size_t reload_threads = 2;  // Reload waits behind nothing slow
  std::size_t find_threads = 4;    // nor does Find, which statements of clients wait for
  std::size_t queue = 1000;        // of each kind; more is refused (53300)
  std::chrono::milliseconds reload_timeout{5000};
  metrics::ProcessStats* stats = nullptr;  // outlives the control plane; null = nothing is counted
};

class ControlPlane final : public session::ControlPlane {
 public:
  // All outlive it; `runner` is null without a journal shard. Starts the threads.
  ControlPlane(const Config& config, store::Store& store, migration::Runner* runner,
               ControlOptions options = {});
  ~ControlPlane() override;  // shutdown()

  // Sources of collegedb_clients() and its like. REQUIRES: before the first call().
  void set_probes(Probes probes) { services_.probes = std::move(probes); }

  void call(session::ControlRequest request,
            std::function<void(session::ControlReply)> done) override;

  // Answers what is waiting with 57P01 and waits for what is running. Idempotent.
  void shutdown();

  // For the recovery loop: finishes schema changes whose coordinator is dead, tables that were
  // registered before somebody created them past the proxy, and interrupted changes of the
  // topology.
  void finish_two_phase();

 private:
  struct Job {
    session::ControlRequest request;
    std::function<void(session::ControlReply)> done;
  };
  struct Queue {
    std::deque<Job> jobs;
    std::condition_variable filled;
  };

  [[nodiscard]] Queue& queue_of(const session::ControlRequest& request);
  void work(Queue& queue);
  [[nodiscard]] session::ControlReply perform(const session::ControlRequest& request) noexcept;
  [[nodiscard]] session::ControlReply find(const session::Find& request);
  [[nodiscard]] session::ControlReply admin_call(const session::AdminCall& call,
                                                 const session::SessionContext& context);
  [[nodiscard]] session::ControlReply run_broadcast(const session::Broadcast& statement,
                                                    const session::SessionContext& context);

  const Config& config_;
  ControlOptions options_;
  Services services_;
  std::mutex mutex_;  // guards the queues and stopping_
  Queue slow_;
  Queue reloads_;
  Queue finds_;
  bool stopping_ = false;
  std::optional<migration::Finder> finder_;        // with a journal shard
  std::optional<migration::Allocator> allocator_;  // too
  std::vector<std::thread> threads_;
};

}  // namespace collegedb::admin
