// The repairing part of verify.h. Each repair holds its keys (key_hold.h), takes their fence on the
// shards that matter, proves there once more what it was called for, and changes one shard in one
// transaction: cut off anywhere it has been done or not.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "migration/control_session.h"
#include "migration/journal.h"
#include "migration/manifest.h"
#include "migration/verify.h"

namespace collegedb::migration {

class Repair {
 public:
  // Steps: "held" (keys, journal), "fenced", "changed" (before the commit), "led" (a stale
  // cutover: the destination leads back), "committed".
  Repair(const RunnerOptions& options, StepHook step);
  ~Repair();
  Repair(const Repair&) = delete;
  Repair& operator=(const Repair&) = delete;

  // Empty when the finding is put right; else why it is left as it is. Never throws for what the
  // shards say.
  [[nodiscard]] std::string attempt(const VerifyFinding& finding);
  // Whether a stale cutover would be restored now: the same proof without the fence.
  [[nodiscard]] std::string why_not_restorable(const VerifyFinding& finding);

 private:
  using Lease = std::unique_ptr<ControlSession>;
  class Fenced;

  std::string perform(const VerifyFinding& finding);
  std::string remove_ghost(const VerifyFinding& finding);
  std::string install_fence(const VerifyFinding& finding);
  std::string remove_copy(const VerifyFinding& finding);
  std::string end_half(const VerifyFinding& finding);
  std::string restore_cutover(const VerifyFinding& finding);
  std::string flaw_of_cutover(const MoveRecord& record, const std::string& shard,
                              ControlSession& source, ControlSession& destination);
  std::string flaw_of_copy(const MoveRecord& record, ControlSession& source,
                           ControlSession& destination);
  Lease lease(const std::string& shard);
  std::optional<MoveRecord> load(const std::string& op);
  void did(std::string_view step) const;

  const RunnerOptions& options_;
  StepHook step_;
  Lease journal_;
};

}  // namespace collegedb::migration
