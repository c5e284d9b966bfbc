// What the journal says of where keys of one group live: placement, epochs and the directory.
// Background threads only.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "migration/control_session.h"
#include "migration/placed_epochs.h"

namespace collegedb::migration {

class DirectoryView {
 public:
  // Throws SqlFailure.
  DirectoryView(ControlSession& journal, std::string scope, std::string group);

  // Placement and epochs once more. The epochs are those of `generation` or of a later one, never
  // of an earlier one: a shard that accepts `generation` has no writers by other epochs.
  void read_again(ControlSession& journal);

  [[nodiscard]] bool mapped() const { return mapped_; }
  [[nodiscard]] std::int64_t generation() const { return generation_; }
  // What counts under computed placement, beside exceptions.
  [[nodiscard]] const PlacedEpochs& epochs() const { return epochs_; }

  // Parallel to `keys`: the mapping, or the authoritative exception, as it is this moment.
  [[nodiscard]] std::vector<std::optional<std::string>> entries(
      ControlSession& journal, std::span<const std::string> keys) const;
  // Enters what has no entry as being on `shard`; returns the keys that are elsewhere by now. CDB01
  // when the topology has changed since it was read here. Throws SqlFailure. REQUIRES: a
  // transaction is open, and the keys are held (held_keys.h).
  [[nodiscard]] std::vector<std::string> enter(ControlSession& journal,
                                               std::span<const std::string> keys,
                                               const std::string& shard) const;
  // Makes every process load the exceptions that enter() has written: here since the last time, as
  // `entered` says, or in a process that has died since. Until then they find such keys by
  // tombstones. Mappings need none of this. Throws SqlFailure.
  void announce(ControlSession& journal, bool entered) const;

 private:
  std::string scope_;
  std::string group_;
  bool mapped_ = false;
  std::int64_t generation_ = 0;
  PlacedEpochs epochs_;
};

// What an operator is told when work on the directory ends with this.
[[nodiscard]] SqlError directory_error(const SqlFailure& failure);

}  // namespace collegedb::migration
