#include "migration/verify_repair.h"

#include <algorithm>
#include <exception>
#include <iterator>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "migration/archive.h"
#include "migration/key_fence.h"
#include "migration/key_hold.h"
#include "migration/operation.h"
#include "migration/table_catalog.h"
#include "migration/verify_scan.h"

namespace collegedb::migration {
namespace {

using std::chrono::milliseconds;

constexpr int kTries = 20;
constexpr milliseconds kPause{50};

// Idle for as long as rows are put back; others wait for what it holds.
SessionOptions repair_options() {
  return {.application_name = "collegedb verify",
          .statement_timeout = milliseconds(30 * 60 * 1000),
          .idle_in_transaction_timeout = milliseconds(0),
          .dies_with_client = true};
}

bool any(ControlSession& session, std::string_view sql, const Unit& unit) {
  return !session.run(sql, {unit.scope, unit.group, array_text(unit.keys)}).empty();
}

constexpr std::string_view kTombstones =
    "SELECT 1 FROM collegedb.retired WHERE scope = $1 AND grp = $2 AND key = ANY ($3::text[]) "
    "LIMIT 1";
constexpr std::string_view kIncoming =
    "SELECT 1 FROM collegedb.incoming WHERE scope = $1 AND grp = $2 AND key = ANY ($3::text[])"
    " LIMIT 1";

// Name of the tombstones that lead from the destination of a stale cutover back to its source. Like
// those of a finder, they are of no operation.
std::string restored_op(const Unit& unit) {
  return "epoch:restored:" + unit.op;
}

// Before the source has its rows again: a move that looked for the key before the repair took it
// for a key without rows on the destination, and would move that away. Committed alone it closes a
// circle, in which nobody reads or writes until the repair is done again.
void lead_back(ControlSession& destination, const Unit& unit) {
  destination.run(
      "INSERT INTO collegedb.retired (scope, grp, key, op, moved_to)"
      " SELECT $1, $2, k, $4, $5 FROM unnest($3::text[]) AS k ON CONFLICT DO NOTHING",
      {unit.scope, unit.group, array_text(unit.keys), restored_op(unit), unit.source});
}

}  // namespace

// Transactions with the fence of the unit's keys on one shard or two; rolled back unless committed.
class Repair::Fenced {
 public:
  Fenced(Repair& repair, const Unit& unit, bool replica_role, Lease first, Lease second = nullptr)
      : repair_(repair) {
    leases_.push_back(std::move(first));
    if (second) leases_.push_back(std::move(second));
    std::vector<ControlSession*> ordered;
    for (const Lease& each : leases_) ordered.push_back(each.get());
    std::sort(ordered.begin(), ordered.end(),
              [](const auto* a, const auto* b) { return a->shard() < b->shard(); });
    const auto buckets = buckets_of(unit.group, unit.keys);
    try {
      const milliseconds budget = repair_.options_.limits.cutover_lock_timeout;
      for (ControlSession* each : ordered) begin_fenced(*each, replica_role, budget);
      for (ControlSession* each : ordered) take_key_fence(*each, buckets);
    } catch (const SqlFailure&) {
      close();
      throw;
    }
    repair_.did("fenced");
  }
  ~Fenced() { close(); }
  Fenced(const Fenced&) = delete;
  Fenced& operator=(const Fenced&) = delete;

  ControlSession& operator[](std::size_t i) { return *leases_[i]; }
  void commit(std::size_t i) {
    const Rows done = leases_[i]->run("COMMIT");
    if (done.tag() != "COMMIT") {
      throw SqlFailure(make_error("25P02", "the transaction was rolled back"), leases_[i]->shard());
    }
  }

 private:
  void close() noexcept {
    for (Lease& each : leases_) {
      try {
        if (each->alive() && each->in_transaction()) each->run("ROLLBACK");
      } catch (const std::exception&) {
        // The session is gone, and its transaction with it.
      }
      repair_.options_.sessions->give_back(std::move(each));
    }
    leases_.clear();
  }

  Repair& repair_;
  std::vector<Lease> leases_;
};

Repair::Repair(const RunnerOptions& options, StepHook step)
    : options_(options),
      step_(std::move(step)),
      journal_(options.sessions->take(options.shards.at(options.journal), repair_options())) {}

Repair::~Repair() {
  options_.sessions->give_back(std::move(journal_));
}

void Repair::did(std::string_view step) const {
  if (step_) step_(step);
}

Repair::Lease Repair::lease(const std::string& shard) {
  const ShardConfig* config = find_shard(options_, shard);
  if (config == nullptr) {
    throw SqlFailure(make_error(ErrorCode::kUnknownShard, "no shard is named \"" + shard + "\""),
                     shard);
  }
  return options_.sessions->take(*config, repair_options());
}

std::optional<MoveRecord> Repair::load(const std::string& op) {
  return open_journal(options_)->load(op);
}

// A fence that is in use now is free a moment later.
std::string Repair::attempt(const VerifyFinding& finding) {
  for (int tries = 1;; ++tries) {
    try {
      return perform(finding);
    } catch (const SqlFailure& failure) {
      const std::string_view state = failure.error().sqlstate;
      const bool passes = state == "55P03" || state == "40P01" || state == "40001";
      if (!passes || tries == kTries) return failure.error().message;
    } catch (const StepFailure& failure) {
      return failure.error().message;
    }
    std::this_thread::sleep_for(kPause);
  }
}

std::string Repair::perform(const VerifyFinding& finding) {
  if (finding.what == "rows") return remove_ghost(finding);
  if (finding.what == "fence") return install_fence(finding);
  if (finding.what == "copy") return remove_copy(finding);
  if (finding.what == "prepared") return end_half(finding);
  if (finding.what == "cutover") return restore_cutover(finding);
  return finding.reason;
}

// The rows go if they are what the move archived when it took them away, all of them: then nothing
// is lost that somebody has written since.
std::string Repair::remove_ghost(const VerifyFinding& finding) {
  const Unit unit{.scope = options_.scope,
                  .op = finding.op,
                  .group = finding.group,
                  .keys = {finding.key},
                  .tables = read_group_tables(*journal_, options_.scope)[finding.group]};
  if (unit.tables.empty()) return "the group has no sharded table any more";
  KeyHold hold(*journal_, unit.scope, unit.group, unit.keys);
  if (!hold.taken()) return "a move has the key";
  did("held");
  Lease session = lease(finding.shard);
  const MovePlan plan = read_plan(*session, unit);
  Fenced fenced(*this, unit, plan.replica_role, std::move(session));
  ControlSession& shard = fenced[0];
  if (shard
          .run("SELECT 1 FROM collegedb.retired WHERE scope = $1 AND grp = $2 AND key = $3"
               " AND op = $4 FOR SHARE",
               {unit.scope, unit.group, finding.key, unit.op})
          .empty()) {
    return "its tombstone is not there any more";
  }
  if (keys_present(shard, plan).empty()) return {};
  if (!equals_archive(shard, plan, unit.op, unit.keys)) {
    return "the rows are not those that the move archived; compare them with those on the key's "
           "shard and delete them, or write them there";
  }
  if (const std::string key = outside_reference(shard, plan); !key.empty()) {
    return "rows of other keys reference them (foreign key " + key + ")";
  }
  for (auto table = plan.tables.rbegin(); table != plan.tables.rend(); ++table) {
    if (!table->internal) shard.run(delete_sql(*table));
  }
  did("changed");
  fenced.commit(0);
  did("committed");
  hold.release(unit.op, "rows of key " + finding.key + " that were on shard " + finding.shard +
                            " again and equal to the archive were deleted");
  return {};
}

std::string Repair::install_fence(const VerifyFinding& finding) {
  std::vector<RegisteredTable> tables = read_registry(*journal_, options_.scope);
  std::erase_if(tables, [&](const RegisteredTable& table) {
    return table.name.qualified != finding.object || table.kind != "sharded" ||
           table.key_type.empty();
  });
  if (tables.empty()) return "the table is not registered any more";
  Lease session = lease(finding.shard);
  {
    Transaction transaction(*session);
    session->run("SELECT set_config('lock_timeout', '1000', true)");
    ensure_fences(*session, options_.scope, tables);
    did("changed");
    transaction.commit();
  }
  const bool done = is_fenced(*session, options_.scope, tables.front());
  options_.sessions->give_back(std::move(session));
  return done ? "" : finding.reason;
}

// What the destination has is a part of what the source has had all along, unless it was written
// to: then it differs from what was journaled.
std::string Repair::flaw_of_copy(const MoveRecord& record, ControlSession& source,
                                 ControlSession& destination) {
  const Unit& unit = record.unit;
  if (any(source, kTombstones, unit) || any(destination, kTombstones, unit)) {
    return "the key has moved since";
  }
  if (any(source, kIncoming, unit) || any(destination, kIncoming, unit)) {
    return "the key is arriving";
  }
  const std::vector<std::string> here = keys_present(destination, read_plan(destination, unit));
  const std::vector<std::string> there = keys_present(source, read_plan(source, unit));
  if (!std::includes(there.begin(), there.end(), here.begin(), here.end())) {
    return "the source has no rows of the key; these may be the only ones";
  }
  return {};
}

std::string Repair::remove_copy(const VerifyFinding& finding) {
  const auto record = load(finding.op);
  if (!record || record->state != State::kAborted) return "the operation is not aborted";
  const Unit& unit = record->unit;
  KeyHold hold(*journal_, unit.scope, unit.group, unit.keys);
  if (!hold.taken()) return "a move has one of the keys";
  if (!hold.is_newest(unit.op)) return "a later move has had one of the keys";
  did("held");
  Lease destination = lease(unit.destination);
  const MovePlan plan = read_plan(*destination, unit);
  Fenced fenced(*this, unit, plan.replica_role, std::move(destination), lease(unit.source));
  if (keys_present(fenced[0], plan).empty()) return {};
  if (std::string flaw = flaw_of_copy(*record, fenced[1], fenced[0]); !flaw.empty()) return flaw;
  if (!equals_journaled(fenced[0], plan, record->digest))
    return "the rows are not the copy any more";
  if (const std::string key = outside_reference(fenced[0], plan); !key.empty()) {
    return "rows of other keys reference them (foreign key " + key + ")";
  }
  for (auto table = plan.tables.rbegin(); table != plan.tables.rend(); ++table) {
    fenced[0].run(delete_sql(*table));
  }
  did("changed");
  fenced.commit(0);
  did("committed");
  hold.release(unit.op, "the copy on shard " + unit.destination + " was deleted");
  return {};
}

// Aborted is final: no half of it may commit. Of a finished operation only halves of attempts that
// were given up are known to be void.
std::string Repair::end_half(const VerifyFinding& finding) {
  const auto moves = open_journal(options_);
  const auto record = moves->load(finding.op);
  if (!record) return "the journal has no such operation, so nobody knows whether it was decided";
  if (!moves->lock(finding.op)) return "a mover has the operation";
  const std::int32_t attempt = attempt_of(record->unit, finding.object);
  const bool given_up = record->state == State::kRetired && attempt < record->attempt;
  if (record->state != State::kAborted && !given_up) {
    return "the operation has ended " + std::string(name_of(record->state)) +
           " in this attempt: the half may belong to it";
  }
  if (finding.object.ends_with(":src") && !given_up) {
    // The source's rows come back to life with it.
    Lease destination = lease(record->unit.destination);
    const bool taken = any(*destination, kIncoming, record->unit) ||
                       !keys_present(*destination, read_plan(*destination, record->unit)).empty();
    options_.sessions->give_back(std::move(destination));
    if (taken) return "the destination has rows of the key: look which are the right ones first";
  }
  Lease session = lease(finding.shard);
  did("changed");
  try {
    session->run("ROLLBACK PREPARED " + quote_literal(finding.object));
  } catch (const SqlFailure& failure) {
    if (failure.error().sqlstate != "42704") throw;
  }
  did("committed");
  options_.sessions->give_back(std::move(session));
  return {};
}

// The source has given its rows away for nothing: they are in its archive, the destination has
// none, and nobody has had the key since.
std::string Repair::flaw_of_cutover(const MoveRecord& record, const std::string& shard,
                                    ControlSession& source, ControlSession& destination) {
  const Unit& unit = record.unit;
  if (unit.source != shard) return "the tombstone is not on the source of the operation";
  const std::int64_t stones =
      source.run("SELECT count(*) FROM collegedb.retired WHERE op = $1", {unit.op}).int8(0, 0);
  if (stones != static_cast<std::int64_t>(unit.keys.size())) {
    return "some keys of the operation have come back since";
  }
  const MovePlan plan = read_plan(source, unit);
  if (!keys_present(source, plan).empty()) return "the source has rows of the key";
  if (!destination
           .run("SELECT 1 FROM collegedb.retired WHERE scope = $1 AND grp = $2"
                " AND key = ANY ($3::text[]) AND op <> $4 LIMIT 1",
                {unit.scope, unit.group, array_text(unit.keys), restored_op(unit)})
           .empty()) {
    return "the key has moved on from the destination";
  }
  if (any(destination, kIncoming, unit)) return "the key has arrived at the destination";
  if (!keys_present(destination, read_plan(destination, unit)).empty()) {
    return "the destination has rows of the key";
  }
  return archive_flaw(source, plan, unit.op, record.digest);
}

std::string Repair::why_not_restorable(const VerifyFinding& finding) {
  try {
    const auto record = load(finding.op);
    if (!record || record->state != State::kAborted) return "the operation is not aborted";
    if (journal_
            ->run(
                "SELECT 1 FROM collegedb.moves m WHERE m.op = $1 AND " + std::string(newest_sql()),
                {finding.op})
            .empty()) {
      return "a later move has had one of the keys";
    }
    Lease source = lease(finding.shard);
    Lease destination = lease(record->unit.destination);
    std::string flaw = flaw_of_cutover(*record, finding.shard, *source, *destination);
    options_.sessions->give_back(std::move(source));
    options_.sessions->give_back(std::move(destination));
    return flaw;
  } catch (const SqlFailure& failure) {
    return failure.error().message;
  } catch (const StepFailure& failure) {
    return failure.error().message;
  }
}

std::string Repair::restore_cutover(const VerifyFinding& finding) {
  const auto record = load(finding.op);
  if (!record || record->state != State::kAborted) return "the operation is not aborted";
  const Unit& unit = record->unit;
  KeyHold hold(*journal_, unit.scope, unit.group, unit.keys);
  if (!hold.taken()) return "a move has one of the keys";
  if (!hold.is_newest(unit.op)) return "a later move has had one of the keys";
  did("held");
  Lease source = lease(finding.shard);
  Lease reader = lease(finding.shard);
  const MovePlan plan = read_plan(*source, unit);
  {
    Fenced fenced(*this, unit, plan.replica_role, std::move(source), lease(unit.destination));
    if (std::string flaw = flaw_of_cutover(*record, finding.shard, fenced[0], fenced[1]);
        !flaw.empty()) {
      return flaw;
    }
    put_back(*reader, fenced[0], plan, unit.op, {});
    if (!record->digest.text.empty() && !equals_journaled(fenced[0], plan, record->digest)) {
      return "the archived rows are not those that the operation has journaled";
    }
    fenced[0].run("DELETE FROM collegedb.retired WHERE op = $1", {unit.op});
    fenced[0].run("DELETE FROM collegedb.archive WHERE op = $1", {unit.op});
    lead_back(fenced[1], unit);
    did("changed");
    fenced.commit(1);
    did("led");
    fenced.commit(0);
    did("committed");
  }
  hold.release(unit.op, "the rows were put back from the archive on shard " + finding.shard);
  options_.sessions->give_back(std::move(reader));
  return {};
}

}  // namespace collegedb::migration
