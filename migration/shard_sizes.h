// Keeps the columns of collegedb.shards that tell how large each shard is. Any process may do it;
// what another one has measured a moment ago is not measured again. Background threads only, one at
// a time.
#pragma once

#include <memory>
#include <vector>

#include "migration/control_session.h"
#include "proxy/config.h"

namespace collegedb::migration {

class ShardSizes {
 public:
  // REQUIRES: `config` has a journal shard and outlives this object.
  explicit ShardSizes(const Config& config) : config_(config), sessions_(config.shards.size()) {}

  // Measures the members whose figures are older than half a minute. Never throws: a shard that
  // does not answer keeps its old figures, and their time tells.
  void refresh() noexcept;

 private:
  ControlSession& session(std::size_t shard);
  void measure(std::size_t shard);

  const Config& config_;
  std::vector<std::unique_ptr<ControlSession>> sessions_;  // kept between rounds
};

}  // namespace collegedb::migration
