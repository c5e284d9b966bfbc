// collegedb_add_shard, collegedb_drain_shard, collegedb_remove_shard.
#include "migration/topology.h"

#include "proxy/admin/functions.h"
#include "proxy/admin/handlers.h"

namespace collegedb::admin {
namespace {

constexpr std::chrono::seconds kReload{5};

using Verb = Result<migration::TopologyChange> (*)(const Config&, const std::string&, bool,
                                                   const migration::TopologyOptions&);

Reply change(Services& services, const Arguments& arguments, Verb verb) {
  const auto shard = arguments.required(0);
  const auto dry_run = arguments.boolean(1, false);
  if (shard.has_error()) {
    return shard.error();
  }
  if (dry_run.has_error()) {
    return dry_run.error();
  }
  const auto functions = stubs();
  migration::TopologyOptions options;
  options.stubs = functions;
  const auto done = verb(services.config, *shard, *dry_run, options);
  if (!*dry_run) {
    // Also after an error: the generation may have changed.
    services.store.reload(kReload);
  }
  if (done.has_error()) {
    return done.error();
  }
  session::AdminRows rows;
  add_row(rows, done->shard, done->epoch, done->generation, done->state, done->steps);
  return rows;
}

}  // namespace

Reply add_shard(Services& services, const Arguments& arguments, const session::SessionContext&) {
  return change(services, arguments, &migration::add_shard);
}

Reply drain_shard(Services& services, const Arguments& arguments, const session::SessionContext&) {
  return change(services, arguments, &migration::drain_shard);
}

Reply remove_shard(Services& services, const Arguments& arguments, const session::SessionContext&) {
  return change(services, arguments, &migration::remove_shard);
}

}  // namespace collegedb::admin
