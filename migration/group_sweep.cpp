#include "migration/group_sweep.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "migration/key_slices.h"
#include "routing/hash.h"

namespace collegedb::migration {
namespace {

constexpr int kFetch = 2000;

SessionOptions sweep_options() {
  SessionOptions options;
  options.application_name = "collegedb sweep";
  options.statement_timeout = std::chrono::milliseconds{0};
  options.dies_with_client = true;
  return options;
}

}  // namespace

class GroupSweep::Stream {
 public:
  Stream(const ShardConfig& shard, const std::vector<RegisteredTable>& tables)
      : session_(shard, sweep_options()), tables_(present_tables(session_, tables)) {}

  std::int32_t width() { return slice_width(session_, tables_); }

  // WITH HOLD: what was found outlives its transaction, on the server's disk if need be.
  void open(const std::string& group, std::int32_t first, std::int32_t last) {
    page_.reset();
    if (tables_.empty()) return;
    Transaction transaction(session_, "BEGIN READ ONLY");
    session_.run("SET LOCAL max_parallel_workers_per_gather = 0");
    session_.run("SET LOCAL jit = off");
    session_.run("DECLARE collegedb_sweep NO SCROLL CURSOR WITH HOLD FOR SELECT b, k FROM (" +
                 distinct_keys_sql(group, tables_, first, last) + ") AS keys ORDER BY b, k");
    transaction.commit();
    fetch();
  }

  [[nodiscard]] bool at_end() const { return !page_; }
  [[nodiscard]] std::int32_t bucket() const {
    return static_cast<std::int32_t>(page_->int8(at_, 0));
  }
  [[nodiscard]] std::string_view key() const { return page_->view(at_, 1); }
  [[nodiscard]] auto place() const { return std::pair(bucket(), key()); }

  void advance() {
    if (++at_ == page_->size()) fetch();
  }

 private:
  void fetch() {
    at_ = 0;
    page_.emplace(session_.run("FETCH " + std::to_string(kFetch) + " FROM collegedb_sweep"));
    if (!page_->empty()) return;
    page_.reset();
    session_.run("CLOSE collegedb_sweep");
  }

  ControlSession session_;
  std::vector<RegisteredTable> tables_;
  std::optional<Rows> page_;  // nullopt = nothing more in this slice
  int at_ = 0;
};

GroupSweep::GroupSweep(const Config& cluster, std::string group,
                       const std::vector<RegisteredTable>& tables)
    : group_(std::move(group)), width_(routing::kGateBuckets) {
  for (const ShardConfig& shard : cluster.shards) {
    streams_.push_back(std::make_unique<Stream>(shard, tables));
    width_ = std::min(width_, streams_.back()->width());
  }
}

GroupSweep::~GroupSweep() = default;

bool GroupSweep::open_slice() {
  if (first_ >= routing::kGateBuckets) return false;
  const std::int32_t end = std::min(first_ + width_, routing::kGateBuckets);
  for (const auto& stream : streams_) stream->open(group_, first_, end - 1);
  first_ = end;
  return true;
}

// Keys are in the order of their bytes on every shard (COLLATE "C"), as std::string_view has them.
std::vector<SweptKey> GroupSweep::next(std::size_t most) {
  std::vector<SweptKey> out;
  while (out.size() < most) {
    const Stream* least = nullptr;
    for (const auto& stream : streams_) {
      if (stream->at_end()) continue;
      if (least == nullptr || stream->place() < least->place()) least = stream.get();
    }
    if (least == nullptr) {
      if (!open_slice()) return out;
      continue;
    }
    SweptKey& key = out.emplace_back(SweptKey{least->bucket(), std::string(least->key())});
    for (std::size_t i = 0; i < streams_.size(); ++i) {
      Stream& stream = *streams_[i];
      if (stream.at_end() || stream.bucket() != key.bucket || stream.key() != key.key) continue;
      key.shards.push_back(i);
      stream.advance();
    }
  }
  return out;
}

}  // namespace collegedb::migration
