#include "migration/topology.h"

#include <algorithm>
#include <optional>

#include "migration/cluster.h"
#include "migration/fence_raise.h"
#include "migration/newcomer.h"
#include "migration/prune.h"
#include "migration/reference_rows.h"
#include "migration/table_catalog.h"

namespace collegedb::migration {
namespace {

using std::chrono::milliseconds;

[[noreturn]] void refuse(const std::string& shard, SqlError error) {
  throw SqlFailure(std::move(error), shard);
}

std::string joined(const std::vector<std::string>& items, std::string_view between) {
  std::string out;
  for (const std::string& item : items) out.append(out.empty() ? "" : between).append(item);
  return out;
}

bool names(const EpochRow& epoch, const std::string& shard) {
  return std::find(epoch.shards.begin(), epoch.shards.end(), shard) != epoch.shards.end();
}

// One call: the session on the journal shard, its lock, and what has been done so far.
class Change {
 public:
  Change(const Config& config, const std::string& shard, bool dry_run,
         const TopologyOptions& options)
      : config_(config),
        options_(options),
        dry_run_(dry_run),
        journal_(config.shards[config.journal_index()], topology_session()),
        lock_(journal_, config.journal.scope) {
    out_.shard = shard;
    if (!dry_run_) finish_interrupted();
    manifest_ = read_manifest(journal_, scope());
    if (manifest_.newest_active() == nullptr) {
      refuse(journal_.shard(),
             make_error(ErrorCode::kPlacementUnverified, "the manifest has no active epoch",
                        "Restore schema collegedb from a backup."));
    }
  }

  TopologyChange add() {
    const std::size_t index = configured();
    const EpochRow& newest = *manifest_.newest_active();
    if (names(newest, out_.shard)) return unchanged(newest.id, "active");
    refuse_ninth(manifest_);
    const MemberRow* row = manifest_.find(out_.shard);
    const bool member = row != nullptr && row->state != "removed";
    std::optional<Newcomer> newcomer;
    if (!member) {
      newcomer.emplace(journal_, config_, index, manifest_);
      out_.steps = newcomer->check();
    }
    EpochRow next = newest;
    next.shards.push_back(out_.shard);
    if (!next.weights.empty()) next.weights.emplace_back("1");
    if (dry_run_) return rehearsed(next);
    const MembersLock members(journal_, MembersLock::Mode::kExclusive);
    const RegistryLock registry(journal_);
    if (newcomer) newcomer->prepare(options_.stubs);
    did("prepared");
    const int slot = newcomer ? newcomer->slot() : row->slot;
    return publish(next, [&](ControlSession& journal, const Manifest&) {
      const ShardConfig& shard = config_.shards[index];
      journal.run(
          "INSERT INTO collegedb.shards (scope, shard, region, max_size, slot)"
          " VALUES ($1, $2, $3, $4::pg_catalog.int8, $5::pg_catalog.int4)"
          " ON CONFLICT (scope, shard) DO UPDATE SET state = 'active', region = excluded.region,"
          " max_size = excluded.max_size, added_at = pg_catalog.clock_timestamp()",
          {scope(), out_.shard, shard.region, std::to_string(shard.max_size),
           std::to_string(slot)});
    });
  }

  TopologyChange drain() {
    const MemberRow& row = member();
    const EpochRow& newest = *manifest_.newest_active();
    if (!names(newest, out_.shard)) return unchanged(newest.id, row.state);
    if (newest.shards.size() == 1) {
      refuse(out_.shard,
             make_error("55000", "shard \"" + out_.shard + "\" is the only one that takes keys",
                        "Add another shard first with collegedb_add_shard."));
    }
    refuse_ninth(manifest_);
    EpochRow next = newest;
    const auto at = static_cast<std::size_t>(
        std::find(next.shards.begin(), next.shards.end(), out_.shard) - next.shards.begin());
    next.shards.erase(next.shards.begin() + static_cast<std::ptrdiff_t>(at));
    if (at < next.weights.size()) {
      next.weights.erase(next.weights.begin() + static_cast<std::ptrdiff_t>(at));
    }
    if (dry_run_) return rehearsed(next);
    return publish(next, [&](ControlSession& journal, const Manifest&) {
      journal.run("UPDATE collegedb.shards SET state = 'draining' WHERE scope = $1 AND shard = $2",
                  {scope(), out_.shard});
    });
  }

  TopologyChange remove() {
    const MemberRow* row = manifest_.find(out_.shard);
    if (row != nullptr && row->state == "removed") {
      return unchanged(manifest_.newest_active()->id, "removed");
    }
    static_cast<void>(member());
    refuse_removal(journal_, manifest_);
    refuse_rows();
    out_.generation = manifest_.generation;
    out_.epoch = manifest_.newest_active()->id;
    if (dry_run_) {
      out_.steps = {"shard \"" + out_.shard + "\" has nothing any more and would be removed"};
      out_.state = "dry_run";
      return std::move(out_);
    }
    // Twice: who remembers that a key is where its way to the shard begins needs the tombstone, and
    // has ended before it goes; who is on such a way, or knows the shard from an older topology,
    // has ended afterwards.
    if (has_ways_to()) {
      renew_generation();
      forget_ways_to();
    }
    renew_generation();
    did("raised");
    refuse_rows();
    change_manifest(
        journal_, scope(), Bump::kRevision,
        [&](ControlSession& journal, const Manifest& before, std::int64_t) {
          refuse_removal(journal, before);
          journal.run(
              "UPDATE collegedb.shards SET state = 'removed' WHERE scope = $1 AND shard = $2",
              {scope(), out_.shard});
        },
        options_.step);
    did("removed");
    out_.steps.push_back("shard \"" + out_.shard +
                         "\" is no part of the cluster any more; take it out of the configuration "
                         "of the proxies");
    out_.state = "removed";
    return std::move(out_);
  }

 private:
  [[nodiscard]] const std::string& scope() const { return config_.journal.scope; }

  void did(std::string_view step) const {
    if (options_.step) options_.step(step);
  }

  void finish_interrupted() {
    auto held = finish_publication(journal_, config_, options_.patience, options_.step);
    if (held.empty()) held = finish_prune(journal_, config_, options_.patience);
    if (held.empty()) return;
    refuse(journal_.shard(),
           make_error("55006", "the last change of the topology is not complete yet",
                      "End the transactions that hold it up; recovery finishes it then.",
                      joined(held, " ")));
  }

  std::size_t configured() {
    for (std::size_t i = 0; i < config_.shards.size(); ++i) {
      if (config_.shards[i].name == out_.shard) return i;
    }
    refuse(out_.shard,
           make_error(ErrorCode::kUnknownShard, "no shard is named \"" + out_.shard + "\"",
                      "Add it to the configuration of every proxy first."));
  }

  const MemberRow& member() {
    const MemberRow* row = manifest_.find(out_.shard);
    if (row == nullptr || row->state == "removed") {
      refuse(out_.shard, make_error(ErrorCode::kUnknownShard,
                                    "shard \"" + out_.shard + "\" is no part of the cluster",
                                    "SELECT * FROM collegedb.shards lists those that are."));
    }
    return *row;
  }

  void refuse_ninth(const Manifest& manifest) const {
    if (manifest.epochs.size() < kMaxEpochs) return;
    refuse(journal_.shard(),
           make_error(ErrorCode::kTooManyEpochs,
                      "there are " + std::to_string(manifest.epochs.size()) + " live epochs",
                      "Move keys to where the newest epoch has them with collegedb_rebalance(), "
                      "then drop what nothing depends on with collegedb_prune_epochs()."));
  }

  TopologyChange unchanged(int epoch, std::string state) {
    out_.epoch = epoch;
    out_.generation = manifest_.generation;
    out_.state = std::move(state);
    return std::move(out_);
  }

  TopologyChange rehearsed(const EpochRow& next) {
    out_.steps.push_back("publish epoch " + std::to_string(next_id(manifest_)) + " of shards " +
                         joined(next.shards, ", "));
    out_.epoch = next_id(manifest_);
    out_.generation = manifest_.generation;
    out_.state = "dry_run";
    return std::move(out_);
  }

  static int next_id(const Manifest& manifest) { return manifest.epochs.front().id + 1; }

  // The epoch and what belongs to it in one swap, then until it is active.
  template <class F>
  TopologyChange publish(const EpochRow& next, F also) {
    out_.generation = change_manifest(
        journal_, scope(), Bump::kGeneration,
        [&](ControlSession& journal, const Manifest& before, std::int64_t generation) {
          refuse_ninth(before);
          if (before.epochs.empty() || before.newest_active() == nullptr ||
              before.publishing() != nullptr ||
              before.newest_active()->shards != manifest_.newest_active()->shards) {
            refuse(journal.shard(), make_error(ErrorCode::kPlacementConflict,
                                               "the epochs have changed meanwhile", "Try again."));
          }
          out_.epoch = next_id(before);
          journal.run(
              "INSERT INTO collegedb.epochs (scope, id, algorithm, state, shards, weights,"
              " generation) VALUES ($1, $2::pg_catalog.int4, $3, 'publishing',"
              " $4::pg_catalog.text[], NULLIF($5, '{}')::pg_catalog.float8[],"
              " $6::pg_catalog.int8)",
              {scope(), std::to_string(out_.epoch), next.algorithm, array_text(next.shards),
               array_text(next.weights), std::to_string(generation)});
          also(journal, before);
        },
        options_.step);
    out_.steps.push_back("published epoch " + std::to_string(out_.epoch) + " of shards " +
                         joined(next.shards, ", "));
    did("published");
    const auto held = finish_publication(journal_, config_, options_.patience, options_.step);
    if (held.empty()) {
      out_.state = "active";
      out_.steps.push_back("raised the fence of all shards to generation " +
                           std::to_string(out_.generation));
    } else {
      out_.state = "publishing";
      for (const std::string& line : held) out_.steps.push_back("waiting: " + line);
    }
    return std::move(out_);
  }

  // Everything on the journal shard that still needs the shard. In a transaction it also keeps new
  // moves out until its end.
  void refuse_removal(ControlSession& journal, const Manifest& manifest) {
    const std::string shard = "shard \"" + out_.shard + "\"";
    if (out_.shard == journal_.shard()) {
      refuse(out_.shard, make_error("55000", shard + " holds the journal and cannot be removed",
                                    "It can be drained, and keeps the journal."));
    }
    std::vector<std::string> ids;
    for (const EpochRow& epoch : manifest.epochs) {
      if (names(epoch, out_.shard)) ids.push_back(std::to_string(epoch.id));
    }
    if (!ids.empty()) {
      refuse(out_.shard,
             make_error("55000", "epochs name " + shard,
                        "Drain it with collegedb_drain_shard, move its keys away with "
                        "collegedb_rebalance(), drop the epochs with collegedb_prune_epochs().",
                        "Epochs: " + joined(ids, ", ") + "."));
    }
    if (journal.in_transaction()) journal.run("LOCK TABLE collegedb.claims IN SHARE MODE");
    const Rows moves = journal.run(
        "SELECT op FROM collegedb.moves WHERE scope = $1 AND state NOT IN ('retired', 'aborted')"
        " AND $2 IN (source, destination) LIMIT 1",
        {scope(), out_.shard});
    if (!moves.empty()) {
      refuse(out_.shard, make_error("55006", "keys are being moved from or to " + shard,
                                    "Wait for the move, or cancel it with collegedb_cancel_move.",
                                    "Operation " + moves.text(0, 0) + "."));
    }
    for (const auto& [table, what] :
         {std::pair{"exceptions", "exceptions"}, std::pair{"mappings", "mappings"}}) {
      const Rows rows = journal.run("SELECT pg_catalog.count(*) FROM collegedb." +
                                        std::string(table) + " WHERE scope = $1 AND shard = $2",
                                    {scope(), out_.shard});
      if (rows.int8(0, 0) == 0) continue;
      refuse(
          out_.shard,
          make_error("55000",
                     "the directory has " + rows.text(0, 0) + " " + what + " for keys on " + shard,
                     "Move these keys away with collegedb_rebalance() or collegedb_reassign."));
    }
  }

  void refuse_rows() {
    ControlSession session(config_.shards[configured()]);
    for (const RegisteredTable& table : read_registry(journal_, scope())) {
      if (table.kind != "sharded" || !find_table(session, table.name, {})) continue;
      if (session.run("SELECT 1 FROM " + table.name.qualified + " LIMIT 1").empty()) continue;
      refuse(out_.shard, make_error("55000",
                                    "table " + table.name.qualified + " has rows on shard \"" +
                                        out_.shard + "\"",
                                    "Move its keys away with collegedb_rebalance()."));
    }
  }

  // Nobody is left who knows the topology, or where keys are, from before the call.
  void renew_generation() {
    out_.generation = change_manifest(
        journal_, scope(), Bump::kGeneration,
        [&](ControlSession& journal, const Manifest& before, std::int64_t) {
          refuse_removal(journal, before);
        },
        options_.step);
    did("published");
    const auto held = raise_members(journal_, config_, out_.generation, options_.patience);
    if (held.empty()) return;
    refuse(out_.shard,
           make_error("55006",
                      "transactions that began before the removal of shard \"" + out_.shard +
                          "\" are still open; it was not removed",
                      "End them and call collegedb_remove_shard again.", joined(held, " ")));
  }

  bool has_ways_to() {
    const Config members = member_config(journal_, config_);
    return std::any_of(members.shards.begin(), members.shards.end(), [&](const ShardConfig& each) {
      return !ControlSession(each)
                  .run("SELECT 1 FROM collegedb.retired WHERE scope = $1 AND moved_to = $2 LIMIT 1",
                       {scope(), out_.shard})
                  .empty();
    });
  }

  // Tombstones that lead to the shard: no key is there, so they are ways of the past. One that
  // stayed would lead a key to nowhere once an epoch gives it to the shard with the tombstone.
  void forget_ways_to() {
    const Config members = member_config(journal_, config_);
    std::int64_t gone = 0;
    for (const ShardConfig& each : members.shards) {
      if (each.name == out_.shard) continue;
      ControlSession session(each);
      gone += session
                  .run("DELETE FROM collegedb.retired WHERE scope = $1 AND moved_to = $2",
                       {scope(), out_.shard})
                  .affected();
    }
    if (gone > 0) {
      out_.steps.push_back("dropped " + std::to_string(gone) + " tombstones that led to the shard");
    }
  }

  const Config& config_;
  const TopologyOptions& options_;
  bool dry_run_;
  ControlSession journal_;
  TopologyLock lock_;
  Manifest manifest_;
  TopologyChange out_;
};

template <class F>
Result<TopologyChange> performed(const Config& config, F change) {
  if (!config.has_journal()) {
    return make_error(ErrorCode::kJournalNotConfigured,
                      "changes of the topology need a journal shard",
                      "Name one as journal.shard in the configuration of every proxy.");
  }
  try {
    return change();
  } catch (const SqlFailure& failure) {
    SqlError error = failure.error();
    if (error.detail.empty() && !failure.shard().empty()) {
      error.detail = "On shard \"" + failure.shard() + "\".";
    }
    return error;
  }
}

// Shards of the epoch that no active one names: they may have missed writes to reference tables of
// proxies that did not know them. These have ended once the fence is raised.
void complete_newcomers(ControlSession& journal, const Config& config, const Manifest& manifest,
                        const EpochRow& epoch) {
  const std::vector<RegisteredTable> tables = read_registry(journal, config.journal.scope);
  if (std::none_of(tables.begin(), tables.end(),
                   [](const RegisteredTable& table) { return table.kind == "reference"; })) {
    return;
  }
  for (const ShardConfig& shard : config.shards) {
    if (!names(epoch, shard.name) || shard.name == journal.shard()) continue;
    if (std::any_of(manifest.epochs.begin(), manifest.epochs.end(), [&](const EpochRow& each) {
          return each.state == "active" && names(each, shard.name);
        })) {
      continue;
    }
    ControlSession source(config.shards[config.journal_index()], topology_session());
    ControlSession session(shard, topology_session());
    Transaction reading(source);
    Transaction writing(session);
    copy_reference_rows(source, session, tables, true);
    writing.commit();
    reading.commit();
  }
}

}  // namespace

Result<TopologyChange> add_shard(const Config& config, const std::string& shard, bool dry_run,
                                 const TopologyOptions& options) {
  return performed(config, [&] { return Change(config, shard, dry_run, options).add(); });
}

Result<TopologyChange> drain_shard(const Config& config, const std::string& shard, bool dry_run,
                                   const TopologyOptions& options) {
  return performed(config, [&] { return Change(config, shard, dry_run, options).drain(); });
}

Result<TopologyChange> remove_shard(const Config& config, const std::string& shard, bool dry_run,
                                    const TopologyOptions& options) {
  return performed(config, [&] { return Change(config, shard, dry_run, options).remove(); });
}

std::vector<std::string> raise_members(ControlSession& journal, const Config& config,
                                       std::int64_t generation, milliseconds patience,
                                       KeyChecks checks) {
  std::vector<std::string> held;
  for (const FenceRaise& each :
       raise_fences(member_config(journal, config), generation, patience, checks)) {
    if (each.done) continue;
    held.push_back(
        "shard \"" + each.shard + "\": " +
        (each.waiting_for.empty() ? "not raised in time" : joined(each.waiting_for, ", ")) + ".");
  }
  return held;
}

std::vector<std::string> finish_publication(ControlSession& journal, const Config& config,
                                            milliseconds patience, const StepHook& step) {
  const Manifest manifest = read_manifest(journal, config.journal.scope);
  const EpochRow* epoch = manifest.publishing();
  if (epoch == nullptr) return {};
  auto held = raise_members(journal, config, manifest.generation, patience);
  if (!held.empty()) return held;
  if (step) step("raised");
  complete_newcomers(journal, config, manifest, *epoch);
  change_manifest(
      journal, config.journal.scope, Bump::kRevision,
      [&](ControlSession& session, const Manifest&, std::int64_t) {
        session.run(
            "UPDATE collegedb.epochs SET state = 'active' WHERE scope = $1"
            " AND id = $2::pg_catalog.int4",
            {config.journal.scope, std::to_string(epoch->id)});
      },
      step);
  if (step) step("active");
  return {};
}

bool resume_topology(const Config& config, milliseconds patience) {
  if (!config.has_journal()) return false;
  ControlSession journal(config.shards[config.journal_index()], topology_session());
  if (journal
          .run("SELECT 1 FROM collegedb.epochs WHERE scope = $1 AND state = 'publishing'"
               " UNION ALL SELECT 1 FROM collegedb.prunes WHERE scope = $1 LIMIT 1",
               {config.journal.scope})
          .empty()) {
    return false;
  }
  const TopologyLock lock(journal, config.journal.scope, TopologyLock::Try{});
  if (!lock.held()) return false;
  const bool published = finish_publication(journal, config, patience).empty();
  const bool pruned = finish_prune(journal, config, patience).empty();
  return published && pruned;
}

}  // namespace collegedb::migration
