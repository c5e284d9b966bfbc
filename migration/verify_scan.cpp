#include "migration/verify_scan.h"

#include <algorithm>
#include <map>
#include <thread>

#include "migration/group_catalog.h"
#include "migration/key_hold.h"
#include "migration/operation.h"

namespace collegedb::migration {
namespace {

constexpr int kTombstonePage = 2000;
constexpr int kOperationPage = 500;

// State of each operation that the journal has. REQUIRES: what is compared with it was read before.
std::map<std::string, State> states_of(ControlSession& journal, const std::string& scope,
                                       const std::vector<std::string>& ops) {
  const Rows rows = journal.run(
      "SELECT op, state FROM collegedb.moves WHERE scope = $1 AND op = ANY ($2::text[])",
      {scope, array_text(ops)});
  std::map<std::string, State> out;
  for (int i = 0; i < rows.size(); ++i) {
    if (const auto state = state_from(rows.view(i, 1))) out.emplace(rows.text(i, 0), *state);
  }
  return out;
}

// Operation of a gid of ours, empty for any other: "collegedb:<scope>:<op>:<attempt>:src".
std::string op_of(const std::string& scope, std::string_view gid) {
  const std::string head = "collegedb:" + scope + ":";
  if (!gid.starts_with(head) || !(gid.ends_with(":src") || gid.ends_with(":dst"))) return {};
  gid.remove_prefix(head.size());
  return std::string(gid.substr(0, gid.find(':')));
}

}  // namespace

GroupTables read_group_tables(ControlSession& journal, const std::string& scope) {
  GroupTables out;
  for (const RegisteredTable& table : read_registry(journal, scope)) {
    // One that does not exist yet has no rows.
    if (table.kind != "sharded" || table.key_type.empty()) continue;
    out[table.group].push_back({table.name.schema, table.name.name, table.key_column});
  }
  return out;
}

// A mover holds its lock from before its operation can be seen until after it is final. An
// operation that is not final in a later snapshot than the one in which nobody held its lock has
// nobody.
void find_dangling(const RunnerOptions& options, ControlSession& journal, const FindingSink& sink) {
  const auto moves = open_journal(options);
  const std::vector<std::string> ops = moves->orphaned_operations();
  for (const auto& [op, state] : states_of(journal, options.scope, ops)) {
    if (is_final(state)) continue;
    const auto record = moves->load(op);
    if (!record) continue;
    sink({.kind = FindingKind::kDanglingOp,
          .what = "operation",
          .op = op,
          .shard = record->unit.source,
          .group = record->unit.group,
          .key = record->unit.keys.front(),
          .reason = "state " + std::string(name_of(state)) + ", and no mover has it"});
  }
  const Rows claims = journal.run(
      "SELECT op, min(grp), min(key) FROM collegedb.claims c WHERE scope = $1 AND NOT EXISTS"
      " (SELECT 1 FROM collegedb.moves m WHERE m.op = c.op AND m.state NOT IN ('retired', "
      "'aborted'))"
      " GROUP BY op ORDER BY op",
      {options.scope});
  for (int i = 0; i < claims.size(); ++i) {
    sink({.kind = FindingKind::kDanglingOp,
          .what = "claim",
          .op = claims.text(i, 0),
          .group = claims.text(i, 1),
          .key = claims.text(i, 2),
          .reason = "the claim belongs to no operation under way"});
  }
}

ShardScan::ShardScan(const RunnerOptions& options, ControlSession& journal, ControlSession& shard,
                     const FindingSink& sink)
    : options_(options),
      journal_(journal),
      shard_(shard),
      sink_(sink),
      tables_(read_group_tables(journal, options.scope)) {}

void ShardScan::run() {
  prepared_halves();
  fences();
  tombstones();
  operations_of("tombstone",
                "SELECT op, min(grp), min(key) FROM collegedb.retired WHERE op > $1"
                " AND op NOT LIKE 'epoch:%' GROUP BY op ORDER BY op LIMIT ");
  operations_of("archive",
                "WITH RECURSIVE o AS ((SELECT op FROM collegedb.archive WHERE op > $1 ORDER BY op"
                " LIMIT 1) UNION ALL SELECT (SELECT a.op FROM collegedb.archive a WHERE a.op > o.op"
                " ORDER BY a.op LIMIT 1) FROM o WHERE o.op IS NOT NULL)"
                " SELECT op, '', '' FROM o WHERE op IS NOT NULL LIMIT ");
}

// Nobody prepares a half of an operation that is final: one that is there after that was known is
// left over. Of an operation under way, its mover or recovery takes care.
void ShardScan::prepared_halves() {
  const std::string sql =
      "SELECT gid FROM pg_prepared_xacts WHERE database = current_database()"
      " AND starts_with(gid, $1) ORDER BY gid";
  const std::string head = "collegedb:" + options_.scope + ":";
  const Rows before = shard_.run(sql, {head});
  std::vector<std::string> ops;
  for (int i = 0; i < before.size(); ++i) {
    if (std::string op = op_of(options_.scope, before.view(i, 0)); !op.empty()) ops.push_back(op);
  }
  if (ops.empty()) return;
  const auto states = states_of(journal_, options_.scope, ops);
  const Rows still = shard_.run(sql, {head});
  for (int i = 0; i < still.size(); ++i) {
    const std::string op = op_of(options_.scope, still.view(i, 0));
    // One that has come since the first look is looked at by the next verification.
    if (std::find(ops.begin(), ops.end(), op) == ops.end()) continue;
    const auto state = states.find(op);
    if (state != states.end() && !is_final(state->second)) continue;
    sink_({.kind = FindingKind::kStrandedCopy,
           .what = "prepared",
           .op = op,
           .shard = shard_.shard(),
           .object = still.text(i, 0),
           .reason = state == states.end()
                         ? "the journal has no such operation"
                         : "the operation has ended " + std::string(name_of(state->second))});
  }
}

// A schema change reaches the shards one after another, the registry among them.
bool ShardScan::stays_open(const RegisteredTable& table) {
  for (int looks = 0; looks < 10; ++looks) {
    if (is_fenced(shard_, options_.scope, table)) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  return true;
}

void ShardScan::fences() {
  for (const RegisteredTable& table : read_registry(journal_, options_.scope)) {
    if (table.kind != "sharded" || table.key_type.empty() || !stays_open(table)) continue;
    sink_({.kind = FindingKind::kGhost,
           .what = "fence",
           .shard = shard_.shard(),
           .group = table.group,
           .object = table.name.qualified,
           .reason = "the table or a partition lacks its insert fence: whoever writes past the "
                     "proxy can bring rows of moved keys back"});
  }
}

// A move takes rows and leaves the tombstone in one transaction, and brings rows and removes the
// tombstone in one: no snapshot shows both.
void ShardScan::tombstones() {
  std::string group;
  std::string key;
  for (;;) {
    Transaction snapshot(shard_, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY");
    const Rows rows = shard_.run(
        "SELECT grp, key, op FROM collegedb.retired WHERE scope = $1 AND (grp, key) > ($2, $3)"
        " ORDER BY grp, key LIMIT " +
            std::to_string(kTombstonePage),
        {options_.scope, group, key});
    std::map<std::string, std::vector<Tombstone>> page;
    for (int i = 0; i < rows.size(); ++i) {
      page[rows.text(i, 0)].push_back({rows.text(i, 1), rows.text(i, 2)});
    }
    for (const auto& [each, stones] : page) ghosts(each, stones);
    snapshot.commit();
    if (rows.size() < kTombstonePage) return;
    group = rows.text(rows.size() - 1, 0);
    key = rows.text(rows.size() - 1, 1);
  }
}

const std::optional<GroupCatalog>& ShardScan::catalog_of(const std::string& group) {
  const auto found = catalogs_.find(group);
  if (found != catalogs_.end()) return found->second;
  std::optional<GroupCatalog>& out = catalogs_[group];
  GroupCatalog catalog = read_catalog(shard_, {.group = group, .tables = tables_.at(group)});
  if (catalog.problems.empty()) {
    out = std::move(catalog);
    return out;
  }
  sink_({.kind = FindingKind::kGhost,
         .what = "unexamined",
         .shard = shard_.shard(),
         .group = group,
         .reason = catalog.problems.front().text});
  return out;
}

void ShardScan::ghosts(const std::string& group, const std::vector<Tombstone>& page) {
  // Of a group that is not registered any more no table is looked for.
  if (!tables_.contains(group)) return;
  const std::optional<GroupCatalog>& catalog = catalog_of(group);
  if (!catalog) return;
  Unit unit{.scope = options_.scope, .group = group, .tables = tables_.at(group)};
  for (const Tombstone& stone : page) unit.keys.push_back(stone.key);
  const std::vector<std::string> present = keys_present(shard_, plan_of(unit, *catalog));
  for (const Tombstone& stone : page) {
    if (!std::binary_search(present.begin(), present.end(), stone.key)) continue;
    sink_({.kind = FindingKind::kGhost,
           .what = "rows",
           .op = stone.op,
           .shard = shard_.shard(),
           .group = group,
           .key = stone.key,
           .reason = "the key has moved away from here, and rows of it are here"});
  }
}

// Each page is read before the journal is asked, which knows of an operation before a shard does
// and never forgets one.
void ShardScan::operations_of(std::string_view what, const std::string& page_sql) {
  std::string after;
  for (;;) {
    const Rows rows = shard_.run(page_sql + std::to_string(kOperationPage), {after});
    std::vector<std::string> ops;
    for (int i = 0; i < rows.size(); ++i) ops.push_back(rows.text(i, 0));
    const auto states = states_of(journal_, options_.scope, ops);
    for (int i = 0; i < rows.size(); ++i) {
      const auto state = states.find(rows.text(i, 0));
      const bool known = state != states.end();
      if (known && state->second != State::kAborted) continue;
      VerifyFinding finding{.kind = FindingKind::kStrandedArchive,
                            .what = what,
                            .op = rows.text(i, 0),
                            .shard = shard_.shard(),
                            .group = rows.text(i, 1),
                            .key = rows.text(i, 2),
                            .reason = "the journal has no such operation"};
      if (known && what == "tombstone") {
        finding.kind = FindingKind::kStaleCutover;
        finding.what = "cutover";
        finding.reason = "the journal says that the operation was aborted";
      } else if (known) {
        // With its tombstone it is a stale cutover.
        if (!shard_.run("SELECT 1 FROM collegedb.retired WHERE op = $1 LIMIT 1", {finding.op})
                 .empty()) {
          continue;
        }
        finding.reason = "the operation was aborted, and its tombstone is gone";
      }
      sink_(std::move(finding));
    }
    if (rows.size() < kOperationPage) return;
    after = ops.back();
  }
}

namespace {

// Plans by the catalogs of the destinations, each read once.
class Plans {
 public:
  explicit Plans(const FindingSink& sink) : sink_(sink) {}

  // nullopt, and a finding, when the tables cannot be looked at.
  std::optional<MovePlan> of(ControlSession& shard, const Unit& unit) {
    const auto [found, is_new] = catalogs_.try_emplace({shard.shard(), unit.group});
    if (is_new) found->second = read_catalog(shard, unit);
    const GroupCatalog& catalog = found->second;
    if (catalog.problems.empty()) return plan_of(unit, catalog);
    if (is_new) {
      sink_({.kind = FindingKind::kGhost,
             .what = "unexamined",
             .shard = shard.shard(),
             .group = unit.group,
             .reason = catalog.problems.front().text});
    }
    return std::nullopt;
  }

 private:
  const FindingSink& sink_;
  std::map<std::pair<std::string, std::string>, GroupCatalog> catalogs_;
};

bool is_newest(ControlSession& journal, const std::string& op) {
  return !journal
              .run("SELECT 1 FROM collegedb.moves m WHERE m.op = $1 AND " +
                       std::string(newest_sql()),
                   {op})
              .empty();
}

// Where the keys may have come to the destination in another way than by this move, the source has
// a tombstone. The order matters: rows first, then the tombstone, then the journal.
bool is_left_over(ControlSession& journal, ControlSession& source, ControlSession& destination,
                  const MovePlan& plan, const MoveRecord& record) {
  if (!equals_journaled(destination, plan, record.digest)) return false;
  const Unit& unit = record.unit;
  return source
             .run(
                 "SELECT 1 FROM collegedb.retired WHERE scope = $1 AND grp = $2"
                 " AND key = ANY ($3::text[]) LIMIT 1",
                 {unit.scope, unit.group, array_text(unit.keys)})
             .empty() &&
         is_newest(journal, unit.op);
}

}  // namespace

// Only the newest operation of its keys: rows of a later one look the same. That is asked again
// after the look, since a later one may have begun meanwhile.
void find_stranded_copies(const RunnerOptions& options, ControlSession& journal,
                          const std::function<ControlSession*(const std::string&)>& session_of,
                          const FindingSink& sink) {
  const auto moves = open_journal(options);
  const std::string candidates =
      "SELECT m.op, m.source, m.destination FROM collegedb.moves m WHERE m.scope = $1"
      " AND m.state = 'aborted' AND m.rows > 0 AND m.digest IS NOT NULL AND m.op > $2 AND " +
      std::string(newest_sql()) + " ORDER BY m.op LIMIT " + std::to_string(kOperationPage);
  Plans plans(sink);
  std::string after;
  for (;;) {
    const Rows rows = journal.run(candidates, {options.scope, after});
    for (int i = 0; i < rows.size(); ++i) {
      ControlSession* source = session_of(rows.text(i, 1));
      ControlSession* destination = session_of(rows.text(i, 2));
      const auto record = moves->load(rows.text(i, 0));
      if (source == nullptr || destination == nullptr || !record) continue;
      if (record->unit.tables.empty()) continue;
      const auto plan = plans.of(*destination, record->unit);
      if (!plan || !is_left_over(journal, *source, *destination, *plan, *record)) continue;
      sink({.kind = FindingKind::kStrandedCopy,
            .what = "copy",
            .op = record->unit.op,
            .shard = record->unit.destination,
            .group = record->unit.group,
            .key = record->unit.keys.front(),
            .reason = "rows here equal what the aborted move has journaled"});
    }
    if (rows.size() < kOperationPage) return;
    after = rows.text(rows.size() - 1, 0);
  }
}

}  // namespace collegedb::migration
