// Looks for what moves must never leave behind, and puts right what can be proven. Background
// threads only.
//
// Every finding is a contradiction that no move under way shows at any moment: what has to agree is
// read in one snapshot of one shard, and whatever is compared with the journal is read before it
// (the journal knows of everything before a shard does). So it runs under load. Pages bound its
// memory; lists hold kMaxFindings entries, counts are exact.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "migration/runner.h"
#include "proxy/wire/error.h"

namespace collegedb::migration {

enum class FindingKind : std::uint8_t {
  kDanglingOp,       // an operation whose mover is dead, or claims of no operation
  kGhost,            // rows of a key on a shard that has its tombstone, or an open way to get some
  kStrandedArchive,  // a tombstone or an archive that the journal knows nothing of
  kStrandedCopy,     // what an aborted move has left on its destination, or a prepared half
  kStaleCutover,     // a tombstone whose move ended aborted
};
inline constexpr std::size_t kFindingKinds = 5;
// Column of collegedb_verify().
[[nodiscard]] std::string_view name_of(FindingKind kind) noexcept;

// Empty fields say nothing.
struct VerifyFinding {
  FindingKind kind = FindingKind::kDanglingOp;
  // rows, fence, unexamined; operation, claim; tombstone, archive; copy, prepared; cutover
  std::string_view what{};
  std::string op{};
  std::string shard{};
  std::string group{};
  std::string key{};        // the first of several
  std::string object{};     // table, or gid
  std::string reason{};     // why it is one; after a repair was tried, why it is still there
  bool restorable = false;  // of a stale cutover
};

struct FindingList {
  std::vector<VerifyFinding> first{};  // kMaxFindings at most
  std::int64_t count = 0;
};

struct VerifyResult {
  std::array<FindingList, kFindingKinds> remaining{};
  std::vector<VerifyFinding> repaired{};
  [[nodiscard]] bool clean() const;
  FindingList& operator[](FindingKind kind) { return remaining[static_cast<std::size_t>(kind)]; }
};

inline constexpr std::size_t kMaxFindings = 1000;

// JSON texts of the columns.
[[nodiscard]] std::string json_of(const std::vector<VerifyFinding>& findings);

// One verification, recorded in collegedb.verifications. With `repair`: recovery first, then what
// the rules of docs/moves-evidence.md prove; the rest stays as it is and is reported. Errors are
// values: a shard that cannot be reached leaves the verification unfinished.
[[nodiscard]] Result<VerifyResult> verify(const RunnerOptions& options, bool repair);

}  // namespace collegedb::migration
