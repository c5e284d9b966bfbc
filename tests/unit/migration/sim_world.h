// Two shards and a journal in memory, with what the protocol relies on: transactions that vanish
// with their session, prepared ones that stay, locks, tombstones, tokens. The mover, the machine
// and the decision table are the real ones; time and interleaving belong to the test.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "migration/mover.h"

namespace collegedb::migration::sim {

// What a test may break on purpose; the checks must then find it.
struct Mutations {
  bool guard_ignores_tombstones = false;
  bool guard_ignores_incoming = false;
  bool fence_is_open = false;   // writers pass a held fence
  bool stale_digest = false;    // the comparison under the fence sees the snapshot
  bool tokens_ignored = false;  // transactions neither check nor hold the token row
  bool tokens_not_raised = false;
  bool newer_halves_too = false;   // recovery rolls back halves of any attempt
  bool commits_swapped = false;    // the source's half first
  bool reset_not_written = false;  // a mover undoes its halves while the journal allows them
};

using Writes = std::set<int>;  // a key's value: the writes that it has seen

struct Transaction {
  bool killed = false;
  bool holds_fence = false;
  bool holds_token = false;
  // Effects at commit.
  std::optional<Writes> rows;  // set, or erased when `erase`
  bool erase = false;
  bool tombstone = false;
  bool drop_tombstone = false;
  bool marker = false;
  bool archive = false;
  bool close_token = false;
  std::string op;
};

struct ShardData {
  std::string name;
  std::optional<Writes> rows;
  std::optional<std::string> tombstone;  // op
  std::string moved_to;
  std::optional<std::string> incoming;  // op
  std::set<std::string> archive;
  std::map<std::string, std::int64_t> tokens;
  std::map<std::string, Transaction> prepared;
  std::vector<std::weak_ptr<Transaction>> open;
  int sharers = 0;  // writers inside their guard

  [[nodiscard]] bool fenced() const {
    for (const auto& [gid, transaction] : prepared) {
      if (transaction.holds_fence) return true;
    }
    for (const auto& weak : open) {
      const auto transaction = weak.lock();
      if (transaction && !transaction->killed && transaction->holds_fence) return true;
    }
    return false;
  }
  void apply(const Transaction& transaction, const std::string& destination) {
    if (transaction.erase) rows.reset();
    if (transaction.rows) rows = transaction.rows;
    if (transaction.drop_tombstone) tombstone.reset();
    if (transaction.tombstone) {
      tombstone = transaction.op;
      moved_to = destination;
    }
    if (transaction.marker) incoming = transaction.op;
    if (transaction.archive) archive.insert(transaction.op);
    if (transaction.close_token) tokens[transaction.op] = kClosedToken;
  }
};

struct JournalData {
  std::map<std::string, MoveRecord> moves;
  std::map<std::string, const void*> locks;  // op -> session that lives
  std::set<std::string> claims;
  std::string owner = "a";  // directory
};

struct World {
  Mutations mutations;
  ShardData a{.name = "a"};
  ShardData b{.name = "b"};
  JournalData journal;
  ShardData& shard(const std::string& name) { return name == "a" ? a : b; }
};

inline StepFailure failure(Event event, std::string_view what) {
  return {event, make_error(ErrorCode::kMoveRefused, what)};
}

inline Digest digest_of(const std::optional<Writes>& rows) {
  Digest out;
  for (const int write : rows.value_or(Writes{})) out.text += std::to_string(write) + ",";
  out.rows = rows ? 1 : 0;
  out.text += rows ? "row" : "none";
  return out;
}

class SimShard final : public Shard {
 public:
  SimShard(World& world, const std::string& name)
      : world_(world), data_(world.shard(name)), other_(world.shard(name == "a" ? "b" : "a")) {}
  ~SimShard() override { close(); }

  [[nodiscard]] const std::string& name() const override { return data_.name; }
  void close() noexcept override {
    transaction_.reset();
    snapshot_.reset();
  }
  GroupCatalog describe(const Unit& unit) override {
    return {.shard = data_.name,
            .server_version = 150000,
            .prepared_transactions = 10,
            .encoding = "UTF8",
            .replica_role = true,
            .tables = {{.table = unit.tables.at(0), .key_type = "text", .key_operator = "="}}};
  }
  void adopt(std::shared_ptr<const MovePlan>) override {}

  void install_token(const Unit& unit, std::int64_t token) override {
    if (world_.mutations.tokens_ignored) return;
    auto& known = data_.tokens[unit.op];
    if (known > token) throw failure(Event::kFenced, "token");
    known = token;
  }
  void raise_token(const Unit& unit, std::int64_t token, std::int32_t attempt, Side side) override {
    const std::string current = gid_of(unit, attempt, side);
    bool is_prepared = false;
    for (const std::string& gid : halves(unit)) {
      const std::int32_t found = attempt_of(unit, gid);
      if (found > attempt && !world_.mutations.newer_halves_too) {
        throw failure(Event::kFenced, "a newer attempt");
      }
      is_prepared = is_prepared || gid == current;
      if (found != attempt) data_.prepared.erase(gid);
    }
    if (is_prepared) return;
    if (world_.mutations.tokens_not_raised) return;
    data_.tokens[unit.op] = std::max(data_.tokens[unit.op], token);
    for (const auto& weak : data_.open) {
      const auto open = weak.lock();
      if (open && open != transaction_ && open->op == unit.op && open->holds_token) {
        open->killed = true;
      }
    }
  }
  void forget_token(const Unit& unit) override { data_.tokens.erase(unit.op); }

  std::string begin_snapshot(const Unit&) override {
    if (data_.tombstone) throw failure(Event::kRefused, "not the owner");
    snapshot_ = data_.rows;
    in_snapshot_ = true;
    return "0/1";
  }
  void refuse_unseen(const Unit&) override {}
  void end_snapshot() override { in_snapshot_ = false; }
  void begin_cutover(const Unit& unit, std::int64_t token) override {
    stale_ = snapshot_;
    begin(unit, token);
  }
  void begin_import(const Unit& unit, std::int64_t token) override {
    begin(unit, token);
    if (data_.rows) throw failure(Event::kRefused, "DESTINATION_CONFLICT");
    transaction_->drop_tombstone = true;
    transaction_->marker = true;
  }
  void clear_import() override { open().rows.reset(); }

  void copy_out(std::size_t table, const std::function<void(std::string_view)>& sink) override {
    if (table != 0) return;
    const auto& rows = in_snapshot_ ? snapshot_ : data_.rows;
    if (!rows) return;
    std::string bytes;
    for (const int write : *rows) bytes += std::to_string(write) + ",";
    sink(bytes + ".");
  }
  void copy_in_begin(std::size_t) override { open(); }
  void copy_in(std::string_view bytes) override {
    Writes writes;
    std::string digits;
    for (const char c : bytes) {
      if (c == ',') {
        writes.insert(std::stoi(digits));
        digits.clear();
      } else {
        digits += c;
      }
    }
    open().rows = writes;
  }
  void copy_in_end() override { open(); }

  Digest digest() override {
    if (in_snapshot_) return digest_of(snapshot_);
    if (transaction_ && transaction_->marker) return digest_of(open().rows);
    if (world_.mutations.stale_digest && transaction_) return digest_of(stale_);
    return digest_of(data_.rows);
  }
  std::int64_t count_rows() override { return open().rows || data_.rows ? 1 : 0; }
  void check_references() override {}
  void lock_sweep(std::chrono::milliseconds) override { open(); }
  void lock_keys(const std::vector<std::int32_t>&, std::chrono::milliseconds) override {
    Transaction& transaction = open();
    if (data_.fenced()) throw failure(Event::kMissed, "fence");
    if (data_.sharers > 0 && !world_.mutations.fence_is_open) throw failure(Event::kMissed, "busy");
    transaction.holds_fence = true;
  }
  Digest retire_rows(const Unit& unit) override {
    Transaction& transaction = open();
    transaction.erase = true;
    transaction.tombstone = true;
    transaction.archive = data_.rows.has_value();
    transaction.op = unit.op;
    return digest_of(world_.mutations.stale_digest ? stale_ : data_.rows);
  }
  void prepare(const Unit&, const std::string& gid) override {
    open().close_token = true;
    data_.prepared[gid] = open();
    transaction_.reset();
    prepared_ = gid;
  }
  void commit_prepared(const Unit& unit, const std::string& gid, Side side) override {
    if (world_.mutations.commits_swapped) {
      ShardData& other = other_;
      const std::string swapped =
          gid.substr(0, gid.size() - 3) + (side == Side::kSource ? "dst" : "src");
      commit(other, unit, swapped);
      return;
    }
    if (commit(data_, unit, gid)) return;
    const bool seen =
        side == Side::kSource ? data_.tombstone == unit.op : data_.incoming == unit.op;
    if (!seen) throw failure(Event::kLost, "half is gone");
  }
  void rollback() override {
    if (!prepared_.empty()) data_.prepared.erase(prepared_);
    prepared_.clear();
    transaction_.reset();
    in_snapshot_ = false;
  }
  void rollback_halves(const Unit& unit, std::int32_t attempt) override {
    for (const std::string& gid : halves(unit)) {
      if (attempt_of(unit, gid) <= attempt || world_.mutations.newer_halves_too) {
        data_.prepared.erase(gid);
      }
    }
  }
  bool drop_copy(const Unit& unit, std::int64_t token, const Digest& expected) override {
    install_token(unit, token);
    if (!(digest_of(data_.rows) == expected)) return false;
    data_.rows.reset();
    return true;
  }
  void clear_incoming(const Unit& unit) override {
    if (data_.incoming == unit.op) data_.incoming.reset();
  }
  SideEvidence inspect(const Unit& unit, std::int32_t attempt, Side side,
                       const Digest& expected) override {
    const Digest found = digest_of(data_.rows);
    Found rows = data_.rows ? Found::kDifferent : Found::kNone;
    if (found == expected) rows = Found::kEqual;
    return {.prepared = data_.prepared.contains(gid_of(unit, attempt, side)),
            .marker = data_.incoming == unit.op,
            .tombstone = data_.tombstone == unit.op,
            .archive = data_.archive.contains(unit.op),
            .rows = rows};
  }

 private:
  static bool commit(ShardData& data, const Unit& unit, const std::string& gid) {
    const auto half = data.prepared.find(gid);
    if (half == data.prepared.end()) return false;
    data.apply(half->second, unit.destination);
    data.prepared.erase(half);
    return true;
  }
  void begin(const Unit& unit, std::int64_t token) {
    if (!world_.mutations.tokens_ignored && data_.tokens[unit.op] != token) {
      throw failure(Event::kFenced, "token");
    }
    transaction_ = std::make_shared<Transaction>();
    transaction_->op = unit.op;
    transaction_->holds_token = !world_.mutations.tokens_ignored;
    data_.open.push_back(transaction_);
  }
  Transaction& open() {
    if (!transaction_ || transaction_->killed) throw failure(Event::kLost, "session was ended");
    return *transaction_;
  }
  [[nodiscard]] std::vector<std::string> halves(const Unit& unit) const {
    std::vector<std::string> out;
    for (const auto& [gid, transaction] : data_.prepared) {
      if (transaction.op == unit.op) out.push_back(gid);
    }
    return out;
  }

  World& world_;
  ShardData& data_;
  ShardData& other_;
  std::shared_ptr<Transaction> transaction_;
  std::optional<Writes> snapshot_;
  std::optional<Writes> stale_;
  bool in_snapshot_ = false;
  std::string prepared_;
};

class SimJournal final : public Journal {
 public:
  explicit SimJournal(World& world) : mutations_(world.mutations), data_(world.journal) {}
  ~SimJournal() override {
    for (auto& [op, session] : data_.locks) {
      if (session == this) session = nullptr;
    }
  }
  bool lock(const std::string& op) override {
    const void*& session = data_.locks[op];
    if (session != nullptr && session != this) return false;
    session = this;
    return true;
  }
  std::int64_t take_over(const MoveRecord& record) override {
    MoveRecord& row = mine(record);
    return ++row.token;
  }
  std::optional<MoveRecord> load(const std::string& op) override { return data_.moves.at(op); }
  std::vector<GroupTable> group_tables(const Unit& unit) override { return unit.tables; }
  bool record(const MoveRecord& record, State state) override {
    if (mutations_.reset_not_written && record.state == State::kCutoverPending &&
        state == State::kPrepared) {
      return false;
    }
    MoveRecord& row = undecided(record);
    const std::int64_t token = row.token;
    const bool cancelled = row.cancel_requested;
    row = record;
    row.token = token;
    row.cancel_requested = cancelled;
    row.state = state;
    return cancelled;
  }
  bool decide(const MoveRecord& record) override {
    MoveRecord& row = undecided(record);
    if (row.cancel_requested) return false;
    row.state = State::kCommitted;
    return true;
  }
  void publish(const MoveRecord& record) override {
    MoveRecord& row = mine(record);
    data_.owner = record.unit.destination;
    row.state = State::kPublished;
  }
  void retire(const MoveRecord& record) override { end(record, State::kRetired); }
  void abort(const MoveRecord& record) override {
    undecided(record);
    end(record, State::kAborted);
  }

 private:
  // The lock went with the session when it is not ours any more.
  MoveRecord& mine(const MoveRecord& record) {
    if (data_.locks[record.unit.op] != this) throw failure(Event::kLost, "journal session is gone");
    MoveRecord& row = data_.moves.at(record.unit.op);
    if (row.token != record.token) throw failure(Event::kFenced, "token");
    return row;
  }
  MoveRecord& undecided(const MoveRecord& record) {
    MoveRecord& row = mine(record);
    if (is_decided(row.state) || is_final(row.state)) throw failure(Event::kFenced, "decided");
    return row;
  }
  void end(const MoveRecord& record, State state) {
    mine(record).state = state;
    data_.claims.erase(record.unit.op);
  }

  const Mutations& mutations_;
  JournalData& data_;
};

}  // namespace collegedb::migration::sim
