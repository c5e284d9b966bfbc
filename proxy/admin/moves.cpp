// collegedb_reassign, collegedb_recover, collegedb_migration_status, collegedb_cancel_move: the
// door to migration/runner.
#include <cmath>

#include "migration/control_session.h"
#include "migration/rebalance.h"
#include "migration/topology.h"
#include "proxy/admin/handlers.h"
#include "proxy/admin/key_names.h"
#include "proxy/admin/move_cells.h"
#include "proxy/admin/two_phase.h"

namespace collegedb::admin {
namespace {

constexpr std::chrono::seconds kRefresh{5};
constexpr std::chrono::seconds kTopologyRound{30};

// Intervals are the server's business.
Result<std::optional<std::chrono::seconds>> interval(const Config& config,
                                                     const std::optional<std::string>& text) {
  if (!text) {
    return std::optional<std::chrono::seconds>{};
  }
  try {
    migration::ControlSession journal(config.shards[config.journal_index()]);
    const auto rows = journal.run(
        "SELECT pg_catalog.ceil(EXTRACT(epoch FROM $1::pg_catalog.interval))::pg_catalog.int8",
        {*text});
    return std::optional{std::chrono::seconds{rows.int8(0, 0)}};
  } catch (const migration::SqlFailure& failure) {
    return failure.error();
  }
}

Cell rounded(const std::optional<double>& milliseconds) {
  return milliseconds ? cell(std::round(*milliseconds * 1000) / 1000) : Cell{};
}

std::string json(const std::vector<migration::RecoveryFailure>& failures) {
  std::string out = "[";
  for (const migration::RecoveryFailure& each : failures) {
    out += (out.size() > 1 ? ", " : "") + ("{\"op\": " + json_string(each.op)) +
           ", \"key\": " + json_string(each.key) + ", \"error\": " + json_string(each.error) + "}";
  }
  return out + "]";
}

}  // namespace

Result<routing::GroupKey> newest_key(Services& services, const std::string& key,
                                     const std::optional<std::string>& table,
                                     const session::SessionContext& context) {
  const auto snapshot = services.store.refresh(services.store.current()->version, kRefresh);
  return key_called(services, *snapshot, key, table, context.search_path);
}

Result<migration::Runner*> runner_of(Services& services) {
  if (services.runner == nullptr) {
    return make_error(ErrorCode::kJournalNotConfigured, "moves need a journal shard",
                      "Name one as journal.shard in the configuration of every proxy.");
  }
  return services.runner;
}

std::vector<Cell> cells(const migration::MoveResult& move) {
  return {cell(move.op),
          cell(move.key),
          cell(move.source),
          cell(move.destination),
          cell(move.state),
          cell(move.tables),
          cell(move.rows),
          cell(move.bytes),
          cell(move.copies),
          rounded(move.write_stall_ms),
          rounded(move.duration_ms)};
}

Reply reassign(Services& services, const Arguments& arguments,
               const session::SessionContext& context) {
  const auto runner = runner_of(services);
  if (runner.has_error()) {
    return runner.error();
  }
  const auto key = arguments.required(0);
  const auto shard = arguments.required(1);
  const auto dry_run = arguments.boolean(4, false);
  if (key.has_error() || shard.has_error()) {
    return key.has_error() ? key.error() : shard.error();
  }
  if (dry_run.has_error()) {
    return dry_run.error();
  }
  const auto retire_after = interval(services.config, arguments.text(3));
  if (retire_after.has_error()) {
    return retire_after.error();
  }
  const auto meant = newest_key(services, *key, arguments.text(2), context);
  if (meant.has_error()) {
    return meant.error();
  }
  const auto moved =
      (*runner)->reassign({meant->group, meant->key, *shard, *retire_after, *dry_run});
  if (moved.has_error()) {
    return moved.error();
  }
  // Only to spare the caller's next statement the way over the tombstone.
  services.store.refresh(services.store.current()->version, kRefresh);
  session::AdminRows rows;
  rows.rows.push_back(cells(*moved));
  return rows;
}

Reply recover(Services& services, const Arguments&, const session::SessionContext&) {
  const auto runner = runner_of(services);
  if (runner.has_error()) {
    return runner.error();
  }
  try {
    finish_two_phase(services.config);
    migration::resume_topology(services.config, kTopologyRound);
  } catch (const migration::SqlFailure& failure) {
    return failure.error();
  }
  const auto done = (*runner)->recover();
  if (done.has_error()) {
    return done.error();
  }
  session::AdminRows rows;
  add_row(rows, done->examined, done->committed, done->aborted, done->released, done->skipped,
          json(done->failed));
  return rows;
}

Reply migration_status(Services& services, const Arguments& arguments,
                       const session::SessionContext& context) {
  const auto runner = runner_of(services);
  if (runner.has_error()) {
    return runner.error();
  }
  const auto key = arguments.required(0);
  if (key.has_error()) {
    return key.error();
  }
  const auto meant = newest_key(services, *key, arguments.text(1), context);
  if (meant.has_error()) {
    return meant.error();
  }
  const auto status = (*runner)->status(meant->group, meant->key);
  if (status.has_error()) {
    return status.error();
  }
  session::AdminRows rows;
  if (const auto& latest = *status) {
    std::vector<Cell> row = cells(latest->move);
    row.push_back(cell(latest->group));
    row.push_back(cell(latest->attempt));
    row.push_back(non_empty(latest->error));
    row.push_back(non_empty(latest->started_at));
    row.push_back(non_empty(latest->updated_at));
    rows.rows.push_back(std::move(row));
  }
  return rows;
}

Reply cancel_move(Services& services, const Arguments& arguments, const session::SessionContext&) {
  const auto runner = runner_of(services);
  if (runner.has_error()) {
    return runner.error();
  }
  const auto op = arguments.required(0);
  if (op.has_error()) {
    return op.error();
  }
  auto state = (*runner)->cancel(*op);
  if (state.has_error() && state.error().sqlstate == "42704") {
    // A rebalance has an id of the same kind.
    try {
      migration::ControlSession journal(services.config.shards[services.config.journal_index()]);
      if (auto found = migration::cancel_rebalance(journal, *op)) {
        state = *std::move(found);
      }
    } catch (const migration::SqlFailure& failure) {
      return failure.error();
    }
  }
  if (state.has_error()) {
    return state.error();
  }
  session::AdminRows rows;
  add_row(rows, *state);
  return rows;
}

}  // namespace collegedb::admin
