// Plans by exact statement text, least recently used first out, bounded by bytes. One per worker,
// no lock. A plan depends on the registry of tables and on the search_path, never on the topology:
// a move invalidates nothing.
#pragma once

#include <boost/unordered/unordered_flat_map.hpp>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "proxy/wire/error.h"
#include "routing/route.h"

namespace collegedb::session {

// All statements of one text, or why it cannot be parsed.
struct TextPlan {
  std::vector<std::shared_ptr<const routing::Plan>> statements;
  std::optional<SqlError> error;
  std::int64_t registry_version = 0;
};

class PlanCache {
 public:
  explicit PlanCache(std::size_t max_bytes = 16 << 20) : max_bytes_(max_bytes) {}

  // Parses and plans on a miss. `search_path_text` identifies `search_path`.
  std::shared_ptr<const TextPlan> get(std::string_view sql, std::string_view search_path_text,
                                      const std::vector<std::string>& search_path,
                                      const routing::Snapshot& snapshot);

  [[nodiscard]] std::uint64_t hits() const noexcept { return hits_; }
  [[nodiscard]] std::uint64_t misses() const noexcept { return misses_; }
  [[nodiscard]] std::uint64_t evictions() const noexcept { return evictions_; }

 private:
  struct Entry {
    std::string sql;
    std::string search_path;
    std::shared_ptr<const TextPlan> plan;
    std::size_t bytes = 0;
  };
  using Order = std::list<Entry>;
  struct Key {
    std::string_view sql;
    std::string_view search_path;
    friend bool operator==(const Key&, const Key&) = default;
  };
  struct KeyHash {
    std::size_t operator()(const Key& key) const noexcept;
  };

  void evict();

  std::size_t max_bytes_;
  std::size_t bytes_ = 0;
  Order order_;  // most recent first; the map's keys are views of its strings
  boost::unordered_flat_map<Key, Order::iterator, KeyHash> index_;
  std::uint64_t hits_ = 0;
  std::uint64_t misses_ = 0;
  std::uint64_t evictions_ = 0;
};

// Without the cache: what PlanCache stores.
[[nodiscard]] std::shared_ptr<const TextPlan> plan_text(std::string_view sql,
                                                        const std::vector<std::string>& search_path,
                                                        const routing::Snapshot& snapshot);

}  // namespace collegedb::session
