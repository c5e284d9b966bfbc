// collegedb_verify, collegedb_purge_retired, collegedb_restore, collegedb_diff: what moves leave
// behind.
#include "migration/diff.h"
#include "migration/purge.h"
#include "migration/restore.h"
#include "migration/table_catalog.h"
#include "migration/verify.h"
#include "proxy/admin/handlers.h"
#include "proxy/admin/move_cells.h"

namespace collegedb::admin {
namespace {

constexpr std::chrono::seconds kRefresh{5};

std::string json(const std::vector<std::string>& items) {
  std::string out = "[";
  for (const std::string& item : items) out += (out.size() > 1 ? ", " : "") + json_string(item);
  return out + "]";
}

std::string json(const std::vector<migration::PurgeRefusal>& refused) {
  std::string out = "[";
  for (const migration::PurgeRefusal& each : refused) {
    out += (out.size() > 1 ? ", " : "") + ("{\"op\": " + json_string(each.op)) +
           ", \"code\": " + json_string(each.code) + "}";
  }
  return out + "]";
}

// The table that SQL means by the name, as it is registered; `kind` local for any other.
migration::RegisteredTable registered(Services& services, const std::string& name,
                                      const session::SessionContext& context) {
  migration::ControlSession journal(services.config.shards[services.config.journal_index()]);
  const auto found = migration::find_table(journal, migration::parse_table_name(journal, name),
                                           context.search_path);
  if (!found) {
    throw migration::SqlFailure(make_error("42P01", "relation \"" + name + "\" does not exist"),
                                journal.shard());
  }
  for (migration::RegisteredTable& table :
       migration::read_registry(journal, services.config.journal.scope)) {
    if (table.name == *found) return std::move(table);
  }
  migration::RegisteredTable local;
  local.name = *found;
  local.kind = "local";
  return local;
}

Result<std::vector<migration::DiffRow>> differences(Services& services,
                                                    const migration::RunnerOptions& options,
                                                    const Arguments& arguments,
                                                    const session::SessionContext& context) {
  const std::string name = arguments.text(0).value_or("");
  const auto key = arguments.text(1);
  try {
    const migration::RegisteredTable table = registered(services, name, context);
    if (table.kind == "reference") {
      if (key) return make_error("22023", "a reference table has no keys", "Leave out the key.");
      return migration::diff_reference(options, table.name.schema, table.name.name,
                                       arguments.by_admin());
    }
    if (table.kind != "sharded") {
      return make_error("42809", "table " + table.name.qualified + " is on one shard only");
    }
  } catch (const migration::SqlFailure& failure) {
    return failure.error();
  }
  if (!key)
    return make_error("22023", "which key of the table is to be compared with its archive?");
  const auto meant = newest_key(services, *key, name, context);
  if (meant.has_error()) return meant.error();
  return migration::diff_key(options, meant->group, meant->key, arguments.by_admin());
}

}  // namespace

Reply diff(Services& services, const Arguments& arguments, const session::SessionContext& context) {
  const auto runner = runner_of(services);
  if (runner.has_error()) {
    return runner.error();
  }
  if (const auto table = arguments.required(0); table.has_error()) {
    return table.error();
  }
  const auto found = differences(services, (*runner)->options(), arguments, context);
  if (found.has_error()) {
    return found.error();
  }
  session::AdminRows rows;
  for (const migration::DiffRow& each : *found) {
    add_row(rows, each.path, each.shard_a, each.shard_b, each.rows_differing);
  }
  return rows;
}

Reply purge_retired(Services& services, const Arguments& arguments,
                    const session::SessionContext&) {
  const auto runner = runner_of(services);
  if (runner.has_error()) {
    return runner.error();
  }
  const auto most = arguments.integer(0);
  if (most.has_error()) {
    return most.error();
  }
  migration::PurgeRequest request;
  request.max_ops = *most;
  const auto done = migration::purge_retired((*runner)->options(), request);
  if (done.has_error()) {
    return done.error();
  }
  session::AdminRows rows;
  add_row(rows, json(done->purged), json(done->refused));
  return rows;
}

Reply verify(Services& services, const Arguments& arguments, const session::SessionContext&) {
  const auto runner = runner_of(services);
  if (runner.has_error()) {
    return runner.error();
  }
  const auto repair = arguments.boolean(0, false);
  if (repair.has_error()) {
    return repair.error();
  }
  const auto done = migration::verify((*runner)->options(), *repair);
  if (done.has_error()) {
    return done.error();
  }
  session::AdminRows rows;
  rows.rows.emplace_back();
  for (const migration::FindingList& list : done->remaining) {
    rows.rows.front().push_back(migration::json_of(list.first));
  }
  rows.rows.front().push_back(migration::json_of(done->repaired));
  rows.rows.front().push_back(cell(done->clean()));
  return rows;
}

Reply restore(Services& services, const Arguments& arguments, const session::SessionContext&) {
  const auto runner = runner_of(services);
  if (runner.has_error()) {
    return runner.error();
  }
  const auto op = arguments.required(0);
  if (op.has_error()) {
    return op.error();
  }
  const auto moved = migration::restore(**runner, *op);
  // Also after an error: keys may have moved before it.
  services.store.refresh(services.store.current()->version, kRefresh);
  if (moved.has_error()) {
    return moved.error();
  }
  session::AdminRows rows;
  for (const migration::MoveResult& each : *moved) rows.rows.push_back(cells(each));
  return rows;
}

}  // namespace collegedb::admin
