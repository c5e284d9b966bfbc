// A cluster for planning tests, and statements analysed as the proxy does it.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "parser/analyze.h"
#include "routing/route.h"

namespace collegedb::routing::testing {

inline TableInfo sharded(std::string name, std::string group, std::string key, KeyType type,
                         std::vector<std::string> columns) {
  TableInfo table;
  table.name = {"public", std::move(name)};
  table.kind = TableKind::kSharded;
  table.group = std::move(group);
  table.key_column = std::move(key);
  table.key_type = type;
  for (std::string& column : columns) {
    ColumnInfo info;
    info.name = std::move(column);
    table.columns.push_back(std::move(info));
  }
  return table;
}

inline TableInfo unsharded(std::string name, TableKind kind) {
  TableInfo table;
  table.name = {"public", std::move(name)};
  table.kind = kind;
  return table;
}

// users(id int8, name, email) and orders(user_id int8, id, total) in one group; accounts(code text)
// alone; t(user_id int4) of the case lists; countries everywhere; notes on the journal shard.
// Hidden code of the users: operator !!!, type posint, functions fullname(x) and name(x), view
// calling_view, triggers of table audited. Unregistered relations: s.users, s.calling_view.
inline Snapshot cluster(const std::vector<std::string>& shards = {"db-east", "db-west",
                                                                  "db-north"}) {
  Snapshot snapshot;
  Epoch epoch;
  for (const std::string& name : shards) {
    epoch.shards.push_back(static_cast<ShardId>(snapshot.shards.size()));
    snapshot.shards.push_back({name});
  }
  snapshot.epochs.push_back(std::move(epoch));
  snapshot.registry_version = 7;
  snapshot.tables = {
      sharded("users", "public.users", "id", KeyType::kInt8, {"name", "id", "email"}),
      sharded("orders", "public.users", "user_id", KeyType::kInt8, {"id", "user_id", "total"}),
      sharded("accounts", "public.accounts", "code", KeyType::kText, {"code", "balance"}),
      sharded("t", "public.t", "user_id", KeyType::kInt4, {"id", "user_id", "v"}),
      unsharded("countries", TableKind::kReference),
      unsharded("notes", TableKind::kLocal)};
  snapshot.dependent_relations = {{"public", "active_users"}};
  snapshot.hidden.operators = {"!!!"};
  snapshot.hidden.types = {"posint"};
  snapshot.hidden.attributes = {"fullname", "name"};
  snapshot.hidden.columns = {{{"public", "notes"}, "fullname"}};
  snapshot.hidden.read = {{"public", "calling_view"}};
  snapshot.hidden.written = {{"public", "audited"}};
  snapshot.homonyms = {{"pg_catalog", "pg_settings"}, {"s", "users"}, {"s", "calling_view"}};
  for (const char* name : {"lower",
                           "count",
                           "sum",
                           "max",
                           "now",
                           "random",
                           "generate_series",
                           "nextval",
                           "lastval",
                           "pg_advisory_lock",
                           "pg_advisory_xact_lock",
                           "pg_advisory_unlock_all",
                           "set_config",
                           "setseed",
                           "pg_notify",
                           "version",
                           "row_number",
                           "query_to_xml",
                           "pg_table_is_visible",
                           "extract",
                           "gen_random_uuid",
                           "txid_current"}) {
    snapshot.builtin_functions.insert(name);
  }
  return snapshot;
}

inline parser::Statement analyzed(std::string_view sql) {
  auto statements = parser::analyze(sql);
  if (!statements) {
    ADD_FAILURE() << sql << ": " << statements.error().message;
    return {};
  }
  if (statements->size() != 1) {
    ADD_FAILURE() << sql << ": " << statements->size() << " statements";
    return {};
  }
  return std::move(statements->front());
}

inline std::shared_ptr<const Plan> planned(std::string_view sql,
                                           const Snapshot& snapshot = cluster()) {
  return make_plan(analyzed(sql), snapshot, {"public"});
}

inline std::string_view name_of(PlanKind kind) {
  switch (kind) {
    case PlanKind::kKeyed:
      return "keyed";
    case PlanKind::kReference:
      return "reference";
    case PlanKind::kNoTable:
      return "no table";
    case PlanKind::kJournal:
      return "journal";
    case PlanKind::kScatter:
      return "scatter";
    case PlanKind::kBroadcast:
      return "broadcast";
    case PlanKind::kAdmin:
      return "admin";
    case PlanKind::kSession:
      return "session";
    case PlanKind::kRefuse:
      return "refuse";
  }
  return "?";
}

// "keyed", "scatter", ... or "refuse: MESSAGE".
inline std::string verdict(const Plan& plan) {
  std::string out(name_of(plan.kind));
  if (plan.kind == PlanKind::kRefuse) out += ": " + plan.error.message;
  return out;
}

inline Parameter text(std::string_view value, std::uint32_t type = 0) {
  return {value, false, type};
}

}  // namespace collegedb::routing::testing
