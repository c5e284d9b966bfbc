// The journal's part in the directory: exceptions under computed placement, mappings under mapped.
#include <utility>

#include "migration/journal.h"
#include "migration/mappings.h"
#include "migration/placed_epochs.h"

namespace collegedb::migration {

Directory PgJournal::directory(const std::string& group, const std::string& key) {
  Directory out;
  const Rows tables =
      run("SELECT schema_name, table_name, key_column FROM collegedb.tables WHERE scope = $1"
          " AND grp = $2 AND kind = 'sharded' ORDER BY schema_name COLLATE \"C\","
          " table_name COLLATE \"C\"",
          {scope_, group});
  for (int i = 0; i < tables.size(); ++i) {
    out.tables.push_back({tables.text(i, 0), tables.text(i, 1), tables.text(i, 2)});
  }
  out.mapped = is_mapped();
  const Rows entry =
      run("SELECT shard FROM collegedb." + std::string(out.mapped ? "mappings" : "exceptions") +
              " WHERE scope = $1 AND grp = $2 AND key = $3",
          {scope_, group, key});
  if (!entry.empty()) out.entry = entry.text(0, 0);
  return out;
}

std::map<std::string, std::string> PgJournal::mappings(const std::string& group,
                                                       const std::vector<std::string>& keys) {
  try {
    return read_mappings(*session_, scope_, group, keys);
  } catch (const SqlFailure& failure) {
    throw StepFailure(Event::kLost, failure.error());
  }
}

bool PgJournal::is_mapped() {
  if (!mapped_) {
    mapped_ =
        !run("SELECT 1 FROM collegedb.manifest WHERE scope = $1 AND placement = 'mapped'", {scope_})
             .empty();
  }
  return *mapped_;
}

// Key by key: a plan that reads all entries of the group would be right only for a small directory.
std::vector<std::string> PgJournal::entries(const std::string& group,
                                            const std::vector<std::string>& keys,
                                            std::string_view condition) {
  const Rows rows =
      run("SELECT e.key FROM unnest($3::text[]) AS k CROSS JOIN LATERAL"
          " (SELECT key, kind FROM collegedb.exceptions"
          " WHERE scope = $1 AND grp = $2 AND key = k LIMIT 1) AS e WHERE " +
              std::string(condition),
          {scope_, group, array_text(keys)});
  std::vector<std::string> out;
  for (int i = 0; i < rows.size(); ++i) out.push_back(rows.text(i, 0));
  return out;
}

std::vector<std::string> PgJournal::unmapped(const Unit& unit) {
  std::vector<std::string> out;
  if (!is_mapped()) return out;
  const auto there = mappings(unit.group, unit.keys);
  for (const std::string& key : unit.keys) {
    if (!there.contains(key)) out.push_back(key);
  }
  return out;
}

std::vector<std::string> PgJournal::pinned(const std::string& group,
                                           const std::vector<std::string>& keys,
                                           const std::string& shard) {
  if (!is_mapped()) return entries(group, keys, "e.kind = 'move'");
  std::vector<std::string> out;
  for (const auto& [key, home] : mappings(group, keys)) {
    if (home != shard) out.push_back(key);
  }
  return out;
}

// What placement says anyway gets no entry. For an operator's move that is the newest active epoch
// alone: a key that was put on a shard of an older one stays there. A rebalance puts keys where
// some epoch has them, and an entry would keep the next rebalance away.
// Without any change of entries no version is raised: during a rebalance every process would load
// its directory many times a second to find it as it was.
void PgJournal::write_exceptions(const MoveRecord& record) {
  const Unit& unit = record.unit;
  std::vector<std::string> home;
  std::vector<std::string> away;
  const auto sort_out = [&] {
    const PlacedEpochs epochs = read_epochs(*session_, scope_);
    home.clear();
    away.clear();
    for (const std::string& key : unit.keys) {
      const bool placed = epochs.places(key, unit.destination, !record.rebalance.empty());
      (placed ? home : away).push_back(key);
    }
  };
  sort_out();
  if (away.empty() && entries(unit.group, home, "true").empty()) return;
  const Rows manifest =
      run("UPDATE collegedb.manifest SET exception_version = exception_version + 1"
          " WHERE scope = $1 RETURNING exception_version",
          {scope_});
  if (manifest.empty()) fenced(record);
  // Once more: from here on the manifest cannot change.
  sort_out();
  if (const auto old = entries(unit.group, home, "true"); !old.empty()) {
    run("DELETE FROM collegedb.exceptions WHERE scope = $1 AND grp = $2 AND key = ANY ($3::text[])",
        {scope_, unit.group, array_text(old)});
  }
  run("INSERT INTO collegedb.exceptions (scope, grp, key, shard, kind, version)"
      " SELECT $1, $2, k, $4, 'move', $5::bigint FROM unnest($3::text[]) AS k"
      " ON CONFLICT (scope, grp, key) DO UPDATE"
      " SET shard = excluded.shard, kind = 'move', version = excluded.version,"
      " updated_at = clock_timestamp()",
      {scope_, unit.group, array_text(away), unit.destination, manifest.text(0, 0)});
}

// No version is raised: nobody holds mappings for longer than tombstones lead on from them.
void PgJournal::write_mappings(const Unit& unit) {
  run("INSERT INTO collegedb.mappings (scope, grp, key, shard) SELECT $1, $2, k, $4"
      " FROM unnest($3::text[]) AS k ORDER BY k COLLATE \"C\" ON CONFLICT (scope, grp, key)"
      " DO UPDATE SET shard = excluded.shard, updated_at = clock_timestamp()",
      {scope_, unit.group, array_text(unit.keys), unit.destination});
}

// With the claims in, nobody else changes the mappings of these keys.
void PgJournal::require_mappings(const Unit& unit) {
  const auto there = mappings(unit.group, unit.keys);
  for (const std::string& key : unit.keys) {
    const auto found = there.find(key);
    if (found != there.end() && found->second == unit.source) continue;
    unlock(unit.op);
    throw StepFailure(
        Event::kRefused,
        found == there.end()
            ? make_error(ErrorCode::kMappingNotFound, "key " + key + " has no mapping")
            : make_error(ErrorCode::kMoveRefused, "key " + key + " is mapped to shard \"" +
                                                      found->second + "\", not to shard \"" +
                                                      unit.source + "\""));
  }
}

}  // namespace collegedb::migration
