// How much one key is: what a move of it would copy. Background threads only.
#pragma once

#include <cstdint>
#include <string>

#include "migration/control_session.h"
#include "routing/snapshot.h"

namespace collegedb::migration {

struct KeySize {
  std::int64_t rows = 0;   // in all tables of the group
  std::int64_t bytes = 0;  // of these as they are stored, compressed or out of line
};

// On the session's shard, by reading every row of the key. Throws SqlFailure.
[[nodiscard]] KeySize key_size(ControlSession& session, const routing::Snapshot& snapshot,
                               const routing::GroupKey& key);

}  // namespace collegedb::migration
