// What a shard shows of an operation or a key, for recovery and for whoever looks for a key.
#include <algorithm>

#include "migration/pg_shard.h"

namespace collegedb::migration {

std::vector<std::string> PgShard::halves(const Unit& unit) {
  const std::string head = "collegedb:" + unit.scope + ":" + unit.op + ":";
  const Rows rows =
      run("SELECT gid FROM pg_prepared_xacts WHERE database = current_database()"
          " AND starts_with(gid, $1)",
          {head});
  std::vector<std::string> out;
  for (int i = 0; i < rows.size(); ++i) out.push_back(rows.text(i, 0));
  return out;
}

void PgShard::rollback_prepared(const std::string& gid) {
  try {
    session().run("ROLLBACK PREPARED " + quote_literal(gid));
  } catch (const SqlFailure& failure) {
    if (failure.error().sqlstate != "42704") throw StepFailure(Event::kLost, failure.error());
  }
}

void PgShard::rollback_halves(const Unit& unit, std::int32_t attempt) {
  for (const std::string& gid : halves(unit)) {
    if (attempt_of(unit, gid) <= attempt) rollback_prepared(gid);
  }
}

SideEvidence PgShard::inspect(const Unit& unit, std::int32_t attempt, Side side,
                              const Digest& expected) {
  SideEvidence out;
  const std::string current = gid_of(unit, attempt, side);
  for (const std::string& gid : halves(unit)) out.prepared = out.prepared || gid == current;
  const Rows seen =
      run("SELECT (SELECT count(*) FROM collegedb.incoming WHERE op = $1) > 0,"
          " (SELECT count(*) FROM collegedb.retired WHERE op = $1) > 0,"
          " EXISTS (SELECT 1 FROM collegedb.archive WHERE op = $1)",
          {unit.op});
  out.marker = seen.boolean(0, 0);
  out.tombstone = seen.boolean(0, 1);
  out.archive = seen.boolean(0, 2);
  const GroupCatalog catalog = describe(unit);
  if (!catalog.problems.empty()) {
    throw StepFailure(Event::kLost,
                      make_error(catalog.problems.front().code, catalog.problems.front().text));
  }
  adopt(std::make_shared<const MovePlan>(plan_of(unit, catalog)));
  const Digest found = digest();
  if (found == expected) {
    out.rows = Found::kEqual;
  } else {
    out.rows = found.rows > 0 ? Found::kDifferent : Found::kNone;
  }
  return out;
}

// One snapshot: a cutover that commits between two looks would show neither tombstone nor rows.
PgShard::KeyState PgShard::locate(const Unit& unit) {
  adopt(std::make_shared<const MovePlan>(plan_of(unit, describe(unit))));
  run("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY");
  KeyState out;
  const Rows tombstone =
      run("SELECT moved_to, op FROM collegedb.retired WHERE scope = $1 AND grp = $2"
          " AND key = ANY ($3::text[]) LIMIT 1",
          {unit.scope, unit.group, array_text(unit.keys)});
  if (!tombstone.empty()) {
    out.moved_to = tombstone.text(0, 0);
    out.op = tombstone.text(0, 1);
  }
  out.rows = count_rows();
  run("COMMIT");
  return out;
}

}  // namespace collegedb::migration
