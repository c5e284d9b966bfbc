#include "migration/shard_sizes.h"

#include <spdlog/spdlog.h>

#include <exception>

#include "migration/table_catalog.h"

namespace collegedb::migration {
namespace {

SessionOptions size_options() {
  SessionOptions options;
  options.application_name = "collegedb sizes";
  options.connect_timeout = std::chrono::seconds{3};
  options.statement_timeout = std::chrono::seconds{10};
  return options;
}

// Estimates are the planner's; of a partitioned table those of its leaves.
constexpr std::string_view kSizes =
    "SELECT pg_catalog.pg_database_size(pg_catalog.current_database()),"
    " coalesce(sum(n), 0)::pg_catalog.int8, coalesce(sum(n) FILTER (WHERE root), "
    "0)::pg_catalog.int8"
    " FROM (SELECT t.root, greatest(c.reltuples, 0) AS n FROM ROWS FROM"
    " (pg_catalog.unnest($1::pg_catalog.text[]), pg_catalog.unnest($2::pg_catalog.bool[]))"
    " AS t (name, root) JOIN pg_catalog.pg_class c ON c.relkind <> 'p'"
    " AND (c.oid = pg_catalog.to_regclass(t.name) OR c.oid IN (SELECT p.relid"
    " FROM pg_catalog.pg_partition_tree(pg_catalog.to_regclass(t.name)) p))) AS tables";

}  // namespace

ControlSession& ShardSizes::session(std::size_t shard) {
  auto& found = sessions_[shard];
  if (!found || !found->idle()) {
    found = std::make_unique<ControlSession>(config_.shards[shard], size_options());
  }
  return *found;
}

void ShardSizes::refresh() noexcept {
  try {
    const Rows due = session(config_.journal_index())
                         .run(
                             "SELECT shard FROM collegedb.shards WHERE scope = $1"
                             " AND state <> 'removed' AND coalesce(measured_at, '-infinity')"
                             " < clock_timestamp() - interval '30 seconds'",
                             {config_.journal.scope});
    for (int i = 0; i < due.size(); ++i) {
      for (std::size_t shard = 0; shard < config_.shards.size(); ++shard) {
        if (config_.shards[shard].name == due.view(i, 0)) measure(shard);
      }
    }
  } catch (const std::exception& failure) {
    spdlog::debug("sizes: {}", failure.what());
  }
}

void ShardSizes::measure(std::size_t shard) {
  try {
    ControlSession& journal = session(config_.journal_index());
    std::vector<std::string> names;
    std::vector<std::string> roots;
    for (const RegisteredTable& table : read_registry(journal, config_.journal.scope)) {
      if (table.kind != "sharded") continue;
      names.push_back(table.name.qualified);
      roots.emplace_back(table.name.qualified == table.group ? "t" : "f");
    }
    const Rows sizes = session(shard).run(kSizes, {array_text(names), array_text(roots)});
    journal.run(
        "UPDATE collegedb.shards SET database_bytes = $3::bigint, rows_estimate = $4::bigint,"
        " keys_estimate = $5::bigint, measured_at = clock_timestamp()"
        " WHERE scope = $1 AND shard = $2",
        {config_.journal.scope, config_.shards[shard].name, sizes.text(0, 0), sizes.text(0, 1),
         sizes.text(0, 2)});
  } catch (const std::exception& failure) {
    spdlog::debug("sizes of {}: {}", config_.shards[shard].name, failure.what());
  }
}

}  // namespace collegedb::migration
