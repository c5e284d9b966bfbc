#include "migration/mappings.h"

namespace collegedb::migration {
namespace {

MappedShards shards_of(const Rows& rows) {
  MappedShards out;
  for (int i = 0; i < rows.size(); ++i) out.emplace(rows.text(i, 0), rows.text(i, 1));
  return out;
}

}  // namespace

bool has_mapped_placement(ControlSession& journal, const std::string& scope) {
  const Rows rows = journal.run(
      "SELECT 1 FROM collegedb.manifest WHERE scope = $1 AND placement = 'mapped'", {scope});
  return !rows.empty();
}

std::optional<std::string> read_mapping(ControlSession& journal, const std::string& scope,
                                        const std::string& group, const std::string& key) {
  const Rows rows = journal.run_prepared(
      "SELECT shard FROM collegedb.mappings WHERE scope = $1 AND grp = $2 AND key = $3",
      {scope, group, key});
  if (rows.empty()) return std::nullopt;
  return rows.text(0, 0);
}

// Key by key: a plan that reads all mappings of the group would be right only for a small one.
MappedShards read_mappings(ControlSession& journal, const std::string& scope,
                           const std::string& group, const std::vector<std::string>& keys) {
  return shards_of(
      journal.run("SELECT m.key, m.shard FROM pg_catalog.unnest($3::pg_catalog.text[]) AS k"
                  " CROSS JOIN LATERAL (SELECT key, shard FROM collegedb.mappings"
                  " WHERE scope = $1 AND grp = $2 AND key = k LIMIT 1) AS m",
                  {scope, group, array_text(keys)}));
}

MappedShards map_keys(ControlSession& journal, const std::string& scope, const std::string& group,
                      const std::vector<std::string>& keys, const std::string& shard,
                      std::string_view strategy, std::int64_t generation) {
  return shards_of(journal.run_prepared(
      "SELECT mapped_key, mapped_shard FROM collegedb.map_keys($1::pg_catalog.text,"
      " $2::pg_catalog.text, $3::pg_catalog.text[], $4::pg_catalog.text, $5::pg_catalog.text,"
      " $6::pg_catalog.int8)",
      {scope, group, array_text(keys), shard,
       strategy.empty() ? SqlParameter{} : SqlParameter{std::string(strategy)},
       std::to_string(generation)}));
}

std::vector<routing::Taker> read_takers(ControlSession& journal, const std::string& scope) {
  const Rows rows = journal.run_prepared(
      "SELECT s.shard, s.region, s.max_size > 0 AND coalesce(s.database_bytes, 0) >= s.max_size"
      " FROM (SELECT shards FROM collegedb.epochs WHERE scope = $1 AND state = 'active'"
      " ORDER BY id DESC LIMIT 1) AS e, pg_catalog.unnest(e.shards) WITH ORDINALITY AS u (shard, i)"
      " JOIN collegedb.shards s ON s.scope = $1 AND s.shard = u.shard ORDER BY u.i",
      {scope});
  std::vector<routing::Taker> out;
  for (int i = 0; i < rows.size(); ++i) {
    out.push_back(
        {.shard = rows.text(i, 0), .region = rows.text(i, 1), .full = rows.boolean(i, 2)});
  }
  return out;
}

std::uint64_t next_turn(ControlSession& journal, const std::string& scope,
                        const std::string& group) {
  const Rows rows = journal.run_prepared(
      "INSERT INTO collegedb.sequences AS s (scope, name, next_value)"
      " VALUES ($1, 'round-robin:' || $2::pg_catalog.text, 2) ON CONFLICT (scope, name)"
      " DO UPDATE SET next_value = s.next_value + 1 RETURNING next_value - 2",
      {scope, group});
  return static_cast<std::uint64_t>(rows.int8(0, 0));
}

}  // namespace collegedb::migration
