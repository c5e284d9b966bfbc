#include "migration/reconcile.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <set>
#include <thread>
#include <utility>

#include "migration/cluster.h"
#include "migration/directory_entries.h"
#include "migration/group_probe.h"
#include "migration/held_keys.h"
#include "migration/import.h"
#include "proxy/session/guard.h"

namespace collegedb::migration {
namespace {

using namespace std::chrono_literals;

constexpr std::int64_t kPage = 1000;
constexpr int kMostTries = 20;  // of entries whose keys are being moved
constexpr auto kPause = 250ms;

// One entry of the ledger and what routing says of its key.
struct Entry {
  std::string key;
  std::string ledger;
  std::optional<std::string> routing;
  bool agreed = false;
  bool settled = false;  // not of this minute: whoever allocated it has had the time to write

  // Where its record has to be.
  [[nodiscard]] const std::string& home() const { return routing ? *routing : ledger; }
};

enum class Record { kUnchecked, kVerified, kMissing };

struct Outcome {
  Entry entry;
  Record record = Record::kUnchecked;
  bool repaired = false;
  bool pruned = false;
};

std::string text_of(const std::vector<Entry>& entries, std::string Entry::* member) {
  std::vector<std::string> out;
  for (const Entry& each : entries) out.push_back(each.*member);
  return array_text(out);
}

// The entries of one group.
class GroupReconcile {
 public:
  GroupReconcile(const Config& config, const ReconcileRequest& request, ControlSession& journal,
                 std::vector<std::unique_ptr<ControlSession>>& shards, const std::string& group,
                 const std::set<std::string>& verified_tables, ReconcileResult& out)
      : scope_(config.journal.scope),
        request_(request),
        journal_(journal),
        shards_(shards),
        group_(group),
        probe_(journal, scope_, group, group_tables(journal, scope_, group)),
        directory_(journal, scope_, group),
        out_(out) {
    for (const RegisteredTable& table : probe_.tables()) {
      verifies_.push_back(verified_tables.contains(table.name.qualified));
    }
    checks_records_ = std::find(verifies_.begin(), verifies_.end(), true) != verifies_.end();
  }

  // Up to `most` entries behind the last ones; false when there are no more.
  bool page(std::int64_t most) {
    directory_.read_again(journal_);
    const std::vector<Entry> entries = next_entries(most);
    if (entries.empty()) return false;
    last_ = entries.back().key;
    std::vector<Outcome> outcomes;
    std::vector<Entry> doubtful;
    std::vector<Outcome> looked = first_look(entries);
    for (std::size_t i = 0; i < looked.size(); ++i) {
      if (is_doubtful(looked[i], rows_[i])) {
        doubtful.push_back(std::move(looked[i].entry));
      } else {
        outcomes.push_back(std::move(looked[i]));
      }
    }
    prune_verified(outcomes);
    for (Outcome& each : second_look(std::move(doubtful))) outcomes.push_back(std::move(each));
    for (const Outcome& each : outcomes) count(each);
    return true;
  }

 private:
  void did(std::string_view step) const {
    if (request_.step) request_.step(step);
  }

  // One statement, so one snapshot: a move changes the directory and its own state at once.
  std::vector<Entry> read_entries(const std::string& which,
                                  const std::vector<SqlParameter>& parameters) {
    const std::string directory = directory_.mapped() ? "collegedb.mappings d ON true"
                                                      : "collegedb.exceptions d ON d.kind = 'move'";
    const Rows rows = journal_.run(
        "SELECT a.key, a.shard, d.shard, a.allocated_at < pg_catalog.clock_timestamp()"
        " - interval '1 minute', (SELECT m.destination FROM collegedb.move_keys k"
        " JOIN collegedb.moves m ON m.op = k.op WHERE k.scope = a.scope AND k.grp = a.grp"
        " AND k.key = a.key AND m.state IN ('published', 'retired')"
        " ORDER BY m.started_at DESC LIMIT 1) FROM (SELECT * FROM collegedb.allocations"
        " WHERE scope = $1 AND grp = $2 AND " +
            which + ") a LEFT JOIN " + directory +
            " AND d.scope = a.scope AND d.grp = a.grp AND d.key = a.key ORDER BY a.key",
        parameters);
    std::vector<Entry> out;
    for (int i = 0; i < rows.size(); ++i) {
      Entry& entry = out.emplace_back(Entry{rows.text(i, 0), rows.text(i, 1), rows.value(i, 2)});
      entry.settled = rows.boolean(i, 3);
      if (!entry.routing && !directory_.mapped()) {
        const bool placed = directory_.epochs().places(entry.key, entry.ledger, true);
        entry.routing = placed ? entry.ledger : directory_.epochs().owner(entry.key);
      }
      entry.agreed =
          entry.routing && (*entry.routing == entry.ledger || rows.value(i, 4) == entry.routing);
    }
    return out;
  }

  std::vector<Entry> next_entries(std::int64_t most) {
    const std::string limit = " ORDER BY key LIMIT " + std::to_string(most);
    if (!last_) return read_entries("true" + limit, {scope_, group_});
    return read_entries("key > $3" + limit, {scope_, group_, *last_});
  }

  [[nodiscard]] bool looks() const { return checks_records_ || request_.prune_verified; }

  ControlSession* session_of(const std::string& shard) {
    for (const auto& session : shards_) {
      if (session->shard() == shard) return session.get();
    }
    return nullptr;
  }

  [[nodiscard]] bool has_record(const KeyTraces& traces) const {
    for (std::size_t i = 0; i < verifies_.size(); ++i) {
      if (verifies_[i] && traces.tables[i]) return true;
    }
    return false;
  }

  // Only where routing has the key. What is not found there is looked for once more.
  std::vector<Outcome> first_look(const std::vector<Entry>& entries) {
    std::vector<Outcome> out;
    std::map<std::string, std::vector<std::size_t>> by_home;
    for (const Entry& entry : entries) {
      if (looks()) by_home[entry.home()].push_back(out.size());
      out.push_back({entry});
    }
    rows_.assign(entries.size(), false);
    for (const auto& [home, places] : by_home) {
      ControlSession* session = session_of(home);
      if (session == nullptr) continue;  // no shard of the cluster: nobody can look there
      std::vector<std::string> keys;
      for (const std::size_t place : places) keys.push_back(entries[place].key);
      const std::vector<KeyTraces> traces = probe_.look(*session, keys);
      for (std::size_t i = 0; i < places.size(); ++i) {
        rows_[places[i]] = traces[i].rows();
        if (!checks_records_) continue;
        out[places[i]].record = has_record(traces[i]) ? Record::kVerified : Record::kMissing;
      }
    }
    return out;
  }

  // What one look at one shard cannot decide, because the key may be moving or somebody may be
  // about to write it.
  [[nodiscard]] bool is_doubtful(const Outcome& outcome, bool has_rows) const {
    const Entry& entry = outcome.entry;
    if (outcome.record == Record::kMissing) return true;
    if (request_.repair && !entry.routing && has_rows) return true;
    return request_.prune_verified && entry.agreed && entry.settled && !has_rows;
  }

  std::vector<Outcome> second_look(std::vector<Entry> entries) {
    std::vector<Outcome> out;
    for (int tries = 0; !entries.empty(); ++tries) {
      if (tries > 0) std::this_thread::sleep_for(kPause);
      std::vector<Entry> moving;
      try {
        for (Outcome& each : settle(entries, moving)) out.push_back(std::move(each));
      } catch (const SqlFailure& failure) {
        if (failure.error().sqlstate != session::guard::kStale || tries >= kMostTries) throw;
        directory_.read_again(journal_);
        continue;
      }
      entries = std::move(moving);
      if (tries < kMostTries) continue;
      // Their moves take long; nobody can say more of them now.
      for (Entry& each : entries) out.push_back({std::move(each)});
      return out;
    }
    return out;
  }

  // One transaction of the journal in which no move of these keys begins. Entries whose keys are
  // being moved go to `moving`.
  std::vector<Outcome> settle(const std::vector<Entry>& entries, std::vector<Entry>& moving) {
    Transaction transaction(journal_);
    std::vector<std::string> keys;
    for (const Entry& each : entries) keys.push_back(each.key);
    HeldKeys held(journal_, scope_, group_, keys);
    did("held");
    std::vector<Entry> mine;
    for (Entry& each :
         read_entries("key = ANY ($3::pg_catalog.text[])", {scope_, group_, array_text(keys)})) {
      (held.holds(each.key) ? mine : moving).push_back(std::move(each));
    }
    std::vector<Outcome> out = judge(mine);
    repair(out);
    prune_verified(out);
    prune_dangling(out);
    held.release();
    transaction.commit();
    did("settled");
    return out;
  }

  // By the rows on all members.
  std::vector<Outcome> judge(const std::vector<Entry>& entries) {
    std::vector<Outcome> out;
    std::vector<std::string> keys;
    for (const Entry& each : entries) {
      keys.push_back(each.key);
      out.push_back({each});
    }
    homes_.assign(entries.size(), {});
    rows_.assign(entries.size(), false);
    for (const auto& session : shards_) {
      const std::vector<KeyTraces> traces = probe_.look(*session, keys);
      for (std::size_t i = 0; i < keys.size(); ++i) {
        if (traces[i].rows()) {
          rows_[i] = true;
          homes_[i].insert(session->shard());
        }
        if (entries[i].home() != session->shard() || !checks_records_) continue;
        out[i].record = has_record(traces[i]) ? Record::kVerified : Record::kMissing;
        if (traces[i].moved_to) homes_[i].insert(*traces[i].moved_to);
      }
    }
    return out;
  }

  // The mapping of a key is lost, and its rows are where it was put and nowhere else.
  void repair(std::vector<Outcome>& outcomes) {
    if (!request_.repair || !directory_.mapped()) return;
    std::map<std::string, std::vector<std::size_t>> by_shard;
    for (std::size_t i = 0; i < outcomes.size(); ++i) {
      const Outcome& each = outcomes[i];
      if (each.entry.routing || each.record != Record::kVerified) continue;
      if (homes_[i] == std::set{each.entry.ledger}) by_shard[each.entry.ledger].push_back(i);
    }
    for (const auto& [shard, places] : by_shard) {
      std::vector<std::string> keys;
      for (const std::size_t place : places) keys.push_back(outcomes[place].entry.key);
      const auto elsewhere = directory_.enter(journal_, keys, shard);
      for (const std::size_t place : places) {
        Outcome& each = outcomes[place];
        if (std::find(elsewhere.begin(), elsewhere.end(), each.entry.key) != elsewhere.end()) {
          continue;
        }
        each.entry.routing = shard;
        each.entry.agreed = true;
        each.repaired = true;
      }
    }
  }

  // Entries that agree and of whose keys nothing is anywhere.
  void prune_dangling(std::vector<Outcome>& outcomes) {
    if (!request_.prune_verified) return;
    std::vector<Outcome*> gone;
    for (std::size_t i = 0; i < outcomes.size(); ++i) {
      Outcome& each = outcomes[i];
      if (!each.entry.agreed || !each.entry.settled || rows_[i]) continue;
      // Of a shard that nobody can look at, nobody knows.
      if (session_of(each.entry.home()) != nullptr) gone.push_back(&each);
    }
    drop_entries(gone);
  }

  // Entries that agree and have their record: the ledger has nothing to say of them any more.
  void prune_verified(std::vector<Outcome>& outcomes) {
    if (!request_.prune_verified) return;
    std::vector<Outcome*> done;
    for (Outcome& each : outcomes) {
      if (each.entry.agreed && each.record == Record::kVerified) done.push_back(&each);
    }
    drop_entries(done);
  }

  void drop_entries(const std::vector<Outcome*>& outcomes) {
    if (outcomes.empty()) return;
    std::vector<Entry> entries;
    for (const Outcome* each : outcomes) entries.push_back(each->entry);
    // What has been allocated anew meanwhile is another entry.
    journal_.run(
        "DELETE FROM collegedb.allocations a USING ROWS FROM"
        " (pg_catalog.unnest($3::pg_catalog.text[]), pg_catalog.unnest($4::pg_catalog.text[]))"
        " u (k, s) WHERE a.scope = $1 AND a.grp = $2 AND a.key = u.k AND a.shard = u.s",
        {scope_, group_, text_of(entries, &Entry::key), text_of(entries, &Entry::ledger)});
    for (Outcome* each : outcomes) each->pruned = true;
  }

  void count(const Outcome& outcome) {
    const Entry& entry = outcome.entry;
    const auto list = [&](std::vector<LedgerKey>& keys) {
      if (keys.size() < kMostListed) {
        keys.push_back({group_, entry.key, entry.ledger, entry.routing});
      }
    };
    ++out_.examined;
    ++(entry.agreed ? out_.routing_agreed : out_.disagreeing);
    if (!entry.agreed) list(out_.disagreeing_keys);
    if (outcome.record == Record::kVerified) ++out_.record_verified;
    if (outcome.record == Record::kUnchecked) ++out_.record_unchecked;
    if (outcome.record == Record::kMissing) {
      ++out_.record_missing;
      list(out_.missing);
    }
    out_.repaired += outcome.repaired ? 1 : 0;
    out_.pruned += outcome.pruned ? 1 : 0;
  }

  const std::string scope_;
  const ReconcileRequest& request_;
  ControlSession& journal_;
  std::vector<std::unique_ptr<ControlSession>>& shards_;
  std::string group_;
  GroupProbe probe_;
  DirectoryView directory_;
  std::vector<bool> verifies_;  // parallel to the probe's tables
  bool checks_records_ = false;
  std::optional<std::string> last_;  // key of the last entry
  // Of the keys looked at last:
  std::vector<bool> rows_;                    // some, in any table
  std::vector<std::set<std::string>> homes_;  // shards with rows, and where a tombstone leads
  ReconcileResult& out_;
};

class Reconcile {
 public:
  Reconcile(const Config& config, const ReconcileRequest& request)
      : config_(config),
        request_(request),
        journal_(config.shards[config.journal_index()], topology_session()) {
    read_tables();
    const std::string& scope = config.journal.scope;
    const bool mapped =
        journal_
            .run("SELECT placement = 'mapped' FROM collegedb.manifest WHERE scope = $1", {scope})
            .boolean(0, 0);
    if (!mapped && !next_group({})) {
      refuse(make_error(ErrorCode::kCoordinatorNotConfigured,
                        "keys are placed by computation, and the ledger is empty",
                        "Allocations are recorded under routing.placement = \"mapped\"."));
    }
    SessionOptions options = topology_session();
    options.application_name = "collegedb reconcile";
    for (const ShardConfig& shard : member_config(journal_, config).shards) {
      shards_.push_back(std::make_unique<ControlSession>(shard, options));
    }
  }

  ReconcileResult run() {
    for (auto group = next_group({}); group && left() > 0; group = next_group(group)) {
      GroupReconcile one(config_, request_, journal_, shards_, *group, tables_, out_);
      while (left() > 0 && one.page(std::min(kPage, left()))) {
        if (request_.stopping && request_.stopping()) {
          refuse(make_error("57P01", "the proxy is shutting down",
                            "Call collegedb_reconcile again: what is done stays done."));
        }
      }
    }
    return std::move(out_);
  }

 private:
  [[noreturn]] void refuse(SqlError error) const {
    throw SqlFailure(std::move(error), journal_.shard());
  }

  [[nodiscard]] std::int64_t left() const {
    return request_.max_rows ? *request_.max_rows - out_.examined : kPage;
  }

  // The first group of the ledger behind `group`.
  std::optional<std::string> next_group(const std::optional<std::string>& group) {
    const std::string scope = config_.journal.scope;
    const std::string sql = "SELECT grp FROM collegedb.allocations WHERE scope = $1";
    const std::string first = " ORDER BY grp LIMIT 1";
    const Rows rows = group ? journal_.run(sql + " AND grp > $2" + first, {scope, *group})
                            : journal_.run(sql + first, {scope});
    return rows.empty() ? std::nullopt : std::optional(rows.text(0, 0));
  }

  void read_tables() {
    const std::vector<RegisteredTable> registry = read_registry(journal_, config_.journal.scope);
    if (request_.verify_tables) {
      const Rows rows = journal_.run("SELECT u FROM pg_catalog.unnest($1::pg_catalog.text[]) u",
                                     {*request_.verify_tables});
      for (int i = 0; i < rows.size(); ++i) {
        if (rows.null(i, 0)) refuse(make_error("22004", "a table to verify must not be null"));
        tables_.insert(sharded(registry, rows.text(i, 0)));
      }
    }
    if (request_.repair && tables_.empty()) {
      refuse(make_error(ErrorCode::kReconcileVerifyRequired,
                        "a mapping is written again only for a record that is there",
                        "Name the tables of the records as verify_tables."));
    }
  }

  // Qualified name of the sharded table that `text` means.
  std::string sharded(const std::vector<RegisteredTable>& registry, const std::string& text) {
    TableName name = parse_table_name(journal_, text);
    name = find_table(journal_, name, request_.search_path).value_or(name);
    for (const RegisteredTable& table : registry) {
      if (table.name == name && table.kind == "sharded") return name.qualified;
    }
    refuse(make_error(ErrorCode::kUnknownTable, "\"" + text + "\" is not a sharded table"));
  }

  const Config& config_;
  const ReconcileRequest& request_;
  ControlSession journal_;
  std::vector<std::unique_ptr<ControlSession>> shards_;  // members
  std::set<std::string> tables_;                         // to verify
  ReconcileResult out_;
};

}  // namespace

Result<ReconcileResult> reconcile(const Config& config, const ReconcileRequest& request) {
  if (!config.has_journal()) {
    return make_error(ErrorCode::kJournalNotConfigured, "the ledger needs a journal shard",
                      "Name one as journal.shard in the configuration of every proxy.");
  }
  if (request.max_rows && *request.max_rows < 1) {
    return make_error("22023", "max_rows must be greater than zero");
  }
  try {
    return Reconcile(config, request).run();
  } catch (const SqlFailure& failure) {
    return directory_error(failure);
  }
}

}  // namespace collegedb::migration
