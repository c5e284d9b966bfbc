// Keeps every move, rebalance and change of the topology away from some keys while a repair or a
// restore looks at them and changes them.
#pragma once

#include <string>
#include <vector>

#include "migration/control_session.h"

namespace collegedb::migration {

// Claims of the keys that nobody ever sees: they are in an open transaction of the journal, for
// which whoever claims one of the keys waits, and which goes with the session. So nothing is left
// of a holder that dies. One that is cut off and wakes later has lost them without knowing: what it
// does to a shard must be proven on the shard, under the fence.
class KeyHold {
 public:
  // REQUIRES: the session is idle and outlives it. Throws SqlFailure.
  KeyHold(ControlSession& journal, const std::string& scope, const std::string& group,
          const std::vector<std::string>& keys);
  ~KeyHold();
  KeyHold(const KeyHold&) = delete;
  KeyHold& operator=(const KeyHold&) = delete;

  // False: a move has one of the keys, or epochs are being dropped.
  [[nodiscard]] bool taken() const { return taken_; }
  // Whether no other operation has had one of the keys since `op` began.
  [[nodiscard]] bool is_newest(const std::string& op);
  // Keeps purges away from the archive of `op` as well. False when one has begun.
  [[nodiscard]] bool keep_archive(const std::string& op);
  // Ends the hold with a line in the history of `op`.
  void release(const std::string& op, const std::string& note);

 private:
  ControlSession& journal_;
  std::string name_;
  bool taken_ = false;
  bool open_ = true;
};

// The condition of KeyHold::is_newest over collegedb.moves m.
[[nodiscard]] std::string_view newest_sql();

}  // namespace collegedb::migration
