// Every counter, gauge and histogram of the process as a named member, with its labels beside it.
// Pure: relaxed atomics, no library, no clock, no threads; times arrive as nanoseconds.
//
// Two kinds of owner:
//  - WorkerStats has exactly one writer, the worker's thread: an increment is one relaxed load and
//    one relaxed store. Readers (the exposer) sum the workers.
//  - ProcessStats is written by background threads (store, migration, recovery): atomic adds.
// Names, help texts and the sums: families() in stats.cpp. A new metric is one member here and one
// entry there.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "proxy/wire/error.h"

namespace collegedb::metrics {

enum class Writers : std::uint8_t { kOne, kMany };

template <Writers kWriters>
class BasicCounter {
 public:
  void add(std::uint64_t n = 1) noexcept {
    if constexpr (kWriters == Writers::kOne) {
      value_.store(value_.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
    } else {
      value_.fetch_add(n, std::memory_order_relaxed);
    }
  }
  [[nodiscard]] std::uint64_t value() const noexcept {
    return value_.load(std::memory_order_relaxed);
  }

 private:
  std::atomic<std::uint64_t> value_{0};
};

template <Writers kWriters>
class BasicGauge {
 public:
  void set(std::int64_t value) noexcept { value_.store(value, std::memory_order_relaxed); }
  void add(std::int64_t n) noexcept {
    if constexpr (kWriters == Writers::kOne) {
      value_.store(value_.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
    } else {
      value_.fetch_add(n, std::memory_order_relaxed);
    }
  }
  [[nodiscard]] std::int64_t value() const noexcept {
    return value_.load(std::memory_order_relaxed);
  }

 private:
  std::atomic<std::int64_t> value_{0};
};

// Upper bounds of histogram buckets in nanoseconds, ascending; one more bucket catches the rest.
inline constexpr std::array<std::uint64_t, 10> kFineBounds = {
    250,    500,    1'000,   2'500,     5'000,
    10'000, 25'000, 100'000, 1'000'000, 10'000'000};  // parsing: 250 ns to 10 ms
inline constexpr std::array<std::uint64_t, 17> kWaitBounds = {
    50'000,      100'000,       250'000,       500'000,       1'000'000,     2'500'000,
    5'000'000,   10'000'000,    25'000'000,    50'000'000,    100'000'000,   250'000'000,
    500'000'000, 1'000'000'000, 2'500'000'000, 5'000'000'000, 10'000'000'000};  // 50 us to 10 s
inline constexpr std::array<std::uint64_t, 13> kMoveBounds = {
    1'000'000,      2'500'000,       5'000'000,      10'000'000,    25'000'000,
    50'000'000,     100'000'000,     250'000'000,    1'000'000'000, 5'000'000'000,
    30'000'000'000, 120'000'000'000, 600'000'000'000};  // 1 ms to 10 min

template <const auto& kBounds, Writers kWriters>
class BasicHistogram {
 public:
  static constexpr std::size_t kBuckets = kBounds.size() + 1;

  void observe_ns(std::uint64_t nanoseconds) noexcept {
    std::size_t bucket = 0;
    while (bucket < kBounds.size() && nanoseconds > kBounds[bucket]) ++bucket;
    counts_[bucket].add();
    sum_ns_.add(nanoseconds);
  }
  void observe_seconds(double seconds) noexcept {
    observe_ns(seconds > 0 ? static_cast<std::uint64_t>(seconds * 1e9) : 0);
  }
  // Not cumulative.
  [[nodiscard]] std::uint64_t count_in(std::size_t bucket) const noexcept {
    return counts_[bucket].value();
  }
  [[nodiscard]] std::uint64_t sum_ns() const noexcept { return sum_ns_.value(); }

 private:
  std::array<BasicCounter<kWriters>, kBuckets> counts_;
  BasicCounter<kWriters> sum_ns_;
};

// One cell per enumerator; Label is an enum class whose last enumerator is kCount.
template <class Cell, class Label>
class ByLabel {
 public:
  static constexpr std::size_t kSize = static_cast<std::size_t>(Label::kCount);
  [[nodiscard]] Cell& operator[](Label label) noexcept {
    return cells_[static_cast<std::size_t>(label)];
  }
  [[nodiscard]] const Cell& operator[](Label label) const noexcept {
    return cells_[static_cast<std::size_t>(label)];
  }

 private:
  std::array<Cell, kSize> cells_;
};

using Counter = BasicCounter<Writers::kOne>;
using Gauge = BasicGauge<Writers::kOne>;
using FineHistogram = BasicHistogram<kFineBounds, Writers::kOne>;
using WaitHistogram = BasicHistogram<kWaitBounds, Writers::kOne>;
using SharedCounter = BasicCounter<Writers::kMany>;
using SharedGauge = BasicGauge<Writers::kMany>;
using SharedMoveHistogram = BasicHistogram<kMoveBounds, Writers::kMany>;

// Label values; the texts stand in the same order.
enum class ClientState : std::uint8_t {
  kLogin,
  kIdle,
  kActive,
  kIdleInTransaction,
  kWaiting,
  kCount
};
inline constexpr std::array<std::string_view, 5> kClientStateNames = {
    "login", "idle", "active", "idle_in_transaction", "waiting"};
enum class LoginResult : std::uint8_t { kOk, kAuthFailed, kTimeout, kRefused, kFailed, kCount };
inline constexpr std::array<std::string_view, 5> kLoginResultNames = {
    "ok", "auth_failed", "timeout", "refused", "failed"};
enum class PoolState : std::uint8_t { kConnecting, kIdle, kLeased, kCount };
inline constexpr std::array<std::string_view, 3> kPoolStateNames = {"connecting", "idle", "leased"};
enum class QueryKind : std::uint8_t { kSelect, kInsert, kUpdate, kDelete, kCopy, kOther, kCount };
inline constexpr std::array<std::string_view, 6> kQueryKindNames = {"select", "insert", "update",
                                                                    "delete", "copy",   "other"};
enum class Protocol : std::uint8_t { kSimple, kExtended, kCount };
inline constexpr std::array<std::string_view, 2> kProtocolNames = {"simple", "extended"};
enum class ScatterKind : std::uint8_t { kConcat, kRowCount, kCount };
inline constexpr std::array<std::string_view, 2> kScatterKindNames = {"concat", "count"};
enum class Direction : std::uint8_t { kFromClients, kToClients, kFromShards, kToShards, kCount };
inline constexpr std::array<std::string_view, 4> kDirectionNames = {"from_clients", "to_clients",
                                                                    "from_shards", "to_shards"};
enum class StaleReason : std::uint8_t { kGeneration, kMoved, kIncoming, kCount };
inline constexpr std::array<std::string_view, 3> kStaleReasonNames = {"generation", "moved",
                                                                      "incoming"};
enum class HeldWrite : std::uint8_t { kRerouted, kTimedOut, kCount };
inline constexpr std::array<std::string_view, 2> kHeldWriteNames = {"rerouted", "timed_out"};
enum class MoveResult : std::uint8_t { kPublished, kAborted, kFailed, kCount };
inline constexpr std::array<std::string_view, 3> kMoveResultNames = {"published", "aborted",
                                                                     "failed"};
enum class MoveState : std::uint8_t {
  kPrepared,
  kCopied,
  kVerified,
  kCutoverPending,
  kCommitted,
  kPublished,
  kCount
};
inline constexpr std::array<std::string_view, 6> kMoveStateNames = {
    "prepared", "copied", "verified", "cutover_pending", "committed", "published"};
enum class MovePhase : std::uint8_t {
  kPrepare,
  kCopy,
  kVerify,
  kCutover,
  kPublish,
  kTotal,
  kCount
};
inline constexpr std::array<std::string_view, 6> kMovePhaseNames = {"prepare", "copy",    "verify",
                                                                    "cutover", "publish", "total"};
enum class RecoveryResult : std::uint8_t { kOk, kLeaseHeld, kFenced, kFailed, kCount };
inline constexpr std::array<std::string_view, 4> kRecoveryResultNames = {"ok", "lease_held",
                                                                         "fenced", "failed"};
enum class RecoveryOutcome : std::uint8_t {
  kCommitted,
  kAborted,
  kReleased,
  kSkipped,
  kFailed,
  kCount
};
inline constexpr std::array<std::string_view, 5> kRecoveryOutcomeNames = {
    "committed", "aborted", "released", "skipped", "failed"};
enum class TwoPhaseOutcome : std::uint8_t { kCommitted, kRolledBack, kInDoubt, kCount };
inline constexpr std::array<std::string_view, 3> kTwoPhaseOutcomeNames = {
    "committed", "rolled_back", "in_doubt"};

// Error counters have one cell per ErrorCode, then these two.
inline constexpr std::size_t kErrorCodes = static_cast<std::size_t>(ErrorCode::kUnknownTable) + 1;
inline constexpr std::size_t kErrorOther = kErrorCodes;      // the proxy's own, without such a code
inline constexpr std::size_t kErrorShard = kErrorCodes + 1;  // passed on from a shard
inline constexpr std::size_t kErrorCells = kErrorCodes + 2;

// Monotonic nanoseconds; given by whoever owns a clock (net, migration), a fake one in tests.
using Clock = std::uint64_t (*)() noexcept;

struct ShardStats {
  ByLabel<Gauge, PoolState> pool_connections;
  Gauge pool_waiting;
  WaitHistogram pool_wait;
  ByLabel<ByLabel<Counter, Protocol>, QueryKind> queries;
  ByLabel<WaitHistogram, QueryKind> query_time;  // from the first byte sent to the last reply
};

struct alignas(64) WorkerStats {
  explicit WorkerStats(std::size_t shard_count, Clock clock_source = nullptr)
      : shards(shard_count), clock(clock_source) {}
  WorkerStats(const WorkerStats&) = delete;
  WorkerStats& operator=(const WorkerStats&) = delete;

  // Zero without a clock, so that differences are zero too.
  [[nodiscard]] std::uint64_t now_ns() const noexcept { return clock ? clock() : 0; }

  // Counts what a client is about to be told: by the "CODE:" its message starts with, else as
  // "other". `from_shard` marks an error a shard reported and the proxy only passes on.
  void count_error(const SqlError& error, bool from_shard = false) noexcept;
  // The same cells for a write that was not applied; in addition to count_error.
  void count_write_rejection(const SqlError& error) noexcept;

  std::vector<ShardStats> shards;  // by routing::ShardId; never resized
  Clock clock;

  ByLabel<Gauge, ClientState> clients;
  ByLabel<Counter, LoginResult> client_logins;
  FineHistogram parse_time;  // parse and analyse of one plan cache miss
  Counter plan_cache_hits;
  Counter plan_cache_misses;
  Counter plan_cache_evictions;
  std::array<Counter, kErrorCells> errors;
  // Writes the proxy refused or gave up, by the same cells: a subset of errors.
  std::array<Counter, kErrorCells> write_rejections;
  ByLabel<Counter, ScatterKind> scatter;
  ByLabel<Counter, Direction> bytes;
  ByLabel<Counter, StaleReason> stale_routes;
  Counter tombstone_follows;
  ByLabel<Counter, HeldWrite> held_writes_total;
};

struct ShardHealth {
  SharedGauge up;                     // 1 when the last probe or connection succeeded
  SharedGauge prepared_transactions;  // ours, as last counted by recovery
};

struct ProcessStats {
  explicit ProcessStats(std::size_t shard_count) : shards(shard_count) {}
  ProcessStats(const ProcessStats&) = delete;
  ProcessStats& operator=(const ProcessStats&) = delete;

  std::vector<ShardHealth> shards;  // by routing::ShardId; never resized

  SharedGauge manifest_generation;
  SharedGauge manifest_revision;
  SharedGauge
      manifest_confirmed_ns;  // Clock when the snapshot was last known to be current; 0 = never
  SharedGauge exceptions;
  SharedGauge epochs;

  ByLabel<SharedCounter, MoveResult> moves;
  ByLabel<SharedGauge, MoveState> moves_active;
  SharedCounter move_rows;
  SharedCounter move_bytes;
  ByLabel<SharedMoveHistogram, MovePhase> move_time;
  SharedMoveHistogram move_write_stall;
  ByLabel<SharedCounter, RecoveryResult> recovery_runs;
  ByLabel<SharedCounter, RecoveryOutcome> recovery_ops;
  ByLabel<SharedCounter, TwoPhaseOutcome> two_phase;
};

// Owns every stats struct of the process. Built once at start, before the threads that write.
class Registry {
 public:
  // `shard_names` in the order of routing::ShardId.
  Registry(std::vector<std::string> shard_names, std::size_t workers, Clock clock = nullptr,
           std::string version = "unknown");

  [[nodiscard]] WorkerStats& worker(std::size_t index) { return *workers_[index]; }
  [[nodiscard]] ProcessStats& process() { return process_; }
  [[nodiscard]] const ProcessStats& process() const { return process_; }
  [[nodiscard]] std::span<const std::unique_ptr<WorkerStats>> workers() const { return workers_; }
  [[nodiscard]] const std::vector<std::string>& shard_names() const { return shard_names_; }
  [[nodiscard]] const std::string& version() const { return version_; }
  [[nodiscard]] std::uint64_t now_ns() const noexcept { return clock_ ? clock_() : 0; }

 private:
  std::vector<std::string> shard_names_;
  Clock clock_;
  std::string version_;
  std::vector<std::unique_ptr<WorkerStats>> workers_;
  ProcessStats process_;
};

enum class Type : std::uint8_t { kCounter, kGauge, kHistogram };

// One line of docs/metrics.md and one family of /metrics. Static storage.
struct FamilyInfo {
  std::string_view name;  // with the prefix "collegedb_"
  Type type;
  std::string_view labels;  // "shard,state"; empty = none
  std::string_view help;
};

struct Sample {
  std::vector<std::pair<std::string_view, std::string>> labels;
  double value = 0;                       // counter and gauge
  std::span<const std::uint64_t> bounds;  // histogram: upper bounds, nanoseconds
  std::vector<std::uint64_t> buckets;     // not cumulative; one more than bounds
  double sum_seconds = 0;
};

struct Family {
  const FamilyInfo* info;
  std::vector<Sample> samples;
};

// All families in the order of docs/metrics.md.
[[nodiscard]] std::span<const FamilyInfo> families();

// One reading of everything: workers summed. Values of one reading may be some increments apart.
[[nodiscard]] std::vector<Family> collect(const Registry& registry);

}  // namespace collegedb::metrics
