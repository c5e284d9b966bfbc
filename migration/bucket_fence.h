// The exclusive side of a gate bucket's fence, for whoever settles where keys live while their rows
// stay where they are. Background threads only.
#pragma once

#include <cstdint>

#include "migration/control_session.h"

namespace collegedb::migration {

// Opens a transaction at READ COMMITTED that no guarded statement of the bucket's keys can pass on
// this shard: what ran has ended, what comes waits until the transaction ends and then looks for
// tombstones. Waits for the session's lock_timeout at most (55P03).
// Refused with CDB01 when the shard has a newer topology than `generation`, as any write is: what
// the caller knows of the keys' owners may not be true any more. Throws SqlFailure and leaves the
// transaction to be rolled back then.
void open_bucket_fence(ControlSession& session, std::int32_t bucket, std::int64_t generation);

}  // namespace collegedb::migration
