// One statement on every shard: schema changes, GRANT, TRUNCATE, VACUUM and the like. Blocking.
#pragma once

#include "metrics/stats.h"
#include "proxy/config.h"
#include "proxy/session/control.h"
#include "proxy/wire/error.h"

namespace collegedb::admin {

// Transactional: on all shards or on none. Else shard by shard in configuration order; an error
// says in DETAIL how far it came. The statement runs under the client's settings. Afterwards the
// registry follows what it changed; the caller reloads the store.
[[nodiscard]] Result<session::BroadcastDone> broadcast(const Config& config,
                                                       const session::Broadcast& statement,
                                                       const session::SessionContext& context,
                                                       metrics::ProcessStats* stats = nullptr);

}  // namespace collegedb::admin
