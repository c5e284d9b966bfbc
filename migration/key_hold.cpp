#include "migration/key_hold.h"

#include <exception>

namespace collegedb::migration {
namespace {

constexpr std::string_view kPatience = "2000";  // ms, for claims that come or go just now

}  // namespace

std::string_view newest_sql() {
  return "NOT EXISTS (SELECT 1 FROM collegedb.move_keys mine JOIN collegedb.move_keys other"
         " ON other.scope = mine.scope AND other.grp = mine.grp AND other.key = mine.key"
         " JOIN collegedb.moves newer ON newer.op = other.op WHERE mine.op = m.op"
         " AND other.op <> m.op AND newer.started_at >= m.started_at)";
}

KeyHold::KeyHold(ControlSession& journal, const std::string& scope, const std::string& group,
                 const std::vector<std::string>& keys)
    : journal_(journal) {
  journal_.run("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE");
  try {
    journal_.run("SELECT set_config('lock_timeout', $1, true)", {std::string(kPatience)});
    name_ = journal_.run("SELECT 'hold ' || gen_random_uuid()").text(0, 0);
    // In key order, as moves claim them.
    const Rows mine = journal_.run(
        "INSERT INTO collegedb.claims (scope, grp, key, op) SELECT $1, $2, k, $4"
        " FROM unnest($3::text[]) AS k ORDER BY k ON CONFLICT DO NOTHING",
        {scope, group, array_text(keys), name_});
    // After the claims, as moves do: whoever drops epochs looks at claims first.
    taken_ = mine.affected() == static_cast<std::int64_t>(keys.size()) &&
             journal_.run("SELECT 1 FROM collegedb.prunes WHERE scope = $1", {scope}).empty();
  } catch (const SqlFailure& failure) {
    if (failure.error().sqlstate != "55P03") {
      if (journal_.alive()) journal_.run("ROLLBACK");
      throw;
    }
  }
}

KeyHold::~KeyHold() {
  if (!open_ || !journal_.alive()) return;
  try {
    journal_.run("ROLLBACK");
  } catch (const std::exception&) {
    // The session is gone, and the claims with it.
  }
}

bool KeyHold::is_newest(const std::string& op) {
  return !journal_
              .run("SELECT 1 FROM collegedb.moves m WHERE m.op = $1 AND " +
                       std::string(newest_sql()),
                   {op})
              .empty();
}

bool KeyHold::keep_archive(const std::string& op) {
  return !journal_
              .run("SELECT 1 FROM collegedb.moves WHERE op = $1 AND purging_at IS NULL FOR UPDATE",
                   {op})
              .empty();
}

void KeyHold::release(const std::string& op, const std::string& note) {
  journal_.run("DELETE FROM collegedb.claims WHERE op = $1", {name_});
  journal_.run(
      "INSERT INTO collegedb.move_history (op, state, attempt, token, note)"
      " SELECT op, state, attempt, token, $2 FROM collegedb.moves WHERE op = $1",
      {op, note});
  open_ = false;
  journal_.run("COMMIT");
}

}  // namespace collegedb::migration
