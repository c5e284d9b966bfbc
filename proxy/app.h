// The composition root: builds every part of a running proxy, starts them in order, stops them in
// reverse. The one place that knows all of them.
#pragma once

#include <memory>
#include <string>

#include "migration/runner.h"
#include "proxy/config.h"
#include "proxy/signals.h"

namespace collegedb {

class App {
 public:
  // `config_path` is read again on SIGHUP. REQUIRES a configuration without faults.
  App(Config config, std::string config_path);
  ~App();
  App(const App&) = delete;
  App& operator=(const App&) = delete;

  // Installs or checks the schema, loads the routing snapshot, listens. Clients are served when it
  // returns true. Shards that do not answer are waited for; false when a signal ended that. Throws
  // std::exception for what waiting does not cure; nothing runs then.
  [[nodiscard]] bool start(const Signals& signals);

  // Until SIGTERM or SIGINT; then no new clients, the others end at their next transaction boundary
  // or after proxy.drain_timeout. A second signal ends them at once.
  void run(const Signals& signals);

 private:
  struct Parts;
  bool prepare_cluster(const Signals& signals);
  [[nodiscard]] migration::RunnerOptions runner_options();
  void start_recovery();
  void reload();
  void stop(const Signals& signals);

  Config config_;
  const std::string config_path_;
  std::unique_ptr<Parts> parts_;
};

}  // namespace collegedb
