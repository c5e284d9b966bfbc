// One SELECT on every shard: rows streamed one shard after the other, or count(*) summed.
// The sweep lock keeps cutovers out while the shards take their snapshots, so that a moving key is
// seen exactly once; it is given back before the first row is read.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "proxy/session/pipeline.h"
#include "proxy/wire/frame.h"

namespace collegedb::session {

class SessionImpl;

struct ScatterRun {
  enum class Phase : std::uint8_t { kLeasing, kLocking, kRunning, kEnding };

  std::shared_ptr<const routing::Plan> plan;
  std::string sql;
  std::string bind;                  // extended: payload of the client's Bind
  std::vector<std::uint32_t> types;  // extended: parameter types declared in Parse
  bool extended = false;
  void (SessionImpl::*then)() = nullptr;

  Phase phase = Phase::kLeasing;
  std::vector<routing::ShardId> shards;      // of the cluster
  std::vector<std::unique_ptr<Link>> links;  // parallel to shards
  std::vector<std::size_t> order;            // of links, by shard name
  std::size_t locked = 0;                    // ordered: links locked so far
  bool ordered = false;                      // take the sweep locks one after the other
  bool lock_missed = false;                  // a cutover held one for too long
  bool stale = false;                        // a shard refuses this generation
  bool reloaded = false;
  std::optional<SqlError> error;

  std::string description;  // the first shard's RowDescription
  std::uint64_t rows = 0;
  std::int64_t count = 0;  // count(*)
  bool count_binary = false;

  [[nodiscard]] Link* find(LinkId id) const;
  // The first link that still owes something; nullptr when none does.
  [[nodiscard]] Link* owing() const;
  [[nodiscard]] std::string count_row() const;  // count(*)'s one DataRow
  // Empty, or how the shard's columns differ from the first one's.
  std::string add_description(const wire::Frame& frame);
  // False when the row is not the one number a count must be.
  bool add_count(std::string_view row);
};

class ScatterSlot {
 public:
  std::unique_ptr<ScatterRun> run;
  [[nodiscard]] bool active() const { return run != nullptr; }
  void reset_links(std::vector<Command>& commands);  // discards all of them
};

}  // namespace collegedb::session
