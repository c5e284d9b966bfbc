#include "migration/archive.h"

#include <algorithm>
#include <set>

#include "migration/copy_pump.h"
#include "migration/group_catalog.h"
#include "migration/pg_shard.h"

namespace collegedb::migration {
namespace {

const TablePlan* find_table(const MovePlan& plan, std::string_view label) {
  const auto found = std::find_if(plan.tables.begin(), plan.tables.end(),
                                  [&](const TablePlan& table) { return table.label == label; });
  return found == plan.tables.end() ? nullptr : &*found;
}

// The parts of a digest text that are about registered tables, whatever their order.
std::set<std::string> parts_of(std::string_view text) {
  std::set<std::string> out;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(';'), text.size());
    const std::string_view part = text.substr(0, end);
    if (!part.empty() && !part.starts_with("collegedb.")) out.emplace(part);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

std::string line_of(const Rows& digest) {
  return digest.text(0, 0) + ":" + digest.text(0, 1) + ":" + digest.text(0, 2);
}

}  // namespace

MovePlan read_plan(ControlSession& session, const Unit& unit) {
  const GroupCatalog catalog = read_catalog(session, unit);
  if (!catalog.problems.empty()) {
    throw SqlFailure(make_error(catalog.problems.front().code, catalog.problems.front().text),
                     session.shard());
  }
  return plan_of(unit, catalog);
}

std::string archive_flaw(ControlSession& session, const MovePlan& plan, const std::string& op,
                         const Digest& journaled) {
  const Rows unlike = session.run(archive_unlike_sql(plan, op));
  if (!unlike.empty()) {
    return "the archive has rows that table " + unlike.text(0, 0) + " cannot take any more";
  }
  const std::int64_t rows =
      session.run("SELECT count(*) FROM collegedb.archive WHERE op = $1", {op}).int8(0, 0);
  if (journaled.text.empty()) return rows > 0 ? "" : "there is no archive";
  if (rows == journaled.rows) return "";
  return "the archive has " + std::to_string(rows) + " rows, the journal " +
         std::to_string(journaled.rows);
}

bool equals_archive(ControlSession& session, const MovePlan& plan, const std::string& op,
                    const std::vector<std::string>& keys) {
  std::int64_t rows = 0;
  for (const TablePlan& table : plan.tables) {
    if (table.internal) continue;
    const Rows live = session.run(text_digest_sql(table));
    if (line_of(live) != line_of(session.run(archive_digest_sql(table, op, keys)))) return false;
    rows += live.int8(0, 0);
  }
  return rows > 0;
}

void put_back(ControlSession& reader, ControlSession& writer, const MovePlan& plan,
              const std::string& op, const std::vector<std::string>& keys) {
  std::int64_t rows = 0;
  for (const TablePlan& table : plan.tables) {
    if (table.internal) continue;
    pump(reader, archive_out_sql(table, op, keys), writer, archive_in_sql(table));
    rows += writer.run(count_sql(table)).int8(0, 0);
  }
  if (rows > 0 && !equals_archive(writer, plan, op, keys)) {
    throw SqlFailure(make_error(ErrorCode::kDestinationConflict,
                                "the rows of operation " + op + " that shard \"" + writer.shard() +
                                    "\" stored are not those of its archive"),
                     writer.shard());
  }
  for (const ForeignKey& key : plan.foreign_keys) {
    const TablePlan* referencing = find_table(plan, key.table);
    if (referencing == nullptr || key.follows_key) continue;
    if (writer.run(dangling_sql(*referencing, key)).empty()) continue;
    throw SqlFailure(make_error(ErrorCode::kDestinationConflict,
                                "an archived row of table " + key.table +
                                    " references a row of table " + key.referenced +
                                    " that is not there any more (foreign key " + key.name + ")"),
                     writer.shard());
  }
}

bool equals_journaled(ControlSession& session, const MovePlan& plan, const Digest& journaled) {
  return parts_of(digest_of(plan, session.run(digest_sql(plan))).text) == parts_of(journaled.text);
}

std::vector<std::string> keys_present(ControlSession& session, const MovePlan& plan) {
  std::set<std::string> out;
  for (const TablePlan& table : plan.tables) {
    if (table.internal) continue;
    const Rows rows = session.run(present_sql(table));
    for (int i = 0; i < rows.size(); ++i) out.insert(rows.text(i, 0));
  }
  return {out.begin(), out.end()};
}

std::string outside_reference(ControlSession& session, const MovePlan& plan) {
  for (const ForeignKey& key : plan.foreign_keys) {
    const TablePlan* referenced = find_table(plan, key.referenced);
    if (referenced == nullptr || key.follows_key) continue;
    session.run(lock_rows_sql(*referenced));
    if (!session.run(referenced_sql(*referenced, key, find_table(plan, key.table))).empty()) {
      return key.name;
    }
  }
  return {};
}

}  // namespace collegedb::migration
