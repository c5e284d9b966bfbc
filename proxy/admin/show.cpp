// collegedb_pools, collegedb_clients, collegedb_servers: this process, as its data path tells it.
#include "proxy/admin/handlers.h"

namespace collegedb::admin {

Reply pools(Services& services, const Arguments&, const session::SessionContext&) {
  session::AdminRows rows;
  for (const net::PoolInfo& pool : services.probes.pools()) {
    add_row(rows, pool.shard, pool.worker, pool.size, pool.connecting, pool.idle, pool.leased,
            pool.reserved, pool.waiting, pool.up, non_empty(pool.last_error));
  }
  return rows;
}

Reply clients(Services& services, const Arguments&, const session::SessionContext&) {
  session::AdminRows rows;
  for (const net::ClientInfo& client : services.probes.clients()) {
    add_row(rows, client.pid, client.worker, client.user, client.database, client.application_name,
            client.address, client.state, client.tls, client.connected_ms, client.shards);
  }
  return rows;
}

Reply servers(Services& services, const Arguments&, const session::SessionContext&) {
  session::AdminRows rows;
  for (const net::ServerInfo& server : services.probes.servers()) {
    add_row(rows, server.shard, server.worker, server.state, server.pid, server.address, server.tls,
            server.connected_ms, non_empty(server.user));
  }
  return rows;
}

}  // namespace collegedb::admin
