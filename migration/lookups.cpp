#include "migration/lookups.h"

#include <algorithm>

namespace collegedb::migration {
namespace {

[[noreturn]] void refuse(const ControlSession& journal, std::string_view sqlstate,
                         std::string message, std::string detail = {}) {
  throw SqlFailure(make_error(sqlstate, std::move(message), {}, std::move(detail)),
                   journal.shard());
}

// The names, each once, sorted.
std::vector<std::string> parsed(ControlSession& journal, const std::string& names) {
  const Rows rows =
      journal.run("SELECT u FROM pg_catalog.unnest($1::pg_catalog.text[]) u", {names});
  std::vector<std::string> out;
  for (int i = 0; i < rows.size(); ++i) {
    if (rows.null(i, 0)) refuse(journal, "22004", "a lookup name must not be null");
    out.push_back(rows.text(i, 0));
    if (out.back().empty()) refuse(journal, "22023", "a lookup name must not be empty");
    if (out.back().size() > kLongestLookup) {
      refuse(journal, "22001",
             "a lookup name must not be longer than " + std::to_string(kLongestLookup) + " bytes",
             "Name: " + out.back().substr(0, 60) + "...");
    }
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

}  // namespace

LookupChange add_lookups(ControlSession& journal, const std::string& scope,
                         const std::string& group, const std::string& key,
                         const std::string& names) {
  const std::vector<std::string> wanted = parsed(journal, names);
  Transaction transaction(journal);
  LookupChange out;
  // In one order everywhere: whoever adds the same names waits, and does not deadlock.
  out.changed = journal
                    .run(
                        "INSERT INTO collegedb.lookups (scope, grp, lookup, key)"
                        " SELECT $1, $2, u, $3 FROM pg_catalog.unnest($4::pg_catalog.text[]) u"
                        " ORDER BY u COLLATE \"C\" ON CONFLICT DO NOTHING",
                        {scope, group, key, array_text(wanted)})
                    .affected();
  const Rows taken = journal.run(
      "SELECT lookup, key FROM collegedb.lookups WHERE scope = $1 AND grp = $2"
      " AND lookup = ANY ($4::pg_catalog.text[]) AND key <> $3 ORDER BY lookup LIMIT 1",
      {scope, group, key, array_text(wanted)});
  if (!taken.empty()) {
    refuse(journal, "23505",
           "lookup name \"" + taken.text(0, 0) + "\" of group " + group + " belongs to another key",
           "Key: " + taken.text(0, 1) + ".");
  }
  out.names = lookups_of(journal, scope, group, key);
  if (!std::includes(out.names.begin(), out.names.end(), wanted.begin(), wanted.end())) {
    refuse(journal, "40001", "lookup names of group " + group + " were removed meanwhile");
  }
  transaction.commit();
  return out;
}

LookupChange remove_lookups(ControlSession& journal, const std::string& scope,
                            const std::string& group, const std::string& key,
                            const std::string& names) {
  const std::string wanted = array_text(parsed(journal, names));
  Transaction transaction(journal);
  LookupChange out;
  out.changed = journal
                    .run(
                        "DELETE FROM collegedb.lookups WHERE scope = $1 AND grp = $2"
                        " AND key = $3 AND lookup = ANY ($4::pg_catalog.text[])",
                        {scope, group, key, wanted})
                    .affected();
  out.names = lookups_of(journal, scope, group, key);
  transaction.commit();
  return out;
}

std::vector<std::string> lookups_of(ControlSession& journal, const std::string& scope,
                                    const std::string& group, const std::string& key) {
  const Rows rows = journal.run(
      "SELECT lookup FROM collegedb.lookups WHERE scope = $1 AND grp = $2 AND key = $3"
      " ORDER BY lookup COLLATE \"C\"",
      {scope, group, key});
  std::vector<std::string> out;
  for (int i = 0; i < rows.size(); ++i) out.push_back(rows.text(i, 0));
  return out;
}

std::optional<std::string> key_with_lookup(ControlSession& journal, const std::string& scope,
                                           const std::string& group, const std::string& name) {
  const Rows rows =
      journal.run("SELECT key FROM collegedb.lookups WHERE scope = $1 AND grp = $2 AND lookup = $3",
                  {scope, group, name});
  return rows.empty() ? std::nullopt : std::optional(rows.text(0, 0));
}

}  // namespace collegedb::migration
