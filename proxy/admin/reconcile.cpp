// collegedb_reconcile: the door to migration/reconcile.
#include "migration/reconcile.h"

#include "proxy/admin/handlers.h"

namespace collegedb::admin {
namespace {

std::string json(const std::vector<migration::LedgerKey>& keys) {
  std::string out = "[";
  for (const migration::LedgerKey& each : keys) {
    out += std::string(out.size() > 1 ? ", " : "") + "{\"grp\": " + json_string(each.group) +
           ", \"key\": " + json_string(each.key) + ", \"ledger\": " + json_string(each.ledger) +
           ", \"routing\": " + (each.routing ? json_string(*each.routing) : "null") + "}";
  }
  return out + "]";
}

}  // namespace

Reply reconcile(Services& services, const Arguments& arguments,
                const session::SessionContext& context) {
  const auto max_rows = arguments.integer(0);
  const auto repair = arguments.boolean(2, false);
  const auto prune_verified = arguments.boolean(3, false);
  if (max_rows.has_error()) {
    return max_rows.error();
  }
  if (repair.has_error() || prune_verified.has_error()) {
    return repair.has_error() ? repair.error() : prune_verified.error();
  }
  migration::ReconcileRequest request{.max_rows = *max_rows,
                                      .verify_tables = arguments.text(1),
                                      .search_path = context.search_path,
                                      .repair = *repair,
                                      .prune_verified = *prune_verified};
  request.stopping = [stopping = services.stopping] { return stopping->load(); };
  const auto done = migration::reconcile(services.config, request);
  if (done.has_error()) {
    return done.error();
  }
  session::AdminRows rows;
  add_row(rows, done->examined, done->routing_agreed, done->record_verified, done->record_missing,
          done->record_unchecked, done->disagreeing, json(done->missing),
          json(done->disagreeing_keys), done->repaired, done->pruned);
  return rows;
}

}  // namespace collegedb::admin
