// What a move is: plain values shared by the machine, the journal, the shards and the callers.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "migration/machine.h"
#include "proxy/wire/error.h"

namespace collegedb::migration {

// One table of a colocation group, as the registry on the journal shard has it.
struct GroupTable {
  std::string schema{};
  std::string name{};
  std::string key_column{};
  friend bool operator==(const GroupTable&, const GroupTable&) = default;
};

// What one operation carries: some keys of one group, with all tables of the group.
struct Unit {
  std::string scope{};
  std::string op{};
  std::string group{};
  std::string source{};
  std::string destination{};
  std::vector<std::string> keys{};   // canonical text
  std::vector<GroupTable> tables{};  // sorted by schema and name
  std::chrono::seconds retire_after{0};
};

// Rows of a unit as one comparable value: independent of row order and of session settings.
// `text` has one entry per table: "schema.table=rows:hash:hash;".
struct Digest {
  std::string text{};
  std::int64_t rows = 0;  // of registered tables; what the move carries besides is in `text` only
  std::int64_t bytes = 0;
  friend bool operator==(const Digest& a, const Digest& b) { return a.text == b.text; }
};

// One row of collegedb.moves.
struct MoveRecord {
  Unit unit{};
  State state = State::kClaim;
  std::int32_t attempt = 0;
  std::int64_t token = 0;
  std::string error{};
  std::string position{};  // WAL position of the source's snapshot
  Digest digest{};
  std::int32_t copies = 0;
  std::optional<double> write_stall_ms{};
  double duration_ms = 0;
  bool cancel_requested = false;
  std::string rebalance{};  // the one it is a part of; empty = asked for by an operator
};

// What collegedb_reassign asks for.
struct MoveRequest {
  std::string group{};
  std::string key{};                                   // canonical text
  std::string shard{};                                 // destination
  std::optional<std::chrono::seconds> retire_after{};  // default: [migration] retire_after
  bool dry_run = false;
};

// Columns of collegedb_reassign, in that order. `op` is null when nothing had to be done and for
// a dry run.
struct MoveResult {
  std::optional<std::string> op{};
  std::string key{};
  std::string source{};
  std::string destination{};
  std::string state{};
  std::int32_t tables = 0;
  std::int64_t rows = 0;
  std::int64_t bytes = 0;
  std::int32_t copies = 0;
  std::optional<double> write_stall_ms{};
  double duration_ms = 0;
};

// collegedb_migration_status: a MoveResult with what an operator wants to know besides.
struct MoveStatus {
  MoveResult move{};
  std::string group{};
  std::int32_t attempt = 0;
  std::string error{};       // empty = none
  std::string started_at{};  // timestamptz text of the journal shard
  std::string updated_at{};
};

struct RecoveryFailure {
  std::string op{};
  std::string key{};
  std::string error{};
};

// Columns of collegedb_recover.
struct RecoveryResult {
  std::int64_t examined = 0;
  std::int64_t committed = 0;  // brought to retired
  std::int64_t aborted = 0;
  std::int64_t released = 0;  // claims without an operation
  std::int64_t skipped = 0;   // their mover lives
  std::vector<RecoveryFailure> failed{};
};

}  // namespace collegedb::migration
