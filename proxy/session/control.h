// What a session asks of the control plane, and what it gets back: plain values. The session never
// calls the control plane; the driver (net/connection) performs the request and posts the reply.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "proxy/wire/error.h"
#include "routing/route.h"
#include "routing/snapshot.h"

namespace collegedb::session {

// One row of the table of admin functions (proxy/admin/functions.h). Static storage throughout.
struct AdminFunction {
  struct Argument {
    std::string_view name;
    std::uint32_t type_oid = 25;
    bool required = false;
    std::string_view default_sql = "NULL";  // what \df shows of an optional one
  };
  struct Column {
    std::string_view name;
    std::uint32_t type_oid = 25;
  };
  std::string_view name;  // "collegedb_reassign"
  std::span<const Argument> arguments;
  std::span<const Column> columns;
  bool admin_only = false;
  std::string_view help;
};

struct AdminCall {
  const AdminFunction* function = nullptr;
  // One per declared argument, in declared order; nullopt inside = SQL NULL; a missing optional
  // argument is std::monostate (the handler applies the default).
  std::vector<std::variant<std::monostate, std::optional<std::string>>> arguments;
  std::string user;
  bool is_admin = false;
};

// collegedb_explain needs the session's search_path; DDL runs under it too.
struct SessionContext {
  std::vector<std::pair<std::string, std::string>> settings;  // GUCs to set before running
  std::vector<std::string> search_path;
};

// Runs one statement on every shard: two-phase when `transactional`, else shard by shard.
struct Broadcast {
  std::string sql;
  bool transactional = true;
};

// Waits until a snapshot newer than `newer_than` has been loaded (bounded by the control plane).
struct Reload {
  std::uint64_t newer_than = 0;
};

// Asks the directory, or the shards, where keys are that the snapshot cannot tell: their active
// epochs place them differently, or placement is mapped.
struct Find {
  std::shared_ptr<const routing::Snapshot> snapshot;
  std::vector<routing::RoutedKey> keys;
  // A key nobody has is settled on one shard, for good; else the answer is only where to look now.
  bool for_write = false;
  // The shard that a transaction has looked for all the keys on already: a key nobody has is best
  // settled there.
  routing::ShardId prefer = routing::kNoShard;
};

struct ControlRequest {
  std::variant<AdminCall, Broadcast, Reload, Find> what;
  SessionContext context;
};

struct AdminRows {
  // Text form of each value, in the order of AdminFunction::columns.
  std::vector<std::vector<std::optional<std::string>>> rows;
};
struct BroadcastDone {
  std::string tag;  // command tag of the first shard
  std::vector<SqlError> notices;
};
struct ReloadDone {
  std::shared_ptr<const routing::Snapshot> snapshot;  // the newest one, perhaps not newer
};
struct FindDone {
  struct Place {
    routing::ShardId shard = routing::kNoShard;
    bool settled = false;  // it stays there until a tombstone says otherwise
    bool nobody = false;   // has the key: every shard answers a read as well
  };
  std::vector<Place> places;  // parallel to Find::keys
};
using ControlReply = std::variant<SqlError, AdminRows, BroadcastDone, ReloadDone, FindDone>;

// Implemented by proxy/admin/control_plane; called from any worker thread.
class ControlPlane {
 public:
  virtual ~ControlPlane() = default;
  // Never blocks. `done` is called exactly once, on a thread of the control plane; it must only
  // post to its worker. After shutdown has begun `done` gets 57P01.
  virtual void call(ControlRequest request, std::function<void(ControlReply)> done) = 0;
};

}  // namespace collegedb::session
