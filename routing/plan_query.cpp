#include <algorithm>

#include "routing/functions.h"
#include "routing/planner.h"

namespace collegedb::routing {
namespace {

using parser::StatementKind;

constexpr std::string_view kNameKey =
    "Restrict every sharded table to one key (key column = constant or parameter).";

bool is_write_kind(StatementKind kind) {
  return kind == StatementKind::kInsert || kind == StatementKind::kUpdate ||
         kind == StatementKind::kDelete || kind == StatementKind::kMerge ||
         kind == StatementKind::kCopyFrom;
}

SqlError unroutable(std::string_view text, std::string_view hint) {
  return make_error(ErrorCode::kUnroutableQuery, text, hint);
}

// ---- calls
// ---------------------------------------------------------------------------------------

bool is_known(const parser::LoneCall::Argument& argument) {
  return argument.value.kind != parser::Value::Kind::kOpaque &&
         argument.value.kind != parser::Value::Kind::kDefault;
}

void plan_admin(Planner& planner) {
  const parser::Statement& statement = planner.statement();
  const std::string name = planner.admin->name.name;
  const bool lone = statement.kind == StatementKind::kSelect && statement.lone_call &&
                    statement.lone_call->function == planner.admin->name &&
                    planner.admin->name.schema.empty() && statement.tables.empty();
  if (!lone) {
    return planner.refuse(make_error(
        "0A000", "function " + name + " cannot be part of another statement",
        "Call it as SELECT " + name + "(...) or SELECT ... FROM " + name + "(...), alone."));
  }
  const auto& arguments = statement.lone_call->arguments;
  if (!std::all_of(arguments.begin(), arguments.end(), is_known)) {
    return planner.refuse(make_error("0A000", "the arguments of " + name + " must be known",
                                     "Give constants or parameters."));
  }
  planner.settle(PlanKind::kAdmin);
}

void refuse_session_state(Planner& planner) {
  const std::string call = call_text(*planner.session_state);
  if (planner.session_state->name.name == "set_config") {
    return planner.refuse(make_error("0A000", "set_config() is not supported in this form",
                                     "Use SET, or SET LOCAL for one transaction."));
  }
  planner.refuse(make_error("0A000", call + " is not supported: it depends on one server session",
                            planner.session_state->name.name.find("advisory") != std::string::npos
                                ? "Use a transaction-level lock: pg_advisory_xact_lock()."
                                : "Statements of a client may run on several server sessions."));
}

SqlError opaque_call(const Planner& planner) {
  return make_error(ErrorCode::kKeyRequired,
                    planner.opaque + " may read or write sharded tables, and no key says where",
                    "Write what the code does as statements restricted to one key.");
}

// Refused: what a catalog says is of one server, and pg_settings of one server session.
bool writes_catalog(Planner& planner) {
  if (planner.kind == StatementKind::kLockTable) return false;
  for (const parser::TableRef& ref : planner.statement().tables) {
    if (!ref.written) continue;
    const parser::QualifiedName name = planner.snapshot.resolve(ref.name, planner.search_path);
    if (name.schema != "pg_catalog") continue;
    planner.refuse(make_error(
        "0A000",
        "writing to system relation " + quoted(name.name) + " is not supported through the proxy",
        name.name == "pg_settings" ? "Use SET." : "Use the statements of data definition."));
    return true;
  }
  return false;
}

// ---- statements without sharded tables
// -------------------------------------------------------------

bool touches_reference_rows(const Planner& planner) {
  if (planner.statement().select.has_locking) return planner.reference > 0;
  for (std::size_t i = 0; i < planner.tables.size(); ++i) {
    if (planner.is_reference(i) && planner.statement().tables[i].written) return true;
  }
  return planner.reference > 0 &&
         (planner.kind == StatementKind::kLockTable || planner.kind == StatementKind::kCopyServer);
}

SqlError reference_write(const Planner& planner) {
  const auto& refs = planner.statement().tables;
  std::string name;
  for (std::size_t i = 0; i < refs.size(); ++i) {
    if (planner.is_reference(i) && (name.empty() || refs[i].written)) name = refs[i].name.name;
  }
  return unroutable(
      "statements that write or lock reference table " + quoted(name) + " are not supported yet",
      "Every shard has a copy of it: change them all with the same statement, shard by shard.");
}

void plan_unsharded(Planner& planner) {
  Plan& plan = planner.plan;
  if (!planner.opaque.empty() && planner.snapshot.has_sharded_tables()) {
    return planner.refuse_placement(opaque_call(planner));
  }
  if (touches_reference_rows(planner)) return planner.refuse_placement(reference_write(planner));
  if (planner.local > 0 || planner.journal != nullptr || !planner.opaque.empty()) {
    return planner.settle(PlanKind::kJournal);
  }
  if (planner.reference > 0) return planner.settle(PlanKind::kReference);
  const parser::Statement& statement = planner.statement();
  plan.free_standing = statement.kind == StatementKind::kSelect && statement.functions.empty() &&
                       !statement.uses_current_value;
  planner.settle(PlanKind::kNoTable);
}

// ---- sharded tables
// --------------------------------------------------------------------------------

const TableInfo& first_sharded(const Planner& planner) {
  const auto target = planner.target();
  if (target && planner.is_sharded(*target)) return *planner.tables[*target];
  for (std::size_t i = 0; i < planner.tables.size(); ++i) {
    if (planner.is_sharded(i)) return *planner.tables[i];
  }
  return *planner.tables.front();
}

// The reason why a statement over sharded tables cannot go to one shard whatever its keys.
std::optional<SqlError> obstacle(const Planner& planner, const TableInfo& main) {
  const parser::Statement& statement = planner.statement();
  const std::string table = quoted(main.name.name);
  switch (planner.kind) {
    case StatementKind::kMerge:
      return unroutable("MERGE over sharded table " + table + " is not supported",
                        "Use INSERT ... ON CONFLICT, or UPDATE and INSERT.");
    case StatementKind::kCopyFrom:
    case StatementKind::kCopyTo:
    case StatementKind::kCopyServer:
      return unroutable("COPY of sharded table " + table + " is not supported yet",
                        "Use INSERT or SELECT, or COPY on each shard.");
    case StatementKind::kLockTable:
      return unroutable("LOCK TABLE of sharded table " + table + " is not supported",
                        "Lock the rows of one key with SELECT ... FOR UPDATE.");
    case StatementKind::kSelectInto:
      return make_error("0A000",
                        statement.verb + " over sharded table " + table + " is not supported",
                        "Create the table first, then insert the rows.");
    default:
      break;
  }
  if (planner.local > 0) {
    return unroutable(
        "sharded table " + table + " cannot be combined with tables that live on one shard",
        "Register the other table with collegedb_reference_table(), or query it "
        "separately.");
  }
  for (std::size_t i = 0; i < planner.tables.size(); ++i) {
    if (planner.is_sharded(i) && planner.tables[i]->group != main.group) {
      return unroutable("tables " + table + " and " + quoted(planner.tables[i]->name.name) +
                            " belong to different colocation groups",
                        "Query them separately, or register them with the same group.");
    }
    if (planner.is_sharded(i) && statement.tables[i].written && statement.tables[i].level != 0) {
      return unroutable("a write to sharded table " + quoted(planner.tables[i]->name.name) +
                            " inside WITH is not supported",
                        "Make it a statement of its own.");
    }
  }
  if (touches_reference_rows(planner)) return reference_write(planner);
  if (planner.journal != nullptr) {
    return unroutable(call_text(*planner.journal) +
                          " has its home on the journal shard and cannot be called beside sharded "
                          "tables",
                      "Call it in a SELECT of its own and pass the result.");
  }
  return std::nullopt;
}

bool has_aggregate_call(const parser::Statement& statement) {
  return std::any_of(statement.functions.begin(), statement.functions.end(),
                     [](const auto& call) { return is_builtin_aggregate(call.name.name); });
}

// True when missing rows cannot hide: the only sign of them is an empty result.
bool is_plain_read(const Planner& planner) {
  const parser::Statement& statement = planner.statement();
  const parser::SelectShape& shape = statement.select;
  return statement.kind == StatementKind::kSelect && statement.tables.size() == 1 &&
         statement.levels == 1 && !statement.tables[0].nullable && planner.opaque.empty() &&
         planner.aggregate == nullptr && !planner.plan.many_keys && !shape.has_locking &&
         !shape.has_aggregate && !has_aggregate_call(statement) && !shape.has_group_by &&
         !shape.has_having && !shape.has_window && !shape.has_set_operation && !shape.has_sublink &&
         !shape.has_cte && !shape.has_subquery;
}

// What keeps a keyless SELECT from being answered by the rows of all shards one after the other;
// empty when nothing does.
std::string scatter_obstacle(const Planner& planner) {
  const parser::Statement& statement = planner.statement();
  const parser::SelectShape& shape = statement.select;
  if (statement.kind != StatementKind::kSelect) return statement.verb;
  if (shape.has_locking) return "FOR UPDATE or FOR SHARE";
  if (shape.has_set_operation) return "UNION, INTERSECT or EXCEPT";
  if (shape.has_cte) return "WITH";
  if (shape.has_sublink) return "a sub-select in an expression";
  if (shape.has_subquery || statement.levels > 1) return "a sub-select";
  if (planner.sharded > 1) return "a join of sharded tables";
  if (shape.has_distinct) return "DISTINCT";
  if (shape.has_group_by) return "GROUP BY";
  if (shape.has_having) return "HAVING";
  if (shape.has_window) return "a window function";
  if (shape.has_order_by) return "ORDER BY";
  if (shape.has_limit) return "LIMIT or OFFSET";
  if (!shape.is_count_star &&
      (shape.has_aggregate || has_aggregate_call(statement) || planner.aggregate != nullptr)) {
    return "an aggregate other than count(*) alone";
  }
  for (std::size_t i = 0; i < planner.tables.size(); ++i) {
    if (planner.is_sharded(i) && statement.tables[i].nullable) return "an outer join";
  }
  if (planner.transaction != nullptr) return call_text(*planner.transaction);
  if (statement.uses_current_value) return "CURRENT_TIMESTAMP or another value of the session";
  return {};
}

SqlError keyless_write(const Planner& planner, const TableInfo& table) {
  const std::string verb = planner.is_explain() ? "EXPLAIN" : planner.statement().verb;
  return make_error(ErrorCode::kKeyRequired,
                    verb + " on table " + quoted(table.name.name) +
                        " is not restricted to one value of its key column " +
                        quoted(table.key_column),
                    kNameKey);
}

SqlError several_keys(const TableInfo& table) {
  return unroutable("table " + quoted(table.name.name) +
                        " is restricted to several keys in a statement over several tables",
                    "Run one statement per key.");
}

void plan_keyless(Planner& planner, const Restriction& restriction) {
  const TableInfo& table = *planner.tables[restriction.unrestricted];
  if (restriction.several) return planner.refuse_placement(several_keys(table));
  if (!planner.opaque.empty()) return planner.refuse_placement(opaque_call(planner));
  if (is_write_kind(planner.kind)) return planner.refuse_placement(keyless_write(planner, table));
  const std::string part = scatter_obstacle(planner);
  if (!part.empty()) {
    return planner.refuse_placement(unroutable(
        part + " over all shards is not supported: table " + quoted(table.name.name) +
            " is not restricted to one value of its key column " + quoted(table.key_column),
        kNameKey));
  }
  planner.plan.count_star = planner.statement().select.is_count_star;
  planner.settle(PlanKind::kScatter);
}

void plan_sharded(Planner& planner) {
  Plan& plan = planner.plan;
  const TableInfo& main = first_sharded(planner);
  plan.table = main.name.name;
  plan.group = main.group;
  plan.key_type = main.key_type;
  plan.key_column = main.key_column;
  if (auto error = obstacle(planner, main)) return planner.refuse_placement(std::move(*error));
  if (planner.kind == StatementKind::kInsert) {
    plan_insert(planner);
  } else {
    if (!check_assignments(planner)) return;
    const Restriction restriction = find_keys(planner);
    if (!restriction.complete) return plan_keyless(planner, restriction);
    planner.settle(PlanKind::kKeyed);
  }
  if (plan.kind != PlanKind::kKeyed) return;
  plan.plain_read = is_plain_read(planner);
  plan.known_writes = plan.writes && writes_are_known(planner);
}

}  // namespace

void plan_query(Planner& planner) {
  const parser::Statement& statement = planner.statement();
  resolve_tables(planner);
  judge_calls(planner);
  judge_hidden_code(planner);
  if (planner.admin != nullptr) return plan_admin(planner);
  if (planner.session_state != nullptr) return refuse_session_state(planner);
  if (writes_catalog(planner)) return;
  planner.plan.writes =
      planner.executes() && (is_write_kind(planner.kind) || statement.has_modifying_cte ||
                             statement.select.has_locking || !planner.opaque.empty());
  if (planner.dependent != nullptr) {
    return planner.refuse_placement(
        unroutable("relation " + quoted(planner.dependent->name.name) +
                       " shows rows of a registered table but is not registered itself",
                   "Query the registered table."));
  }
  if (planner.sharded == 0) return plan_unsharded(planner);
  plan_sharded(planner);
}

}  // namespace collegedb::routing
