#include "proxy/app.h"

#include <prometheus/metric_family.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <stdexcept>

#include "metrics/collector.h"
#include "metrics/exposer.h"
#include "metrics/stats.h"
#include "migration/recovery.h"
#include "migration/runner.h"
#include "migration/schema.h"
#include "migration/shard_sizes.h"
#include "proxy/admin/control_plane.h"
#include "proxy/admin/functions.h"
#include "proxy/config_values.h"
#include "proxy/housekeeping.h"
#include "proxy/logging.h"
#include "proxy/net/server.h"
#include "proxy/shard_watch.h"
#include "store/store.h"

namespace collegedb {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kStartRetry{1000};
constexpr milliseconds kSignalPoll{3'600'000};
constexpr milliseconds kDrainPoll{20};
// Longer silence of the journal shard than this makes the proxy "not ready".
constexpr std::chrono::seconds kJournalSilence{15};

std::uint64_t clock_ns() noexcept {
  return static_cast<std::uint64_t>(steady_clock::now().time_since_epoch().count());
}
static_assert(std::is_same_v<steady_clock::period, std::nano>);

std::vector<std::string> shard_names(const Config& config) {
  std::vector<std::string> names;
  for (const auto& shard : config.shards) names.push_back(shard.name);
  return names;
}

// True for failures that waiting may cure: nobody answers, starting up, too many connections, a
// lock or a serialization conflict with another proxy that starts.
bool may_pass(const migration::SqlFailure& failure) {
  if (failure.connection_lost()) return true;
  const auto& state = failure.error().sqlstate;
  for (const std::string_view prefix : {"08", "57P0", "53", "40", "55P03"}) {
    if (state.starts_with(prefix)) return true;
  }
  return false;
}

std::string text_of(const migration::SqlFailure& failure) {
  std::string text = failure.error().message;
  if (!failure.error().detail.empty()) text += " (" + failure.error().detail + ")";
  if (!failure.error().hint.empty()) text += " HINT: " + failure.error().hint;
  return text;
}

// Refreshes what is read rather than counted, just before each scrape.
class ProcessCollector : public prometheus::Collectable {
 public:
  ProcessCollector(metrics::Registry& registry, const store::Store& store)
      : registry_(registry), store_(store), collector_(registry) {}

  [[nodiscard]] std::vector<prometheus::MetricFamily> Collect() const override {
    if (const auto snapshot = store_.current()) {
      auto& process = registry_.process();
      process.manifest_generation.set(snapshot->generation);
      process.manifest_revision.set(snapshot->revision);
      process.epochs.set(static_cast<std::int64_t>(snapshot->epochs.size()));
      process.exceptions.set(
          snapshot->exceptions ? static_cast<std::int64_t>(snapshot->exceptions->size()) : 0);
      process.manifest_confirmed_ns.set(store_.last_contact().time_since_epoch().count());
    }
    return collector_.Collect();
  }

 private:
  metrics::Registry& registry_;
  const store::Store& store_;
  metrics::Collector collector_;
};

void count(const migration::RecoveryResult& result, metrics::ProcessStats& stats) {
  using metrics::RecoveryOutcome;
  stats.recovery_runs[metrics::RecoveryResult::kOk].add();
  const auto add = [&](RecoveryOutcome outcome, std::int64_t n) {
    stats.recovery_ops[outcome].add(static_cast<std::uint64_t>(n));
  };
  add(RecoveryOutcome::kCommitted, result.committed);
  add(RecoveryOutcome::kAborted, result.aborted);
  add(RecoveryOutcome::kReleased, result.released);
  add(RecoveryOutcome::kSkipped, result.skipped);
  add(RecoveryOutcome::kFailed, static_cast<std::int64_t>(result.failed.size()));
  for (const auto& failure : result.failed) {
    spdlog::warn("recovery: operation {}: {}", failure.op, failure.error);
  }
}

void count_failed_recovery(const SqlError& error, metrics::ProcessStats& stats) {
  const bool fenced = error.message.starts_with(name_of(ErrorCode::kRecoveryFenced));
  stats.recovery_runs[fenced ? metrics::RecoveryResult::kFenced : metrics::RecoveryResult::kFailed]
      .add();
}

// What /readyz says; set by the main thread, read by the exposer's.
class Readiness {
 public:
  void set(std::string reason) {
    const std::lock_guard lock(mutex_);
    reason_ = std::move(reason);
  }
  [[nodiscard]] std::string reason() const {
    const std::lock_guard lock(mutex_);
    return reason_;
  }

 private:
  mutable std::mutex mutex_;
  std::string reason_ = "starting";
};

}  // namespace

// In order of construction.
struct App::Parts {
  explicit Parts(const Config& configuration)
      : config(configuration),
        registry(shard_names(config), net::Server::worker_count(config), clock_ns,
                 COLLEGEDB_VERSION),
        store(config,
              {.id = {}, .address = config.proxy.listen.front(), .version = COLLEGEDB_VERSION}) {}

  // Whoever calls another ends before it.
  ~Parts() {
    exposer.reset();
    housekeeping.reset();
    recovery.reset();
    if (control) control->shutdown();
    store.stop();
    if (server) server->stop();
  }
  Parts(const Parts&) = delete;
  Parts& operator=(const Parts&) = delete;

  void prepare_schema();
  // Once in recovery_interval, on a thread of its own.
  void keep_house();
  // For /readyz, on the exposer's thread.
  [[nodiscard]] std::string not_ready() const;

  const Config& config;

  // Shared by moves and their recovery; outlives both.
  const std::shared_ptr<migration::SessionPool> move_sessions =
      std::make_shared<migration::SessionPool>();
  metrics::Registry registry;
  Readiness readiness;
  std::atomic<bool> schema_pending = false;
  std::mutex serving_mutex;
  bool serving = false;  // guarded; false: the server takes no snapshots yet
  std::shared_ptr<const routing::Snapshot> newest;  // guarded; by the store's thread
  store::Store store;
  std::unique_ptr<migration::Runner> runner;
  std::unique_ptr<admin::ControlPlane> control;
  std::unique_ptr<net::Server> server;
  std::unique_ptr<migration::RecoveryLoop> recovery;
  std::unique_ptr<ShardWatch> watch;
  std::unique_ptr<migration::ShardSizes> sizes;  // with a journal shard
  std::unique_ptr<Housekeeping> housekeeping;
  std::unique_ptr<metrics::Exposer> exposer;
};

App::App(Config config, std::string config_path)
    : config_(std::move(config)), config_path_(std::move(config_path)) {}

App::~App() = default;

bool App::start(const Signals& signals) {
  parts_ = std::make_unique<Parts>(config_);
  Parts& parts = *parts_;
  if (const auto address = parse_listen(config_.metrics.listen)) {
    parts.exposer = std::make_unique<metrics::Exposer>(
        address->host, address->port,
        std::make_shared<ProcessCollector>(parts.registry, parts.store),
        [&parts] { return parts.not_ready(); });
  }
  if (!prepare_cluster(signals)) return false;

  if (config_.has_journal()) {
    parts.runner = std::make_unique<migration::Runner>(runner_options());
  }
  parts.control = std::make_unique<admin::ControlPlane>(
      config_, parts.store, parts.runner.get(),
      admin::ControlOptions{.stats = &parts.registry.process()});
  parts.server =
      std::make_unique<net::Server>(config_, *parts.control, admin::functions(), parts.registry);
  net::Server* server = parts.server.get();
  parts.control->set_probes(
      {.clients = [server] { return server->clients(); },
       .pools = [server] { return server->pools(); },
       .servers = [server] { return server->servers(); },
       .hot_keys = [server](std::size_t limit) { return server->hot_keys(limit); }});
  // The store must run before a client can ask for a reload; what it loads meanwhile waits.
  parts.store.start([&parts](std::shared_ptr<const routing::Snapshot> snapshot) {
    const std::lock_guard lock(parts.serving_mutex);
    parts.newest = snapshot;
    if (parts.serving) parts.server->publish(std::move(snapshot));
  });
  {
    const std::lock_guard lock(parts.serving_mutex);
    server->start(parts.newest ? parts.newest : parts.store.current());
    parts.serving = true;
  }
  if (config_.has_journal()) start_recovery();
  parts.watch = std::make_unique<ShardWatch>(config_, parts.registry.process());
  if (config_.has_journal()) parts.sizes = std::make_unique<migration::ShardSizes>(config_);
  parts.housekeeping = std::make_unique<Housekeeping>(config_.journal.recovery_interval,
                                                      [&parts] { parts.keep_house(); });
  parts.readiness.set({});
  for (const auto& address : config_.proxy.listen) spdlog::info("listening on {}", address);
  return true;
}

// Schema and first snapshot. A shard that is down keeps the proxy from starting only while the
// journal shard cannot tell the routing: the fences of a shard do not depend on this process.
bool App::prepare_cluster(const Signals& signals) {
  for (;;) {
    std::string reason;
    try {
      try {
        parts_->prepare_schema();
      } catch (const migration::SqlFailure& failure) {
        if (!may_pass(failure)) throw;
        spdlog::warn("schema not checked yet: {}", text_of(failure));
        parts_->schema_pending = true;
      }
      parts_->store.load();
      return true;
    } catch (const migration::SqlFailure& failure) {
      // A pending schema explains why the journal shard cannot answer: not there yet.
      if (!may_pass(failure) && !parts_->schema_pending) {
        throw std::runtime_error(text_of(failure));
      }
      reason = text_of(failure);
    }
    spdlog::warn("not started yet: {}", reason);
    parts_->readiness.set("starting: " + reason);
    const auto number = signals.wait(kStartRetry);
    if (number && *number != SIGHUP) return false;
  }
}

void App::Parts::prepare_schema() {
  if (config.journal.auto_init) {
    migration::install_schema(config, admin::stubs());
  } else {
    migration::check_schema(config);
  }
  schema_pending = false;
}

migration::RunnerOptions App::runner_options() {
  return {.shards = config_.shards,
          .journal = config_.journal_index(),
          .scope = config_.journal.scope,
          .limits = config_.migration,
          .routing = config_.routing,
          .snapshot = [store = &parts_->store] { return store->current(); },
          .sessions = parts_->move_sessions,
          .stats = &parts_->registry.process()};
}

void App::start_recovery() {
  auto& stats = parts_->registry.process();
  migration::RecoveryLoop::Hooks hooks{
      .two_phase = [control = parts_->control.get()] { control->finish_two_phase(); },
      .finished = [&stats](const migration::RecoveryResult& result) { count(result, stats); },
      .failed =
          [&stats](const SqlError& error) {
            spdlog::warn("recovery: {}", error.message);
            count_failed_recovery(error, stats);
          }};
  parts_->recovery = std::make_unique<migration::RecoveryLoop>(
      runner_options(), config_.journal.recovery_interval, std::move(hooks));
}

void App::Parts::keep_house() {
  watch->look();
  if (sizes) sizes->refresh();
  if (!schema_pending) return;
  try {
    prepare_schema();
    spdlog::info("schema checked on all shards");
  } catch (const migration::SqlFailure& failure) {
    spdlog::warn("schema not checked yet: {}", text_of(failure));
  }
}

std::string App::Parts::not_ready() const {
  auto reason = readiness.reason();
  if (!reason.empty()) return reason;
  const auto silence = steady_clock::now() - store.last_contact();
  if (silence < kJournalSilence) return {};
  return "the journal shard has been silent for " +
         std::to_string(std::chrono::duration_cast<std::chrono::seconds>(silence).count()) + " s";
}

void App::run(const Signals& signals) {
  for (;;) {
    const auto number = signals.wait(kSignalPoll);
    if (!number) continue;
    if (*number == SIGHUP) {
      reload();
      continue;
    }
    spdlog::info("{}: draining", *number == SIGINT ? "SIGINT" : "SIGTERM");
    return stop(signals);
  }
}

// What may change while clients are connected: users, certificates, the log level.
void App::reload() {
  auto loaded = load_config(config_path_);
  for (const auto& notice : loaded.notices) spdlog::info("{}: {}", config_path_, notice);
  if (!loaded.faults.empty()) {
    for (const auto& fault : loaded.faults) {
      spdlog::error("{}:{}: {}", config_path_, fault.line, fault.text);
    }
    spdlog::error("reload refused: {} faults; the old configuration stays", loaded.faults.size());
    return;
  }
  const auto result = parts_->server->reload(loaded.config);
  if (!result) {
    spdlog::error("reload refused: {}", result.error().message);
    return;
  }
  set_log_level(loaded.config.proxy.log_level);
  spdlog::info("reloaded users, certificates and log level; other changes need a restart");
}

void App::stop(const Signals& signals) {
  Parts& parts = *parts_;
  parts.readiness.set("draining");
  parts.server->begin_drain();
  const auto limit = steady_clock::now() + config_.proxy.drain_timeout;
  while (parts.server->open_clients() > 0) {
    const auto number = signals.wait(kDrainPoll);
    const bool again = number && *number != SIGHUP;
    if (!again && steady_clock::now() < limit) continue;
    spdlog::warn("{}: closing {} connections now", again ? "second signal" : "drain_timeout",
                 parts.server->open_clients());
    break;
  }
  parts_.reset();
  spdlog::info("stopped");
}

}  // namespace collegedb
