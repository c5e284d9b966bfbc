// One handler per admin function. They block, and run on the control plane's own threads.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <vector>

#include "migration/runner.h"
#include "proxy/admin/rows.h"
#include "proxy/config.h"
#include "proxy/net/info.h"
#include "proxy/session/control.h"
#include "proxy/session/hot_keys.h"
#include "store/store.h"

namespace collegedb::admin {

// What the data path tells about itself; called from the control plane's threads.
struct Probes {
  std::function<std::vector<net::ClientInfo>()> clients;
  std::function<std::vector<net::PoolInfo>()> pools;
  std::function<std::vector<net::ServerInfo>()> servers;
  std::function<std::vector<session::HotKey>(std::size_t limit)> hot_keys;
};

struct Services {
  const Config& config;
  store::Store& store;
  migration::Runner* runner;  // null without a journal shard
  Probes probes;
  // True once the control plane shuts down: what takes long ends soon.
  std::shared_ptr<std::atomic<bool>> stopping = std::make_shared<std::atomic<bool>>(false);
};

using Reply = Result<session::AdminRows>;
using Handler = Reply (*)(Services&, const Arguments&, const session::SessionContext&);

// nullptr for a function that is not in functions().
[[nodiscard]] Handler handler_of(const session::AdminFunction& function);

// tables.cpp
Reply shard_table(Services&, const Arguments&, const session::SessionContext&);
Reply reference_table(Services&, const Arguments&, const session::SessionContext&);
Reply local_table(Services&, const Arguments&, const session::SessionContext&);
// moves.cpp
Reply reassign(Services&, const Arguments&, const session::SessionContext&);
Reply recover(Services&, const Arguments&, const session::SessionContext&);
Reply migration_status(Services&, const Arguments&, const session::SessionContext&);
Reply cancel_move(Services&, const Arguments&, const session::SessionContext&);
// evidence.cpp
Reply diff(Services&, const Arguments&, const session::SessionContext&);
Reply purge_retired(Services&, const Arguments&, const session::SessionContext&);
Reply restore(Services&, const Arguments&, const session::SessionContext&);
Reply verify(Services&, const Arguments&, const session::SessionContext&);
// rebalance.cpp
Reply rebalance(Services&, const Arguments&, const session::SessionContext&);
Reply pause_moves(Services&, const Arguments&, const session::SessionContext&);
Reply resume_moves(Services&, const Arguments&, const session::SessionContext&);
// topology.cpp
Reply add_shard(Services&, const Arguments&, const session::SessionContext&);
Reply drain_shard(Services&, const Arguments&, const session::SessionContext&);
Reply remove_shard(Services&, const Arguments&, const session::SessionContext&);
// directory.cpp
Reply import(Services&, const Arguments&, const session::SessionContext&);
Reply lookup_add(Services&, const Arguments&, const session::SessionContext&);
Reply lookup_remove(Services&, const Arguments&, const session::SessionContext&);
Reply lookups(Services&, const Arguments&, const session::SessionContext&);
// reconcile.cpp
Reply reconcile(Services&, const Arguments&, const session::SessionContext&);
// prune.cpp
Reply prune_epochs(Services&, const Arguments&, const session::SessionContext&);
// placement.cpp
Reply locate(Services&, const Arguments&, const session::SessionContext&);
Reply explain(Services&, const Arguments&, const session::SessionContext&);
// hot_keys.cpp
Reply hot_keys(Services&, const Arguments&, const session::SessionContext&);
// show.cpp
Reply pools(Services&, const Arguments&, const session::SessionContext&);
Reply clients(Services&, const Arguments&, const session::SessionContext&);
Reply servers(Services&, const Arguments&, const session::SessionContext&);

}  // namespace collegedb::admin
