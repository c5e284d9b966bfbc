// Where a statement goes: by the snapshot, corrected by what the shards have told; keys that the
// snapshot cannot place are looked for first.
#include <algorithm>

#include "proxy/session/guard.h"
#include "proxy/session/lower.h"
#include "proxy/session/session_impl.h"

namespace collegedb::session {
namespace {

bool is_true(std::string_view value) {
  return value == "on" || value == "true" || value == "1" || value == "yes" || value == "t";
}

// Of a key as the client wrote it, in an encoding in which only ASCII means the same bytes as on
// the shards.
bool is_ascii(std::string_view key) {
  return std::none_of(key.begin(), key.end(), [](char c) { return (c & 0x80) != 0; });
}

}  // namespace

routing::ShardId SessionImpl::any_shard() {
  if (link_ && !context_.snapshot->shards.empty()) {
    return link_->shard;
  }
  const auto& shards = context_.snapshot->shards;
  // One after the other, those left out that do not belong to the cluster.
  for (std::size_t tries = 0; tries < shards.size(); ++tries) {
    const std::size_t next = next_any_++ % shards.size();
    if (shards[next].member) {
      return static_cast<routing::ShardId>(next);
    }
  }
  return context_.snapshot->journal_shard;
}

Result<SessionImpl::Target> SessionImpl::target_for(
    const std::shared_ptr<const routing::Plan>& plan,
    std::span<const routing::Parameter> parameters) {
  Target target;
  target.plan = plan;
  const parser::StatementKind kind = plan->statement.kind;
  if (kind == parser::StatementKind::kFetch || kind == parser::StatementKind::kCloseCursor) {
    if (!txn_.bound() || !link_) {
      return make_error("34000", "cursor \"" + plan->statement.name + "\" does not exist");
    }
    target.shard = link_->shard;
    return target;
  }
  if (kind == parser::StatementKind::kDeclareCursor && !txn_.open()) {
    return make_error("25P01", "DECLARE CURSOR can only be used in transaction blocks");
  }
  if (plan->kind == routing::PlanKind::kSession) {  // SHOW
    target.shard = any_shard();
    target.any_shard = true;
    target.in_transaction = txn_.bound() || (txn_.open() && !txn_.plain());
    return target;
  }
  if (plan->kind == routing::PlanKind::kBroadcast || plan->kind == routing::PlanKind::kScatter) {
    target.shard = 0;  // is_local() keeps those of several shards away
    return target;
  }
  routing::Route route = routing::route(*plan, parameters, *context_.snapshot);
  switch (route.kind) {
    case routing::RouteKind::kShard:
      target.shard = route.shard;
      target.keys = std::move(route.keys);
      if (auto error = refuse_encoding(*plan, target.keys)) {
        return *error;
      }
      if (patience_.not_found) {
        return *std::exchange(patience_.not_found, std::nullopt);
      }
      if (auto error = settle_owners(target, plan->writes)) {
        return *error;
      }
      break;
    case routing::RouteKind::kAnyShard:
      target.shard = link_ || route.shard == routing::kNoShard ? any_shard() : route.shard;
      target.any_shard = true;
      target.in_transaction = !plan->free_standing || txn_.bound();
      break;
    case routing::RouteKind::kRefuse:
      return route.error;
    default:
      return make_error(ErrorCode::kUnroutableQuery,
                        plan->statement.verb + " has no single shard to run on",
                        "Restrict the statement to one key.");
  }
  if (!target.keys.empty() && read_only_now() && fixed_snapshot_now()) {
    return make_error("0A000",
                      "keys cannot be guarded in a READ ONLY transaction at this isolation level",
                      "Leave out READ ONLY, or use READ COMMITTED.");
  }
  return target;
}

LearnedOwners::Context SessionImpl::known_of(routing::ShardId directory) const {
  return {directory, context_.snapshot->generation, context_.stats->now_ns()};
}

// Keys are compared and hashed as the bytes the shards store, which are UTF8. What a bytea was
// written with does not show in its canonical text.
std::optional<SqlError> SessionImpl::refuse_encoding(
    const routing::Plan& plan, std::span<const routing::RoutedKey> keys) const {
  if (speaks_utf8_ || context_.snapshot->shards.size() == 1) {
    return std::nullopt;
  }
  for (const routing::RoutedKey& key : keys) {
    if (plan.key_type == routing::KeyType::kBytea || !is_ascii(key.key)) {
      return make_error("0A000",
                        "a key with characters beyond ASCII needs client_encoding UTF8, not " +
                            std::string(setting("client_encoding")),
                        "SET client_encoding = 'UTF8'.");
    }
  }
  return std::nullopt;
}

void SessionImpl::learn(const routing::RoutedKey& key, routing::ShardId shard) {
  const routing::Owner said = routing::locate(*context_.snapshot, key.group, key.key);
  const bool mapped = context_.snapshot->placement == routing::Placement::kMapped;
  context_.learned.learn(key.group, key.key, shard, known_of(said.shard),
                         mapped ? context_.mapping_life_ns : kLearnedLifeNs);
}

void SessionImpl::remember_found(const routing::RoutedKey& key, const FindDone::Place& place) {
  std::erase_if(patience_.found, [&](const FoundKey& each) {
    return each.key.key == key.key && each.key.group == key.group;
  });
  patience_.found.push_back({key, place});
}

// Where one key is: a key that this transaction has settled here cannot leave, this statement may
// have asked already, tombstones may have told what the directory does not say yet. nullopt: it has
// to be found.
std::optional<FindDone::Place> SessionImpl::place_of(const routing::RoutedKey& key,
                                                     routing::ShardId directory, bool for_write) {
  if (txn_.bound() && link_ && txn_.settled(key)) {
    return FindDone::Place{.shard = link_->shard, .settled = true};
  }
  for (const FoundKey& each : patience_.found) {
    if (each.key.key == key.key && each.key.group == key.group &&
        (each.place.settled || !for_write)) {
      return each.place;
    }
  }
  if (!context_.learned.empty()) {
    if (const auto learned = context_.learned.find(key.group, key.key, known_of(directory))) {
      return FindDone::Place{.shard = *learned, .settled = true};
    }
  }
  if (!key.sought) {
    return FindDone::Place{.shard = directory, .settled = true};
  }
  return std::nullopt;
}

std::optional<SqlError> SessionImpl::settle_owners(Target& target, bool for_write) {
  routing::ShardId shard = routing::kNoShard;
  routing::ShardId anywhere = routing::kNoShard;  // where keys are looked for that nobody has
  const bool alone = target.keys.size() == 1;
  for (routing::RoutedKey& key : target.keys) {
    const auto place = place_of(
        key, alone ? target.shard : routing::locate(*context_.snapshot, key.group, key.key).shard,
        for_write);
    if (!place) {
      target.settled = false;
      continue;
    }
    key.sought = !place->settled;
    if (place->nobody) {
      anywhere = txn_.bound() && link_ ? link_->shard : place->shard;
      continue;
    }
    if (shard != routing::kNoShard && place->shard != shard) {
      return make_error(ErrorCode::kUnroutableQuery,
                        "the keys of this statement are on different shards",
                        "Send one statement for each key.");
    }
    shard = place->shard;
  }
  if (shard == routing::kNoShard) {
    shard = anywhere;
  }
  if (shard != routing::kNoShard) {
    target.shard = shard;
  }
  return std::nullopt;
}

bool SessionImpl::find_first(const Target& target, Step then) {
  if (target.settled) {
    return false;
  }
  Find find{context_.snapshot, {}, target.plan == nullptr || target.plan->writes};
  for (const routing::RoutedKey& key : target.keys) {
    if (key.sought) {
      find.keys.push_back(key);
    }
  }
  if (txn_.bound() && link_ &&
      std::all_of(find.keys.begin(), find.keys.end(),
                  [this](const routing::RoutedKey& key) { return txn_.touched(key); })) {
    find.prefer = link_->shard;
  }
  after_find_ = then;
  sought_ = find.keys;
  start_control(ControlRequest{std::move(find), {}}, &SessionImpl::found);
  return true;
}

void SessionImpl::found() {
  const ControlReply reply = *std::exchange(control_reply_, std::nullopt);
  if (const auto* done = std::get_if<FindDone>(&reply)) {
    for (std::size_t i = 0; i < sought_.size() && i < done->places.size(); ++i) {
      const routing::RoutedKey& key = sought_[i];
      const FindDone::Place& place = done->places[i];
      if (place.settled) {
        learn(key, place.shard);
      }
      remember_found(key, place);
    }
  } else if (const auto* error = std::get_if<SqlError>(&reply)) {
    if (error->sqlstate == guard::kStale && patience_.reloads++ == 0) {
      start_control(ControlRequest{Reload{context_.snapshot->version}, {}},
                    &SessionImpl::find_again);
      return;
    }
    patience_.not_found = error->sqlstate == guard::kStale ? stale_topology() : *error;
  }
  sought_.clear();
  (this->*after_find_)();
}

void SessionImpl::find_again() {
  adopt_reloaded();
  patience_.found.clear();
  (this->*after_find_)();
}

bool SessionImpl::read_only_now() const {
  return txn_.read_only() || is_true(lower(setting("default_transaction_read_only")));
}

bool SessionImpl::fixed_snapshot_now() const {
  const std::string by_default = lower(setting("default_transaction_isolation"));
  return txn_.fixed_snapshot() || by_default == "repeatable read" || by_default == "serializable";
}

}  // namespace collegedb::session
