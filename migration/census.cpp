#include "migration/census.h"

#include <boost/unordered/unordered_flat_map.hpp>
#include <map>
#include <span>

#include "migration/mappings.h"

namespace collegedb::migration {
namespace {

constexpr std::size_t kBatch = 5000;

using Directory = boost::unordered_flat_map<std::string, std::string>;

std::string keys_of(const RegisteredTable& table) {
  return "(SELECT DISTINCT " + table.key_expression + " AS k FROM " + table.name.qualified + ")";
}

std::string listed(const std::vector<std::string>& keys) {
  std::string out;
  for (std::size_t i = 0; i < keys.size() && i < 5; ++i) {
    out += (i > 0 ? ", " : "") + keys[i];
  }
  return keys.size() > 5 ? out + ", ... (" + std::to_string(keys.size()) + " in all)" : out;
}

// Which of `keys` have a row in the table on this shard.
std::vector<std::string> present(ControlSession& session, const RegisteredTable& table,
                                 std::span<const std::string> keys) {
  std::vector<std::string> found;
  for (std::size_t at = 0; at < keys.size(); at += kBatch) {
    const auto batch = keys.subspan(at, std::min(kBatch, keys.size() - at));
    const Rows rows = session.run("SELECT s.k FROM " + keys_of(table) +
                                      " s JOIN pg_catalog.unnest($1::pg_catalog.text[]) u (k)"
                                      " ON s.k COLLATE \"C\" = u.k COLLATE \"C\"",
                                  {array_text(batch)});
    for (int i = 0; i < rows.size(); ++i) {
      found.push_back(rows.text(i, 0));
    }
  }
  return found;
}

// Keys on this shard whose computed owner is another one, through a cursor: their number is not
// bounded by memory of the server.
std::vector<std::string> strangers(ControlSession& session, const GroupPlacement& placement,
                                   const RegisteredTable& table) {
  session.run("DECLARE collegedb_census NO SCROLL CURSOR FOR SELECT k FROM " + keys_of(table) +
              " s WHERE collegedb.owner(" + quote_literal(array_text(placement.shards)) +
              "::pg_catalog.text[], k) <> " + quote_literal(session.shard()));
  std::vector<std::string> out;
  for (;;) {
    const Rows rows = session.run("FETCH " + std::to_string(kBatch) + " FROM collegedb_census");
    for (int i = 0; i < rows.size(); ++i) {
      out.push_back(rows.text(i, 0));
    }
    if (rows.empty()) {
      session.run("CLOSE collegedb_census");
      return out;
    }
  }
}

std::vector<std::string> misplaced_on(ControlSession& session, const GroupPlacement& placement,
                                      const Directory& directory, const RegisteredTable& table) {
  std::vector<std::string> out;
  for (std::string& key : strangers(session, placement, table)) {
    const auto found = directory.find(key);
    if (found == directory.end() || found->second != session.shard()) {
      out.push_back(std::move(key));
    }
  }
  // Keys the directory has elsewhere although this shard is their computed owner.
  std::vector<std::string> elsewhere;
  for (const auto& [key, shard] : placement.exceptions) {
    if (shard != session.shard()) {
      elsewhere.push_back(key);
    }
  }
  for (std::string& key : present(session, table, elsewhere)) {
    out.push_back(std::move(key));
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

Result<void> refuse_null_keys(ControlSession& session, const RegisteredTable& table) {
  const Rows rows = session.run("SELECT 1 FROM " + table.name.qualified + " WHERE " +
                                table.key_expression + " IS NULL LIMIT 1");
  if (rows.empty()) {
    return {};
  }
  return make_error("23502",
                    "table " + table.name.qualified + " has rows without a key on shard \"" +
                        session.shard() + "\"",
                    "Give " + table.key_column + " a value in every row first.");
}

// Keys of `found` that have rows of the group on a second shard.
std::vector<std::string> on_two_shards(
    Cluster& shards, const GroupPlacement& placement, const RegisteredTable& table,
    const std::map<std::string, std::vector<std::string>>& found) {
  std::vector<std::string> doubled;
  std::vector<RegisteredTable> tables = {table};
  for (const RegisteredTable& other : placement.tables) {
    if (!(other.name == table.name)) {
      tables.push_back(other);
    }
  }
  for (std::size_t i = 0; i < shards.size(); ++i) {
    for (const auto& [shard, keys] : found) {
      if (shard == shards[i].shard()) {
        continue;
      }
      for (const RegisteredTable& each : tables) {
        const auto more = present(shards[i], each, keys);
        doubled.insert(doubled.end(), more.begin(), more.end());
      }
    }
  }
  std::sort(doubled.begin(), doubled.end());
  doubled.erase(std::unique(doubled.begin(), doubled.end()), doubled.end());
  return doubled;
}

std::vector<std::string> with_tombstone(ControlSession& session, const GroupPlacement& placement,
                                        std::span<const std::string> keys) {
  std::vector<std::string> out;
  for (std::size_t at = 0; at < keys.size(); at += kBatch) {
    const Rows rows = session.run(
        "SELECT key FROM collegedb.retired WHERE scope = $1 AND grp = $2"
        " AND key = ANY ($3::pg_catalog.text[])",
        {placement.scope, placement.group,
         array_text(keys.subspan(at, std::min(kBatch, keys.size() - at)))});
    for (int i = 0; i < rows.size(); ++i) {
      out.push_back(rows.text(i, 0));
    }
  }
  return out;
}

// Keys with rows in the table here that the directory has on another shard: some of them.
std::vector<std::string> mapped_elsewhere(ControlSession& journal, ControlSession& session,
                                          const std::string& scope, const RegisteredTable& table) {
  std::vector<std::string> out;
  session.run("DECLARE collegedb_census NO SCROLL CURSOR FOR SELECT k FROM " + keys_of(table) +
              " s");
  for (;;) {
    const Rows rows = session.run("FETCH " + std::to_string(kBatch) + " FROM collegedb_census");
    std::vector<std::string> keys;
    for (int i = 0; i < rows.size(); ++i) keys.push_back(rows.text(i, 0));
    if (keys.empty() || !out.empty()) break;
    for (auto& [key, shard] : read_mappings(journal, scope, table.group, keys)) {
      if (shard != session.shard()) out.push_back(key);
    }
  }
  session.run("CLOSE collegedb_census");
  return out;
}

}  // namespace

Result<void> mapped_census(ControlSession& journal, Cluster& shards, const std::string& scope,
                           const RegisteredTable& table) {
  for (std::size_t i = 0; i < shards.size(); ++i) {
    if (auto refused = refuse_null_keys(shards[i], table); refused.has_error()) {
      return refused.error();
    }
    const auto astray = mapped_elsewhere(journal, shards[i], scope, table);
    if (astray.empty()) continue;
    return make_error("55000",
                      "table " + table.name.qualified + " has rows on shard \"" +
                          shards[i].shard() + "\" of keys that are mapped to other shards",
                      "Bring the rows of each key to the shard that collegedb_locate() names.",
                      "Keys: " + listed(astray) + ".");
  }
  return {};
}

Result<GroupPlacement> read_placement(ControlSession& journal, const std::string& scope,
                                      const std::string& group) {
  GroupPlacement placement;
  placement.scope = scope;
  placement.group = group;
  const Rows epochs = journal.run(
      "SELECT shards, algorithm = 'hrw' AND state = 'active' AND"
      " (weights IS NULL OR 1 = ALL (weights)) FROM collegedb.epochs WHERE scope = $1",
      {scope});
  if (epochs.size() != 1 || !epochs.boolean(0, 1)) {
    return make_error("0A000",
                      "existing rows can be placed only while there is one active epoch with "
                      "unweighted hrw placement");
  }
  placement.shards = epochs.array(0, 0);
  const Rows exceptions = journal.run(
      "SELECT key, shard FROM collegedb.exceptions WHERE scope = $1 AND grp = $2", {scope, group});
  for (int i = 0; i < exceptions.size(); ++i) {
    placement.exceptions.emplace_back(exceptions.text(i, 0), exceptions.text(i, 1));
  }
  for (RegisteredTable& table : read_registry(journal, scope)) {
    if (table.group == group && !table.key_type.empty()) {
      placement.tables.push_back(std::move(table));
    }
  }
  return placement;
}

Result<std::vector<MisplacedKey>> census(Cluster& shards, const GroupPlacement& placement,
                                         const RegisteredTable& table) {
  const Directory directory(placement.exceptions.begin(), placement.exceptions.end());
  std::map<std::string, std::vector<std::string>> found;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    if (auto refused = refuse_null_keys(shards[i], table); refused.has_error()) {
      return refused.error();
    }
    auto keys = misplaced_on(shards[i], placement, directory, table);
    if (!keys.empty()) {
      found.emplace(shards[i].shard(), std::move(keys));
    }
  }
  if (const auto doubled = on_two_shards(shards, placement, table, found); !doubled.empty()) {
    return make_error("55000", "keys of table " + table.name.qualified + " have rows on two shards",
                      "Bring the rows of each key together on one shard first.",
                      "Keys: " + listed(doubled) + ".");
  }
  std::vector<MisplacedKey> out;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const auto keys = found.find(shards[i].shard());
    if (keys == found.end()) {
      continue;
    }
    if (const auto gone = with_tombstone(shards[i], placement, keys->second); !gone.empty()) {
      return make_error("55000",
                        "table " + table.name.qualified + " has rows on shard \"" +
                            shards[i].shard() + "\" of keys that have moved away from there",
                        "Remove these rows, or insert them through the proxy.",
                        "Keys: " + listed(gone) + ".");
    }
    for (const std::string& key : keys->second) {
      out.push_back({key, shards[i].shard()});
    }
  }
  return out;
}

}  // namespace collegedb::migration
