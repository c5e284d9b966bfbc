// What a mover does to a shard and to the journal, as verbs. Implemented over PostgreSQL by
// pg_shard.h and journal.h, in memory by the simulation.
//
// Every verb may throw StepFailure; an Event of kLost leaves it open whether the effect happened.
// One object belongs to one mover and is used by one thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "migration/machine.h"
#include "migration/move.h"
#include "migration/plan.h"
#include "proxy/wire/error.h"

namespace collegedb::migration {

class StepFailure : public std::runtime_error {
 public:
  StepFailure(Event event, SqlError error)
      : std::runtime_error(error.message), event_(event), error_(std::move(error)) {}
  [[nodiscard]] Event event() const noexcept { return event_; }
  [[nodiscard]] const SqlError& error() const noexcept { return error_; }

 private:
  Event event_;
  SqlError error_;
};

enum class Side : std::uint8_t { kSource, kDestination };

// "collegedb:<scope>:<op>:<attempt>:dst" or ":src".
[[nodiscard]] std::string gid_of(const Unit& unit, std::int32_t attempt, Side side);
// Attempt in the gid of a half of this operation; 0 for any other text.
[[nodiscard]] std::int32_t attempt_of(const Unit& unit, std::string_view gid);

// Token that a committed half leaves behind: whoever was cut off meanwhile finds the door closed.
inline constexpr std::int64_t kClosedToken = INT64_MAX;

// What one side shows of an operation.
struct SideEvidence {
  bool prepared = false;   // the half of the given attempt
  bool marker = false;     // `incoming` of this operation
  bool tombstone = false;  // of this operation, for every key of the unit
  bool archive = false;
  Found rows = Found::kNone;
};

class Shard {
 public:
  virtual ~Shard() = default;
  [[nodiscard]] virtual const std::string& name() const = 0;

  // Drops the sessions: what is neither prepared nor committed is gone. Never throws.
  virtual void close() noexcept = 0;

  // Catalogs of the group; no row is read.
  virtual GroupCatalog describe(const Unit& unit) = 0;
  // Must be called before any verb that touches rows.
  virtual void adopt(std::shared_ptr<const MovePlan> plan) = 0;

  // Makes the token row exist for this mover; kFenced when a newer one is there.
  virtual void install_token(const Unit& unit, std::int64_t token) = 0;
  // Recovery: no older mover can prepare anything here any more, unless a half of the current
  // attempt is prepared already. Ends backends of older movers that stand in the way, and rolls
  // back halves of older attempts; kFenced when there is one of a newer attempt.
  virtual void raise_token(const Unit& unit, std::int64_t token, std::int32_t attempt,
                           Side side) = 0;
  virtual void forget_token(const Unit& unit) = 0;

  // Source: opens a REPEATABLE READ transaction; returns its WAL position. Refuses when the shard
  // does not own the keys.
  virtual std::string begin_snapshot(const Unit& unit) = 0;
  // Source, in the snapshot, for a move that found no row: refuses when there are rows that routing
  // calls by one of the keys. Reads whole tables.
  virtual void refuse_unseen(const Unit& unit) = 0;
  virtual void end_snapshot() = 0;
  // Source: opens the cutover transaction: token, tables held against DDL, catalog as planned.
  virtual void begin_cutover(const Unit& unit, std::int64_t token) = 0;
  // Destination: opens the transaction that will hold the copy: token, no rows of others, old
  // tombstones removed, `incoming` marked.
  virtual void begin_import(const Unit& unit, std::int64_t token) = 0;
  // Destination: removes the copy made so far.
  virtual void clear_import() = 0;

  // Rows of one table of the plan, as the bytes of one COPY.
  virtual void copy_out(std::size_t table, const std::function<void(std::string_view)>& sink) = 0;
  virtual void copy_in_begin(std::size_t table) = 0;
  virtual void copy_in(std::string_view bytes) = 0;
  virtual void copy_in_end() = 0;

  // In the open transaction.
  virtual Digest digest() = 0;
  virtual std::int64_t count_rows() = 0;
  // Destination: rows of the copy that reference what is not there are a conflict.
  virtual void check_references() = 0;

  // In the open transaction, waiting at most `budget` in all; kMissed when it is not to be had.
  virtual void lock_sweep(std::chrono::milliseconds budget) = 0;
  virtual void lock_keys(const std::vector<std::int32_t>& buckets,
                         std::chrono::milliseconds budget) = 0;

  // Source: tombstones, archive, delete; digest of what was deleted.
  virtual Digest retire_rows(const Unit& unit) = 0;

  // Closes the token as its last act: that becomes true when the half commits.
  virtual void prepare(const Unit& unit, const std::string& gid) = 0;
  // Idempotent: kLost unless the half is committed afterwards, or was already.
  virtual void commit_prepared(const Unit& unit, const std::string& gid, Side side) = 0;
  // The open transaction, or the half that this object has prepared.
  virtual void rollback() = 0;
  // Recovery: halves of this operation up to the attempt. REQUIRES: the journal was reset in that
  // attempt. Then nobody can commit them any more, whoever else has taken over since; a newer
  // attempt may be another's, and decided.
  virtual void rollback_halves(const Unit& unit, std::int32_t attempt) = 0;
  // Deletes committed rows of the unit if they equal `expected`; false when they do not. Under the
  // token: who was cut off must not delete what has become the live copy since.
  virtual bool drop_copy(const Unit& unit, std::int64_t token, const Digest& expected) = 0;
  virtual void clear_incoming(const Unit& unit) = 0;

  virtual SideEvidence inspect(const Unit& unit, std::int32_t attempt, Side side,
                               const Digest& expected) = 0;
};

// One session on the journal shard. All writes are conditional on (op, token): kFenced otherwise.
class Journal {
 public:
  virtual ~Journal() = default;

  // Takes the operation's advisory lock in this session; false when its mover lives.
  virtual bool lock(const std::string& op) = 0;
  // Raises the token; returns the new one.
  virtual std::int64_t take_over(const MoveRecord& record) = 0;
  virtual std::optional<MoveRecord> load(const std::string& op) = 0;
  [[nodiscard]] virtual std::vector<GroupTable> group_tables(const Unit& unit) = 0;

  // Writes the state with all counters of the record; true when cancellation was asked for.
  virtual bool record(const MoveRecord& record, State state) = 0;
  // The decision. False when it was cancelled or the group has other tables now: nothing written.
  virtual bool decide(const MoveRecord& record) = 0;
  virtual void publish(const MoveRecord& record) = 0;
  virtual void retire(const MoveRecord& record) = 0;
  virtual void abort(const MoveRecord& record) = 0;
};

}  // namespace collegedb::migration
