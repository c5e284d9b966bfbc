// Brings keys whose rows are where routing would not look for them into the directory: rows that
// came by a bulk load or a restored dump past the proxy, or that were there before the cluster was.
// Background threads only.
//
// Every distinct key with rows on any member shard is examined. Nothing is moved: a key whose rows
// are on one shard is from then on known to be there. What that would not settle soundly is
// reported as a conflict and left as it is. Why so: docs/adr/0012-import.md.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "migration/manifest.h"
#include "proxy/config.h"
#include "proxy/wire/error.h"

namespace collegedb::migration {

// Entries of a list in an answer; the count beside it is exact.
inline constexpr std::size_t kMostListed = 1000;

struct ImportRequest {
  std::string group;
  bool dry_run = false;  // nothing is written anywhere, no lock is taken
  // Asked now and then: the call ends early with 57P01.
  std::function<bool()> stopping{};
  // Steps, of each lot of keys: "held", "planted", "recorded".
  StepHook step{};
};

struct ImportConflict {
  std::optional<std::string> key;        // nullopt: rows without one
  std::vector<std::string> shards;       // with rows of it
  std::optional<std::string> directory;  // where the directory has it
  std::string reason;                    // and the way out
};

struct ImportResult {
  std::int64_t examined = 0;           // distinct keys
  std::int64_t mapped = 0;             // brought into the directory, or would be
  std::int64_t conflicts = 0;          // how many in all
  std::vector<ImportConflict> listed;  // the first kMostListed of them
};

// May be repeated at any time, also after a crash, and goes on from what is in the directory then.
// Errors: 55006 while epochs are being dropped, 40001 when the tables have changed meanwhile.
[[nodiscard]] Result<ImportResult> import_group(const Config& config, const ImportRequest& request);

}  // namespace collegedb::migration
