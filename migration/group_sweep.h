// Every distinct key of a group with the shards that have rows of it, in bounded memory. Reads
// only. Background threads only.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "migration/control_session.h"
#include "migration/table_catalog.h"
#include "proxy/config.h"

namespace collegedb::migration {

struct SweptKey {
  std::int32_t bucket = 0;  // of the gate
  std::string key{};
  std::vector<std::size_t> shards{};  // indexes into the configuration, ascending
};

// The shards sort their keys by bucket, a slice of buckets at a time, and the streams are merged
// here. No transaction is open between two calls. The shards are looked at one after another, so a
// key that comes, goes or moves meanwhile may be missed, or be seen on two shards or on its former
// one: look again before anything is concluded from it.
class GroupSweep {
 public:
  // `cluster` outlives it. `tables` of one group; those a shard lacks are passed over there.
  // Throws SqlFailure.
  GroupSweep(const Config& cluster, std::string group, const std::vector<RegisteredTable>& tables);
  ~GroupSweep();
  GroupSweep(const GroupSweep&) = delete;
  GroupSweep& operator=(const GroupSweep&) = delete;

  // Up to `most` more, in order of bucket; empty at the end. Throws SqlFailure.
  [[nodiscard]] std::vector<SweptKey> next(std::size_t most);

 private:
  class Stream;  // of one shard

  bool open_slice();  // false at the end

  std::string group_;
  std::vector<std::unique_ptr<Stream>> streams_;  // parallel to the cluster's shards
  std::int32_t first_ = 0;                        // bucket the slice begins with
  std::int32_t width_ = 0;                        // of a slice, in buckets
};

}  // namespace collegedb::migration
