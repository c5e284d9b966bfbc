#include "migration/diff.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <thread>
#include <tuple>
#include <utility>

#include "migration/archive.h"
#include "migration/group_catalog.h"
#include "migration/operation.h"
#include "migration/pg_shard.h"

namespace collegedb::migration {
namespace {

using std::chrono::milliseconds;
using Lease = std::unique_ptr<ControlSession>;

constexpr int kFetch = 1000;
constexpr std::size_t kNamedRows = 3;
constexpr milliseconds kLockWait{100};
constexpr int kLockTries = 50;

SessionOptions diff_options() {
  return {.application_name = "collegedb diff",
          .statement_timeout = milliseconds(30 * 60 * 1000),
          .idle_in_transaction_timeout = milliseconds(0)};
}

// Of 65536 ranges.
std::string range_of(std::string_view id) {
  return "((hashtextextended((" + std::string(id) + ") COLLATE \"C\", 0) >> 48) & 65535)";
}

// range -> "rows:hash:hash". `width`: ranges that are taken together. `within`: numbers of ranges
// of 256 to look at; empty = all.
using Ranges = std::map<std::int64_t, std::string>;
Ranges digests(const DiffSide& side, int width, const std::vector<std::string>& within) {
  const Rows rows = side.session->run(
      "SELECT range / $1::bigint, count(*) || ':' || sum(('x' || substr(h, 1, "
      "16))::bit(64)::bigint)"
      " || ':' || sum(('x' || substr(h, 17, 16))::bit(64)::bigint) FROM (SELECT " +
          range_of("id") + " AS range, encode(sha256(convert_to(t, 'UTF8')), 'hex') AS h FROM (" +
          side.rows +
          ") AS r) AS s WHERE $2::bigint[] = '{}' OR range / 256 = ANY ($2::bigint[])"
          " GROUP BY 1",
      {std::to_string(width), array_text(within)});
  Ranges out;
  for (int i = 0; i < rows.size(); ++i) out.emplace(rows.int8(i, 0), rows.text(i, 1));
  return out;
}

std::vector<std::string> unequal(const Ranges& a, const Ranges& b) {
  std::set<std::int64_t> numbers;
  for (const auto& [number, digest] : a) {
    const auto other = b.find(number);
    if (other == b.end() || other->second != digest) numbers.insert(number);
  }
  for (const auto& [number, digest] : b) {
    if (!a.contains(number)) numbers.insert(number);
  }
  std::vector<std::string> out;
  for (const std::int64_t number : numbers) out.push_back(std::to_string(number));
  return out;
}

// Rows of some ranges in the order of (range, id), a page at a time.
class Stream {
 public:
  struct Row {
    std::int64_t range = 0;
    std::string id;
    std::string hash;
  };

  Stream(const DiffSide& side, const std::vector<std::string>& ranges, std::string name)
      : session_(*side.session), name_(std::move(name)) {
    session_.run("DECLARE " + name_ + " NO SCROLL CURSOR FOR SELECT * FROM (SELECT " +
                 range_of("id") +
                 " AS range, id COLLATE \"C\" AS id,"
                 " encode(sha256(convert_to(t, 'UTF8')), 'hex') AS h FROM (" +
                 side.rows + ") AS r) AS s WHERE range = ANY (" +
                 quote_literal(array_text(ranges)) + "::bigint[]) ORDER BY range, id");
    fetch();
  }
  ~Stream() {
    try {
      if (session_.in_transaction()) session_.run("CLOSE " + name_);
    } catch (const std::exception&) {
      // It goes with its transaction.
    }
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // nullptr at the end.
  [[nodiscard]] const Row* row() const { return at_ < page_.size() ? &page_[at_] : nullptr; }
  void next() {
    if (++at_ == page_.size()) fetch();
  }

 private:
  void fetch() {
    const Rows rows = session_.run("FETCH " + std::to_string(kFetch) + " FROM " + name_);
    page_.clear();
    at_ = 0;
    for (int i = 0; i < rows.size(); ++i) {
      page_.push_back({rows.int8(i, 0), rows.text(i, 1), rows.text(i, 2)});
    }
  }

  ControlSession& session_;
  std::string name_;
  std::vector<Row> page_;
  std::size_t at_ = 0;
};

// Versions of the rows of one id on both sides: how many more there are on the one and the other.
class Versions {
 public:
  void add(const std::string& hash, std::int64_t by) { counts_[hash] += by; }
  // A changed row is one on each side.
  [[nodiscard]] std::int64_t differing() const {
    std::int64_t more = 0;
    std::int64_t fewer = 0;
    for (const auto& [hash, count] : counts_) (count > 0 ? more : fewer) += count;
    return std::max(more, -fewer);
  }

 private:
  std::map<std::string, std::int64_t> counts_;
};

std::string hex(std::int64_t byte) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  return {kDigits[static_cast<std::size_t>(byte >> 4U)],
          kDigits[static_cast<std::size_t>(byte & 15U)]};
}

class Merge {
 public:
  Merge(std::string_view label, const DiffSide& a, const DiffSide& b, bool coarse, bool name_rows)
      : label_(label), a_(a), b_(b), coarse_(coarse), name_rows_(name_rows) {}

  std::vector<DiffRow> run(const std::vector<std::string>& ranges) {
    Stream a(a_, ranges, "collegedb_diff_a");
    Stream b(b_, ranges, "collegedb_diff_b");
    while (a.row() != nullptr || b.row() != nullptr) {
      const Stream::Row& least = first(a.row(), b.row());
      const std::int64_t range = least.range;
      const std::string id = least.id;
      Versions versions;
      for (auto [stream, by] : {std::pair{&a, 1}, std::pair{&b, -1}}) {
        while (stream->row() != nullptr && stream->row()->range == range &&
               stream->row()->id == id) {
          versions.add(stream->row()->hash, by);
          stream->next();
        }
      }
      if (const std::int64_t differing = versions.differing(); differing > 0) {
        add(range, id, differing);
      }
    }
    return std::move(out_);
  }

 private:
  static const Stream::Row& first(const Stream::Row* a, const Stream::Row* b) {
    if (a == nullptr) return *b;
    if (b == nullptr) return *a;
    return std::tie(a->range, a->id) <= std::tie(b->range, b->id) ? *a : *b;
  }

  void add(std::int64_t range, const std::string& id, std::int64_t differing) {
    const std::string path =
        label_ + "/" + hex(range / 256) + (coarse_ ? "" : "/" + hex(range % 256));
    if (path != path_) {
      path_ = path;
      named_ = 0;
      out_.push_back({path, a_.session->shard(), b_.session->shard(), 0});
    }
    DiffRow& row = out_.back();
    row.rows_differing += differing;
    if (!name_rows_) return;
    if (++named_ <= kNamedRows) row.path += (named_ > 1 ? ", " : " ") + id;
    if (named_ == kNamedRows + 1) row.path += ", ...";
  }

  std::string label_;
  const DiffSide& a_;
  const DiffSide& b_;
  bool coarse_;
  bool name_rows_;
  std::string path_;
  std::size_t named_ = 0;
  std::vector<DiffRow> out_;
};

// ---- Tables -------------------------------------------------------------------------------------

// Columns of the primary key; all of them without one.
std::vector<std::string> identity_of(ControlSession& session, const TablePlan& table) {
  const Rows rows = session.run(
      "SELECT a.attname FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid"
      " AND a.attnum = ANY (i.indkey) WHERE i.indrelid = to_regclass($1) AND i.indisprimary"
      " ORDER BY array_position(i.indkey::int2[], a.attnum)",
      {table.qualified});
  std::vector<std::string> out;
  for (int i = 0; i < rows.size(); ++i) out.push_back(rows.text(i, 0));
  if (out.empty()) {
    for (const ColumnShape& column : table.columns) out.push_back(column.name);
  }
  return out;
}

// Over a relation with column `row` in the form of the archive.
std::string rows_over(const std::string& relation, const std::vector<std::string>& identity) {
  std::string id;
  for (const std::string& column : identity) {
    id += (id.empty() ? "row ->> " : ", row ->> ") + quote_literal(column);
  }
  return "SELECT jsonb_build_array(" + id + ")::text AS id, row::text AS t FROM " + relation;
}

std::string live_rows(const TablePlan& table) {
  const std::string condition = table.conditions.empty() ? "true" : row_condition(table);
  return "(SELECT " + kept_form(table) + " AS row FROM " + table.qualified + " WHERE " + condition +
         ") AS live";
}

TablePlan whole_table(ControlSession& session, const std::string& schema, const std::string& name) {
  const GroupCatalog catalog =
      read_catalog(session, {.tables = {{.schema = schema, .name = name}}});
  TablePlan plan{.table = {schema, name, {}},
                 .qualified = quote_identifier(schema) + "." + quote_identifier(name),
                 .label = schema + "." + name};
  plan.columns = catalog.tables.front().columns;
  if (plan.columns.empty()) {
    throw SqlFailure(make_error("42P01", "table " + plan.label + " does not exist on shard \"" +
                                             session.shard() + "\""),
                     session.shard());
  }
  return plan;
}

// Sessions on all members, journal shard first; given back at the end.
class Members {
 public:
  Members(const RunnerOptions& options, ControlSession& journal) : options_(options) {
    const ShardConfig& first = options.shards.at(options.journal);
    open(first.name);
    const Rows rows = journal.run(
        "SELECT shard FROM collegedb.shards WHERE scope = $1 AND state <> 'removed'"
        " AND shard <> $2 ORDER BY shard",
        {options.scope, first.name});
    for (int i = 0; i < rows.size(); ++i) open(rows.text(i, 0));
  }
  ~Members() {
    for (Lease& each : sessions_) {
      end(*each);
      options_.sessions->give_back(std::move(each));
    }
  }
  Members(const Members&) = delete;
  Members& operator=(const Members&) = delete;

  static void end(ControlSession& session) noexcept {
    try {
      if (session.alive() && session.in_transaction()) session.run("ROLLBACK");
    } catch (const std::exception&) {
      // It is gone, and its transaction with it.
    }
  }
  [[nodiscard]] std::size_t size() const { return sessions_.size(); }
  ControlSession& operator[](std::size_t i) { return *sessions_[i]; }

 private:
  void open(const std::string& name) {
    const ShardConfig* config = find_shard(options_, name);
    if (config == nullptr) {
      throw SqlFailure(
          make_error(ErrorCode::kUnknownShard, "shard \"" + name + "\" is not configured here"),
          name);
    }
    sessions_.push_back(options_.sessions->take(*config, diff_options()));
  }

  const RunnerOptions& options_;
  std::vector<Lease> sessions_;
};

// False when a writer has the table somewhere for longer than the lock is waited for: he may wait
// himself for a shard that is locked already.
bool lock_everywhere(Members& lockers, const std::string& qualified) {
  try {
    for (std::size_t i = 0; i < lockers.size(); ++i) {
      lockers[i].run("BEGIN");
      lockers[i].run("SELECT set_config('lock_timeout', $1, true)",
                     {std::to_string(kLockWait.count())});
      lockers[i].run("LOCK TABLE " + qualified + " IN SHARE MODE");
    }
    return true;
  } catch (const SqlFailure& failure) {
    const std::string_view state = failure.error().sqlstate;
    if (state != "55P03" && state != "40P01") throw;
    for (std::size_t i = 0; i < lockers.size(); ++i) Members::end(lockers[i]);
    return false;
  }
}

// One moment on all shards: none has a write that another lacks, since whoever writes a reference
// table holds it on all shards until his transaction has ended on each.
void fix_moment(Members& readers, Members& lockers, const std::string& qualified) {
  for (int tries = 1; !lock_everywhere(lockers, qualified); ++tries) {
    if (tries == kLockTries) {
      throw SqlFailure(make_error("55P03", "table " + qualified + " is being written all the time",
                                  "Try again."),
                       lockers[0].shard());
    }
    std::this_thread::sleep_for(kLockWait);
  }
  for (std::size_t i = 0; i < readers.size(); ++i) {
    readers[i].run("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY");
    readers[i].run("SELECT pg_current_snapshot()");
  }
  for (std::size_t i = 0; i < lockers.size(); ++i) lockers[i].run("ROLLBACK");
}

// The shard that has the key's rows and has not sent them away; empty when none has.
std::string holder_of(const RunnerOptions& options, Members& members, const Unit& unit) {
  for (std::size_t i = 0; i < members.size(); ++i) {
    PgShard shard(*options.sessions, *find_shard(options, members[i].shard()), "lookup");
    const PgShard::KeyState state = shard.locate(unit);
    if (!state.moved_to && state.rows > 0) return members[i].shard();
  }
  return {};
}

ControlSession& named(Members& members, const std::string& shard) {
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (members[i].shard() == shard) return members[i];
  }
  throw SqlFailure(
      make_error(ErrorCode::kUnknownShard, "shard \"" + shard + "\" is no part of the cluster"),
      shard);
}

}  // namespace

std::vector<DiffRow> compare(const DiffSide& a, const DiffSide& b, std::string_view label,
                             bool name_rows) {
  const std::vector<std::string> large = unequal(digests(a, 256, {}), digests(b, 256, {}));
  if (large.empty()) return {};
  const std::vector<std::string> small = unequal(digests(a, 1, large), digests(b, 1, large));
  return Merge(label, a, b, small.size() > kMaxDiffRanges, name_rows).run(small);
}

Result<std::vector<DiffRow>> diff_reference(const RunnerOptions& options, const std::string& schema,
                                            const std::string& table, bool name_rows) {
  try {
    const RunnerOptions whole = completed(options);
    const Lease journal = whole.sessions->take(whole.shards.at(whole.journal), diff_options());
    Members readers(whole, *journal);
    {
      Members lockers(whole, *journal);
      fix_moment(readers, lockers, quote_identifier(schema) + "." + quote_identifier(table));
    }
    const TablePlan plan = whole_table(readers[0], schema, table);
    const std::string rows = rows_over(live_rows(plan), identity_of(readers[0], plan));
    std::vector<DiffRow> out;
    for (std::size_t i = 1; i < readers.size(); ++i) {
      if (whole_table(readers[i], schema, table).columns != plan.columns) {
        return make_error("55000",
                          "table " + plan.label + " has other columns on shard \"" +
                              readers[i].shard() + "\" than on shard \"" + readers[0].shard() +
                              "\"",
                          "collegedb check lists the differences.");
      }
      auto found = compare({&readers[0], rows}, {&readers[i], rows}, plan.label, name_rows);
      std::move(found.begin(), found.end(), std::back_inserter(out));
    }
    return out;
  } catch (const SqlFailure& failure) {
    return failure.error();
  }
}

Result<std::vector<DiffRow>> diff_key(const RunnerOptions& options, const std::string& group,
                                      const std::string& key, bool name_rows) {
  try {
    const RunnerOptions whole = completed(options);
    const Lease journal = whole.sessions->take(whole.shards.at(whole.journal), diff_options());
    const Rows archive = journal->run(
        "SELECT m.op FROM collegedb.move_keys k JOIN collegedb.moves m ON m.op = k.op"
        " WHERE k.scope = $1 AND k.grp = $2 AND k.key = $3 AND m.state = 'retired'"
        " AND m.purging_at IS NULL ORDER BY m.started_at DESC LIMIT 1",
        {whole.scope, group, key});
    if (archive.empty()) {
      return make_error("55000", "no archive of key \"" + key + "\" is left",
                        "A key has one after its first move, until it is purged.");
    }
    const auto record = open_journal(whole)->load(archive.text(0, 0));
    if (!record) return make_error("55000", "the operation is gone");
    Unit unit = record->unit;
    unit.keys = {key};
    Members members(whole, *journal);
    ControlSession& kept = named(members, unit.source);
    const std::string holder = holder_of(whole, members, unit);
    ControlSession& live = named(members, holder.empty() ? unit.destination : holder);
    std::vector<DiffRow> out;
    const MovePlan plan = read_plan(live, unit);
    for (ControlSession* each : {&live, &kept}) {
      if (!each->in_transaction()) each->run("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY");
    }
    for (const TablePlan& table : plan.tables) {
      if (table.internal) continue;
      const std::vector<std::string> identity = identity_of(live, table);
      const DiffSide a{&live, rows_over(live_rows(table), identity)};
      const DiffSide b{&kept, rows_over(archive_of(table, unit.op, unit.keys), identity)};
      auto found = compare(a, b, table.label, name_rows);
      std::move(found.begin(), found.end(), std::back_inserter(out));
    }
    return out;
  } catch (const SqlFailure& failure) {
    return failure.error();
  } catch (const StepFailure& failure) {
    return failure.error();
  }
}

}  // namespace collegedb::migration
