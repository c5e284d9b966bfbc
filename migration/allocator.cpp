#include "migration/allocator.h"

#include <algorithm>
#include <chrono>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "migration/key_probe.h"
#include "migration/mappings.h"
#include "migration/operation.h"
#include "proxy/session/guard.h"

namespace collegedb::migration {
namespace {

using namespace std::chrono_literals;
using routing::ShardId;
using routing::Strategy;

constexpr auto kPause = 10ms;  // between tries where locks were in the way

// Known for certain, and trying again gives the same: not to be told as a failed look.
class Certain : public SqlFailure {
 public:
  explicit Certain(SqlError error) : SqlFailure(std::move(error), "") {}
};

// The journal shard did not answer.
class JournalSilent : public SqlFailure {
 public:
  explicit JournalSilent(const SqlFailure& failure)
      : SqlFailure(failure.error(), failure.shard(), failure.connection_lost()) {}
};

Strategy strategy_of(const Config::Routing& routing, const std::string& of_mixed) {
  return routing::strategy_named(routing.strategy == "mixed" ? of_mixed : routing.strategy)
      .value_or(Strategy::kHash);
}

std::uint64_t drawn() {
  static thread_local std::mt19937_64 random{std::random_device{}()};
  return random();
}

}  // namespace

// One try for one key. Everything throws SqlFailure.
class Allocator::Resolution {
 public:
  Resolution(Allocator& allocator, const routing::Snapshot& snapshot, const routing::RoutedKey& key)
      : allocator_(allocator),
        options_(allocator.options_),
        snapshot_(snapshot),
        key_(key),
        probe_(options_, snapshot, key) {}

  KeyPlace find(bool for_write, ShardId prefer) {
    if (const auto shard = mapping()) return settled_on(*shard);
    look_at_shards();
    if (holder_ != routing::kNoShard) {
      if (!for_write) return {.shard = holder_, .settled = false, .nobody = false};
      return settled_on(map(snapshot_.shards[holder_].name, {}));
    }
    if (!for_write) return {.shard = where_to_look(), .settled = false, .nobody = true};
    return settled_on(allocate(prefer));
  }

  std::optional<Whereabouts> look(bool enter) {
    if (const auto shard = mapping()) return Whereabouts{probe_.shard_named(*shard), true};
    look_at_shards();
    if (holder_ == routing::kNoShard) return std::nullopt;
    if (!enter) return Whereabouts{holder_, false};
    return Whereabouts{probe_.shard_named(map(snapshot_.shards[holder_].name, {})), true};
  }

 private:
  KeyPlace settled_on(const std::string& shard) const {
    return {.shard = probe_.shard_named(shard), .settled = true, .nobody = false};
  }

  template <class F>
  auto with_journal(F ask) {
    try {
      SessionOptions options;
      options.application_name = "collegedb map";
      options.connect_timeout = 3s;
      options.statement_timeout = 5s;
      options.lock_timeout = options_.limits.cutover_lock_timeout;
      options.dies_with_client = true;
      LeasedSession journal(*options_.sessions, options_.shards.at(options_.journal), options);
      return ask(*journal);
    } catch (const SqlFailure& failure) {
      const std::string& state = failure.error().sqlstate;
      if (passes(failure) || state == session::guard::kStale) throw;
      throw JournalSilent(failure);
    }
  }

  std::optional<std::string> mapping() {
    return with_journal([&](ControlSession& journal) {
      return read_mapping(journal, snapshot_.scope, key_.group, key_.key);
    });
  }

  // All of them: a shard that cannot be asked may have the rows.
  void look_at_shards() {
    std::string holders;
    for (const ShardId shard : snapshot_.members()) {
      KeyProbe::Found found = probe_.ask(shard);
      if (found.rows) {
        holders += (holders.empty() ? "" : ", ") + snapshot_.shards[shard].name;
        holder_ = shard;
      } else if (found.moved_to) {
        moved_to_ = std::move(found.moved_to);
      }
    }
    if (holders.find(", ") == std::string::npos) return;
    throw Certain(make_error(
        ErrorCode::kUnroutableQuery,
        "key \"" + key_.key + "\" of group " + key_.group + " has no mapping and rows on shards " +
            holders,
        "Bring its rows together on one of them, then enter it with collegedb_import()."));
  }

  // Where the key is from now on.
  std::string map(const std::string& shard, std::string_view strategy) {
    return with_journal([&](ControlSession& journal) {
      const MappedShards there = map_keys(journal, snapshot_.scope, key_.group, {key_.key}, shard,
                                          strategy, snapshot_.generation);
      return there.at(key_.key);
    });
  }

  std::vector<routing::Taker> takers() {
    auto out = with_journal(
        [&](ControlSession& journal) { return read_takers(journal, snapshot_.scope); });
    if (out.empty()) {
      throw Certain(make_error(ErrorCode::kPlacementUnverified, "no epoch is active"));
    }
    return out;
  }

  std::string allocate(ShardId prefer) {
    // The end of its tombstones has none: a write may stay there, and followers end there.
    if (moved_to_) {
      const auto trail = probe_.follow(*moved_to_);
      if (!trail) {
        throw Certain(make_error(ErrorCode::kMigrationChainExceeded,
                                 "the key's tombstones lead over more than 4 shards or in a circle",
                                 "Run collegedb_verify()."));
      }
      return map(snapshot_.shards[trail->end].name, {});
    }
    const std::vector<routing::Taker> all = takers();
    if (prefer != routing::kNoShard) {
      const std::string& shard = snapshot_.shards[prefer].name;
      if (std::any_of(all.begin(), all.end(),
                      [&](const auto& each) { return each.shard == shard; }))
        return map(shard, "transaction");
    }
    const std::vector<routing::Taker> some = routing::eligible(all);
    std::uint64_t number = 0;
    if (allocator_.write_ == Strategy::kRandom) number = drawn();
    if (allocator_.write_ == Strategy::kRoundRobin) {
      number = with_journal(
          [&](ControlSession& journal) { return next_turn(journal, snapshot_.scope, key_.group); });
    }
    return map(some[chosen(allocator_.write_, some, number)].shard,
               routing::name_of(allocator_.write_));
  }

  // Nobody has the key, so every shard gives the right answer.
  ShardId where_to_look() {
    const std::vector<routing::Taker> some = routing::eligible(takers());
    const std::uint64_t number = allocator_.read_ == Strategy::kRandom
                                     ? drawn()
                                     : allocator_.reads_.fetch_add(1, std::memory_order_relaxed);
    return probe_.shard_named(some[chosen(allocator_.read_, some, number)].shard);
  }

  [[nodiscard]] std::size_t chosen(Strategy strategy, const std::vector<routing::Taker>& takers,
                                   std::uint64_t number) const {
    return routing::choose(strategy, takers, key_.key, number, options_.routing.target_region);
  }

  Allocator& allocator_;
  const RunnerOptions& options_;
  const routing::Snapshot& snapshot_;
  const routing::RoutedKey& key_;
  KeyProbe probe_;
  ShardId holder_ = routing::kNoShard;  // the only shard with rows
  std::optional<std::string> moved_to_;
};

Allocator::Allocator(RunnerOptions options)
    : options_(std::move(options)),
      read_(strategy_of(options_.routing, options_.routing.strategy_read)),
      write_(strategy_of(options_.routing, options_.routing.strategy_write)) {}

namespace {

// `ask` until it succeeds or what is in its way does not pass.
template <class F>
auto resolved(std::chrono::milliseconds patience, const routing::RoutedKey& key, bool for_write,
              F ask) -> Result<decltype(ask())> {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  for (;;) {
    try {
      return ask();
    } catch (const Certain& failure) {
      return failure.error();
    } catch (const JournalSilent& failure) {
      return make_error(ErrorCode::kPlacementUnverified,
                        "the journal shard cannot be asked where key \"" + key.key +
                            "\" of group " + key.group + " is",
                        "Try again.", failure.error().message);
    } catch (const SqlFailure& failure) {
      if (passes(failure) && std::chrono::steady_clock::now() < deadline) {
        std::this_thread::sleep_for(kPause);
        continue;
      }
      return not_found_out(failure, key, for_write);
    }
  }
}

}  // namespace

Result<KeyPlace> Allocator::find(const routing::Snapshot& snapshot, const routing::RoutedKey& key,
                                 bool for_write, ShardId prefer) {
  return resolved(options_.limits.write_hold, key, for_write,
                  [&] { return Resolution(*this, snapshot, key).find(for_write, prefer); });
}

Result<std::optional<Allocator::Whereabouts>> Allocator::look(const routing::Snapshot& snapshot,
                                                              const routing::RoutedKey& key,
                                                              bool enter) {
  return resolved(options_.limits.write_hold, key, enter,
                  [&] { return Resolution(*this, snapshot, key).look(enter); });
}

}  // namespace collegedb::migration
