// What the active epochs say of a key, by shard names, as the journal has it this moment. No
// process's snapshot is asked: what it names may be older, or not configured here.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "migration/control_session.h"
#include "routing/snapshot.h"

namespace collegedb::migration {

class PlacedEpochs {
 public:
  // Names and epochs of the snapshot are kept. A publishing epoch places nothing.
  explicit PlacedEpochs(const routing::Snapshot& snapshot);

  [[nodiscard]] bool empty() const { return snapshot_.epochs.empty(); }
  // Owner under the newest one. REQUIRES: !empty().
  [[nodiscard]] const std::string& owner(std::string_view key) const;
  // Where a key belongs that is on shard `here`: its owner(). Under mapped placement that is where
  // it is, or, when the newest epoch does not name that shard any more, where hashing puts it among
  // those named. REQUIRES: !empty().
  [[nodiscard]] std::string home(std::string_view key, std::string_view here) const;
  // Under mapped placement: whether keys on that shard are to go.
  [[nodiscard]] bool leaves(std::string_view here) const;
  // Whether the shard is the key's owner under the newest epoch, or under any of them.
  [[nodiscard]] bool places(std::string_view key, std::string_view shard, bool any) const;
  // Whether the key has one owner under all of them.
  [[nodiscard]] bool agree_on(std::string_view key) const;

  // SQL expression of home(). `key` is an expression of type text that is named more than once.
  // Empty for a placement that SQL on a shard cannot evaluate. REQUIRES: !empty().
  [[nodiscard]] std::string home_sql(const std::string& key, std::string_view here) const;

 private:
  routing::Snapshot snapshot_;  // names of shards, and the active epochs, newest first
};

// Throws SqlFailure.
[[nodiscard]] PlacedEpochs read_epochs(ControlSession& journal, const std::string& scope);

}  // namespace collegedb::migration
