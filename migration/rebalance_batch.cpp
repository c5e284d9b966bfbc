#include "migration/rebalance_batch.h"

#include <set>
#include <utility>

#include "routing/hash.h"

namespace collegedb::migration {

void Batcher::add(Misplaced key) {
  if (key.bucket != bucket_) {
    bucket_ = key.bucket;
    for (auto at = open_.begin(); at != open_.end();) {
      const auto each = at++;
      if (each->second.keys.size() >= kEnough || each->second.rows >= kEnoughRows ||
          each->second.buckets.size() >= kBuckets) {
        close(each);
      }
    }
  }
  auto at = open_.try_emplace(key.destination).first;
  RebalanceBatch& batch = at->second;
  if (batch.buckets.empty() || batch.buckets.back() != key.bucket) {
    batch.buckets.push_back(key.bucket);
  }
  batch.keys.push_back(std::move(key.key));
  batch.rows += key.rows;
  if (batch.keys.size() >= kMost || batch.rows >= kMostRows) close(at);
}

void Batcher::finish() {
  while (!open_.empty()) close(open_.begin());
}

void Batcher::close(std::map<std::string, RebalanceBatch>::iterator at) {
  at->second.group = group_;
  at->second.destination = at->first;
  ready.push_back(std::move(at->second));
  open_.erase(at);
}

RebalanceBatch narrowed(const RebalanceBatch& batch, std::vector<std::string> keys) {
  std::set<std::int32_t> buckets;
  for (const std::string& key : keys) buckets.insert(routing::gate_bucket(batch.group, key));
  return {.group = batch.group,
          .destination = batch.destination,
          .keys = std::move(keys),
          .buckets = {buckets.begin(), buckets.end()},
          .tries = batch.tries};
}

std::vector<RebalanceBatch> split_buckets(const RebalanceBatch& batch) {
  const std::int32_t middle = batch.buckets[batch.buckets.size() / 2];
  std::vector<std::string> low;
  std::vector<std::string> high;
  for (const std::string& key : batch.keys) {
    (routing::gate_bucket(batch.group, key) < middle ? low : high).push_back(key);
  }
  return {narrowed(batch, std::move(low)), narrowed(batch, std::move(high))};
}

std::vector<RebalanceBatch> split_in_half(const RebalanceBatch& batch) {
  const auto middle = batch.keys.begin() + static_cast<std::ptrdiff_t>(batch.keys.size() / 2);
  return {narrowed(batch, {batch.keys.begin(), middle}),
          narrowed(batch, {middle, batch.keys.end()})};
}

}  // namespace collegedb::migration
