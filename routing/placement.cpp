// Owner of a key: exceptions first, then the newest epoch. Under mapped placement only the
// directory knows.
#include <algorithm>
#include <cmath>

#include "routing/hash.h"
#include "routing/route.h"

namespace collegedb::routing {
namespace {

double weight_of(const Epoch& epoch, std::size_t index) {
  return index < epoch.weights.size() ? epoch.weights[index] : 1.0;
}

bool equal_weights(const Epoch& epoch) {
  for (std::size_t i = 1; i < epoch.shards.size(); ++i) {
    if (weight_of(epoch, i) != weight_of(epoch, 0)) return false;
  }
  return true;
}

// Rendezvous with weights: with u uniform in (0, 1) and increasing in the hash, the greatest
// -weight / ln(u) wins each shard its share of the keys. Equal weights need no logarithm, and then
// agree with collegedb.owner() in SQL.
double weighted_score(std::int64_t score, double weight) {
  const auto ordered = static_cast<std::uint64_t>(score) ^ (std::uint64_t{1} << 63);
  const double u = (static_cast<double>(ordered >> 11) + 0.5) * 0x1p-53;
  return weight > 0 ? -weight / std::log(u) : 0;
}

ShardId hrw_owner(const Snapshot& snapshot, const Epoch& epoch, std::string_view key) {
  const bool plain = equal_weights(epoch);
  ShardId best = kNoShard;
  std::int64_t best_score = 0;
  double best_weighted = 0;
  for (std::size_t i = 0; i < epoch.shards.size(); ++i) {
    const ShardId shard = epoch.shards[i];
    const std::string& name = snapshot.shards[shard].name;
    const std::int64_t score = hrw_score(name, key);
    const double weighted = plain ? 0 : weighted_score(score, weight_of(epoch, i));
    if (!plain && weighted == 0) continue;
    const auto rank = [&] {
      if (best == kNoShard || weighted > best_weighted) return true;
      if (weighted < best_weighted) return false;
      if (score != best_score) return score > best_score;
      return name < snapshot.shards[best].name;
    };
    if (!rank()) continue;
    best = shard;
    best_score = score;
    best_weighted = weighted;
  }
  return best;
}

ShardId modulo_owner(const Epoch& epoch, std::string_view key) {
  if (epoch.shards.empty()) return kNoShard;
  const std::int64_t hash = college_hash(key);
  const auto magnitude = static_cast<std::uint64_t>(hash < 0 ? -hash : hash);
  return epoch.shards[magnitude % epoch.shards.size()];
}

}  // namespace

ShardId computed_owner(const Snapshot& snapshot, const Epoch& epoch, std::string_view key) {
  return epoch.algorithm == Algorithm::kHrw ? hrw_owner(snapshot, epoch, key)
                                            : modulo_owner(epoch, key);
}

Owner locate(const Snapshot& snapshot, std::string_view group, std::string_view key) {
  if (snapshot.placement == Placement::kMapped) {
    const auto newest =
        std::find_if(snapshot.epochs.begin(), snapshot.epochs.end(),
                     [](const Epoch& epoch) { return epoch.state == EpochState::kActive; });
    if (newest == snapshot.epochs.end() || newest->shards.empty()) return {kNoShard, Via::kNone};
    return {newest->shards.front(), Via::kMapping};
  }
  if (snapshot.exceptions != nullptr && !snapshot.exceptions->empty()) {
    const auto found = snapshot.exceptions->find(GroupKeyView{group, key});
    if (found != snapshot.exceptions->end()) return {found->second, Via::kException};
  }
  const Candidates owners = candidates(snapshot, key);
  if (owners.empty()) return {kNoShard, Via::kNone};
  return {owners.front(), owners.size() > 1 ? Via::kEpoch : Via::kComputed};
}

Candidates candidates(const Snapshot& snapshot, std::string_view key) {
  Candidates out;
  if (snapshot.placement == Placement::kMapped) return out;
  for (const Epoch& epoch : snapshot.epochs) {
    if (epoch.state != EpochState::kActive) continue;
    const ShardId owner = computed_owner(snapshot, epoch, key);
    if (owner != kNoShard && std::find(out.begin(), out.end(), owner) == out.end()) {
      out.push_back(owner);
    }
  }
  return out;
}

}  // namespace collegedb::routing
