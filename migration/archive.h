// What becomes of rows that a move took away, besides their purge: compared with live rows, put
// back. The statements are those of plan.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "migration/control_session.h"
#include "migration/move.h"
#include "migration/plan.h"

namespace collegedb::migration {

// The plan of some keys by the catalogs of the session's shard. Throws SqlFailure, also for a
// problem that the catalogs show.
[[nodiscard]] MovePlan read_plan(ControlSession& session, const Unit& unit);

// Empty when the archive of unit.op on this shard is whole and fits the tables as they are now,
// else why not. `journaled`: digest of the operation; one without text proves nothing but that
// there are rows.
[[nodiscard]] std::string archive_flaw(ControlSession& session, const MovePlan& plan,
                                       const std::string& op, const Digest& journaled);

// Whether the live rows of the plan's keys are exactly those of these keys in the archive of the
// operation, and there are any. `keys` empty: all of the archive.
[[nodiscard]] bool equals_archive(ControlSession& session, const MovePlan& plan,
                                  const std::string& op, const std::vector<std::string>& keys);

// Stores the archived rows of `keys` (empty: all) in the tables again, by `writer` in its open
// transaction; `reader` is another session on the same shard. Throws SqlFailure:
// DESTINATION_CONFLICT when what is stored is not what the archive has, or references what is not
// there. REQUIRES: the plan's keys have no rows, and the writer holds their fence.
void put_back(ControlSession& reader, ControlSession& writer, const MovePlan& plan,
              const std::string& op, const std::vector<std::string>& keys);

// Whether the digest of the plan's rows is the journaled one, tables of schema collegedb aside.
[[nodiscard]] bool equals_journaled(ControlSession& session, const MovePlan& plan,
                                    const Digest& journaled);

// Keys of the plan with rows in one of its tables.
[[nodiscard]] std::vector<std::string> keys_present(ControlSession& session, const MovePlan& plan);

// The name of a foreign key by which a row outside of the plan's keys references one of theirs;
// empty when there is none. Keeps new references away until the transaction ends.
[[nodiscard]] std::string outside_reference(ControlSession& session, const MovePlan& plan);

}  // namespace collegedb::migration
