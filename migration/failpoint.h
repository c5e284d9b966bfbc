// Fail points: named places before and after every external effect of a move and of recovery,
// where a test can let the process die, lose an answer, wait or fail. Compiled in always; armed
// only in builds with tests (COLLEGEDB_TESTS), by COLLEGEDB_FAILPOINTS or by arm().
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace collegedb::migration {

class Failpoints {
 public:
  enum class Action {
    kCrash,      // _exit(137): nothing is flushed, closed or rolled back by this process
    kError,      // the step fails for good (refused)
    kMiss,       // the step fails for now (as if a lock was not to be had)
    kSleep,      // argument: milliseconds
    kWait,       // argument: a file; makes "<file>.here", goes on when the file exists
    kDropReply,  // the connection is lost after the effect happened (or before it)
  };
  struct Armed {
    Action action = Action::kError;
    std::string argument;
    int count = 1;  // times it fires; -1 = always
  };

  // Nothing armed.
  Failpoints() = default;
  // "name=action[:argument][*count],..." from the environment. Throws std::runtime_error when it is
  // malformed, names an unknown point, or is set in a build without tests.
  static std::shared_ptr<Failpoints> from_environment();

  // Throws std::runtime_error on an unknown name and in a build without tests.
  void arm(std::string_view name, Armed armed);

  void disarm();

  // REQUIRES: `name` is in all_points(). Counts the visit, then acts: returns, throws StepFailure,
  // or ends the process.
  void hit(std::string_view name);

  // Visits since construction, by name.
  [[nodiscard]] std::map<std::string, int, std::less<>> visits() const;

 private:
  void act(std::string_view name, const Armed& armed) const;

  mutable std::mutex mutex_;
  std::map<std::string, Armed, std::less<>> armed_;
  std::map<std::string, int, std::less<>> visits_;
};

// Every point there is: "<command>.before" and "<command>.after" for each command of the machine
// that has an effect, and the few in the middle of one.
[[nodiscard]] const std::vector<std::string>& all_points();

// The points in the middle of a command or outside of the machine.
namespace point {
inline constexpr std::string_view kClaimBefore = "claim.before";
inline constexpr std::string_view kClaimAfter = "claim.after";
inline constexpr std::string_view kCopyMiddle = "copy.middle";
inline constexpr std::string_view kFenceMiddle = "fence.middle";
inline constexpr std::string_view kRollbackMiddle = "rollback.middle";
inline constexpr std::string_view kRollbackHalvesMiddle = "rollback_halves.middle";
inline constexpr std::string_view kRaiseTokensMiddle = "raise_tokens.middle";
inline constexpr std::string_view kForgetTokensMiddle = "forget_tokens.middle";
inline constexpr std::string_view kLeaseBefore = "lease.before";
inline constexpr std::string_view kLeaseAfter = "lease.after";
inline constexpr std::string_view kReleaseBefore = "release_claims.before";
inline constexpr std::string_view kReleaseAfter = "release_claims.after";
}  // namespace point

}  // namespace collegedb::migration
