#include "routing/strategy.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <limits>
#include <utility>

#include "routing/hash.h"
#include "routing/regions.h"

namespace collegedb::routing {
namespace {

constexpr std::array kNames{std::pair{Strategy::kHash, std::string_view("hash")},
                            std::pair{Strategy::kRoundRobin, std::string_view("round-robin")},
                            std::pair{Strategy::kRandom, std::string_view("random")},
                            std::pair{Strategy::kLocation, std::string_view("location")}};

// Distances in degrees that count as equal.
constexpr double kEquallyNear = 0.01;

std::size_t by_hash(std::string_view key, std::size_t count) {
  const std::int64_t hash = college_hash(key);
  return static_cast<std::uint64_t>(hash < 0 ? -hash : hash) % count;
}

double distance(const Region& a, const Region& b) {
  return std::hypot(a.latitude - b.latitude, a.longitude - b.longitude);
}

std::size_t by_location(std::span<const Taker> takers, std::string_view key,
                        std::string_view target_region) {
  const Region* target = find_region(target_region);
  if (target == nullptr) return by_hash(key, takers.size());
  const auto far = [&](const Taker& taker) {
    const Region* region = find_region(taker.region);
    return region != nullptr ? distance(*region, *target) : std::numeric_limits<double>::infinity();
  };
  double best = std::numeric_limits<double>::infinity();
  for (const Taker& taker : takers) best = std::min(best, far(taker));
  if (std::isinf(best)) return by_hash(key, takers.size());
  std::vector<std::size_t> nearest;
  for (std::size_t i = 0; i < takers.size(); ++i) {
    if (far(takers[i]) <= best + kEquallyNear) nearest.push_back(i);
  }
  return nearest[by_hash(key, nearest.size())];
}

}  // namespace

std::string_view name_of(Strategy strategy) noexcept {
  for (const auto& [each, name] : kNames) {
    if (each == strategy) return name;
  }
  return "hash";
}

std::optional<Strategy> strategy_named(std::string_view name) noexcept {
  for (const auto& [each, known] : kNames) {
    if (known == name) return each;
  }
  return std::nullopt;
}

std::vector<Taker> eligible(std::span<const Taker> takers) {
  std::vector<Taker> out;
  std::copy_if(takers.begin(), takers.end(), std::back_inserter(out),
               [](const Taker& taker) { return !taker.full; });
  if (out.empty()) out.assign(takers.begin(), takers.end());
  return out;
}

std::size_t choose(Strategy strategy, std::span<const Taker> takers, std::string_view key,
                   std::uint64_t number, std::string_view target_region) {
  switch (strategy) {
    case Strategy::kRoundRobin:
    case Strategy::kRandom:
      return number % takers.size();
    case Strategy::kLocation:
      return by_location(takers, key, target_region);
    case Strategy::kHash:
      break;
  }
  return by_hash(key, takers.size());
}

}  // namespace collegedb::routing
