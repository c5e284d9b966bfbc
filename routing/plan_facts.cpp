#include <algorithm>
#include <array>
#include <cctype>

#include "routing/functions.h"
#include "routing/planner.h"

namespace collegedb::routing {
namespace {

constexpr std::string_view kAdminPrefix = "collegedb_";

// Settings that neither routing nor the reading of a statement depends on. Those of an application
// have a dot in their name.
bool is_harmless_setting(std::string_view name) {
  constexpr std::array<std::string_view, 5> kHarmless = {
      "application_name", "idle_in_transaction_session_timeout", "lock_timeout",
      "statement_timeout", "work_mem"};
  std::string lower(name);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (lower.find('.') != std::string::npos) return !lower.starts_with("collegedb.");
  return std::find(kHarmless.begin(), kHarmless.end(), lower) != kHarmless.end();
}

// set_config(name, value, true) on its own: the only form whose arguments can be seen. What SET
// would have to check, or the session to remember, is left to SET LOCAL.
bool sets_local_config(const parser::Statement& statement) {
  if (!statement.lone_call || statement.lone_call->function.name != "set_config") return false;
  const auto& arguments = statement.lone_call->arguments;
  if (arguments.size() != 3 || statement.functions.size() != 1) return false;
  const parser::Value& name = arguments[0].value;
  if (!arguments[0].name.empty() || name.kind != parser::Value::Kind::kString ||
      !is_harmless_setting(name.text)) {
    return false;
  }
  const auto is_local = std::find_if(arguments.begin(), arguments.end(), [](const auto& argument) {
    return argument.name == "is_local";
  });
  const parser::Value& value = is_local == arguments.end() ? arguments[2].value : is_local->value;
  return value.kind == parser::Value::Kind::kBool && value.text == "t";
}

void note_first(const parser::FunctionCall*& slot, const parser::FunctionCall& call) {
  if (slot == nullptr) slot = &call;
}

void note_opaque(Planner& planner, const parser::FunctionCall& call) {
  if (planner.opaque.empty()) planner.opaque = "function " + call_text(call);
}

}  // namespace

Planner::Planner(Plan& target_plan, const Snapshot& from, const std::vector<std::string>& path)
    : plan(target_plan), snapshot(from), search_path(path) {
  kind = is_explain() ? plan.statement.explained : plan.statement.kind;
}

std::optional<std::size_t> Planner::target() const {
  using parser::StatementKind;
  if (kind != StatementKind::kInsert && kind != StatementKind::kUpdate &&
      kind != StatementKind::kDelete && kind != StatementKind::kMerge) {
    return std::nullopt;
  }
  const auto& refs = plan.statement.tables;
  const auto found = std::find_if(refs.begin(), refs.end(), [](const parser::TableRef& ref) {
    return ref.written && ref.level == 0;
  });
  if (found == refs.end()) return std::nullopt;
  return static_cast<std::size_t>(found - refs.begin());
}

void Planner::refuse(SqlError error) {
  plan.kind = PlanKind::kRefuse;
  plan.refused_by_placement = false;
  plan.error = std::move(error);
}

void Planner::refuse_placement(SqlError error) {
  refuse(std::move(error));
  plan.refused_by_placement = true;
}

void resolve_tables(Planner& planner) {
  for (const parser::TableRef& ref : planner.statement().tables) {
    const TableInfo* info = planner.snapshot.find_table(ref.name, planner.search_path);
    if (planner.dependent == nullptr &&
        planner.snapshot.is_dependent(ref.name, planner.search_path)) {
      planner.dependent = &ref;
    }
    planner.tables.push_back(info);
    if (info != nullptr && planner.plan.table.empty()) planner.plan.table = info->name.name;
    if (info == nullptr || info->kind == TableKind::kLocal) {
      ++planner.local;
    } else if (info->kind == TableKind::kReference) {
      ++planner.reference;
    } else {
      ++planner.sharded;
    }
  }
}

bool is_builtin(const Snapshot& snapshot, const parser::QualifiedName& name) {
  // The helpers of information_schema (drivers call _pg_expandarray) come with the server too.
  if (name.schema == "information_schema") return true;
  return (name.schema.empty() || name.schema == "pg_catalog") &&
         snapshot.builtin_functions.contains(name.name);
}

void judge_calls(Planner& planner) {
  for (const parser::FunctionCall& call : planner.statement().functions) {
    if (call.name.name.starts_with(kAdminPrefix)) {
      note_first(planner.admin, call);
      continue;
    }
    if (!is_builtin(planner.snapshot, call.name)) {
      note_opaque(planner, call);
      continue;
    }
    switch (classify_builtin(call.name.name)) {
      case FunctionClass::kPlain:
        break;
      case FunctionClass::kSessionState:
        if (sets_local_config(planner.statement())) break;
        note_first(planner.session_state, call);
        break;
      case FunctionClass::kTransaction:
        note_first(planner.transaction, call);
        break;
      case FunctionClass::kJournal:
        note_first(planner.journal, call);
        break;
      case FunctionClass::kOpaque:
        note_opaque(planner, call);
        break;
    }
  }
}

std::string quoted(std::string_view identifier) {
  return "\"" + std::string(identifier) + "\"";
}

std::string call_text(const parser::FunctionCall& call) {
  return (call.name.schema.empty() ? "" : call.name.schema + ".") + call.name.name + "()";
}

}  // namespace collegedb::routing
