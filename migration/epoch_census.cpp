#include "migration/epoch_census.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>

namespace collegedb::migration {
namespace {

SessionOptions census_options() {
  SessionOptions options;
  options.application_name = "collegedb census";
  options.statement_timeout = std::chrono::milliseconds{0};
  options.dies_with_client = true;
  return options;
}

// The epoch each row depends on, NULL for none.
std::string dependence_sql(const std::string& shard, std::span<const EpochRow> epochs,
                           const RegisteredTable& table, const std::vector<std::string>* exempt) {
  std::string of_row = "CASE";
  for (const EpochRow& epoch : epochs) {
    of_row += " WHEN " + epoch_owner_sql(epoch, "s.k") + " = " + quote_literal(shard) + " THEN " +
              std::to_string(epoch.id);
  }
  of_row += " END";
  std::string from =
      " FROM (SELECT " + table.key_expression + " AS k FROM " + table.name.qualified + ") s";
  if (exempt != nullptr && !exempt->empty()) {
    from += " LEFT JOIN (SELECT DISTINCT u.k COLLATE \"C\" AS k FROM pg_catalog.unnest(" +
            quote_literal(array_text(*exempt)) +
            "::pg_catalog.text[]) u (k)) e ON e.k = s.k COLLATE \"C\"";
    of_row = "CASE WHEN e.k IS NULL THEN " + of_row + " END";
  }
  return "SELECT " + of_row + from;
}

class ShardCensus {
 public:
  ShardCensus(const ShardConfig& shard, int page_size)
      : session_(shard, census_options()), page_size_(page_size) {}

  EpochCensus run(std::span<const EpochRow> epochs, std::span<const RegisteredTable> tables,
                  const KeysByGroup& exempt) {
    const Transaction transaction(session_, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY");
    for (const RegisteredTable& table : tables) {
      if (!find_table(session_, table.name, {})) continue;
      const auto keys = exempt.find(table.group);
      count(dependence_sql(session_.shard(), epochs, table,
                           keys != exempt.end() ? &keys->second : nullptr));
    }
    return std::move(out_);
  }

 private:
  void count(const std::string& sql) {
    session_.run("DECLARE collegedb_epochs NO SCROLL CURSOR FOR " + sql);
    for (;;) {
      const Rows page =
          session_.run("FETCH " + std::to_string(page_size_) + " FROM collegedb_epochs");
      if (page.empty()) break;
      for (int i = 0; i < page.size(); ++i) {
        if (!page.null(i, 0)) ++out_.dependents[static_cast<int>(page.int8(i, 0))];
      }
      out_.scanned += page.size();
    }
    session_.run("CLOSE collegedb_epochs");
  }

  ControlSession session_;
  int page_size_;
  EpochCensus out_;
};

}  // namespace

std::string epoch_owner_sql(const EpochRow& epoch, const std::string& key) {
  return "collegedb.epoch_owner(" + quote_literal(epoch.algorithm) + ", " +
         quote_literal(array_text(epoch.shards)) + "::pg_catalog.text[], " + key + ")";
}

EpochCensus take_epoch_census(const Config& cluster, std::span<const EpochRow> epochs,
                              std::span<const RegisteredTable> tables,
                              const std::map<std::string, KeysByGroup>& exempt,
                              const CensusOptions& options) {
  EpochCensus out;
  std::mutex mutex;
  std::exception_ptr failure;
  std::atomic<std::size_t> next = 0;
  const auto work = [&] {
    for (std::size_t i = next++; i < cluster.shards.size(); i = next++) {
      try {
        const auto keys = exempt.find(cluster.shards[i].name);
        const EpochCensus found =
            ShardCensus(cluster.shards[i], options.page_size)
                .run(epochs, tables, keys != exempt.end() ? keys->second : KeysByGroup{});
        const std::lock_guard lock(mutex);
        for (const auto& [id, rows] : found.dependents) out.dependents[id] += rows;
        out.scanned += found.scanned;
      } catch (...) {
        const std::lock_guard lock(mutex);
        failure = std::current_exception();
        next = cluster.shards.size();
      }
    }
  };
  std::vector<std::jthread> threads;
  const auto wanted = static_cast<std::size_t>(std::max(1, options.concurrency));
  for (std::size_t i = 1; i < std::min(wanted, cluster.shards.size()); ++i) {
    threads.emplace_back(work);
  }
  work();
  threads.clear();  // joins
  if (failure) std::rethrow_exception(failure);
  return out;
}

}  // namespace collegedb::migration
