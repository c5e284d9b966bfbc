#include "migration/verify.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <thread>
#include <utility>

#include "migration/operation.h"
#include "migration/recovery.h"
#include "migration/verify_repair.h"
#include "migration/verify_scan.h"

namespace collegedb::migration {
namespace {

using std::chrono::milliseconds;

constexpr std::array<std::string_view, kFindingKinds> kNames = {
    "dangling_ops", "ghosts", "stranded_archives", "stranded_copies", "stale_cutovers"};
constexpr std::chrono::seconds kRecoveryPatience{20};

SessionOptions verify_options() {
  return {.application_name = "collegedb verify",
          .statement_timeout = milliseconds(30 * 60 * 1000),
          .idle_in_transaction_timeout = milliseconds(0)};
}

std::string json_text(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    constexpr std::string_view kHex = "0123456789abcdef";
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20) {
      out += "\\u00";
      out += kHex[byte >> 4U];
      out += kHex[byte & 15U];
    } else {
      out += c;
    }
  }
  return out + "\"";
}

std::string json_of(const VerifyFinding& finding) {
  std::string out = "{\"what\": " + json_text(finding.what);
  const auto field = [&](std::string_view name, const std::string& value) {
    if (!value.empty()) out += ", \"" + std::string(name) + "\": " + json_text(value);
  };
  field("op", finding.op);
  field("shard", finding.shard);
  field("grp", finding.group);
  field("key", finding.key);
  field(finding.what == "prepared" ? "gid" : "table", finding.object);
  field("reason", finding.reason);
  if (finding.kind == FindingKind::kStaleCutover) {
    out += finding.restorable ? ", \"restorable\": true" : ", \"restorable\": false";
  }
  return out + "}";
}

class Verification {
 public:
  Verification(const RunnerOptions& options, bool repair)
      : options_(options), repair_(repair), journal_(take(options.shards.at(options.journal))) {}
  ~Verification() {
    for (auto& [name, session] : sessions_) options_.sessions->give_back(std::move(session));
    options_.sessions->give_back(std::move(journal_));
  }
  Verification(const Verification&) = delete;
  Verification& operator=(const Verification&) = delete;

  Result<VerifyResult> run() {
    const std::string id =
        journal_
            ->run("INSERT INTO collegedb.verifications (scope) VALUES ($1) RETURNING id",
                  {options_.scope})
            .text(0, 0);
    if (auto failed = recover(); failed.has_error()) return failed.error();
    look();
    for (FindingList& list : out_.remaining) settle(list);
    record(id);
    return std::move(out_);
  }

 private:
  std::unique_ptr<ControlSession> take(const ShardConfig& shard) {
    return options_.sessions->take(shard, verify_options());
  }

  // Members alone: nullptr for any other shard.
  ControlSession* session_of(const std::string& shard) {
    const auto found = sessions_.find(shard);
    return found == sessions_.end() ? nullptr : found->second.get();
  }

  void add(VerifyFinding finding) {
    FindingList& list = out_[finding.kind];
    ++list.count;
    if (list.first.size() < kMaxFindings) list.first.push_back(std::move(finding));
  }

  // What it ends is told as repaired.
  Result<void> recover() {
    if (!repair_) return {};
    std::vector<VerifyFinding> dangling;
    find_dangling(options_, *journal_,
                  [&](VerifyFinding finding) { dangling.push_back(std::move(finding)); });
    if (dangling.empty()) return {};
    const auto deadline = std::chrono::steady_clock::now() + kRecoveryPatience;
    for (;;) {
      const auto done = Recovery(options_).run();
      if (done) {
        for (const RecoveryFailure& each : done->failed) unrecovered_[each.op] = each.error;
        break;
      }
      const bool busy = done.error().message.starts_with(name_of(ErrorCode::kRecoveryInProgress));
      if (!busy || std::chrono::steady_clock::now() > deadline) return done.error();
      std::this_thread::sleep_for(milliseconds(100));
    }
    std::map<std::string, bool> still;
    find_dangling(options_, *journal_,
                  [&](const VerifyFinding& finding) { still[finding.op] = true; });
    for (VerifyFinding& finding : dangling) {
      if (!still.contains(finding.op)) out_.repaired.push_back(std::move(finding));
    }
    return {};
  }

  void look() {
    find_dangling(options_, *journal_, [&](VerifyFinding finding) {
      const auto why = unrecovered_.find(finding.op);
      if (why != unrecovered_.end()) finding.reason += ": " + why->second;
      add(std::move(finding));
    });
    open_members();
    for (const auto& [name, session] : sessions_) scan(*session);
    find_stranded_copies(
        options_, *journal_, [&](const std::string& name) { return session_of(name); },
        [&](VerifyFinding finding) { add(std::move(finding)); });
  }

  void open_members() {
    const Rows members =
        journal_->run("SELECT shard FROM collegedb.shards WHERE scope = $1 AND state <> 'removed'",
                      {options_.scope});
    for (int i = 0; i < members.size(); ++i) {
      const ShardConfig* config = find_shard(options_, members.text(i, 0));
      if (config == nullptr) {
        throw SqlFailure(
            make_error(ErrorCode::kUnknownShard, "shard \"" + members.text(i, 0) +
                                                     "\" of the cluster is not configured here"),
            members.text(i, 0));
      }
      sessions_[config->name] = take(*config);
    }
  }

  // Once more from the start when tables have changed under it.
  void scan(ControlSession& session) {
    for (int tries = 1;; ++tries) {
      std::vector<VerifyFinding> found;
      std::array<std::int64_t, kFindingKinds> more{};
      const FindingSink sink = [&](VerifyFinding finding) {
        auto& count = more[static_cast<std::size_t>(finding.kind)];
        if (++count <= static_cast<std::int64_t>(kMaxFindings)) found.push_back(std::move(finding));
      };
      try {
        ShardScan(options_, *journal_, session, sink).run();
      } catch (const SqlFailure& failure) {
        if (!failure.error().sqlstate.starts_with("42") || tries == 3) throw;
        continue;
      }
      for (std::size_t i = 0; i < kFindingKinds; ++i) {
        const auto kept = std::min<std::int64_t>(more[i], kMaxFindings);
        out_.remaining[i].count += more[i] - kept;
      }
      for (VerifyFinding& finding : found) add(std::move(finding));
      return;
    }
  }

  // Repairs what is listed, and says of every stale cutover whether it could be.
  void settle(FindingList& list) {
    if (list.first.empty()) return;
    if (!repair_ && list.first.front().kind != FindingKind::kStaleCutover) return;
    Repair repair(options_, {});
    std::vector<VerifyFinding> left;
    for (VerifyFinding& finding : list.first) {
      std::string why = finding.reason;
      if (finding.kind == FindingKind::kStaleCutover) {
        why = repair.why_not_restorable(finding);
        finding.restorable = why.empty();
        if (why.empty()) why = finding.reason;
      }
      if (repair_ && finding.kind != FindingKind::kDanglingOp) {
        why = repair.attempt(finding);
        if (why.empty()) {
          --list.count;
          out_.repaired.push_back(std::move(finding));
          continue;
        }
      }
      finding.reason = std::move(why);
      left.push_back(std::move(finding));
    }
    list.first = std::move(left);
  }

  void record(const std::string& id) {
    std::string findings = "{";
    for (std::size_t i = 0; i < kFindingKinds; ++i) {
      findings += "\"" + std::string(kNames[i]) +
                  "\": " + migration::json_of(out_.remaining[i].first) + ", \"" +
                  std::string(kNames[i]) + "_count\": " + std::to_string(out_.remaining[i].count) +
                  ", ";
    }
    findings += "\"repaired\": " + migration::json_of(out_.repaired) + "}";
    journal_->run(
        "UPDATE collegedb.verifications SET finished_at = clock_timestamp(), clean = $3::boolean,"
        " findings = $4::jsonb WHERE scope = $1 AND id = $2::bigint",
        {options_.scope, id, out_.clean() ? "t" : "f", findings});
  }

  const RunnerOptions& options_;
  bool repair_;
  std::unique_ptr<ControlSession> journal_;
  std::map<std::string, std::unique_ptr<ControlSession>> sessions_;
  std::map<std::string, std::string> unrecovered_;
  VerifyResult out_;
};

}  // namespace

std::string_view name_of(FindingKind kind) noexcept {
  return kNames[static_cast<std::size_t>(kind)];
}

bool VerifyResult::clean() const {
  return std::all_of(remaining.begin(), remaining.end(),
                     [](const FindingList& list) { return list.count == 0; });
}

std::string json_of(const std::vector<VerifyFinding>& findings) {
  std::string out = "[";
  for (const VerifyFinding& finding : findings) {
    out += (out.size() > 1 ? ", " : "") + json_of(finding);
  }
  return out + "]";
}

Result<VerifyResult> verify(const RunnerOptions& options, bool repair) {
  try {
    const RunnerOptions whole = completed(options);
    return Verification(whole, repair).run();
  } catch (const SqlFailure& failure) {
    return failure.error();
  } catch (const StepFailure& failure) {
    return failure.error();
  }
}

}  // namespace collegedb::migration
