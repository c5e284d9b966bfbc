// Which shard takes a key that nobody has yet, under mapped placement. Pure: what has to be counted
// or drawn is the caller's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace collegedb::routing {

enum class Strategy : std::uint8_t {
  kHash,        // CollegeDB's hash of the key, modulo the number of shards
  kRoundRobin,  // one after the other
  kRandom,
  kLocation,  // nearest to the target region; among equally near ones by hash
};
[[nodiscard]] std::string_view name_of(Strategy strategy) noexcept;
[[nodiscard]] std::optional<Strategy> strategy_named(std::string_view name) noexcept;

// A shard of the newest epoch.
struct Taker {
  std::string shard;
  std::string region;  // empty = none
  bool full = false;   // has reached its max_size
};

// Those that may take new keys, in the order given: the ones that are not full, or all when all
// are.
[[nodiscard]] std::vector<Taker> eligible(std::span<const Taker> takers);

// An index into `takers`. `number` counts the keys for round-robin and is drawn for random, else it
// is not looked at. `target_region` is location's; takers without a region it knows are passed over
// unless all are. REQUIRES: `takers` is not empty.
[[nodiscard]] std::size_t choose(Strategy strategy, std::span<const Taker> takers,
                                 std::string_view key, std::uint64_t number,
                                 std::string_view target_region);

}  // namespace collegedb::routing
