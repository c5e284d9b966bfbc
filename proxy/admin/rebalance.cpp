// collegedb_rebalance, collegedb_pause_moves, collegedb_resume_moves: the door to
// migration/rebalance.
#include "migration/rebalance.h"

#include "proxy/admin/handlers.h"
#include "proxy/admin/key_space.h"

namespace collegedb::admin {
namespace {

constexpr std::chrono::seconds kReload{5};

Result<migration::RebalanceRequest> request_of(const routing::Snapshot& snapshot,
                                               const Arguments& arguments,
                                               const session::SessionContext& context) {
  migration::RebalanceRequest out;
  if (const auto table = arguments.text(0)) {
    const auto group = group_meant(snapshot, table, context.search_path);
    if (group.has_error()) {
      return group.error();
    }
    out.groups = {*group};
  }
  const auto dry_run = arguments.boolean(1, false);
  const auto max_keys = arguments.integer(2);
  const auto concurrency = arguments.integer(3);
  if (dry_run.has_error()) {
    return dry_run.error();
  }
  if (max_keys.has_error()) {
    return max_keys.error();
  }
  if (concurrency.has_error()) {
    return concurrency.error();
  }
  out.dry_run = *dry_run;
  out.max_keys = *max_keys;
  if (*concurrency) {
    out.concurrency = static_cast<int>(std::min<std::int64_t>(**concurrency, 1000));
  }
  out.source = arguments.text(4);
  out.destination = arguments.text(5);
  return out;
}

std::string json(const std::vector<migration::RebalanceFailure>& failures) {
  std::string out = "[";
  for (const migration::RebalanceFailure& each : failures) {
    out += std::string(out.size() > 1 ? ", " : "") + "{\"grp\": " + json_string(each.share.group) +
           ", \"source\": " + json_string(each.share.source) +
           ", \"destination\": " + json_string(each.share.destination) +
           ", \"keys\": " + std::to_string(each.share.keys) +
           ", \"key\": " + json_string(each.key) + ", \"error\": " + json_string(each.error) + "}";
  }
  return out + "]";
}

SqlError no_journal() {
  return make_error(ErrorCode::kJournalNotConfigured, "moves need a journal shard",
                    "Name one as journal.shard in the configuration of every proxy.");
}

Reply switch_moves(Services& services, bool pause) {
  if (services.runner == nullptr) {
    return no_journal();
  }
  try {
    migration::ControlSession journal(services.config.shards[services.config.journal_index()]);
    const std::string& scope = services.config.journal.scope;
    if (pause) {
      migration::pause_moves(journal, scope);
    } else {
      migration::resume_moves(journal, scope);
    }
  } catch (const migration::SqlFailure& failure) {
    return failure.error();
  }
  session::AdminRows rows;
  add_row(rows, pause ? "paused" : "running");
  return rows;
}

}  // namespace

Reply rebalance(Services& services, const Arguments& arguments,
                const session::SessionContext& context) {
  const auto snapshot = services.store.reload(kReload);
  auto request = request_of(*snapshot, arguments, context);
  if (request.has_error()) {
    return request.error();
  }
  request->stopping = [stopping = services.stopping] { return stopping->load(); };
  if (services.runner == nullptr && !request->dry_run) {
    return no_journal();
  }
  const auto done = services.runner != nullptr ? migration::rebalance(*services.runner, *request)
                                               : migration::rehearse_rebalance(
                                                     services.config.shards, *snapshot, *request);
  if (done.has_error()) {
    return done.error();
  }
  session::AdminRows rows;
  add_row(rows, done->examined, done->agreed, done->moved, done->failed, json(done->failures));
  return rows;
}

Reply pause_moves(Services& services, const Arguments&, const session::SessionContext&) {
  return switch_moves(services, true);
}

Reply resume_moves(Services& services, const Arguments&, const session::SessionContext&) {
  return switch_moves(services, false);
}

}  // namespace collegedb::admin
