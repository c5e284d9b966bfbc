// The exclusive half of the fence that every guarded write passes: what a cutover, a repair and a
// restore take before they change whose a key is.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "migration/control_session.h"

namespace collegedb::migration {

// Gate buckets of the keys, sorted, each once.
[[nodiscard]] std::vector<std::int32_t> buckets_of(const std::string& group,
                                                   const std::vector<std::string>& keys);

// In the open transaction of the session: the queues of the buckets, then their gate rows. Waits by
// its lock_timeout for the first bucket, for no other one: who holds one bucket and waits for
// another could deadlock with a transaction of a client. Throws SqlFailure, 55P03 when one is in
// use. REQUIRES: the sweep lock is held; `buckets` is sorted and not empty.
void take_key_fence(ControlSession& session, std::span<const std::int32_t> buckets);

// BEGIN and the sweep lock, waiting `budget` at most for it and for each lock after it. Triggers
// that fire for ordinary sessions do not where the role may say so; the insert fence takes the
// writes for guarded. The sweep locks of all shards come before the key fence of any. Throws
// SqlFailure; the transaction is the caller's to end in any case.
void begin_fenced(ControlSession& session, bool replica_role, std::chrono::milliseconds budget);

}  // namespace collegedb::migration
