#include "migration/mapped_scan.h"

#include <algorithm>
#include <utility>

#include "migration/key_probe.h"
#include "migration/key_slices.h"
#include "migration/mappings.h"
#include "routing/key.h"

namespace collegedb::migration {
namespace {

constexpr int kFetch = 2000;

SessionOptions scan_options() {
  SessionOptions options;
  options.application_name = "collegedb rebalance";
  options.statement_timeout = std::chrono::milliseconds{0};
  options.dies_with_client = true;
  return options;
}

}  // namespace

MappedScan::MappedScan(const PlacedEpochs& epochs, std::string group, std::string shard,
                       const RunnerOptions& journal)
    : epochs_(epochs), group_(std::move(group)), shard_(std::move(shard)), journal_(journal) {}

// WITH HOLD: between the calls no transaction is open.
void MappedScan::open() {
  auto session =
      std::make_unique<ControlSession>(journal_.shards.at(journal_.journal), scan_options());
  session->run("DECLARE collegedb_mapped NO SCROLL CURSOR WITH HOLD FOR SELECT b, k FROM (SELECT " +
               bucket_sql(group_, "key") +
               " AS b, key COLLATE \"C\" AS k FROM collegedb.mappings WHERE scope = " +
               quote_literal(journal_.scope) + " AND grp = " + quote_literal(group_) +
               " AND shard = " + quote_literal(shard_) + ") AS m WHERE (b, k) > (" +
               std::to_string(last_bucket_) + ", " + quote_literal(last_key_) + ") ORDER BY b, k");
  journal_session_ = std::move(session);
}

// By index, key by key: a batch must not become too large.
void MappedScan::count_rows(ControlSession& session, std::vector<Misplaced>& keys) const {
  const auto snapshot = journal_.snapshot();
  std::string count;
  for (const routing::TableInfo& table : snapshot->tables) {
    if (table.kind != routing::TableKind::kSharded || table.group != group_ ||
        table.key_column.empty()) {
      continue;
    }
    count += (count.empty() ? "" : " + ") +
             ("(SELECT pg_catalog.count(*) FROM " + quote_identifier(table.name.schema) + "." +
              quote_identifier(table.name.name) + " t WHERE " +
              routing::sql_key_condition(table.key_type, "t." + quote_identifier(table.key_column),
                                         "u.k") +
              ")");
  }
  if (count.empty()) return;
  std::vector<std::string> names;
  names.reserve(keys.size());
  for (const Misplaced& each : keys) names.push_back(each.key);
  const Rows rows = session.run(
      "SELECT " + count +
          " FROM pg_catalog.unnest($1::pg_catalog.text[]) WITH ORDINALITY u (k, i) ORDER BY u.i",
      {array_text(names)});
  for (int i = 0; i < rows.size(); ++i) keys[static_cast<std::size_t>(i)].rows = rows.int8(i, 0);
}

std::vector<Misplaced> MappedScan::next(ControlSession& session) {
  if (!journal_session_) open();
  const Rows rows =
      journal_session_->run("FETCH " + std::to_string(kFetch) + " FROM collegedb_mapped");
  std::vector<Misplaced> out;
  for (int i = 0; i < rows.size(); ++i) {
    std::string key = rows.text(i, 1);
    std::string destination = epochs_.home(key, shard_);
    out.push_back({.bucket = static_cast<std::int32_t>(rows.int8(i, 0)),
                   .destination = std::move(destination),
                   .key = std::move(key)});
  }
  if (out.empty()) return out;
  count_rows(session, out);
  last_bucket_ = out.back().bucket;
  last_key_ = out.back().key;
  examined_ += static_cast<std::int64_t>(out.size());
  return out;
}

UnmappedScan::UnmappedScan(std::unique_ptr<KeyScan> rows, std::string group,
                           const RunnerOptions& journal)
    : rows_(std::move(rows)), group_(std::move(group)), journal_(journal) {}

std::vector<Misplaced> UnmappedScan::next(ControlSession& session) {
  for (;;) {
    std::vector<Misplaced> found = rows_->next(session);
    if (found.empty()) return found;
    std::vector<std::string> keys;
    keys.reserve(found.size());
    for (const Misplaced& each : found) keys.push_back(each.key);
    LeasedSession journal(*journal_.sessions, journal_.shards.at(journal_.journal), {});
    const MappedShards mapped = read_mappings(*journal, journal_.scope, group_, keys);
    std::erase_if(found, [&](const Misplaced& each) { return mapped.contains(each.key); });
    examined_ += static_cast<std::int64_t>(found.size());
    if (!found.empty()) return found;
  }
}

}  // namespace collegedb::migration
