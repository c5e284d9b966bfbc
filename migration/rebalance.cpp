#include "migration/rebalance.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <thread>

#include "migration/cluster.h"
#include "migration/operation.h"
#include "migration/rebalance_log.h"
#include "migration/rebalance_work.h"

namespace collegedb::migration {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kReport{500};
constexpr std::chrono::seconds kJournalPatience{60};

Result<void> check(const RebalanceRequest& request, const std::vector<ShardConfig>& shards) {
  for (const auto& name : {request.source, request.destination}) {
    if (!name || std::any_of(shards.begin(), shards.end(),
                             [&](const ShardConfig& shard) { return shard.name == *name; })) {
      continue;
    }
    return make_error(ErrorCode::kUnknownShard, "no shard is named \"" + *name + "\"");
  }
  if (request.max_keys && *request.max_keys < 0) {
    return make_error("22023", "max_keys must not be negative");
  }
  if (request.concurrency && *request.concurrency < 1) {
    return make_error("22023", "concurrency must be at least 1");
  }
  return {};
}

std::vector<ShardConfig> sources(const RebalanceRequest& request,
                                 const std::vector<ShardConfig>& members) {
  std::vector<ShardConfig> out;
  for (const ShardConfig& shard : members) {
    if (!request.source || *request.source == shard.name) out.push_back(shard);
  }
  return out;
}

bool wanted(const RebalanceRequest& request, const std::string& group) {
  return request.groups.empty() ||
         std::find(request.groups.begin(), request.groups.end(), group) != request.groups.end();
}

Result<RebalanceField> read_field(ControlSession& journal, const RunnerOptions& options,
                                  const RebalanceRequest& request) {
  Config config;
  config.shards = options.shards;
  config.journal.shard = options.shards.at(options.journal).name;
  config.journal.scope = options.scope;
  RebalanceField out{.epochs = read_epochs(journal, options.scope), .sources = {}, .groups = {}};
  if (out.epochs.empty()) {
    return make_error(ErrorCode::kPlacementUnverified, "the manifest has no active epoch");
  }
  out.sources = sources(request, member_config(journal, config).shards);
  for (RegisteredTable& table : read_registry(journal, options.scope)) {
    if (table.kind != "sharded" || table.key_type.empty() || !wanted(request, table.group)) {
      continue;
    }
    std::string group = table.group;
    out.groups[std::move(group)].push_back(std::move(table));
  }
  return out;
}

class Threads {
 public:
  Threads(RebalanceWork& work, int count) : work_(work) {
    for (int i = 0; i < count; ++i) threads_.emplace_back([&work] { work.run(); });
  }
  ~Threads() {
    work_.stop();
    for (std::thread& thread : threads_) thread.join();
  }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

 private:
  RebalanceWork& work_;
  std::vector<std::thread> threads_;
};

// Until the work has ended; how it did: done, cancelled, interrupted.
std::string attend(RebalanceWork& work, RebalanceLog& log, const RebalanceRequest& request) {
  auto last_contact = std::chrono::steady_clock::now();
  for (;;) {
    if (work.wait(kReport)) return "done";
    if (request.stopping && request.stopping()) return "interrupted";
    try {
      const RebalanceLog::Wishes wishes = log.report(work.result());
      last_contact = std::chrono::steady_clock::now();
      if (wishes.cancelled) return "cancelled";
      work.pause(wishes.paused && !request.dry_run);
    } catch (const SqlFailure& failure) {
      // The operations of an idle journal wait or fail by themselves; wishes would not arrive.
      if (std::chrono::steady_clock::now() - last_contact > kJournalPatience) throw;
      spdlog::warn("rebalance {}: {}", log.id(), failure.what());
    }
  }
}

void tell(const RebalanceResult& result, const std::string& how) {
  for (const RebalanceShare& share : result.plan) {
    spdlog::info("rebalance {}: {}, {} keys of {} from {} to {}", result.id, how, share.keys,
                 share.group, share.source, share.destination);
  }
  spdlog::info("rebalance {}: {}, {} keys examined, {} agreed, {} moved, {} failed", result.id, how,
               result.examined, result.agreed, result.moved, result.failed);
}

Result<RebalanceResult> ended(const std::string& state, RebalanceResult result) {
  if (state == "done") return result;
  const std::string detail = std::to_string(result.moved) + " keys have been moved.";
  if (state == "cancelled") return make_error("57014", "the rebalance was cancelled", {}, detail);
  return make_error("57P01", "the rebalance was interrupted: the proxy is shutting down",
                    "Call collegedb_rebalance() again.", detail);
}

}  // namespace

Result<RebalanceResult> rebalance(Runner& runner, const RebalanceRequest& request) {
  const RunnerOptions& options = runner.options();
  if (auto bad = check(request, options.shards); bad.has_error()) return bad.error();
  const int most = static_cast<int>(std::max(1U, options.limits.max_concurrent_moves));
  const int concurrency = std::min(request.concurrency.value_or(most), most);
  try {
    ControlSession journal(options.shards.at(options.journal));
    const auto field = read_field(journal, options, request);
    if (field.has_error()) return field.error();
    std::vector<std::string> groups;
    for (const auto& [group, tables] : field->groups) groups.push_back(group);
    RebalanceLog log(options, request, groups, concurrency);
    std::string state;
    RebalanceWork work(*field, request, log.id(), request.dry_run ? nullptr : &runner, &options,
                       concurrency);
    {
      const Threads threads(work, concurrency);
      try {
        state = attend(work, log, request);
      } catch (const SqlFailure& failure) {
        work.stop();
        return failure.error();
      }
    }
    RebalanceResult result = work.result();
    log.finish(result, state, {});
    tell(result, request.dry_run ? "dry run" : state);
    return ended(state, std::move(result));
  } catch (const SqlFailure& failure) {
    return failure.error();
  }
}

Result<RebalanceResult> rehearse_rebalance(const std::vector<ShardConfig>& shards,
                                           const routing::Snapshot& snapshot,
                                           const RebalanceRequest& request) {
  if (auto bad = check(request, shards); bad.has_error()) return bad.error();
  RebalanceField field{
      .epochs = PlacedEpochs(snapshot), .sources = sources(request, shards), .groups = {}};
  if (field.epochs.empty()) {
    return make_error(ErrorCode::kPlacementUnverified, "there is no placement yet");
  }
  for (const routing::TableInfo& table : snapshot.tables) {
    if (table.kind != routing::TableKind::kSharded || !wanted(request, table.group)) continue;
    RegisteredTable out;
    out.name = {
        .schema = table.name.schema,
        .name = table.name.name,
        .qualified = quote_identifier(table.name.schema) + "." + quote_identifier(table.name.name)};
    out.group = table.group;
    out.key_column = table.key_column;
    out.key_expression =
        routing::sql_key_expression(table.key_type, quote_identifier(table.key_column));
    field.groups[table.group].push_back(std::move(out));
  }
  RebalanceWork work(field, request, {}, nullptr, nullptr, 1);
  work.run();
  RebalanceResult result = work.result();
  tell(result, "dry run");
  return result;
}

}  // namespace collegedb::migration
