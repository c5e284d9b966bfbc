// Schema changes over several shards as one: PREPARE TRANSACTION everywhere, one recorded decision
// on the journal shard, then COMMIT PREPARED everywhere. Gids are collegedb:<scope>:ddl:<uuid>.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "migration/cluster.h"
#include "migration/control_session.h"
#include "migration/schema_change.h"
#include "proxy/config.h"
#include "proxy/wire/error.h"

namespace collegedb::admin {

// One distributed commit, seen from its coordinator. Its session on the journal shard holds the
// advisory lock of the gid, so that recovery leaves the transaction alone while it lives.
class TwoPhase {
 public:
  enum class Outcome { kCommitted, kAborted, kUnknown };

  // Takes the lock and writes the row 'preparing'. REQUIRES: `coordinator` outside a transaction.
  TwoPhase(const Config& config, migration::ControlSession& coordinator);

  [[nodiscard]] const std::string& gid() const { return gid_; }

  // The decision, with the change of the registry in the same transaction. Only kUnknown leaves
  // the row to recovery without an answer.
  [[nodiscard]] Outcome commit(const migration::RegistryChange& change);
  [[nodiscard]] Outcome abort();

  // Ends the prepared halves by the decision; returns the shards where that has to wait for
  // recovery. Removes the row when there are none.
  std::vector<std::string> finish(Outcome outcome);

 private:
  [[nodiscard]] Outcome settle();

  const Config& config_;
  migration::ControlSession& coordinator_;
  std::string gid_;
};

// What recovery does: finishes transactions whose coordinator is dead, and rolls back halves that
// were prepared after their transaction had been given up. Foreign gids are never touched. Throws
// migration::SqlFailure when the journal cannot be read; a shard that cannot be reached is left for
// the next round. Returns how many transactions were finished.
int finish_two_phase(const Config& config);

}  // namespace collegedb::admin
