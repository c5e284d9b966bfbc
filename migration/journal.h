// The journal of moves on the journal shard (migration/sql/moves.sql): one session that holds the
// operation's advisory lock for as long as the mover lives, and in which alone it writes.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "migration/control_session.h"
#include "migration/session_pool.h"
#include "migration/shard.h"
#include "proxy/config.h"

namespace collegedb::migration {

// Turns a failed statement into a StepFailure. `decided`: nothing may be given up any more.
[[nodiscard]] StepFailure step_failure(const SqlFailure& failure);

// Throws StepFailure (kFenced): another mover or a recovery has the operation now.
[[noreturn]] void fenced(const MoveRecord& record);

// What is known of a key before it is claimed.
struct Directory {
  std::vector<GroupTable> tables;
  bool mapped = false;               // placement: a key without an entry is nowhere yet
  std::optional<std::string> entry;  // shard of the key's exception or mapping
};

struct ClaimResult {
  bool claimed = false;
  bool paused = false;  // not claimed: no move begins until collegedb_resume_moves()
  // Not claimed: the operation that has one of the keys.
  std::string op;
  std::string destination;
  std::string key;
};

class PgJournal final : public Journal {
 public:
  // Takes a session. Throws StepFailure (kLost). `pool` outlives this object.
  PgJournal(SessionPool& pool, const ShardConfig& shard, std::string scope);
  ~PgJournal() override;
  PgJournal(const PgJournal&) = delete;
  PgJournal& operator=(const PgJournal&) = delete;

  bool lock(const std::string& op) override;
  std::int64_t take_over(const MoveRecord& record) override;
  std::optional<MoveRecord> load(const std::string& op) override;
  std::vector<GroupTable> group_tables(const Unit& unit) override;
  bool record(const MoveRecord& record, State state) override;
  bool decide(const MoveRecord& record) override;
  void publish(const MoveRecord& record) override;
  void retire(const MoveRecord& record) override;
  void abort(const MoveRecord& record) override;

  // Recovery: the following take_over() calls need this lease, kFenced without it.
  struct Lease {
    std::string holder;
    std::int64_t generation = 0;
  };
  void require_lease(std::optional<Lease> lease) { lease_ = std::move(lease); }
  // nullopt while another lease is live.
  std::optional<Lease> take_lease(const std::string& holder, std::chrono::seconds span);
  bool has_lease(const Lease& lease);
  void release_lease(const Lease& lease);

  // Claims all keys for a new operation, whose row is written in state `claim`; its advisory lock
  // is taken before any of it can be seen.
  ClaimResult claim(const MoveRecord& record);
  Directory directory(const std::string& group, const std::string& key);
  // The unit's keys that have no mapping; none under computed placement.
  std::vector<std::string> unmapped(const Unit& unit);
  // Of these keys the ones that a rebalance leaves alone on `shard`: an operator has put them where
  // they are (exceptions of kind 'move'); under mapped placement those that are mapped elsewhere.
  std::vector<std::string> pinned(const std::string& group, const std::vector<std::string>& keys,
                                  const std::string& shard);
  std::vector<std::string> active_operations();
  // Of these, the ones whose lock is free right now.
  std::vector<std::string> orphaned_operations();
  // Deletes claims whose operation does not exist or has ended; returns how many.
  std::int64_t release_orphaned_claims();
  bool has_orphaned_claims();
  // Latest operation of a key.
  std::optional<std::string> latest(const std::string& group, const std::string& key);
  MoveStatus status(const std::string& op, const std::string& key);
  // State after asking; nullopt when there is no such operation.
  std::optional<State> request_cancel(const std::string& op);
  void unlock(const std::string& op);
  std::string new_operation_id();

 private:
  Rows run(std::string_view sql, std::initializer_list<SqlParameter> parameters);
  void require_open_topology(const Unit& unit);
  [[nodiscard]] bool is_mapped();
  std::map<std::string, std::string> mappings(const std::string& group,
                                              const std::vector<std::string>& keys);
  void require_mappings(const Unit& unit);
  std::vector<std::string> entries(const std::string& group, const std::vector<std::string>& keys,
                                   std::string_view condition);
  void write_exceptions(const MoveRecord& record);
  void write_mappings(const Unit& unit);

  SessionPool& pool_;
  std::string scope_;
  std::unique_ptr<ControlSession> session_;
  std::optional<Lease> lease_;
  std::optional<bool> mapped_;  // once it is known
};

}  // namespace collegedb::migration
