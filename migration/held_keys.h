// Keeps keys from being moved while somebody settles where they live. The claims are written and
// deleted within one transaction: nobody ever sees them, whoever wants to claim one of the keys
// waits until the transaction ends, and a crash leaves nothing. Background threads only.
#pragma once

#include <map>
#include <span>
#include <string>

#include "migration/control_session.h"

namespace collegedb::migration {

class HeldKeys {
 public:
  // Claims what no operation has. 55006 while tables are being registered or epochs dropped: what
  // the directory says is fixed then. Throws SqlFailure. REQUIRES: a transaction at READ COMMITTED
  // is open in `journal`, which outlives this object; what depends on the claims is read after
  // this.
  HeldKeys(ControlSession& journal, std::string scope, std::string group,
           std::span<const std::string> keys);

  // Keys that are not held, with the operation that moves them; empty for one that has just ended.
  [[nodiscard]] const std::map<std::string, std::string>& moving() const { return moving_; }
  [[nodiscard]] bool holds(const std::string& key) const { return !moving_.contains(key); }

  // Before the transaction commits. Throws SqlFailure.
  void release();

 private:
  Rows claim(const std::string& group, const std::string& keys);

  ControlSession& journal_;
  std::string scope_;
  std::string op_;
  std::map<std::string, std::string> moving_;
};

// Of `keys` those that an operation has, with the operation. Throws SqlFailure.
[[nodiscard]] std::map<std::string, std::string> keys_being_moved(
    ControlSession& journal, const std::string& scope, const std::string& group,
    std::span<const std::string> keys);

}  // namespace collegedb::migration
