// The parts of make_plan. Internal to routing/plan*.
//
// Flow: plan.cpp picks by kind of statement; plan_facts.cpp resolves tables and judges calls,
// plan_hidden.cpp those that do not look like calls;
// plan_query.cpp decides among journal, reference, no table, keyed and scatter; plan_keys.cpp finds
// the key of each sharded table; plan_write.cpp has the rules of INSERT and UPDATE.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "routing/route.h"

namespace collegedb::routing {

// What planning one statement works on. Tables are parallel to Statement::tables.
struct Planner {
  Planner(Plan& target_plan, const Snapshot& from, const std::vector<std::string>& path);

  Plan& plan;
  const Snapshot& snapshot;
  const std::vector<std::string>& search_path;
  // The kind that decides: of the explained statement under EXPLAIN.
  parser::StatementKind kind = parser::StatementKind::kOther;

  std::vector<const TableInfo*> tables;  // nullptr: not registered
  // A relation that shows rows of a sharded table.
  const parser::TableRef* dependent = nullptr;
  std::size_t sharded = 0;
  std::size_t reference = 0;
  std::size_t local = 0;  // local, unregistered and catalog relations

  // The first call of each kind that matters.
  const parser::FunctionCall* admin = nullptr;
  const parser::FunctionCall* session_state = nullptr;
  const parser::FunctionCall* journal = nullptr;
  const parser::FunctionCall* transaction = nullptr;
  // What runs code the proxy does not know, in words for messages; empty = nothing does.
  std::string opaque;
  // An attribute that may be an aggregate over the rows.
  const parser::Attribute* aggregate = nullptr;

  [[nodiscard]] const parser::Statement& statement() const { return plan.statement; }
  [[nodiscard]] bool is_explain() const {
    return plan.statement.kind == parser::StatementKind::kExplain;
  }
  // EXPLAIN without ANALYZE runs nothing.
  [[nodiscard]] bool executes() const { return !is_explain() || plan.statement.explain_analyze; }
  [[nodiscard]] bool is_sharded(std::size_t table) const {
    return tables[table] != nullptr && tables[table]->kind == TableKind::kSharded;
  }
  [[nodiscard]] bool is_reference(std::size_t table) const {
    return tables[table] != nullptr && tables[table]->kind == TableKind::kReference;
  }
  // Index of the target of INSERT, UPDATE, DELETE; nullopt for other statements.
  [[nodiscard]] std::optional<std::size_t> target() const;

  void settle(PlanKind plan_kind) { plan.kind = plan_kind; }
  // Refused wherever it runs.
  void refuse(SqlError error);
  // Refused because rows may live on several shards.
  void refuse_placement(SqlError error);
};

// plan_facts.cpp
void resolve_tables(Planner& planner);
void judge_calls(Planner& planner);
// Calls that do not look like calls (plan_hidden.cpp). REQUIRES: resolve_tables.
void judge_hidden_code(Planner& planner);
[[nodiscard]] bool is_builtin(const Snapshot& snapshot, const parser::QualifiedName& name);
[[nodiscard]] std::string quoted(std::string_view identifier);          // "users"
[[nodiscard]] std::string call_text(const parser::FunctionCall& call);  // public.f()

// plan_query.cpp: SELECT, INSERT, UPDATE, DELETE, MERGE, COPY, DECLARE, and EXPLAIN of them.
void plan_query(Planner& planner);

// plan_keys.cpp: every sharded table that is not the target of an INSERT restricted to one key?
// Appends to plan.keys. Otherwise the index of a table that is not.
struct Restriction {
  bool complete = false;
  std::size_t unrestricted = 0;  // !complete: a table without a key
  bool several = false;          // !complete: a key list where only one key can be used
};
[[nodiscard]] Restriction find_keys(Planner& planner);
[[nodiscard]] KeySource key_source(const Planner& planner, const parser::Value& value, KeyType type,
                                   bool assigned);

// plan_write.cpp
void plan_insert(Planner& planner);
// False (and refused) when the statement changes a key for certain.
[[nodiscard]] bool check_assignments(Planner& planner);
[[nodiscard]] bool writes_are_known(const Planner& planner);

}  // namespace collegedb::routing
