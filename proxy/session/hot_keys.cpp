#include "proxy/session/hot_keys.h"

#include <algorithm>
#include <boost/unordered/unordered_flat_map.hpp>
#include <tuple>
#include <utility>

namespace collegedb::session {
namespace {

constexpr double kNsPerSecond = 1e9;
constexpr double kMinute = 60;
constexpr std::uint64_t kMinuteNs = 60'000'000'000;
constexpr std::uint64_t kForgotten = 40;  // minutes after which nothing is left of a count

}  // namespace

void HotKeys::age(std::uint64_t now_ns) {
  if (!started_) {
    started_ = true;
    minute_began_ns_ = now_ns;
  }
  if (now_ns < minute_began_ns_ + kMinuteNs) {
    return;
  }
  const std::uint64_t minutes = (now_ns - minute_began_ns_) / kMinuteNs;
  minute_began_ns_ += minutes * kMinuteNs;
  for (std::uint64_t i = 0; i < std::min(minutes, kForgotten); ++i) {
    past_seconds_ = (past_seconds_ + kMinute) / 2;
  }
  const double factor =
      1.0 / static_cast<double>(std::uint64_t{1} << std::min(minutes, kForgotten));
  for (auto& set : sets_) {
    for (Cell& cell : set) {
      cell.count *= factor;
      cell.error *= factor;
      cell.writes *= factor;
    }
  }
}

void HotKeys::count(const routing::RoutedKey& key, routing::ShardId shard, bool write,
                    std::uint64_t now_ns) {
  if (key.key.size() > kLongestKey) {
    return;
  }
  age(now_ns);
  auto& set = sets_[static_cast<std::size_t>(key.bucket) % kSets];
  Cell* least = &set[0];
  for (Cell& cell : set) {
    if (cell.key == key.key && cell.group == key.group) {
      least = &cell;
      break;
    }
    if (cell.count < least->count) {
      least = &cell;
    }
  }
  if (least->key != key.key || least->group != key.group) {
    least->group = key.group;
    least->key = key.key;
    least->error = least->count;
    least->writes = 0;
  }
  least->shard = shard;
  least->count += 1;
  least->writes += write ? 1 : 0;
}

std::vector<HotKey> HotKeys::all(std::uint64_t now_ns) const {
  // The present minute may be long over when nothing was counted since.
  const double present = static_cast<double>(now_ns - minute_began_ns_) / kNsPerSecond;
  const double seconds = std::max(1.0, past_seconds_ + present);
  std::vector<HotKey> out;
  for (const auto& set : sets_) {
    for (const Cell& cell : set) {
      const double certain = cell.count - cell.error;
      if (certain > 0) {
        out.push_back({cell.group, cell.key, cell.shard, certain / seconds, cell.writes / seconds});
      }
    }
  }
  return out;
}

std::vector<HotKey> hottest(std::vector<HotKey> of_all_workers, std::size_t limit) {
  boost::unordered_flat_map<routing::GroupKey, std::size_t, routing::GroupKeyHash,
                            routing::GroupKeyEqual>
      seen;
  std::vector<HotKey> out;
  for (HotKey& each : of_all_workers) {
    const auto [at, is_new] = seen.try_emplace(routing::GroupKey{each.group, each.key}, out.size());
    if (is_new) {
      out.push_back(std::move(each));
      continue;
    }
    HotKey& same = out[at->second];
    if (each.statements_per_second > same.statements_per_second) {
      same.shard = each.shard;
    }
    same.statements_per_second += each.statements_per_second;
    same.writes_per_second += each.writes_per_second;
  }
  std::sort(out.begin(), out.end(), [](const HotKey& a, const HotKey& b) {
    return std::tie(b.statements_per_second, a.group, a.key) <
           std::tie(a.statements_per_second, b.group, b.key);
  });
  if (out.size() > limit) {
    out.resize(limit);
  }
  return out;
}

}  // namespace collegedb::session
