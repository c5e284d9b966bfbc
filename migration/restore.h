// collegedb_restore: takes back what a finished move did. Background threads only.
#pragma once

#include <string>
#include <vector>

#include "migration/manifest.h"
#include "migration/runner.h"
#include "proxy/wire/error.h"

namespace collegedb::migration {

// Moves the keys of `op` back to its source from wherever they are now: ordinary journaled moves,
// one for each key, which carry everything that was written since. Only when no key of the
// operation has a row any more, and no later move has carried any, the archived rows are put back
// as they were archived, in one transaction on the source behind the fence of the keys.
//
// Cut off anywhere, another call does what is left. Steps: "moved" (all keys), "fenced", "changed",
// "committed". Results: one per key; op null for a key that was there already. Rows of the archive
// are counted in the first one. Errors are values: 42704 no such operation, 55000 one that is not
// finished, or whose archive is needed and purged, not whole or outdated; those of a move.
[[nodiscard]] Result<std::vector<MoveResult>> restore(Runner& runner, const std::string& op,
                                                      const StepHook& step = {});

}  // namespace collegedb::migration
