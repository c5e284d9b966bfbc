// Keeps this process's snapshot current: one background thread listens on the journal shard and
// looks at its versions every second, loads a new snapshot when one of them has changed, and hands
// it on. Without the journal it goes on serving the last one: fences and tombstones on the shards
// catch what it does not know.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "proxy/config.h"
#include "store/snapshot_reader.h"

namespace collegedb::store {

// How this process is recorded in collegedb.proxies.
struct ProxyIdentity {
  std::string id;  // uuid; empty = the server makes one
  std::string address;
  std::string version;
};

class Store {
 public:
  using Callback = std::function<void(std::shared_ptr<const routing::Snapshot>)>;

  explicit Store(const Config& config, ProxyIdentity identity = {});
  ~Store();
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  // The first snapshot, in the caller's thread. Throws migration::SqlFailure. Call it before start.
  std::shared_ptr<const routing::Snapshot> load();

  // Starts the thread. `published` is called on it with each new snapshot, before current() or
  // refresh() return it.
  void start(Callback published);

  // The newest snapshot; null before load().
  [[nodiscard]] std::shared_ptr<const routing::Snapshot> current() const;

  // Looks at the journal now, unless a snapshot newer than `newer_than` is already here. Returns
  // the newest one, perhaps not newer; at the latest after `timeout`. Any thread but the
  // callback's. REQUIRES: start() was called.
  std::shared_ptr<const routing::Snapshot> refresh(std::uint64_t newer_than,
                                          std::chrono::milliseconds timeout);
  // As refresh, but loads even when no version has changed: after a schema change.
  std::shared_ptr<const routing::Snapshot> reload(std::chrono::milliseconds timeout);

  // Ends the thread and takes this process out of collegedb.proxies. Idempotent; blocks.
  void stop();

  // When the thread last saw the journal answer (steady clock).
  [[nodiscard]] std::chrono::steady_clock::time_point last_contact() const;

 private:
  using Clock = std::chrono::steady_clock;

  void run();
  void session_loop();  // one connection's life; throws when it ends
  void check(migration::ControlSession& session);
  void adopt(LoadedSnapshot loaded);
  void beat(migration::ControlSession& session);
  bool wait(migration::ControlSession& session);  // false when stopping
  void drain_wake();
  void wake();
  std::shared_ptr<const routing::Snapshot> request(bool force, std::uint64_t newer_than,
                                          std::chrono::milliseconds timeout);

  const Config config_;
  ProxyIdentity identity_;
  Callback published_;
  int wake_fd_;
  std::optional<LoadedSnapshot> last_;  // the thread's (load()'s before start)
  Clock::time_point next_beat_{};       // the thread's

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::shared_ptr<const routing::Snapshot> current_;
  std::uint64_t loads_ = 0;
  std::uint64_t asked_ = 0;     // tickets of refresh and reload
  std::uint64_t answered_ = 0;  // highest ticket whose look at the journal has ended
  bool forced_ = false;
  bool stopping_ = false;
  Clock::time_point last_contact_{};

  std::thread thread_;
};

}  // namespace collegedb::store
