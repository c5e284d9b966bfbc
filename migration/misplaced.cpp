#include "migration/misplaced.h"

#include <algorithm>
#include <utility>

#include "migration/key_slices.h"
#include "routing/hash.h"

namespace collegedb::migration {
namespace {

constexpr std::int64_t kSliceRows = 4'000'000;
constexpr int kFetch = 2000;

}  // namespace

MisplacedScan::MisplacedScan(const PlacedEpochs& epochs, std::string group,
                             std::vector<RegisteredTable> tables)
    : epochs_(epochs), group_(std::move(group)), tables_(std::move(tables)) {}

// How many buckets one look may hold, by what the planner thinks of the tables.
void MisplacedScan::measure() {
  std::erase_if(tables_, [&](const RegisteredTable& table) {
    return !find_table(*session_, table.name, {});
  });
  double rows = 0;
  for (const RegisteredTable& table : tables_) {
    const Rows found = session_->run(
        "SELECT coalesce(sum(greatest(c.reltuples, c.relpages * 10)), 0)::pg_catalog.int8"
        " FROM pg_catalog.pg_class c WHERE c.relkind <> 'p' AND (c.oid = $1::pg_catalog.regclass"
        " OR c.oid IN (SELECT t.relid FROM"
        " pg_catalog.pg_partition_tree($1::pg_catalog.regclass) t))",
        {table.name.qualified});
    rows += static_cast<double>(found.int8(0, 0));
  }
  const std::int64_t slices = static_cast<std::int64_t>(rows) / kSliceRows + 1;
  width_ = static_cast<std::int32_t>(std::max<std::int64_t>(1, routing::kGateBuckets / slices));
  measured_ = true;
}

// The first row has the number of keys and of those elsewhere than the others say. The owner is
// NULL where the shard cannot compute it.
std::string MisplacedScan::slice_sql() const {
  const std::int32_t last = std::min<std::int32_t>(first_ + width_, routing::kGateBuckets) - 1;
  std::string keys;
  for (const RegisteredTable& table : tables_) {
    keys += (keys.empty() ? "SELECT (" : " UNION ALL SELECT (") + table.key_expression +
            ") COLLATE \"C\" AS k FROM " + table.name.qualified;
  }
  const std::string owner = epochs_.home_sql("k", session_->shard());
  const std::string away = "o IS DISTINCT FROM " + quote_literal(session_->shard());
  return "WITH keys AS (SELECT k, pg_catalog.count(*) AS n, " + bucket_sql(group_, "k") +
         " AS b FROM (" + keys + ") AS r WHERE k IS NOT NULL AND " + bucket_sql(group_, "k") +
         " BETWEEN " + std::to_string(first_) + " AND " + std::to_string(last) +
         " GROUP BY k), placed AS MATERIALIZED (SELECT b, k, n, " +
         (owner.empty() ? "NULL::pg_catalog.text" : owner) +
         " AS o FROM keys) SELECT -1, (pg_catalog.count(*) FILTER (WHERE " + away +
         "))::pg_catalog.text, pg_catalog.count(*)::pg_catalog.text COLLATE \"C\", 0 FROM placed"
         " UNION ALL SELECT b, o, k, n FROM placed WHERE " +
         away + " ORDER BY 1, 3";
}

// WITH HOLD: what was found outlives its transaction, on the server's disk if need be.
void MisplacedScan::open_slice() {
  in_slice_ = 0;
  agreed_in_slice_ = 0;
  Transaction transaction(*session_, "BEGIN READ ONLY");
  session_->run("SET LOCAL max_parallel_workers_per_gather = 0");
  session_->run("SET LOCAL jit = off");
  session_->run("DECLARE collegedb_misplaced NO SCROLL CURSOR WITH HOLD FOR " + slice_sql());
  transaction.commit();
  const Rows counts = session_->run("FETCH 1 FROM collegedb_misplaced");
  in_slice_ = counts.int8(0, 2);
  agreed_in_slice_ = in_slice_ - counts.int8(0, 1);
  open_ = true;
}

void MisplacedScan::restart() {
  open_ = false;
  in_slice_ = 0;
  agreed_in_slice_ = 0;
}

void MisplacedScan::close_slice() {
  session_->run("CLOSE collegedb_misplaced");
  open_ = false;
  first_ += width_;
  examined_ += std::exchange(in_slice_, 0);
  agreed_ += std::exchange(agreed_in_slice_, 0);
}

std::vector<Misplaced> MisplacedScan::next(ControlSession& session) {
  session_ = &session;
  if (!measured_) measure();
  std::vector<Misplaced> out;
  while (out.empty()) {
    if (!open_) {
      if (tables_.empty() || first_ >= routing::kGateBuckets) return out;
      open_slice();
    }
    const Rows rows =
        session_->run("FETCH " + std::to_string(kFetch) + " FROM collegedb_misplaced");
    for (int i = 0; i < rows.size(); ++i) {
      std::string key = rows.text(i, 2);
      std::string owner = rows.null(i, 1) ? epochs_.home(key, session_->shard()) : rows.text(i, 1);
      if (owner == session_->shard()) {
        ++agreed_in_slice_;
        continue;
      }
      out.push_back({.bucket = static_cast<std::int32_t>(rows.int8(i, 0)),
                     .destination = std::move(owner),
                     .key = std::move(key),
                     .rows = rows.int8(i, 3)});
    }
    if (rows.empty()) close_slice();
  }
  return out;
}

}  // namespace collegedb::migration
