// The keys that the statements of one worker name most: a sketch of fixed size, so that an operator
// learns which key to move without anybody counting all of them. Pure, one thread.
//
// Space-Saving (Metwally, Agrawal, El Abbadi, "Efficient computation of frequent and top-k elements
// in data streams", 2005) within sets of a few cells, as a CPU cache is divided: a new key takes
// the cell of the least frequent one of its set and inherits its count as a possible error. Counts
// are halved every minute, so what was hot an hour ago is not hot now.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "routing/route.h"

namespace collegedb::session {

struct HotKey {
  std::string group;
  std::string key;                             // canonical text
  routing::ShardId shard = routing::kNoShard;  // where the last statement went
  // Over about the last two minutes; never more than there were.
  double statements_per_second = 0;
  double writes_per_second = 0;  // of these
};

class HotKeys {
 public:
  static constexpr std::size_t kSets = 256;
  static constexpr std::size_t kWays = 8;
  // Longer keys are not counted: the sketch has at most kSets * kWays of them.
  static constexpr std::size_t kLongestKey = 256;

  // A statement that names `key` is sent to `shard`. `now_ns`: of a steady clock.
  void count(const routing::RoutedKey& key, routing::ShardId shard, bool write,
             std::uint64_t now_ns);

  // Every key in the sketch that is certain to have been counted, in no order.
  [[nodiscard]] std::vector<HotKey> all(std::uint64_t now_ns) const;

 private:
  struct Cell {
    std::string group;
    std::string key;
    routing::ShardId shard = routing::kNoShard;
    double count = 0;
    double error = 0;  // part of count that may be another key's
    double writes = 0;
  };

  // Halves everything once for each minute that has ended.
  void age(std::uint64_t now_ns);

  std::array<std::array<Cell, kWays>, kSets> sets_{};
  bool started_ = false;
  std::uint64_t minute_began_ns_ = 0;
  double past_seconds_ = 0;  // of earlier minutes, halved as the counts are
};

// The `limit` most frequent ones; what several workers have counted is added up.
[[nodiscard]] std::vector<HotKey> hottest(std::vector<HotKey> of_all_workers, std::size_t limit);

}  // namespace collegedb::session
