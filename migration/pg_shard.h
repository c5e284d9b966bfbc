// Shard over PostgreSQL: one control session that carries the mover's transaction on that shard,
// COPY over libpq. Objects it uses: migration/sql/shard.sql. The guard that writers run against it:
// proxy/session/guard.h.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "migration/control_session.h"
#include "migration/session_pool.h"
#include "migration/shard.h"
#include "proxy/config.h"

namespace collegedb::migration {

// The answer to digest_sql, retire_sql or drop_sql of the plan.
[[nodiscard]] Digest digest_of(const MovePlan& plan, const Rows& rows);

class PgShard final : public Shard {
 public:
  // Takes a session at the first verb. `op` names it, so that recovery can end it. `pool` outlives
  // this object.
  PgShard(SessionPool& pool, ShardConfig shard, const std::string& op);
  ~PgShard() override { close(); }
  PgShard(const PgShard&) = delete;
  PgShard& operator=(const PgShard&) = delete;

  [[nodiscard]] const std::string& name() const override { return shard_.name; }
  void close() noexcept override;
  GroupCatalog describe(const Unit& unit) override;
  void adopt(std::shared_ptr<const MovePlan> plan) override;
  void install_token(const Unit& unit, std::int64_t token) override;
  void raise_token(const Unit& unit, std::int64_t token, std::int32_t attempt, Side side) override;
  void forget_token(const Unit& unit) override;
  std::string begin_snapshot(const Unit& unit) override;
  void refuse_unseen(const Unit& unit) override;
  void end_snapshot() override;
  void begin_cutover(const Unit& unit, std::int64_t token) override;
  void begin_import(const Unit& unit, std::int64_t token) override;
  void clear_import() override;
  void copy_out(std::size_t table, const std::function<void(std::string_view)>& sink) override;
  void copy_in_begin(std::size_t table) override;
  void copy_in(std::string_view bytes) override;
  void copy_in_end() override;
  Digest digest() override;
  std::int64_t count_rows() override;
  void check_references() override;
  void lock_sweep(std::chrono::milliseconds budget) override;
  void lock_keys(const std::vector<std::int32_t>& buckets,
                 std::chrono::milliseconds budget) override;
  Digest retire_rows(const Unit& unit) override;
  void prepare(const Unit& unit, const std::string& gid) override;
  void commit_prepared(const Unit& unit, const std::string& gid, Side side) override;
  void rollback() override;
  void rollback_halves(const Unit& unit, std::int32_t attempt) override;
  bool drop_copy(const Unit& unit, std::int64_t token, const Digest& expected) override;
  void clear_incoming(const Unit& unit) override;
  SideEvidence inspect(const Unit& unit, std::int32_t attempt, Side side,
                       const Digest& expected) override;

  // Where a key is, as the shard knows it: its tombstone, and whether it has rows of it.
  struct KeyState {
    std::optional<std::string> moved_to;
    std::string op;
    std::int64_t rows = 0;
  };
  KeyState locate(const Unit& unit);

 private:
  ControlSession& session();
  Rows run(const std::string& sql, std::initializer_list<SqlParameter> parameters = {});
  void begin(const Unit& unit, std::int64_t token);
  void set_local(std::string_view name, std::string_view value);
  void wait_at_most(std::chrono::milliseconds budget);
  void refuse_unequal_catalog(const Unit& unit);
  // Of keys of the unit: key and where it went.
  std::vector<std::pair<std::string, std::string>> tombstones(const Unit& unit);
  void refuse_tombstones(const Unit& unit);
  void refuse_rows(const Unit& unit);
  void refuse_outside_references(const Unit& unit);
  std::vector<std::string> halves(const Unit& unit);
  void rollback_prepared(const std::string& gid);
  bool try_raise(const Unit& unit, std::int64_t token);
  [[nodiscard]] const TablePlan* find_table(std::string_view label) const;
  [[noreturn]] void copy_failed();

  SessionPool& pool_;
  ShardConfig shard_;
  std::string application_name_;
  std::unique_ptr<ControlSession> session_;
  std::shared_ptr<const MovePlan> plan_;
  std::vector<std::vector<std::string>> fingerprints_;  // at describe()
  std::string prepared_;  // gid of the half this object has prepared and not yet ended
};

}  // namespace collegedb::migration
