#include <algorithm>
#include <array>

#include "routing/planner.h"

namespace collegedb::routing {
namespace {

using parser::StatementKind;

enum class Family : std::uint8_t {
  kQuery,      // what plan_query knows
  kSession,    // the session's own rules
  kBroadcast,  // every shard
  kJournal,
  kOpaqueCode,  // CALL, DO
  kAnyShard,
  kUnsupported,
};

Family family_of(StatementKind kind) {
  switch (kind) {
    case StatementKind::kSelect:
    case StatementKind::kInsert:
    case StatementKind::kUpdate:
    case StatementKind::kDelete:
    case StatementKind::kMerge:
    case StatementKind::kCopyFrom:
    case StatementKind::kCopyTo:
    case StatementKind::kCopyServer:
    case StatementKind::kDeclareCursor:
    case StatementKind::kLockTable:
    case StatementKind::kSelectInto:
      return Family::kQuery;
    case StatementKind::kBegin:
    case StatementKind::kCommit:
    case StatementKind::kRollback:
    case StatementKind::kSavepoint:
    case StatementKind::kRelease:
    case StatementKind::kRollbackTo:
    case StatementKind::kSet:
    case StatementKind::kSetTransaction:
    case StatementKind::kReset:
    case StatementKind::kShow:
    case StatementKind::kDiscard:
    case StatementKind::kDeallocate:
    case StatementKind::kFetch:
    case StatementKind::kCloseCursor:
      return Family::kSession;
    case StatementKind::kTruncate:
    case StatementKind::kDdl:
    case StatementKind::kDdlNoBlock:
    case StatementKind::kAnalyze:
      return Family::kBroadcast;
    case StatementKind::kNotify:
      return Family::kJournal;
    case StatementKind::kCall:
    case StatementKind::kDo:
      return Family::kOpaqueCode;
    // Nothing can be listened to (LISTEN is refused), so UNLISTEN changes nothing anywhere.
    case StatementKind::kUnlisten:
      return Family::kAnyShard;
    case StatementKind::kPrepareTransaction:
    case StatementKind::kCommitPrepared:
    case StatementKind::kRollbackPrepared:
    case StatementKind::kPrepare:
    case StatementKind::kExecute:
    case StatementKind::kListen:
    case StatementKind::kCreateTemp:
    case StatementKind::kExplain:  // below EXPLAIN
    case StatementKind::kOther:
      return Family::kUnsupported;
  }
  return Family::kUnsupported;
}

std::string_view hint_for(StatementKind kind) {
  switch (kind) {
    case StatementKind::kPrepareTransaction:
    case StatementKind::kCommitPrepared:
    case StatementKind::kRollbackPrepared:
      return "Two-phase transactions belong to the proxy; use BEGIN and COMMIT.";
    case StatementKind::kPrepare:
    case StatementKind::kExecute:
      return "Use the prepared statements of the extended protocol (every driver has them).";
    case StatementKind::kListen:
      return "Connect to the journal shard itself to listen.";
    case StatementKind::kCreateTemp:
    case StatementKind::kDeclareCursor:
      return "Statements of a client may run on several server sessions.";
    default:
      return "Run it on the shards themselves.";
  }
}

SqlError unsupported(const parser::Statement& statement, StatementKind kind) {
  std::string what = statement.verb;
  if (kind == StatementKind::kCreateTemp) what += " of a temporary object";
  if (statement.cursor_hold) what += " WITH HOLD";
  return make_error("0A000", what + " is not supported by the proxy", hint_for(kind));
}

// Settings that say what a statement means: sessions a pool opened before and after such a change
// would disagree.
bool is_stored_setting_refused(std::string_view name) {
  constexpr std::array<std::string_view, 6> kRefused = {"client_encoding",
                                                        "role",
                                                        "search_path",
                                                        "session_authorization",
                                                        "standard_conforming_strings",
                                                        "transform_null_equals"};
  return std::ranges::find(kRefused, name) != kRefused.end() || name.starts_with("collegedb.");
}

bool is_registered_or_dependent(const Planner& planner, const parser::TableRef& ref) {
  const TableInfo* info = planner.snapshot.find_table(ref.name, planner.search_path);
  return (info != nullptr && info->kind != TableKind::kLocal) ||
         planner.snapshot.is_dependent(ref.name, planner.search_path);
}

// The reason why data definition must not run on all shards.
std::optional<SqlError> definition_obstacle(const Planner& planner) {
  const parser::Statement& statement = planner.statement();
  const bool stores =
      statement.kind == StatementKind::kDdl || statement.kind == StatementKind::kDdlNoBlock;
  if (stores && !statement.name.empty() && is_stored_setting_refused(statement.name)) {
    return make_error("0A000",
                      statement.verb + " ... SET " + statement.name +
                          " is not supported through the proxy: open server sessions would not "
                          "follow",
                      "Use SET in the sessions of the client, or its start-up options.");
  }
  if (!statement.changes_inheritance) return std::nullopt;
  for (const parser::TableRef& ref : statement.tables) {
    if (!is_registered_or_dependent(planner, ref)) continue;
    return make_error("0A000",
                      "changing the inheritance of table " + quoted(ref.name.name) +
                          " is not supported: its rows are on all shards",
                      "Create partitions with CREATE TABLE ... PARTITION OF, and DROP TABLE those "
                      "that are no longer needed.");
  }
  return std::nullopt;
}

void plan_broadcast(Planner& planner) {
  Plan& plan = planner.plan;
  if (auto error = definition_obstacle(planner)) return planner.refuse(std::move(*error));
  plan.writes = true;
  plan.transactional_ddl = planner.kind != StatementKind::kDdlNoBlock;
  for (const parser::TableRef& ref : planner.statement().tables) {
    const TableInfo* info = planner.snapshot.find_table(ref.name, planner.search_path);
    if (info != nullptr && plan.table.empty()) plan.table = info->name.name;
  }
  planner.settle(PlanKind::kBroadcast);
}

void plan_code(Planner& planner) {
  const parser::Statement& statement = planner.statement();
  planner.plan.writes = true;
  judge_calls(planner);
  planner.opaque = statement.verb;
  if (planner.admin != nullptr) {
    const std::string& name = planner.admin->name.name;
    return planner.refuse(make_error("0A000", name + " cannot be called by " + statement.verb,
                                     "Call it as SELECT " + name + "(...)."));
  }
  if (planner.snapshot.has_sharded_tables()) {
    return planner.refuse_placement(
        make_error(ErrorCode::kKeyRequired,
                   statement.verb + " may read or write sharded tables, and no key says where",
                   "Connect to a shard directly for it."));
  }
  planner.settle(PlanKind::kJournal);
}

// CREATE MATERIALIZED VIEW, for the planner: data definition with a query.
bool is_materialized_view(const parser::Statement& statement) {
  return statement.kind == StatementKind::kDdl && statement.explained == StatementKind::kSelect;
}

// SELECT INTO, CREATE TABLE AS and CREATE MATERIALIZED VIEW over other than sharded tables make the
// relation on every shard.
void plan_select_into(Planner& planner) {
  if (planner.is_explain() && planner.executes()) {
    return planner.refuse(make_error("0A000", "EXPLAIN ANALYZE of this statement is not supported",
                                     "Explain the query itself."));
  }
  plan_query(planner);
  if (planner.is_explain() || planner.plan.kind == PlanKind::kRefuse) return;
  plan_broadcast(planner);
}

void plan_family(Planner& planner) {
  const parser::Statement& statement = planner.statement();
  if (is_materialized_view(statement)) planner.kind = StatementKind::kSelectInto;
  const Family family = family_of(planner.kind);
  if (planner.is_explain() && family != Family::kQuery) {
    return planner.refuse(make_error("0A000", "EXPLAIN of this statement is not supported",
                                     "Explain the query itself."));
  }
  switch (family) {
    case Family::kQuery:
      if (statement.cursor_hold) return planner.refuse(unsupported(statement, planner.kind));
      if (planner.kind == StatementKind::kSelectInto) return plan_select_into(planner);
      return plan_query(planner);
    case Family::kSession:
      return planner.settle(PlanKind::kSession);
    case Family::kBroadcast:
      return plan_broadcast(planner);
    case Family::kJournal:
      planner.plan.writes = true;
      return planner.settle(PlanKind::kJournal);
    case Family::kOpaqueCode:
      return plan_code(planner);
    case Family::kAnyShard:
      return planner.settle(PlanKind::kNoTable);
    case Family::kUnsupported:
      return planner.refuse(unsupported(statement, planner.kind));
  }
}

}  // namespace

std::shared_ptr<const Plan> make_plan(parser::Statement statement, const Snapshot& snapshot,
                                      const std::vector<std::string>& search_path) {
  auto plan = std::make_shared<Plan>();
  plan->registry_version = snapshot.registry_version;
  plan->statement = std::move(statement);
  Planner planner(*plan, snapshot, search_path);
  plan_family(planner);
  plan->opaque = !planner.opaque.empty() && plan->kind != PlanKind::kBroadcast &&
                 plan->kind != PlanKind::kAdmin;
  if (plan->refused_by_placement && snapshot.shards.size() == 1) plan->kind = PlanKind::kJournal;
  return plan;
}

}  // namespace collegedb::routing
