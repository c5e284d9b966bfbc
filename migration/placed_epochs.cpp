#include "migration/placed_epochs.h"

#include <algorithm>
#include <charconv>

#include "migration/mappings.h"
#include "routing/route.h"

namespace collegedb::migration {
namespace {

using routing::ShardId;

ShardId named(routing::Snapshot& snapshot, const std::string& name) {
  if (const auto found = snapshot.find_shard(name)) return *found;
  snapshot.shards.push_back({.name = name});
  return static_cast<ShardId>(snapshot.shards.size() - 1);
}

std::string score_sql(const std::string& shard, const std::string& key) {
  return "pg_catalog.hashtextextended((" + quote_literal(shard) +
         " OPERATOR(pg_catalog.||) E'\\x01' OPERATOR(pg_catalog.||) " + key + ") COLLATE \"C\", 0)";
}

}  // namespace

PlacedEpochs::PlacedEpochs(const routing::Snapshot& snapshot) {
  snapshot_.placement = snapshot.placement;
  snapshot_.shards = snapshot.shards;
  std::copy_if(
      snapshot.epochs.begin(), snapshot.epochs.end(), std::back_inserter(snapshot_.epochs),
      [](const routing::Epoch& epoch) { return epoch.state == routing::EpochState::kActive; });
  if (snapshot_.placement == routing::Placement::kMapped) {
    for (routing::Epoch& epoch : snapshot_.epochs) epoch.algorithm = routing::Algorithm::kModulo;
  }
}

const std::string& PlacedEpochs::owner(std::string_view key) const {
  static const std::string nobody;
  const ShardId owner = routing::computed_owner(snapshot_, snapshot_.epochs.front(), key);
  return owner < snapshot_.shards.size() ? snapshot_.shards[owner].name : nobody;
}

std::string PlacedEpochs::home(std::string_view key, std::string_view here) const {
  const bool stays = snapshot_.placement == routing::Placement::kMapped && !leaves(here);
  return stays ? std::string(here) : owner(key);
}

bool PlacedEpochs::leaves(std::string_view here) const {
  const auto& shards = snapshot_.epochs.front().shards;
  return snapshot_.placement == routing::Placement::kMapped &&
         std::none_of(shards.begin(), shards.end(),
                      [&](ShardId shard) { return snapshot_.shards[shard].name == here; });
}

bool PlacedEpochs::places(std::string_view key, std::string_view shard, bool any) const {
  for (const routing::Epoch& epoch : snapshot_.epochs) {
    const ShardId owner = routing::computed_owner(snapshot_, epoch, key);
    if (owner < snapshot_.shards.size() && snapshot_.shards[owner].name == shard) return true;
    if (!any) return false;
  }
  return false;
}

bool PlacedEpochs::agree_on(std::string_view key) const {
  return routing::candidates(snapshot_, key).size() == 1;
}

// The scores are columns of a sub-select that the planner does not flatten: each is computed once.
std::string PlacedEpochs::home_sql(const std::string& key, std::string_view here) const {
  if (snapshot_.placement == routing::Placement::kMapped && !leaves(here)) {
    return quote_literal(here);
  }
  const routing::Epoch& epoch = snapshot_.epochs.front();
  const bool equal = std::all_of(epoch.weights.begin(), epoch.weights.end(),
                                 [&](double weight) { return weight == epoch.weights.front(); });
  if (epoch.algorithm != routing::Algorithm::kHrw || !equal) return {};
  std::vector<std::string> names;
  for (const ShardId shard : epoch.shards) names.push_back(snapshot_.shards[shard].name);
  std::sort(names.begin(), names.end());  // of equal scores the first by name counts
  std::string scores;
  std::string owner;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const std::string column = "s" + std::to_string(i);
    scores += (i > 0 ? ", " : "") + score_sql(names[i], key) + " AS " + column;
    if (i + 1 == names.size()) {
      owner += i > 0 ? " ELSE " + quote_literal(names[i]) + " END" : quote_literal(names[i]);
      break;
    }
    owner += i > 0 ? " WHEN " : "CASE WHEN ";
    for (std::size_t j = i + 1; j < names.size(); ++j) {
      owner +=
          (j > i + 1 ? " AND " : "") + column + " OPERATOR(pg_catalog.>=) s" + std::to_string(j);
    }
    owner += " THEN " + quote_literal(names[i]);
  }
  return "(SELECT " + owner + " FROM (SELECT " + scores + " OFFSET 0) AS scores)";
}

PlacedEpochs read_epochs(ControlSession& journal, const std::string& scope) {
  const Rows rows = journal.run(
      "SELECT id, algorithm, shards, weights FROM collegedb.epochs WHERE scope = $1"
      " AND state = 'active' ORDER BY id DESC",
      {scope});
  routing::Snapshot out;
  if (has_mapped_placement(journal, scope)) out.placement = routing::Placement::kMapped;
  for (int i = 0; i < rows.size(); ++i) {
    routing::Epoch epoch;
    epoch.id = static_cast<std::int32_t>(rows.int8(i, 0));
    epoch.algorithm =
        rows.view(i, 1) == "modulo" ? routing::Algorithm::kModulo : routing::Algorithm::kHrw;
    for (const std::string& name : rows.array(i, 2)) epoch.shards.push_back(named(out, name));
    for (const std::string& text : rows.array(i, 3)) {
      double weight = 1;
      std::from_chars(text.data(), text.data() + text.size(), weight);
      epoch.weights.push_back(weight);
    }
    out.epochs.push_back(std::move(epoch));
  }
  return PlacedEpochs(out);
}

}  // namespace collegedb::migration
