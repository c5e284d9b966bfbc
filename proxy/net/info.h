// What collegedb_clients(), collegedb_pools() and collegedb_servers() show: plain values, copied
// out of the workers. No secrets.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace collegedb::net {

struct ClientInfo {
  std::int32_t pid = 0;  // what the client was told; 0 before login
  std::size_t worker = 0;
  std::string user;
  std::string database;
  std::string application_name;
  std::string address;  // "127.0.0.1:53122" or "unix"
  std::string state;    // "login", "idle", "active", "idle in transaction", "waiting"
  bool tls = false;
  std::uint64_t connected_ms = 0;   // age
  std::vector<std::string> shards;  // of the server connections it holds
};

struct PoolInfo {
  std::string shard;
  std::size_t worker = 0;
  std::size_t size = 0;  // cap of this worker's part
  std::size_t connecting = 0, idle = 0, leased = 0, reserved = 0;
  std::size_t waiting = 0;
  bool up = false;
  std::string last_error;
};

struct ServerInfo {
  std::string shard;
  std::size_t worker = 0;
  std::string state;     // "idle", "leased", "reserved"
  std::int32_t pid = 0;  // of the server process
  std::string address;
  bool tls = false;
  std::uint64_t connected_ms = 0;  // age
  std::string user;                // of the client that holds it
};

}  // namespace collegedb::net
