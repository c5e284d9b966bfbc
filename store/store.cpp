#include "store/store.h"

#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <system_error>
#include <utility>

namespace collegedb::store {
namespace {

using namespace std::chrono_literals;
using migration::ControlSession;
using migration::SessionOptions;
using migration::SqlFailure;
using routing::BrokenTable;
using routing::Snapshot;

constexpr auto kPoll = 1000ms;
constexpr auto kHeartbeat = 3000ms;
constexpr auto kFirstBackoff = 100ms;
constexpr auto kLastBackoff = 5000ms;

SessionOptions store_options() {
  SessionOptions options;
  options.application_name = "collegedb directory";
  options.connect_timeout = 3s;
  options.statement_timeout = 30s;
  options.lock_timeout = 5s;
  return options;
}

const ShardConfig& home(const Config& config) {
  return config.shards[config.has_journal() ? config.journal_index() : 0];
}

void tell_broken(const Snapshot& snapshot) {
  for (const BrokenTable& table : snapshot.broken_tables) {
    spdlog::warn("directory: {}; statements on it are refused", table.reason);
  }
}

std::string channel_of(const Config& config) {
  return migration::quote_identifier("collegedb_" + config.journal.scope);
}

}  // namespace

Store::Store(const Config& config, ProxyIdentity identity)
    : config_(config),
      identity_(std::move(identity)),
      wake_fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (wake_fd_ < 0) {
    throw std::system_error(errno, std::generic_category(), "eventfd");
  }
}

Store::~Store() {
  stop();
  ::close(wake_fd_);
}

std::shared_ptr<const Snapshot> Store::load() {
  ControlSession session(home(config_), store_options());
  LoadedSnapshot loaded = config_.has_journal() ? read_snapshot(session, config_, nullptr)
                                                : static_snapshot(session, config_);
  tell_broken(loaded.snapshot);
  adopt(std::move(loaded));
  return current();
}

void Store::start(Callback published) {
  published_ = std::move(published);
  thread_ = std::thread([this] { run(); });
}

void Store::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake();
  changed_.notify_all();
  if (thread_.joinable()) {
    thread_.join();
  }
}

std::shared_ptr<const Snapshot> Store::current() const {
  const std::lock_guard lock(mutex_);
  return current_;
}

Store::Clock::time_point Store::last_contact() const {
  const std::lock_guard lock(mutex_);
  return last_contact_;
}

std::shared_ptr<const Snapshot> Store::refresh(std::uint64_t newer_than,
                                               std::chrono::milliseconds timeout) {
  return request(false, newer_than, timeout);
}

std::shared_ptr<const Snapshot> Store::reload(std::chrono::milliseconds timeout) {
  return request(true, 0, timeout);
}

std::shared_ptr<const Snapshot> Store::request(bool force, std::uint64_t newer_than,
                                               std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  if (!force && current_ != nullptr && current_->version > newer_than) {
    return current_;
  }
  const std::uint64_t ticket = ++asked_;
  forced_ = forced_ || force;
  wake();
  changed_.wait_for(lock, timeout, [&] {
    return stopping_ || answered_ >= ticket ||
           (!force && current_ != nullptr && current_->version > newer_than);
  });
  return current_;
}

void Store::wake() {
  const std::uint64_t one = 1;
  // A full counter is a wake-up that is still pending.
  [[maybe_unused]] const auto written = ::write(wake_fd_, &one, sizeof one);
}

void Store::drain_wake() {
  std::uint64_t count = 0;
  [[maybe_unused]] const auto taken = ::read(wake_fd_, &count, sizeof count);
}

void Store::run() {
  std::chrono::milliseconds backoff = kFirstBackoff;
  for (;;) {
    const auto started = Clock::now();
    try {
      session_loop();
      return;
    } catch (const std::exception& failure) {
      spdlog::warn("directory: {}; serving the last snapshot", failure.what());
    }
    if (Clock::now() - started > kLastBackoff) {
      backoff = kFirstBackoff;
    }
    std::unique_lock lock(mutex_);
    if (changed_.wait_for(lock, backoff, [this] { return stopping_; })) {
      return;
    }
    backoff = std::min<std::chrono::milliseconds>(backoff * 2, kLastBackoff);
  }
}

void Store::session_loop() {
  ControlSession session(home(config_), store_options());
  if (config_.has_journal()) {
    session.run("LISTEN " + channel_of(config_));
  }
  next_beat_ = {};
  do {
    check(session);
    beat(session);
  } while (wait(session));
  if (config_.has_journal()) {
    session.run("DELETE FROM collegedb.proxies WHERE scope = $1 AND id = $2::pg_catalog.uuid",
                {config_.journal.scope, identity_.id});
  }
}

void Store::check(ControlSession& session) {
  std::uint64_t ticket = 0;
  bool force = false;
  {
    const std::lock_guard lock(mutex_);
    ticket = asked_;
    force = std::exchange(forced_, false);
  }
  const bool journal = config_.has_journal();
  const auto fresh = [&] {
    // What is broken may be put right where no version tells of it.
    if (force || !last_ || !last_->snapshot.broken_tables.empty()) {
      return false;
    }
    return !journal || read_versions(session, config_.journal.scope) == last_->versions;
  };
  if (!fresh()) {
    const auto load = [&] {
      return journal ? read_snapshot(session, config_, last_ && !force ? &*last_ : nullptr)
                     : static_snapshot(session, config_);
    };
    LoadedSnapshot loaded = load();
    const bool same_versions = last_ && loaded.versions == last_->versions;
    const bool same_tables =
        last_ && loaded.snapshot.broken_tables == last_->snapshot.broken_tables;
    if (journal && same_versions && !same_tables) {
      // Plans of every process depend on it.
      session.run(
          "UPDATE collegedb.manifest SET registry_version = registry_version + 1 WHERE scope = $1",
          {config_.journal.scope});
      loaded = load();
    }
    if (force || !same_versions || !same_tables) {
      tell_broken(loaded.snapshot);
      adopt(std::move(loaded));
      next_beat_ = {};
    }
  }
  {
    const std::lock_guard lock(mutex_);
    answered_ = std::max(answered_, ticket);
    last_contact_ = Clock::now();
  }
  changed_.notify_all();
}

void Store::adopt(LoadedSnapshot loaded) {
  std::uint64_t version = 0;
  {
    const std::lock_guard lock(mutex_);
    version = ++loads_;
    last_contact_ = Clock::now();
  }
  loaded.snapshot.version = version;
  if (!config_.has_journal()) {
    // Nobody counts the changes of a static registry but this process.
    loaded.snapshot.registry_version = static_cast<std::int64_t>(version);
  }
  last_ = std::move(loaded);
  auto snapshot = std::make_shared<const Snapshot>(last_->snapshot);
  if (published_) {
    published_(snapshot);
  }
  {
    const std::lock_guard lock(mutex_);
    current_ = std::move(snapshot);
  }
  changed_.notify_all();
}

void Store::beat(ControlSession& session) {
  if (!config_.has_journal() || Clock::now() < next_beat_) {
    return;
  }
  next_beat_ = Clock::now() + kHeartbeat;
  std::vector<std::string> names;
  for (const ShardConfig& shard : config_.shards) {
    names.push_back(shard.name);
  }
  const migration::Rows rows = session.run(
      "INSERT INTO collegedb.proxies (scope, id, address, version, shards, revision,"
      " exception_version, registry_version) VALUES ($1,"
      " COALESCE(NULLIF($2, '')::pg_catalog.uuid, pg_catalog.gen_random_uuid()), $3, $4,"
      " $5::pg_catalog.text[], $6::pg_catalog.int8, $7::pg_catalog.int8, $8::pg_catalog.int8)"
      " ON CONFLICT (scope, id) DO UPDATE SET heartbeat_at = pg_catalog.clock_timestamp(),"
      " revision = excluded.revision, exception_version = excluded.exception_version,"
      " registry_version = excluded.registry_version RETURNING id",
      {config_.journal.scope, identity_.id, identity_.address, identity_.version,
       migration::array_text(names), std::to_string(last_->versions.revision),
       std::to_string(last_->versions.exception_version),
       std::to_string(last_->versions.registry_version)});
  identity_.id = rows.text(0, 0);
  // Proxies that died without a word.
  session.run(
      "DELETE FROM collegedb.proxies WHERE scope = $1"
      " AND heartbeat_at < pg_catalog.clock_timestamp() - interval '1 day'",
      {config_.journal.scope});
}

bool Store::wait(ControlSession& session) {
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) {
      return false;
    }
    if (asked_ > answered_) {
      return true;
    }
  }
  session.wait_notification(wake_fd_, kPoll);
  drain_wake();
  const std::lock_guard lock(mutex_);
  return !stopping_;
}

}  // namespace collegedb::store
