#include "migration/import.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <thread>
#include <utility>

#include "migration/bucket_fence.h"
#include "migration/cluster.h"
#include "migration/directory_entries.h"
#include "migration/group_probe.h"
#include "migration/group_sweep.h"
#include "migration/held_keys.h"
#include "migration/placed_epochs.h"
#include "proxy/session/guard.h"
#include "routing/hash.h"

namespace collegedb::migration {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kPage = 2000;  // keys looked at together
constexpr std::size_t kLot = 500;    // keys settled in one transaction of the journal
constexpr int kMostTries = 20;       // of a lot that others are busy with
constexpr auto kPause = 250ms;
// Every process loads the whole directory each time.
constexpr auto kAnnounceEvery = 10s;
constexpr auto kLongestLot = 2s;  // of waiting for fences, while moves wait for the lot's claims

// What has to become of a key.
enum class Fate {
  kNothing,  // routing finds its rows
  kAdopt,    // the directory is to name the shard
  kConflict,
};

// All that is known of one key at one moment.
struct Facts {
  std::vector<std::size_t> shards;                   // with rows
  std::vector<std::optional<std::string>> moved_to;  // tombstones, by shard
  std::optional<std::string> entry;                  // of the directory
};

struct Verdict {
  Fate fate = Fate::kNothing;
  std::string reason{};
  std::string closed{};  // computed: the owner that gets a tombstone first; empty = none
};

Verdict conflict(std::string reason) {
  return {Fate::kConflict, std::move(reason)};
}

SessionOptions import_options(const Config& config) {
  SessionOptions options;
  options.application_name = "collegedb import";
  options.lock_timeout = config.migration.cutover_lock_timeout;
  options.dies_with_client = true;
  return options;
}

class Import {
 public:
  Import(const Config& config, const ImportRequest& request)
      : config_(config),
        request_(request),
        journal_(config.shards[config.journal_index()], topology_session()),
        cluster_(member_config(journal_, config)),
        tables_(group_tables(journal_, scope(), request.group)),
        probe_(journal_, scope(), request.group, tables_),
        directory_(journal_, scope(), request.group) {
    for (const ShardConfig& shard : cluster_.shards) {
      shards_.push_back(std::make_unique<ControlSession>(shard, import_options(config)));
    }
  }

  ImportResult run() {
    report_rows_without_key();
    GroupSweep sweep(cluster_, request_.group, tables_);
    for (;;) {
      const std::vector<SweptKey> page = sweep.next(kPage);
      announce(page.empty() ? 0s : kAnnounceEvery);
      if (page.empty()) return std::move(out_);
      if (request_.stopping && request_.stopping()) {
        throw SqlFailure(make_error("57P01", "the proxy is shutting down",
                                    "Call collegedb_import again: what is done stays done."),
                         "");
      }
      out_.examined += static_cast<std::int64_t>(page.size());
      const std::vector<std::string> doubtful = doubtful_of(page);
      for (std::size_t at = 0; at < doubtful.size(); at += kLot) {
        settle(
            {doubtful.begin() + static_cast<std::ptrdiff_t>(at),
             doubtful.begin() + static_cast<std::ptrdiff_t>(std::min(at + kLot, doubtful.size()))});
      }
    }
  }

 private:
  using Keys = std::vector<std::string>;

  [[nodiscard]] const std::string& scope() const { return config_.journal.scope; }
  [[nodiscard]] const std::string& name(std::size_t shard) const {
    return cluster_.shards[shard].name;
  }
  void did(std::string_view step) const {
    if (request_.step) request_.step(step);
  }

  void report(std::optional<std::string> key, const std::vector<std::size_t>& shards,
              std::optional<std::string> directory, std::string reason) {
    ++out_.conflicts;
    if (out_.listed.size() >= kMostListed) return;
    std::vector<std::string> names;
    for (const std::size_t shard : shards) names.push_back(name(shard));
    out_.listed.push_back(
        {std::move(key), std::move(names), std::move(directory), std::move(reason)});
  }

  void announce(std::chrono::seconds interval) {
    const auto now = std::chrono::steady_clock::now();
    if (request_.dry_run || directory_.mapped() || now - announced_ < interval) return;
    directory_.announce(journal_, out_.mapped > announced_keys_);
    announced_keys_ = out_.mapped;
    announced_ = now;
  }

  void report_rows_without_key() {
    for (const RegisteredTable& table : probe_.tables()) {
      for (std::size_t shard = 0; shard < shards_.size(); ++shard) {
        ControlSession& session = *shards_[shard];
        if (!find_table(session, table.name, {})) continue;
        session.set_statement_timeout(0ms);
        const bool found = !session
                                .run("SELECT 1 FROM " + table.name.qualified + " WHERE (" +
                                     table.key_expression + ") IS NULL LIMIT 1")
                                .empty();
        session.set_statement_timeout(SessionOptions{}.statement_timeout);
        if (!found) continue;
        report(std::nullopt, {shard}, std::nullopt,
               "table " + table.name.qualified + " has rows without a key here: give " +
                   table.key_column + " a value");
      }
    }
  }

  // Keys of which a first look does not show that routing finds them.
  Keys doubtful_of(const std::vector<SweptKey>& page) {
    Keys all;
    for (const SweptKey& each : page) all.push_back(each.key);
    const auto entries = directory_.entries(journal_, all);
    Keys out;
    for (std::size_t i = 0; i < page.size(); ++i) {
      Facts facts;
      facts.shards = page[i].shards;
      facts.moved_to.resize(shards_.size());
      facts.entry = entries[i];
      if (verdict_of(page[i].key, facts).fate != Fate::kNothing) out.push_back(page[i].key);
    }
    return out;
  }

  [[nodiscard]] Verdict verdict_of(const std::string& key, const Facts& facts) const {
    if (facts.shards.empty()) return {};  // its last row has gone meanwhile
    if (facts.shards.size() > 1) {
      return conflict("has rows on several shards: bring them together on one");
    }
    const std::size_t home = facts.shards.front();
    if (const auto& to = facts.moved_to[home]) {
      return conflict("has moved away to shard \"" + *to +
                      "\": remove these rows, or insert them through the proxy");
    }
    if (facts.entry) {
      if (*facts.entry == name(home)) return {};
      return conflict("the directory has it on shard \"" + *facts.entry +
                      "\": bring the rows there");
    }
    return directory_.mapped() ? Verdict{Fate::kAdopt} : verdict_by_epochs(key, facts);
  }

  // Writers that do not know of an entry go to the key's owner. With one owner a tombstone there
  // turns them all at the same instant; with several it cannot.
  [[nodiscard]] Verdict verdict_by_epochs(const std::string& key, const Facts& facts) const {
    const std::string& home = name(facts.shards.front());
    if (directory_.epochs().places(key, home, true)) return {};
    const std::string& owner = directory_.epochs().owner(key);
    if (!directory_.epochs().agree_on(key)) {
      return conflict(
          "active epochs place it on different shards: collegedb_rebalance brings it "
          "to shard \"" +
          owner + "\"");
    }
    for (std::size_t i = 0; i < shards_.size(); ++i) {
      if (name(i) != owner || !facts.moved_to[i]) continue;
      if (*facts.moved_to[i] == home) return {Fate::kAdopt};
      return conflict("its owner, shard \"" + owner + "\", says that it has moved to shard \"" +
                      *facts.moved_to[i] + "\": bring the rows there");
    }
    return {Fate::kAdopt, {}, owner};
  }

  // Looks at the keys again, with no move of them possible, and does what is to be done. Keys that
  // others are busy with are tried again for some seconds.
  void settle(Keys keys) {
    if (request_.dry_run) {
      rehearse(keys);
      return;
    }
    for (int tries = 0; !keys.empty(); ++tries) {
      if (tries > 0) std::this_thread::sleep_for(kPause);
      busy_.clear();
      try {
        settle_now(keys);
      } catch (const SqlFailure& failure) {
        if (failure.error().sqlstate != session::guard::kStale || tries >= kMostTries) throw;
        continue;
      }
      keys.clear();
      for (auto& [key, reason] : busy_) {
        if (tries < kMostTries) {
          keys.push_back(key);
        } else {
          report(key, shards_with(key), std::nullopt, reason);
        }
      }
    }
  }

  void rehearse(const Keys& keys) {
    const auto moving = keys_being_moved(journal_, scope(), request_.group, keys);
    for (std::size_t i = 0; const Facts& facts : facts_of(keys)) {
      const std::string& key = keys[i++];
      const Verdict verdict = verdict_of(key, facts);
      if (const auto op = moving.find(key); op != moving.end()) {
        if (verdict.fate != Fate::kNothing) {
          report(key, facts.shards, facts.entry, being_moved(op->second));
        }
      } else if (verdict.fate == Fate::kConflict) {
        report(key, facts.shards, facts.entry, verdict.reason);
      } else if (verdict.fate == Fate::kAdopt) {
        ++out_.mapped;
      }
    }
  }

  static std::string being_moved(const std::string& op) {
    return "is being moved" + (op.empty() ? "" : " by operation " + op) +
           ": import again when it has arrived";
  }

  // One transaction of the journal. Nothing is counted before it has committed.
  void settle_now(const Keys& keys) {
    Transaction transaction(journal_);
    HeldKeys held(journal_, scope(), request_.group, keys);
    did("held");
    Keys mine;
    for (const std::string& key : keys) {
      if (held.holds(key)) mine.push_back(key);
    }
    require_same_tables();
    directory_.read_again(journal_);
    const std::vector<Facts> facts = facts_of(mine);
    Adoptions adoptions;
    std::vector<std::pair<std::size_t, Verdict>> conflicts;
    for (std::size_t i = 0; i < mine.size(); ++i) {
      Verdict verdict = verdict_of(mine[i], facts[i]);
      if (verdict.fate == Fate::kConflict) conflicts.emplace_back(i, std::move(verdict));
      if (verdict.fate != Fate::kAdopt) continue;
      adoptions.push_back({mine[i], name(facts[i].shards.front()), verdict.closed});
    }
    for (const auto& [key, op] : held.moving()) busy_[key] = being_moved(op);
    const std::int64_t adopted = adopt(std::move(adoptions));
    held.release();
    transaction.commit();
    did("recorded");
    out_.mapped += adopted;
    for (auto& [i, verdict] : conflicts) {
      report(mine[i], facts[i].shards, facts[i].entry, std::move(verdict.reason));
    }
  }

  // A table that has come into the group meanwhile has rows nobody has looked at.
  void require_same_tables() {
    const std::vector<RegisteredTable> now = group_tables(journal_, scope(), request_.group);
    if (std::equal(now.begin(), now.end(), tables_.begin(), tables_.end(),
                   [](const RegisteredTable& a, const RegisteredTable& b) {
                     return a.name == b.name && a.key_expression == b.key_expression;
                   })) {
      return;
    }
    throw SqlFailure(
        make_error("40001", "the tables of group " + request_.group + " have changed meanwhile",
                   "Call collegedb_import again."),
        journal_.shard());
  }

  // Parallel to `keys`: rows and tombstones on every member, and the directory.
  std::vector<Facts> facts_of(const Keys& keys) {
    std::vector<Facts> out(keys.size());
    const auto entries = directory_.entries(journal_, keys);
    for (std::size_t i = 0; i < keys.size(); ++i) {
      out[i].entry = entries[i];
      out[i].moved_to.resize(shards_.size());
    }
    for (std::size_t shard = 0; shard < shards_.size(); ++shard) {
      std::vector<KeyTraces> traces = probe_.look(*shards_[shard], keys);
      for (std::size_t i = 0; i < keys.size(); ++i) {
        if (traces[i].rows()) out[i].shards.push_back(shard);
        out[i].moved_to[shard] = std::move(traces[i].moved_to);
      }
    }
    return out;
  }

  std::vector<std::size_t> shards_with(const std::string& key) {
    return facts_of({key}).front().shards;
  }

  struct Adoption {
    std::string key;
    std::string shard;
    std::string owner;  // gets a tombstone first; empty = none
  };
  using Adoptions = std::vector<Adoption>;

  // Returns how many keys the directory has got.
  std::int64_t adopt(Adoptions adoptions) {
    if (adoptions.empty()) return 0;
    if (!directory_.mapped()) adoptions = close_owners(std::move(adoptions));
    std::map<std::string, Keys> by_shard;
    for (const Adoption& each : adoptions) by_shard[each.shard].push_back(each.key);
    for (const auto& [shard, keys] : by_shard) {
      // A writer may have put a key elsewhere this moment: the next try sees that.
      for (std::string& key : directory_.enter(journal_, keys, shard)) {
        busy_[std::move(key)] = "was put on another shard meanwhile";
      }
    }
    std::int64_t done = 0;
    for (const Adoption& each : adoptions) done += busy_.contains(each.key) ? 0 : 1;
    return done;
  }

  // Turns the writers of the keys' owners to where the rows are, bucket by bucket, and returns the
  // keys of which that is so now. From here on every writer finds the key, whether the directory
  // says so or not.
  Adoptions close_owners(Adoptions adoptions) {
    std::map<std::pair<std::string, std::int32_t>, Adoptions> fences;
    Adoptions out;
    for (Adoption& each : adoptions) {
      if (each.owner.empty()) {
        out.push_back(std::move(each));
        continue;
      }
      const std::int32_t bucket = routing::gate_bucket(request_.group, each.key);
      fences[{each.owner, bucket}].push_back(std::move(each));
    }
    const auto deadline = std::chrono::steady_clock::now() + kLongestLot;
    for (const auto& [fence, keys] : fences) {
      if (std::chrono::steady_clock::now() > deadline) {
        keep_for_later(fence.first, keys);
        continue;
      }
      for (Adoption& each : close_bucket(fence.first, fence.second, keys)) {
        out.push_back(std::move(each));
      }
    }
    did("planted");
    return out;
  }

  Adoptions close_bucket(const std::string& owner, std::int32_t bucket, const Adoptions& keys) {
    ControlSession& session = session_of(owner);
    try {
      open_bucket_fence(session, bucket, directory_.generation());
      Adoptions out = plant(session, keys);
      session.script("SELECT pg_catalog.nextval('collegedb.cutover_counter'); COMMIT");
      return out;
    } catch (const SqlFailure& failure) {
      if (session.alive() && session.in_transaction()) session.run("ROLLBACK");
      if (failure.error().sqlstate != "55P03" && failure.error().sqlstate != "40P01") throw;
      keep_for_later(owner, keys);
      return {};
    }
  }

  void keep_for_later(const std::string& owner, const Adoptions& keys) {
    for (const Adoption& each : keys) {
      busy_[each.key] = "transactions on shard \"" + owner +
                        "\" hold the fence of its bucket: import again when they have ended";
    }
  }

  // Under the fence: of the keys that still have neither rows nor a tombstone here.
  Adoptions plant(ControlSession& session, const Adoptions& keys) {
    Keys names;
    for (const Adoption& each : keys) names.push_back(each.key);
    const std::vector<KeyTraces> now = probe_.look(session, names);
    Adoptions out;
    Keys planted;
    Keys homes;
    for (std::size_t i = 0; i < keys.size(); ++i) {
      if (now[i].rows() || now[i].moved_to) {
        busy_[keys[i].key] = "is written at its owner, shard \"" + session.shard() + "\"";
        continue;
      }
      planted.push_back(keys[i].key);
      homes.push_back(keys[i].shard);
      out.push_back(keys[i]);
    }
    // Like a finder's, they are of no operation.
    session.run(
        "INSERT INTO collegedb.retired (scope, grp, key, op, moved_to)"
        " SELECT $1, $2, u.k, 'epoch:import:' || pg_catalog.gen_random_uuid(), u.s"
        " FROM ROWS FROM (pg_catalog.unnest($3::pg_catalog.text[]),"
        " pg_catalog.unnest($4::pg_catalog.text[])) u (k, s)",
        {scope(), request_.group, array_text(planted), array_text(homes)});
    return out;
  }

  ControlSession& session_of(const std::string& shard) {
    for (const auto& session : shards_) {
      if (session->shard() == shard) return *session;
    }
    throw SqlFailure(make_error(ErrorCode::kUnknownShard,
                                "shard \"" + shard + "\" of an epoch is no part of the cluster"),
                     shard);
  }

  const Config& config_;
  const ImportRequest& request_;
  ControlSession journal_;
  Config cluster_;
  std::vector<RegisteredTable> tables_;
  GroupProbe probe_;
  DirectoryView directory_;
  std::vector<std::unique_ptr<ControlSession>> shards_;  // parallel to cluster_.shards
  std::chrono::steady_clock::time_point announced_ = std::chrono::steady_clock::now();
  std::int64_t announced_keys_ = 0;
  std::map<std::string, std::string> busy_;  // keys to try again, with the reason of the last time
  ImportResult out_;
};

}  // namespace

Result<ImportResult> import_group(const Config& config, const ImportRequest& request) {
  if (!config.has_journal()) {
    return make_error(ErrorCode::kJournalNotConfigured, "the directory needs a journal shard",
                      "Name one as journal.shard in the configuration of every proxy.");
  }
  try {
    return Import(config, request).run();
  } catch (const SqlFailure& failure) {
    return directory_error(failure);
  }
}

}  // namespace collegedb::migration
