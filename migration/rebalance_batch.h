// Keys that go together in one operation. Pure.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "migration/misplaced.h"

namespace collegedb::migration {

struct RebalanceBatch {
  std::string group{};
  std::string destination{};
  std::vector<std::string> keys{};
  std::vector<std::int32_t> buckets{};  // of the keys, ascending
  std::int64_t rows = 0;                // when they were counted; 0 once it was divided
  int tries = 0;
};

// Puts whole gate buckets together until an operation is worth its price. Few are fenced at once,
// and a bucket is fenced once for each destination, unless its keys are too many for one operation.
class Batcher {
 public:
  // Then no further bucket. Rows that a client changes between copy and cutover are copied again
  // while writers of the whole operation wait, hence the second.
  static constexpr std::size_t kEnough = 256;  // keys
  static constexpr std::int64_t kEnoughRows = 1000;
  // Then the bucket is split.
  static constexpr std::size_t kMost = 1024;  // keys
  static constexpr std::int64_t kMostRows = 4000;
  static constexpr std::size_t kBuckets = 32;

  explicit Batcher(std::string group) : group_(std::move(group)) {}

  // REQUIRES: buckets ascend over all calls.
  void add(Misplaced key);
  // Closes what is still open.
  void finish();
  // What is closed, oldest first; taken by the caller.
  std::deque<RebalanceBatch> ready{};

 private:
  void close(std::map<std::string, RebalanceBatch>::iterator at);

  std::string group_;
  std::int32_t bucket_ = -1;
  std::map<std::string, RebalanceBatch> open_;  // by destination
};

// Two batches, each with half of the buckets. REQUIRES: more than one bucket.
[[nodiscard]] std::vector<RebalanceBatch> split_buckets(const RebalanceBatch& batch);
// Two halves. REQUIRES: more than one key.
[[nodiscard]] std::vector<RebalanceBatch> split_in_half(const RebalanceBatch& batch);
// The same batch with these keys alone.
[[nodiscard]] RebalanceBatch narrowed(const RebalanceBatch& batch, std::vector<std::string> keys);

}  // namespace collegedb::migration
