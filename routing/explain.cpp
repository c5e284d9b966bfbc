#include "routing/explain.h"

#include <algorithm>

namespace collegedb::routing {
namespace {

std::string join(const std::vector<std::string>& parts) {
  std::string out;
  for (const std::string& part : parts) {
    if (!out.empty()) out += ", ";
    out += part;
  }
  return out;
}

std::vector<std::string> names(const Snapshot& snapshot) {
  std::vector<std::string> out;
  for (const ShardId shard : snapshot.members()) out.push_back(snapshot.shards[shard].name);
  return out;
}

std::vector<std::string> keys_of(const Route& route) {
  std::vector<std::string> out;
  for (const RoutedKey& key : route.keys) out.push_back(key.key);
  return out;
}

std::string_view kind_name(const Plan& plan, const Route& route) {
  if (route.kind == RouteKind::kRefuse) return "refused";
  switch (plan.kind) {
    case PlanKind::kKeyed:
      return plan.writes ? "keyed write" : "keyed read";
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
      break;
  }
  return "only shard";
}

// The first parameter that a key depends on and that has no value here.
std::optional<std::uint16_t> missing_parameter(const Plan& plan, std::size_t given) {
  const auto found = std::find_if(plan.keys.begin(), plan.keys.end(), [&](const KeySource& key) {
    return key.value.kind == parser::Value::Kind::kParam && key.value.param > given;
  });
  if (found == plan.keys.end()) return std::nullopt;
  return found->value.param;
}

std::string reason_of(const Plan& plan, const Route& route, const Snapshot& snapshot) {
  switch (route.kind) {
    case RouteKind::kRefuse:
      return route.error.message;
    case RouteKind::kScatter:
      return plan.count_star ? "count(*) is the sum over all shards"
                             : "no key: the rows of all shards, one shard after the other";
    case RouteKind::kBroadcast:
      return "runs on every shard";
    case RouteKind::kAdmin:
      return "performed by the proxy's control plane";
    case RouteKind::kSession:
      return "answered by the session";
    case RouteKind::kAnyShard:
      if (plan.kind == PlanKind::kReference) return "every shard has the same rows";
      return plan.kind == PlanKind::kKeyed ? "no row can match" : "no table: any shard will do";
    case RouteKind::kShard:
      break;
  }
  if (!route.keys.empty()) return "via " + std::string(name_of(route.via));
  if (snapshot.shards.size() == 1) return "there is one shard";
  return "local tables and catalogs live on the journal shard";
}

// Where the directory has the keys, and what is to be said of those it does not have.
void explain_mapped(const Route& route, const Snapshot& snapshot, const Directory& directory,
                    Explanation& out) {
  out.shards.clear();
  if (!directory) return;
  for (const RoutedKey& key : route.keys) {
    const auto shard = directory(key);
    if (shard.has_error()) {
      out.shards.clear();
      out.reason = shard.error().message;
      return;
    }
    if (!*shard) {
      out.reason = "key " + key.key + " has no mapping yet: the first write gives it one";
      continue;
    }
    const std::string& name = snapshot.shards[**shard].name;
    if (std::find(out.shards.begin(), out.shards.end(), name) == out.shards.end()) {
      out.shards.push_back(name);
    }
  }
  if (out.shards.size() > 1) {
    out.kind = "refused";
    out.reason = "the keys of this statement are on different shards";
  }
}

}  // namespace

Explanation explain(const Plan& plan, std::span<const Parameter> parameters,
                    const Snapshot& snapshot, const Directory& directory) {
  const Route routed = route(plan, parameters, snapshot);
  Explanation out;
  if (!plan.table.empty()) out.table = plan.table;
  out.kind = kind_name(plan, routed);
  out.reason = reason_of(plan, routed, snapshot);
  if (const auto missing = missing_parameter(plan, parameters.size());
      missing && routed.kind == RouteKind::kRefuse) {
    out.kind = plan.writes ? "keyed write" : "keyed read";
    out.reason = "the key is parameter $" + std::to_string(*missing);
    return out;
  }
  if (routed.kind == RouteKind::kShard) {
    out.shards = {snapshot.shards[routed.shard].name};
  } else if (routed.kind == RouteKind::kScatter || routed.kind == RouteKind::kBroadcast ||
             routed.kind == RouteKind::kAnyShard) {
    out.shards = names(snapshot);
  }
  if (!routed.keys.empty()) out.key = join(keys_of(routed));
  if (routed.via == Via::kMapping) explain_mapped(routed, snapshot, directory, out);
  return out;
}

std::string explain_line(const Plan& plan, const Route& route, const Snapshot& snapshot) {
  std::string out = "CollegeDB: ";
  switch (route.kind) {
    case RouteKind::kShard:
      out += route.via == Via::kMapping ? "the key's shard"
                                        : "shard " + snapshot.shards[route.shard].name;
      break;
    case RouteKind::kAnyShard:
      out += "any shard";
      break;
    case RouteKind::kScatter:
    case RouteKind::kBroadcast:
      out += "shards " + join(names(snapshot));
      break;
    default:
      out += kind_name(plan, route);
      break;
  }
  if (!route.keys.empty()) {
    out += route.keys.size() == 1 ? ", key " : ", keys ";
    out += plan.table + "(" + join(keys_of(route)) + ")";
    out += ", via ";
    out += name_of(route.via);
  }
  return out;
}

}  // namespace collegedb::routing
