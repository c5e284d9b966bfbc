#include "metrics/stats.h"

#include <algorithm>
#include <iterator>

namespace collegedb::metrics {
namespace {

using Labels = std::vector<std::pair<std::string_view, std::string>>;

// Turns cells of all workers, or of the process, into samples of one family.
class Reader {
 public:
  Reader(const Registry& registry, Family& family) : registry_(registry), family_(family) {}

  [[nodiscard]] const Registry& registry() const { return registry_; }
  [[nodiscard]] const ProcessStats& process() const { return registry_.process(); }
  [[nodiscard]] std::size_t shards() const { return registry_.shard_names().size(); }
  [[nodiscard]] const std::string& shard(std::size_t index) const {
    return registry_.shard_names()[index];
  }

  void value(double value, Labels labels = {}) {
    family_.samples.push_back({.labels = std::move(labels),
                               .value = value,
                               .bounds = {},
                               .buckets = {},
                               .sum_seconds = 0});
  }

  // `cell(stats)` names one counter or gauge of a worker.
  template <class Cell>
  void sum(Labels labels, Cell cell) {
    value(total(cell), std::move(labels));
  }

  template <class Cell>
  [[nodiscard]] double total(Cell cell) const {
    double total = 0;
    for (const auto& worker : registry_.workers()) {
      total += static_cast<double>(cell(*worker).value());
    }
    return total;
  }

  // `cell(stats)` names one histogram of a worker.
  template <class Cell>
  void sum_histogram(Labels labels, Cell cell) {
    Sample sample{
        .labels = std::move(labels), .value = 0, .bounds = {}, .buckets = {}, .sum_seconds = 0};
    for (const auto& worker : registry_.workers()) add(sample, cell(*worker));
    family_.samples.push_back(std::move(sample));
  }

  template <const auto& kBounds, Writers kWriters>
  void histogram(Labels labels, const BasicHistogram<kBounds, kWriters>& cell) {
    Sample sample{
        .labels = std::move(labels), .value = 0, .bounds = {}, .buckets = {}, .sum_seconds = 0};
    add(sample, cell);
    family_.samples.push_back(std::move(sample));
  }

 private:
  template <const auto& kBounds, Writers kWriters>
  static void add(Sample& sample, const BasicHistogram<kBounds, kWriters>& cell) {
    sample.bounds = kBounds;
    sample.buckets.resize(kBounds.size() + 1);
    for (std::size_t i = 0; i < sample.buckets.size(); ++i) sample.buckets[i] += cell.count_in(i);
    sample.sum_seconds += static_cast<double>(cell.sum_ns()) / 1e9;
  }

  const Registry& registry_;
  Family& family_;
};

// Calls `each(label, text)` for every enumerator of Label.
template <class Label, std::size_t kSize, class Each>
void for_each_label(const std::array<std::string_view, kSize>& names, Each each) {
  static_assert(kSize == static_cast<std::size_t>(Label::kCount));
  for (std::size_t i = 0; i < kSize; ++i) each(static_cast<Label>(i), std::string(names[i]));
}

template <class Label, std::size_t kSize, class Cells>
void worker_labels(Reader& reader, std::string_view label_name,
                   const std::array<std::string_view, kSize>& names, Cells WorkerStats::* cells) {
  for_each_label<Label>(names, [&](Label label, std::string text) {
    reader.sum({{label_name, std::move(text)}},
               [&](const WorkerStats& w) -> const auto& { return (w.*cells)[label]; });
  });
}

template <class Label, std::size_t kSize, class Cells>
void process_labels(Reader& reader, std::string_view label_name,
                    const std::array<std::string_view, kSize>& names, Cells ProcessStats::* cells) {
  for_each_label<Label>(names, [&](Label label, std::string text) {
    reader.value(static_cast<double>((reader.process().*cells)[label].value()),
                 {{label_name, std::move(text)}});
  });
}

template <class Cell>
void worker_total(Reader& reader, Cell WorkerStats::* cell) {
  reader.sum({}, [&](const WorkerStats& w) -> const auto& { return w.*cell; });
}

template <class Cell>
void process_value(Reader& reader, Cell ProcessStats::* cell) {
  reader.value(static_cast<double>((reader.process().*cell).value()));
}

template <class Cell>
void shard_health(Reader& reader, Cell ShardHealth::* cell) {
  for (std::size_t s = 0; s < reader.shards(); ++s) {
    reader.value(static_cast<double>((reader.process().shards[s].*cell).value()),
                 {{"shard", reader.shard(s)}});
  }
}

std::string error_label(std::size_t cell) {
  if (cell == kErrorOther) return "other";
  if (cell == kErrorShard) return "shard";
  return std::string(name_of(static_cast<ErrorCode>(cell)));
}

// Codes that never occurred are left out: some forty series per proxy would say nothing.
void errors_by_code(Reader& reader, std::array<Counter, kErrorCells> WorkerStats::* cells) {
  for (std::size_t i = 0; i < kErrorCells; ++i) {
    const double total =
        reader.total([&](const WorkerStats& w) -> const auto& { return (w.*cells)[i]; });
    if (total > 0) reader.value(total, {{"code", error_label(i)}});
  }
}

void pool_connections(Reader& reader) {
  for (std::size_t s = 0; s < reader.shards(); ++s) {
    for_each_label<PoolState>(kPoolStateNames, [&](PoolState state, std::string text) {
      reader.sum(
          {{"shard", reader.shard(s)}, {"state", std::move(text)}},
          [&](const WorkerStats& w) -> const auto& { return w.shards[s].pool_connections[state]; });
    });
  }
}

void pool_waiting(Reader& reader) {
  for (std::size_t s = 0; s < reader.shards(); ++s) {
    reader.sum({{"shard", reader.shard(s)}},
               [&](const WorkerStats& w) -> const auto& { return w.shards[s].pool_waiting; });
  }
}

void pool_wait(Reader& reader) {
  for (std::size_t s = 0; s < reader.shards(); ++s) {
    reader.sum_histogram({{"shard", reader.shard(s)}}, [&](const WorkerStats& w) -> const auto& {
      return w.shards[s].pool_wait;
    });
  }
}

void queries(Reader& reader) {
  for (std::size_t s = 0; s < reader.shards(); ++s) {
    for_each_label<QueryKind>(kQueryKindNames, [&](QueryKind kind, const std::string& kind_text) {
      for_each_label<Protocol>(kProtocolNames, [&](Protocol protocol, std::string text) {
        reader.sum({{"shard", reader.shard(s)}, {"kind", kind_text}, {"protocol", std::move(text)}},
                   [&](const WorkerStats& w) -> const auto& {
                     return w.shards[s].queries[kind][protocol];
                   });
      });
    });
  }
}

void query_time(Reader& reader) {
  for (std::size_t s = 0; s < reader.shards(); ++s) {
    for_each_label<QueryKind>(kQueryKindNames, [&](QueryKind kind, std::string text) {
      reader.sum_histogram(
          {{"shard", reader.shard(s)}, {"kind", std::move(text)}},
          [&](const WorkerStats& w) -> const auto& { return w.shards[s].query_time[kind]; });
    });
  }
}

void manifest_age(Reader& reader) {
  const auto confirmed = reader.process().manifest_confirmed_ns.value();
  if (confirmed == 0) return;  // no snapshot yet: no age
  const auto now = static_cast<std::int64_t>(reader.registry().now_ns());
  reader.value(static_cast<double>(std::max<std::int64_t>(0, now - confirmed)) / 1e9);
}

void move_time(Reader& reader) {
  for_each_label<MovePhase>(kMovePhaseNames, [&](MovePhase phase, std::string text) {
    reader.histogram({{"phase", std::move(text)}}, reader.process().move_time[phase]);
  });
}

struct Entry {
  FamilyInfo info;
  void (*read)(Reader&);
};

constexpr Entry kEntries[] = {
    {{"collegedb_build_info", Type::kGauge, "version", "Always 1; the version is in the label."},
     [](Reader& r) { r.value(1, {{"version", r.registry().version()}}); }},
    {{"collegedb_clients", Type::kGauge, "state", "Client connections by what they are doing."},
     [](Reader& r) {
       worker_labels<ClientState>(r, "state", kClientStateNames, &WorkerStats::clients);
     }},
    {{"collegedb_client_logins_total", Type::kCounter, "result", "Client logins by result."},
     [](Reader& r) {
       worker_labels<LoginResult>(r, "result", kLoginResultNames, &WorkerStats::client_logins);
     }},
    {{"collegedb_pool_connections", Type::kGauge, "shard,state",
      "Server connections of this process by state."},
     pool_connections},
    {{"collegedb_pool_waiting", Type::kGauge, "shard",
      "Clients that wait for a server connection."},
     pool_waiting},
    {{"collegedb_pool_wait_seconds", Type::kHistogram, "shard",
      "Time from asking for a server connection to having it."},
     pool_wait},
    {{"collegedb_queries_total", Type::kCounter, "shard,kind,protocol",
      "Statements sent to a shard."},
     queries},
    {{"collegedb_query_seconds", Type::kHistogram, "shard,kind",
      "Time from sending a statement to its last reply byte."},
     query_time},
    {{"collegedb_plan_cache_hits_total", Type::kCounter, "", "Statements found in a plan cache."},
     [](Reader& r) { worker_total(r, &WorkerStats::plan_cache_hits); }},
    {{"collegedb_plan_cache_misses_total", Type::kCounter, "",
      "Statements parsed because no plan cache had them."},
     [](Reader& r) { worker_total(r, &WorkerStats::plan_cache_misses); }},
    {{"collegedb_plan_cache_evictions_total", Type::kCounter, "",
      "Plans dropped from a full plan cache."},
     [](Reader& r) { worker_total(r, &WorkerStats::plan_cache_evictions); }},
    {{"collegedb_parse_seconds", Type::kHistogram, "", "Time to parse and analyse a statement."},
     [](Reader& r) {
       r.sum_histogram({}, [](const WorkerStats& w) -> const auto& { return w.parse_time; });
     }},
    {{"collegedb_errors_total", Type::kCounter, "code",
      "Errors sent to clients: a code of docs/errors.md, \"shard\" for an error passed on from a "
      "shard, \"other\" for the rest."},
     [](Reader& r) { errors_by_code(r, &WorkerStats::errors); }},
    {{"collegedb_scatter_total", Type::kCounter, "kind", "Statements run on all shards."},
     [](Reader& r) {
       worker_labels<ScatterKind>(r, "kind", kScatterKindNames, &WorkerStats::scatter);
     }},
    {{"collegedb_bytes_total", Type::kCounter, "direction", "Bytes of PostgreSQL protocol moved."},
     [](Reader& r) {
       worker_labels<Direction>(r, "direction", kDirectionNames, &WorkerStats::bytes);
     }},
    {{"collegedb_manifest_generation", Type::kGauge, "", "Generation of the routing snapshot."},
     [](Reader& r) { process_value(r, &ProcessStats::manifest_generation); }},
    {{"collegedb_manifest_revision", Type::kGauge, "", "Revision of the routing snapshot."},
     [](Reader& r) { process_value(r, &ProcessStats::manifest_revision); }},
    {{"collegedb_manifest_age_seconds", Type::kGauge, "",
      "Time since the routing snapshot was last known to be current."},
     manifest_age},
    {{"collegedb_exceptions", Type::kGauge, "",
      "Keys that live elsewhere than their computed owner."},
     [](Reader& r) { process_value(r, &ProcessStats::exceptions); }},
    {{"collegedb_epochs", Type::kGauge, "", "Placement epochs of the manifest."},
     [](Reader& r) { process_value(r, &ProcessStats::epochs); }},
    {{"collegedb_stale_route_errors_total", Type::kCounter, "reason",
      "Statements a shard's guard refused: routed under an old generation, key moved, key "
      "arriving."},
     [](Reader& r) {
       worker_labels<StaleReason>(r, "reason", kStaleReasonNames, &WorkerStats::stale_routes);
     }},
    {{"collegedb_tombstone_follows_total", Type::kCounter, "",
      "Hops made after a tombstone's moved_to."},
     [](Reader& r) { worker_total(r, &WorkerStats::tombstone_follows); }},
    {{"collegedb_moves_total", Type::kCounter, "result", "Moves ended by this process."},
     [](Reader& r) {
       process_labels<MoveResult>(r, "result", kMoveResultNames, &ProcessStats::moves);
     }},
    {{"collegedb_moves_active", Type::kGauge, "state", "Moves this process is running."},
     [](Reader& r) {
       process_labels<MoveState>(r, "state", kMoveStateNames, &ProcessStats::moves_active);
     }},
    {{"collegedb_move_rows_total", Type::kCounter, "", "Rows copied by moves."},
     [](Reader& r) { process_value(r, &ProcessStats::move_rows); }},
    {{"collegedb_move_bytes_total", Type::kCounter, "", "Bytes copied by moves."},
     [](Reader& r) { process_value(r, &ProcessStats::move_bytes); }},
    {{"collegedb_move_seconds", Type::kHistogram, "phase",
      "Time moves spent by phase, and in total."},
     move_time},
    {{"collegedb_move_write_stall_seconds", Type::kHistogram, "",
      "Time a cutover kept writes waiting."},
     [](Reader& r) { r.histogram({}, r.process().move_write_stall); }},
    {{"collegedb_move_held_writes_total", Type::kCounter, "outcome",
      "Writes that met a cutover: rerouted to the new owner, or timed out (not applied)."},
     [](Reader& r) {
       worker_labels<HeldWrite>(r, "outcome", kHeldWriteNames, &WorkerStats::held_writes_total);
     }},
    {{"collegedb_write_rejections_total", Type::kCounter, "code",
      "Writes refused by the proxy or by a guard, by the code the client got."},
     [](Reader& r) { errors_by_code(r, &WorkerStats::write_rejections); }},
    {{"collegedb_recovery_runs_total", Type::kCounter, "result", "Rounds of recovery."},
     [](Reader& r) {
       process_labels<RecoveryResult>(r, "result", kRecoveryResultNames,
                                      &ProcessStats::recovery_runs);
     }},
    {{"collegedb_recovery_ops_total", Type::kCounter, "outcome",
      "Operations of dead movers that recovery dealt with."},
     [](Reader& r) {
       process_labels<RecoveryOutcome>(r, "outcome", kRecoveryOutcomeNames,
                                       &ProcessStats::recovery_ops);
     }},
    {{"collegedb_two_phase_total", Type::kCounter, "outcome",
      "Two-phase commits over shards by outcome."},
     [](Reader& r) {
       process_labels<TwoPhaseOutcome>(r, "outcome", kTwoPhaseOutcomeNames,
                                       &ProcessStats::two_phase);
     }},
    {{"collegedb_prepared_transactions", Type::kGauge, "shard",
      "Prepared transactions of CollegeDB on the shard, as last counted by recovery."},
     [](Reader& r) { shard_health(r, &ShardHealth::prepared_transactions); }},
    {{"collegedb_shard_up", Type::kGauge, "shard", "1 when the shard was last reachable."},
     [](Reader& r) { shard_health(r, &ShardHealth::up); }},
};

std::size_t error_cell(const SqlError& error, bool from_shard) noexcept {
  if (from_shard) return kErrorShard;
  const auto colon = error.message.find(':');
  if (colon == std::string::npos) return kErrorOther;
  const auto prefix = std::string_view(error.message).substr(0, colon);
  for (std::size_t i = 0; i < kErrorCodes; ++i) {
    if (name_of(static_cast<ErrorCode>(i)) == prefix) return i;
  }
  return kErrorOther;
}

}  // namespace

void WorkerStats::count_error(const SqlError& error, bool from_shard) noexcept {
  errors[error_cell(error, from_shard)].add();
}

void WorkerStats::count_write_rejection(const SqlError& error) noexcept {
  write_rejections[error_cell(error, false)].add();
}

Registry::Registry(std::vector<std::string> shard_names, std::size_t workers, Clock clock,
                   std::string version)
    : shard_names_(std::move(shard_names)),
      clock_(clock),
      version_(std::move(version)),
      process_(shard_names_.size()) {
  for (std::size_t i = 0; i < workers; ++i) {
    workers_.push_back(std::make_unique<WorkerStats>(shard_names_.size(), clock));
  }
}

std::span<const FamilyInfo> families() {
  static constexpr auto kInfos = [] {
    std::array<FamilyInfo, std::size(kEntries)> infos{};
    for (std::size_t i = 0; i < infos.size(); ++i) infos[i] = kEntries[i].info;
    return infos;
  }();
  return kInfos;
}

std::vector<Family> collect(const Registry& registry) {
  std::vector<Family> result;
  result.reserve(std::size(kEntries));
  for (const Entry& entry : kEntries) {
    Reader reader(registry, result.emplace_back(Family{.info = &entry.info, .samples = {}}));
    entry.read(reader);
  }
  return result;
}

}  // namespace collegedb::metrics
