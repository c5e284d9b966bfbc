#include "proxy/session/plan_cache.h"

#include <boost/container_hash/hash.hpp>

#include "parser/analyze.h"

namespace collegedb::session {
namespace {

// A text this long is planned each time: it would push out many useful plans.
constexpr std::size_t kMaxCachedText = 64 << 10;
// What an entry costs beside its text: the tree is a few times the size of the text.
constexpr std::size_t kTreeFactor = 8;
constexpr std::size_t kEntryOverhead = 512;

// A leading comment that sets collegedb.*: no part of the statement's tree, and too much meant by
// its author to be passed over.
bool has_hint(std::string_view sql) {
  const std::size_t begin = sql.find_first_not_of(" \t\r\n\f\v");
  if (begin == std::string_view::npos || !sql.substr(begin).starts_with("/*")) return false;
  return sql.substr(begin, sql.find("*/", begin) - begin).find("collegedb.") !=
         std::string_view::npos;
}

}  // namespace

std::size_t PlanCache::KeyHash::operator()(const Key& key) const noexcept {
  std::size_t seed = std::hash<std::string_view>{}(key.sql);
  boost::hash_combine(seed, std::hash<std::string_view>{}(key.search_path));
  return seed;
}

std::shared_ptr<const TextPlan> plan_text(std::string_view sql,
                                          const std::vector<std::string>& search_path,
                                          const routing::Snapshot& snapshot) {
  auto plan = std::make_shared<TextPlan>();
  plan->registry_version = snapshot.registry_version;
  if (has_hint(sql)) {
    plan->error = make_error("0A000", "routing hints (collegedb.*) are not supported yet",
                             "Restrict the statement to one key instead.");
    return plan;
  }
  auto statements = parser::analyze(sql);
  if (!statements) {
    plan->error = statements.error();
    return plan;
  }
  plan->statements.reserve(statements->size());
  for (auto& statement : *statements) {
    plan->statements.push_back(routing::make_plan(std::move(statement), snapshot, search_path));
  }
  return plan;
}

std::shared_ptr<const TextPlan> PlanCache::get(std::string_view sql,
                                               std::string_view search_path_text,
                                               const std::vector<std::string>& search_path,
                                               const routing::Snapshot& snapshot) {
  const auto found = index_.find(Key{sql, search_path_text});
  if (found != index_.end()) {
    const Order::iterator entry = found->second;
    if (entry->plan->registry_version == snapshot.registry_version) {
      ++hits_;
      order_.splice(order_.begin(), order_, entry);
      return entry->plan;
    }
    bytes_ -= entry->bytes;
    index_.erase(found);
    order_.erase(entry);
  }
  ++misses_;
  auto plan = plan_text(sql, search_path, snapshot);
  if (sql.size() > kMaxCachedText || plan->error) {
    return plan;
  }
  order_.push_front(Entry{std::string(sql), std::string(search_path_text), plan,
                          sql.size() * kTreeFactor + search_path_text.size() + kEntryOverhead});
  const Entry& entry = order_.front();
  bytes_ += entry.bytes;
  index_.emplace(Key{entry.sql, entry.search_path}, order_.begin());
  evict();
  return plan;
}

void PlanCache::evict() {
  while (bytes_ > max_bytes_ && order_.size() > 1) {
    const Entry& oldest = order_.back();
    bytes_ -= oldest.bytes;
    index_.erase(Key{oldest.sql, oldest.search_path});
    order_.pop_back();
    ++evictions_;
  }
}

}  // namespace collegedb::session
