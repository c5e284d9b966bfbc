#include "routing/route.h"

#include <algorithm>

#include "routing/hash.h"

namespace collegedb::routing {
namespace {

using parser::Value;
using KeyList = boost::container::small_vector<std::string, 1>;

Route refuse(SqlError error) {
  Route out;
  out.kind = RouteKind::kRefuse;
  out.error = std::move(error);
  return out;
}

Route to_shard(ShardId shard) {
  Route out;
  out.kind = RouteKind::kShard;
  out.shard = shard;
  return out;
}

Route to_any(ShardId preferred) {
  Route out;
  out.kind = RouteKind::kAnyShard;
  out.shard = preferred;
  return out;
}

Route of_kind(RouteKind kind) {
  Route out;
  out.kind = kind;
  return out;
}

KeyResult evaluate(const KeySource& source, std::span<const Parameter> parameters) {
  if (source.value.kind != Value::Kind::kParam) {
    return canonical_key(source.type, source.value, source.assigned);
  }
  const std::size_t index = source.value.param;
  if (index == 0 || index > parameters.size()) return Unknown{};
  return canonical_key(source.type, parameters[index - 1], source.value.cast, source.repeated,
                       source.assigned);
}

std::string key_column_text(const Plan& plan) {
  return "key column \"" + plan.key_column + "\" of table \"" + plan.table + "\"";
}

SqlError unreadable_key(const Plan& plan, KeyType type) {
  return make_error(
      plan.writes ? ErrorCode::kKeyRequired : ErrorCode::kUnroutableQuery,
      "the value given for the " + key_column_text(plan) + " cannot be read by the proxy",
      "Give a constant or a parameter whose type is " + std::string(name_of(type)) + ".");
}

SqlError null_key(const Plan& plan) {
  return make_error("23502", "null value in column \"" + plan.key_column + "\" of relation \"" +
                                 plan.table + "\" violates not-null constraint");
}

SqlError different_keys(const Plan& plan) {
  return make_error(ErrorCode::kUnroutableQuery,
                    "the tables of this statement are restricted to different keys",
                    "Restrict every table of group " + plan.group +
                        " to the same key, or run one statement per key.");
}

SqlError too_many_keys() {
  return make_error(ErrorCode::kUnroutableQuery,
                    "the statement names more than " + std::to_string(kMaxKeys) + " keys",
                    "Split it into statements of fewer keys.");
}

SqlError several_shards(const Plan& plan) {
  return make_error(ErrorCode::kUnroutableQuery,
                    "the keys of this statement live on several shards",
                    "Run one statement per key of table \"" + plan.table + "\".");
}

SqlError key_update(const Plan& plan) {
  return make_error(ErrorCode::kKeyUpdate,
                    "the " + key_column_text(plan) + " cannot be changed by UPDATE",
                    "Insert the row under its new key and delete the old one.");
}

// Adds the source's key to `keys`. Values that no row can equal add nothing.
std::optional<SqlError> collect(const Plan& plan, const KeySource& source,
                                std::span<const Parameter> parameters, KeyList& keys) {
  KeyResult result = evaluate(source, parameters);
  if (std::holds_alternative<Unknown>(result)) return unreadable_key(plan, source.type);
  if (std::holds_alternative<NullKey>(result) && source.assigned) return null_key(plan);
  auto* key = std::get_if<std::string>(&result);
  if (key == nullptr || std::find(keys.begin(), keys.end(), *key) != keys.end())
    return std::nullopt;
  if (!keys.empty() && !plan.many_keys) return different_keys(plan);
  if (keys.size() == kMaxKeys) return too_many_keys();
  keys.push_back(std::move(*key));
  return std::nullopt;
}

// UPDATE ... SET key = value is harmless when the row has that key already.
bool keeps_key(const Plan& plan, std::span<const Parameter> parameters, const KeyList& keys) {
  return std::all_of(plan.key_assignments.begin(), plan.key_assignments.end(),
                     [&](const KeySource& assignment) {
                       const KeyResult result = evaluate(assignment, parameters);
                       const auto* key = std::get_if<std::string>(&result);
                       return key != nullptr && keys.size() == 1 && *key == keys.front();
                     });
}

std::optional<SqlError> collect_all(const Plan& plan, std::span<const Parameter> parameters,
                                    KeyList& keys) {
  for (const KeySource& source : plan.keys) {
    if (auto error = collect(plan, source, parameters, keys)) return error;
  }
  if (!keys.empty() && !keeps_key(plan, parameters, keys)) return key_update(plan);
  return std::nullopt;
}

SqlError no_placement() {
  return make_error(ErrorCode::kPlacementUnverified, "the placement of keys is not known",
                    "Try again; see the log of the proxy if it persists.");
}

// What a statement was refused for, told in the words of the broken table if there is one.
SqlError refusal(const Plan& plan, const Snapshot& snapshot) {
  for (const parser::TableRef& ref : plan.statement.tables) {
    if (const BrokenTable* broken = snapshot.find_broken(ref.name)) {
      return make_error(ErrorCode::kPlacementUnverified, broken->reason,
                        "Change registered tables only through the proxy; collegedb check names "
                        "what has to be put right.");
    }
  }
  return plan.error;
}

void add_key(Route& out, const Plan& plan, std::string key, bool sought) {
  const std::int32_t bucket = gate_bucket(plan.group, key);
  out.keys.push_back({plan.group, std::move(key), bucket, sought});
}

Route route_keyed(const Plan& plan, std::span<const Parameter> parameters,
                  const Snapshot& snapshot) {
  KeyList keys;
  if (auto error = collect_all(plan, parameters, keys)) return refuse(std::move(*error));
  if (keys.empty()) return to_any(kNoShard);
  Route out = to_shard(kNoShard);
  ShardId newest = kNoShard;
  for (std::string& key : keys) {
    const Owner owner = locate(snapshot, plan.group, key);
    if (owner.shard == kNoShard) return refuse(no_placement());
    const bool sought = owner.via == Via::kEpoch || owner.via == Via::kMapping;
    if (!sought) {
      if (out.shard != kNoShard && out.shard != owner.shard) return refuse(several_shards(plan));
      out.shard = owner.shard;
    }
    if (newest == kNoShard) newest = owner.shard;
    if (out.via != Via::kEpoch) out.via = owner.via;
    add_key(out, plan, std::move(key), sought);
  }
  if (out.shard == kNoShard) out.shard = newest;
  return out;
}

// One shard: nothing about placement can go wrong. Keys are carried for the guard when known.
Route route_single_shard(const Plan& plan, std::span<const Parameter> parameters) {
  if (plan.kind == PlanKind::kRefuse && !plan.refused_by_placement) return refuse(plan.error);
  Route out = to_shard(0);
  if (plan.kind != PlanKind::kKeyed) return out;
  KeyList keys;
  if (collect_all(plan, parameters, keys)) return out;
  for (std::string& key : keys) add_key(out, plan, std::move(key), false);
  if (!out.keys.empty()) out.via = Via::kComputed;
  return out;
}

}  // namespace

std::string_view name_of(Via via) noexcept {
  switch (via) {
    case Via::kNone:
      return "none";
    case Via::kComputed:
      return "computed";
    case Via::kException:
      return "exception";
    case Via::kMapping:
      return "mapping";
    case Via::kEpoch:
      return "epoch";
    case Via::kTombstone:
      return "tombstone";
  }
  return "none";
}

Route route(const Plan& plan, std::span<const Parameter> parameters, const Snapshot& snapshot) {
  if (plan.kind == PlanKind::kAdmin) return of_kind(RouteKind::kAdmin);
  if (plan.kind == PlanKind::kSession) return of_kind(RouteKind::kSession);
  if (snapshot.shards.size() == 1) return route_single_shard(plan, parameters);
  if (plan.refused_by_placement) return refuse(refusal(plan, snapshot));
  switch (plan.kind) {
    case PlanKind::kKeyed:
      return route_keyed(plan, parameters, snapshot);
    case PlanKind::kReference:
      return to_any(kNoShard);
    case PlanKind::kNoTable:
      return to_any(plan.free_standing ? kNoShard : snapshot.journal_shard);
    case PlanKind::kJournal:
      return to_shard(snapshot.journal_shard);
    case PlanKind::kScatter:
      return of_kind(RouteKind::kScatter);
    case PlanKind::kBroadcast:
      return of_kind(RouteKind::kBroadcast);
    default:
      return refuse(plan.error);
  }
}

}  // namespace collegedb::routing
