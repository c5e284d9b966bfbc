#include "migration/held_keys.h"

#include <utility>

namespace collegedb::migration {
namespace {

SqlError not_now() {
  return make_error("55006",
                    "tables are being registered or epochs dropped; the directory stays as it is "
                    "meanwhile",
                    "Try again when that has ended and collegedb.prunes is empty.");
}

}  // namespace

HeldKeys::HeldKeys(ControlSession& journal, std::string scope, std::string group,
                   std::span<const std::string> keys)
    : journal_(journal), scope_(std::move(scope)) {
  op_ = journal_.run("SELECT 'held:' || pg_catalog.gen_random_uuid()").text(0, 0);
  const std::string all = array_text(keys);
  const Rows refused = claim(group, all);
  for (int i = 0; i < refused.size(); ++i) moving_.emplace(refused.text(i, 0), "");
  if (!moving_.empty()) {
    for (auto& [key, op] : keys_being_moved(journal_, scope_, group, keys)) {
      if (op != op_) moving_[key] = std::move(op);
    }
  }
  if (!journal_.run("SELECT 1 FROM collegedb.prunes WHERE scope = $1", {scope_}).empty()) {
    throw SqlFailure(not_now(), journal_.shard());
  }
}

// Returns the keys that somebody else has claimed.
Rows HeldKeys::claim(const std::string& group, const std::string& keys) {
  try {
    // In the order in which moves claim theirs, so that the two do not deadlock.
    return journal_.run(
        "WITH held AS (INSERT INTO collegedb.claims (scope, grp, key, op) SELECT $1, $2, k, $4"
        " FROM pg_catalog.unnest($3::pg_catalog.text[]) k ORDER BY k ON CONFLICT DO NOTHING"
        " RETURNING key) SELECT k FROM pg_catalog.unnest($3::pg_catalog.text[]) k"
        " WHERE k NOT IN (SELECT key FROM held)",
        {scope_, group, keys, op_});
  } catch (const SqlFailure& failure) {
    if (failure.error().sqlstate != "55P03") throw;
    throw SqlFailure(not_now(), journal_.shard());
  }
}

void HeldKeys::release() {
  journal_.run("DELETE FROM collegedb.claims WHERE op = $1", {op_});
}

std::map<std::string, std::string> keys_being_moved(ControlSession& journal,
                                                    const std::string& scope,
                                                    const std::string& group,
                                                    std::span<const std::string> keys) {
  const Rows rows = journal.run(
      "SELECT u.k, c.op FROM pg_catalog.unnest($3::pg_catalog.text[]) u (k)"
      " JOIN collegedb.claims c ON c.scope = $1 AND c.grp = $2 AND c.key = u.k",
      {scope, group, array_text(keys)});
  std::map<std::string, std::string> out;
  for (int i = 0; i < rows.size(); ++i) out.emplace(rows.text(i, 0), rows.text(i, 1));
  return out;
}

}  // namespace collegedb::migration
