#include "migration/directory_entries.h"

#include <utility>

#include "proxy/session/guard.h"

namespace collegedb::migration {

DirectoryView::DirectoryView(ControlSession& journal, std::string scope, std::string group)
    : scope_(std::move(scope)), group_(std::move(group)), epochs_(routing::Snapshot{}) {
  read_again(journal);
}

void DirectoryView::read_again(ControlSession& journal) {
  const Rows manifest = journal.run(
      "SELECT generation, placement = 'mapped' FROM collegedb.manifest WHERE scope = $1", {scope_});
  if (manifest.empty()) {
    throw SqlFailure(
        make_error("55000", "scope \"" + scope_ + "\" has no manifest", "Run collegedb init."),
        journal.shard());
  }
  generation_ = manifest.int8(0, 0);
  mapped_ = manifest.boolean(0, 1);
  epochs_ = read_epochs(journal, scope_);
  if (epochs_.empty()) {
    throw SqlFailure(make_error(ErrorCode::kPlacementUnverified, "no epoch is active"),
                     journal.shard());
  }
}

// Key by key: a plan that reads all entries of the group would be right only for a small directory.
std::vector<std::optional<std::string>> DirectoryView::entries(
    ControlSession& journal, std::span<const std::string> keys) const {
  const std::string from =
      mapped_ ? "collegedb.mappings WHERE " : "collegedb.exceptions WHERE kind = 'move' AND ";
  const Rows rows = journal.run(
      "SELECT (SELECT shard FROM " + from +
          "scope = $1 AND grp = $2 AND key = u.k)"
          " FROM pg_catalog.unnest($3::pg_catalog.text[]) WITH ORDINALITY u (k, i) ORDER BY u.i",
      {scope_, group_, array_text(keys)});
  std::vector<std::optional<std::string>> out;
  for (int i = 0; i < rows.size(); ++i) out.push_back(rows.value(i, 0));
  return out;
}

std::vector<std::string> DirectoryView::enter(ControlSession& journal,
                                              std::span<const std::string> keys,
                                              const std::string& shard) const {
  // Exceptions of kind epoch-hit are memories, which an authoritative one replaces.
  const Rows rows =
      mapped_
          ? journal.run(
                "SELECT mapped_key FROM collegedb.map_keys($1, $2,"
                " $3::pg_catalog.text[], $4, NULL, $5::pg_catalog.int8)"
                " WHERE mapped_shard <> $4",
                {scope_, group_, array_text(keys), shard, std::to_string(generation_)})
          : journal.run(
                "WITH v AS (SELECT exception_version + 1 AS next FROM collegedb.manifest"
                " WHERE scope = $1), e AS ("
                "INSERT INTO collegedb.exceptions AS e (scope, grp, key, shard, kind, version)"
                " SELECT $1, $2, k, $4, 'move', v.next FROM v,"
                " pg_catalog.unnest($3::pg_catalog.text[]) k"
                " ON CONFLICT (scope, grp, key) DO UPDATE SET shard = excluded.shard,"
                " kind = excluded.kind, version = excluded.version,"
                " updated_at = pg_catalog.clock_timestamp() WHERE e.kind <> 'move' RETURNING key)"
                " SELECT k FROM pg_catalog.unnest($3::pg_catalog.text[]) k"
                " WHERE k NOT IN (SELECT key FROM e)",
                {scope_, group_, array_text(keys), shard});
  std::vector<std::string> out;
  for (int i = 0; i < rows.size(); ++i) out.push_back(rows.text(i, 0));
  return out;
}

void DirectoryView::announce(ControlSession& journal, bool entered) const {
  journal.run(
      "UPDATE collegedb.manifest SET exception_version = exception_version + 1 WHERE scope = $1"
      " AND ($3::pg_catalog.bool OR exception_version < (SELECT max(version)"
      " FROM collegedb.exceptions WHERE scope = $1 AND grp = $2))",
      {scope_, group_, entered ? "t" : "f"});
}

SqlError directory_error(const SqlFailure& failure) {
  SqlError error = failure.error();
  if (error.sqlstate == session::guard::kStale) {
    return make_error(ErrorCode::kStaleTopology, "the topology is changing", "Try again.");
  }
  if (error.detail.empty() && !failure.shard().empty()) {
    error.detail = "On shard \"" + failure.shard() + "\".";
  }
  return error;
}

}  // namespace collegedb::migration
