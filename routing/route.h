// Where does it go? Plan = facts of a statement that do not depend on the topology (only on the
// registry of tables); Route = f(plan, parameter values, snapshot). Pure.
#pragma once

#include <boost/container/small_vector.hpp>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "parser/statement.h"
#include "proxy/wire/error.h"
#include "routing/key.h"
#include "routing/snapshot.h"

namespace collegedb::routing {

// How a statement is answered, before any key is known.
enum class PlanKind : std::uint8_t {
  kKeyed,  // all keyed tables of one group, restricted to one key (or a key list, refused for now)
  kReference,  // only reference tables
  kNoTable,    // no table at all
  kJournal,    // local and unregistered tables, catalogs
  kScatter,    // keyless SELECT that can be streamed from all shards (concatenation or count(*))
  kBroadcast,  // DDL and the like: every shard
  kAdmin,      // collegedb_* function: performed by the control plane
  kSession,    // transaction control, SET, SHOW, PREPARE...: the session's own rules
  kRefuse,     // Plan::error says why
};

// Most keys one statement may carry.
inline constexpr std::size_t kMaxKeys = 64;

// Where one required key value comes from.
struct KeySource {
  parser::Value value;
  KeyType type = KeyType::kText;  // of the column it was compared with or assigned to
  bool assigned = false;          // a VALUES row: assigned, not compared
  bool repeated = false;          // a parameter that the statement names more than once
};

struct Plan {
  parser::Statement statement;
  PlanKind kind = PlanKind::kRefuse;
  SqlError error;  // kRefuse
  // Cannot be routed soundly over several shards, for the reason in `error`: kRefuse where there
  // are several, kJournal when planned for a cluster of one. route() refuses it if the cluster has
  // grown since.
  bool refused_by_placement = false;
  std::int64_t registry_version = 0;

  // kKeyed
  std::string group;
  KeyType key_type = KeyType::kText;
  bool for_insert = false;  // values are assigned, not compared
  std::string key_column;   // of `table`, for messages
  // Every key of every keyed table, or of every VALUES row. They must all give the same key, unless
  // many_keys: then they may be several (an IN list on the only table, VALUES rows), all of them on
  // one shard.
  std::vector<KeySource> keys;
  bool many_keys = false;
  // UPDATE ... SET key = value: must give the key the row has already.
  std::vector<KeySource> key_assignments;

  bool writes = false;  // must be guarded as a write
  // Runs code the proxy does not know: calls a function that did not come with the server or that
  // runs SQL text, visibly or through an operator, type, attribute, view, trigger, default and the
  // like (HiddenCode), or is CALL or DO. Such code may leave anything behind in the server session
  // that runs it (settings, session locks, temporary tables, prepared statements, LISTEN), after
  // the transaction too; EXPLAIN of it as well, since planning folds constants. Never set for what
  // the control plane runs on sessions of its own (kBroadcast, kAdmin).
  bool opaque = false;
  // Reads: a plain key-restricted single-table SELECT without locking, aggregates, sub-selects or
  // joins, so that an empty result is the only way rows can be missing.
  bool plain_read = false;
  // kKeyed writes whose keys the proxy knows fully and that fire no user trigger and call nothing
  // opaque: the insert fence may be skipped on the owner (collegedb.guarded).
  bool known_writes = false;
  // kNoTable: has no side effect and reads nothing that a transaction fixes (no function call, no
  // CURRENT_TIMESTAMP): may run outside the client's open transaction.
  bool free_standing = false;
  bool count_star = false;        // kScatter: one int8 summed over shards
  bool transactional_ddl = true;  // kBroadcast: may run in a transaction block
  std::string table;              // main registered table, for messages and explain
};

// `search_path`: schemas of the session in order, "$user" replaced. Never fails: what cannot be
// routed is a Plan of kind kRefuse.
[[nodiscard]] std::shared_ptr<const Plan> make_plan(parser::Statement statement,
                                                    const Snapshot& snapshot,
                                                    const std::vector<std::string>& search_path);

struct RoutedKey {
  std::string group;
  std::string key;          // canonical text
  std::int32_t bucket = 0;  // gate bucket
  bool sought = false;      // active epochs place it differently: only the shards know where it is
};

enum class RouteKind : std::uint8_t {
  kShard,      // exactly `shard`
  kAnyShard,   // any one shard gives the right answer
  kScatter,    // all shards of the snapshot
  kBroadcast,  // all shards, by the control plane
  kAdmin,
  kSession,
  kRefuse,
};

enum class Via : std::uint8_t { kNone, kComputed, kException, kMapping, kEpoch, kTombstone };
[[nodiscard]] std::string_view name_of(Via via) noexcept;

struct Route {
  RouteKind kind = RouteKind::kRefuse;
  // kShard. For kAnyShard the shard to prefer where no transaction holds another one already (calls
  // that may show the catalogs always see the same ones), or kNoShard.
  ShardId shard = kNoShard;
  Via via = Via::kNone;
  boost::container::small_vector<RoutedKey, 1> keys;  // kShard of a keyed plan
  SqlError error;                                     // kRefuse
};

// Evaluates the plan's key for these parameters. NULL or unmatchable keys of reads and of
// UPDATE/DELETE give kAnyShard (the server answers with no rows); for INSERT kRefuse. Keys that are
// `sought` have no say in `shard`, unless there are no others: then it is the newest owner.
// With exactly one shard everything but kAdmin and kSession goes there, keys or no keys.
[[nodiscard]] Route route(const Plan& plan, std::span<const Parameter> parameters,
                          const Snapshot& snapshot);

// Owner of one key in this snapshot: exception, else the newest active epoch. Via::kEpoch: another
// active epoch has another owner, so the rows may be on any of candidates().
struct Owner {
  ShardId shard = kNoShard;
  Via via = Via::kComputed;
};
[[nodiscard]] Owner locate(const Snapshot& snapshot, std::string_view group, std::string_view key);

// Owners of the key under the active epochs, newest first, each shard once. A publishing epoch
// places nothing yet.
using Candidates = boost::container::small_vector<ShardId, 2>;
[[nodiscard]] Candidates candidates(const Snapshot& snapshot, std::string_view key);

// Owner by placement alone, without exceptions.
[[nodiscard]] ShardId computed_owner(const Snapshot& snapshot, const Epoch& epoch,
                                     std::string_view key);

}  // namespace collegedb::routing
