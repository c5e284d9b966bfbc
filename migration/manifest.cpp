#include "migration/manifest.h"

#include <algorithm>
#include <optional>
#include <thread>

namespace collegedb::migration {
namespace {

constexpr int kAttempts = 5;

// nullopt: the swap is lost, nothing was changed.
std::optional<std::int64_t> try_change(ControlSession& journal, const std::string& scope, Bump bump,
                                       const ManifestChange& change, const StepHook& step) {
  const Manifest before = read_manifest(journal, scope);
  if (step) step("manifest read");
  Transaction transaction(journal);
  // Keys that are being mapped (sql/journal_3.sql) are mapped under what was before.
  journal.run(
      "SELECT pg_catalog.pg_advisory_xact_lock("
      "pg_catalog.hashtextextended('collegedb:map:' || $1, 0))",
      {scope});
  const Rows won = journal.run(
      "UPDATE collegedb.manifest SET revision = revision + 1,"
      " generation = generation + $3::pg_catalog.int8"
      " WHERE scope = $1 AND revision = $2::pg_catalog.int8 RETURNING generation",
      {scope, std::to_string(before.revision), bump == Bump::kGeneration ? "1" : "0"});
  if (won.empty()) return std::nullopt;
  const std::int64_t generation = won.int8(0, 0);
  change(journal, before, generation);
  transaction.commit();
  return generation;
}

}  // namespace

const EpochRow* Manifest::newest_active() const {
  const auto found = std::find_if(epochs.begin(), epochs.end(),
                                  [](const EpochRow& each) { return each.state == "active"; });
  return found != epochs.end() ? &*found : nullptr;
}

const EpochRow* Manifest::publishing() const {
  const auto found = std::find_if(epochs.begin(), epochs.end(),
                                  [](const EpochRow& each) { return each.state == "publishing"; });
  return found != epochs.end() ? &*found : nullptr;
}

const MemberRow* Manifest::find(std::string_view shard) const {
  const auto found = std::find_if(members.begin(), members.end(),
                                  [&](const MemberRow& each) { return each.name == shard; });
  return found != members.end() ? &*found : nullptr;
}

SessionOptions topology_session() {
  SessionOptions options;
  options.application_name = "collegedb topology";
  options.dies_with_client = true;
  // Idle while the shards are worked on.
  options.idle_in_transaction_timeout = std::chrono::milliseconds{0};
  return options;
}

Manifest read_manifest(ControlSession& journal, const std::string& scope) {
  Transaction transaction(journal, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY");
  Manifest out;
  const Rows head =
      journal.run("SELECT revision, generation FROM collegedb.manifest WHERE scope = $1", {scope});
  if (head.empty()) {
    throw SqlFailure(
        make_error("55000", "scope \"" + scope + "\" has no manifest on the journal shard",
                   "Run collegedb init."),
        journal.shard());
  }
  out.revision = head.int8(0, 0);
  out.generation = head.int8(0, 1);
  const Rows epochs = journal.run(
      "SELECT id, algorithm, state, shards, weights, generation FROM collegedb.epochs"
      " WHERE scope = $1 ORDER BY id DESC",
      {scope});
  for (int i = 0; i < epochs.size(); ++i) {
    out.epochs.push_back({static_cast<int>(epochs.int8(i, 0)), epochs.text(i, 1), epochs.text(i, 2),
                          epochs.array(i, 3), epochs.array(i, 4), epochs.int8(i, 5)});
  }
  const Rows members = journal.run(
      "SELECT shard, state, slot FROM collegedb.shards WHERE scope = $1 ORDER BY slot", {scope});
  for (int i = 0; i < members.size(); ++i) {
    out.members.push_back(
        {members.text(i, 0), members.text(i, 1), static_cast<int>(members.int8(i, 2))});
  }
  transaction.commit();
  return out;
}

std::int64_t change_manifest(ControlSession& journal, const std::string& scope, Bump bump,
                             const ManifestChange& change, const StepHook& step) {
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    if (const auto generation = try_change(journal, scope, bump, change, step)) return *generation;
  }
  throw SqlFailure(make_error(ErrorCode::kPlacementConflict,
                              "the manifest of scope \"" + scope +
                                  "\" was changed by others five times in a row",
                              "Try again."),
                   journal.shard());
}

TopologyLock::TopologyLock(ControlSession& journal, const std::string& scope)
    : journal_(journal), key_("collegedb:topology:" + scope) {
  try {
    journal_.run("SELECT pg_catalog.pg_advisory_lock(pg_catalog.hashtextextended($1, 0))", {key_});
  } catch (const SqlFailure& failure) {
    if (failure.error().sqlstate != "55P03") throw;
    throw SqlFailure(make_error("55006", "another change of the topology is running",
                                "Wait for it; collegedb.epochs shows how far it is."),
                     journal_.shard());
  }
  held_ = true;
}

TopologyLock::TopologyLock(ControlSession& journal, const std::string& scope, Try)
    : journal_(journal), key_("collegedb:topology:" + scope) {
  held_ =
      journal_
          .run("SELECT pg_catalog.pg_try_advisory_lock(pg_catalog.hashtextextended($1, 0))", {key_})
          .boolean(0, 0);
}

TopologyLock::~TopologyLock() {
  if (!held_ || !journal_.idle()) return;  // a session that ends frees it
  try {
    journal_.run("SELECT pg_catalog.pg_advisory_unlock(pg_catalog.hashtextextended($1, 0))",
                 {key_});
  } catch (const SqlFailure&) {
    // The connection is gone, and the lock with it.
  }
}

MembersLock::MembersLock(ControlSession& journal, Mode mode)
    : journal_(journal), suffix_(mode == Mode::kShared ? "_shared" : "") {
  // Asked for again and again: a statement that waited would hold a snapshot, and CREATE INDEX
  // CONCURRENTLY, whose coordinator has the lock, waits for every older snapshot.
  const auto deadline = std::chrono::steady_clock::now() + kMembersPatience;
  while (!journal_
              .run("SELECT pg_catalog.pg_try_advisory_lock" + std::string(suffix_) +
                   "(pg_catalog.hashtextextended('collegedb:members', 0))")
              .boolean(0, 0)) {
    if (std::chrono::steady_clock::now() > deadline) {
      throw SqlFailure(
          make_error("55006",
                     mode == Mode::kShared ? "a shard is being added"
                                           : "a schema change is on its way from shard to shard",
                     "Try again when it has ended."),
          journal_.shard());
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

MembersLock::~MembersLock() {
  if (!journal_.idle()) return;  // a session that ends frees it
  try {
    journal_.run("SELECT pg_catalog.pg_advisory_unlock" + std::string(suffix_) +
                 "(pg_catalog.hashtextextended('collegedb:members', 0))");
  } catch (const SqlFailure&) {
    // The connection is gone, and the lock with it.
  }
}

RegistryLock::RegistryLock(ControlSession& journal) : journal_(journal) {
  journal_.run(
      "SELECT pg_catalog.pg_advisory_lock(pg_catalog.hashtextextended('collegedb:registry', 0))");
}

RegistryLock::~RegistryLock() {
  if (!journal_.idle()) return;  // a session that ends frees it
  try {
    journal_.run(
        "SELECT pg_catalog.pg_advisory_unlock("
        "pg_catalog.hashtextextended('collegedb:registry', 0))");
  } catch (const SqlFailure&) {
    // The connection is gone, and the lock with it.
  }
}

}  // namespace collegedb::migration
