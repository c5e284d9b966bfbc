// Compares the ledger of allocations (collegedb.allocations: where a strategy put a key when it was
// first written) with where routing has the key now, and with the rows that are there. Background
// threads only.
//
// Nothing is ever moved and no disagreement is resolved: what can be put right without a doubt is a
// mapping that is lost. Why mappings stay when their ledger entry goes: docs/adr/0011-reconcile.md.
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

struct ReconcileRequest {
  std::optional<std::int64_t> max_rows;  // entries examined, in order of group and key; all
  // Text of a text[]: tables in which an entry's record is looked for. nullopt or empty = none.
  std::optional<std::string> verify_tables;
  std::vector<std::string> search_path{};  // for names without a schema; public comes last
  bool repair = false;
  bool prune_verified = false;
  // Asked now and then: the call ends early with 57P01.
  std::function<bool()> stopping{};
  // Steps, of each page of entries: "held", "settled".
  StepHook step{};
};

// An entry of the ledger that is listed in an answer.
struct LedgerKey {
  std::string group;
  std::string key;
  std::string ledger;                  // shard
  std::optional<std::string> routing;  // shard; nullopt: no mapping
};

struct ReconcileResult {
  std::int64_t examined = 0;        // = routing_agreed + disagreeing
  std::int64_t routing_agreed = 0;  // the same shard, or a published move brought the key there
  std::int64_t record_verified = 0;
  std::int64_t record_missing = 0;
  std::int64_t record_unchecked = 0;
  std::int64_t disagreeing = 0;
  std::vector<LedgerKey> missing;  // the first kMostListed (import.h) of each
  std::vector<LedgerKey> disagreeing_keys;
  std::int64_t repaired = 0;  // mappings that were written again; agreed since then
  std::int64_t pruned = 0;    // ledger entries that are gone
};

// May be repeated at any time, also after a crash. Errors: RECONCILE_VERIFY_REQUIRED, 22023 for a
// max_rows below 1, COORDINATOR_NOT_CONFIGURED, UNKNOWN_TABLE, 55006 while epochs are being dropped
// and something would have to be written.
[[nodiscard]] Result<ReconcileResult> reconcile(const Config& config,
                                                const ReconcileRequest& request);

}  // namespace collegedb::migration
