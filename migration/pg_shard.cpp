#include "migration/pg_shard.h"

#include <libpq-fe.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "migration/group_catalog.h"
#include "migration/journal.h"
#include "migration/key_fence.h"

namespace collegedb::migration {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kCopyTimeout{30 * 60 * 1000};
constexpr milliseconds kCutoverTimeout{10 * 1000};
constexpr milliseconds kLockTimeout{5000};

std::string text(std::int64_t value) {
  return std::to_string(value);
}

StepFailure refused(ErrorCode code, std::string_view what) {
  return {Event::kRefused, make_error(code, what)};
}

std::string conflict_text(const std::string& shard) {
  return "shard \"" + shard + "\" already has rows of the key";
}

}  // namespace

Digest digest_of(const MovePlan& plan, const Rows& rows) {
  Digest out;
  for (std::size_t i = 0; i < plan.tables.size(); ++i) {
    const TablePlan& table = plan.tables[i];
    const int row = static_cast<int>(i);
    out.text += table.label + "=" + rows.text(row, 0) + ":" + rows.text(row, 1) + ":" +
                rows.text(row, 2) + ";";
    if (table.internal) continue;
    out.rows += rows.int8(row, 0);
    out.bytes += rows.int8(row, 3);
  }
  return out;
}

PgShard::PgShard(SessionPool& pool, ShardConfig shard, const std::string& op)
    : pool_(pool), shard_(std::move(shard)), application_name_("collegedb move " + op) {}

ControlSession& PgShard::session() {
  if (session_) return *session_;
  try {
    session_ = pool_.take(shard_, SessionOptions{.application_name = application_name_,
                                                 .statement_timeout = kCopyTimeout,
                                                 .lock_timeout = kLockTimeout,
                                                 .idle_in_transaction_timeout = milliseconds(0),
                                                 .dies_with_client = true,
                                                 .keeps_replication_role = true});
    return *session_;
  } catch (const SqlFailure& failure) {
    throw StepFailure(Event::kLost, failure.error());
  }
}

Rows PgShard::run(const std::string& sql, std::initializer_list<SqlParameter> parameters) {
  try {
    return session().run(sql, parameters);
  } catch (const SqlFailure& failure) {
    throw step_failure(failure);
  }
}

void PgShard::close() noexcept {
  pool_.give_back(std::move(session_));
}

void PgShard::set_local(std::string_view name, std::string_view value) {
  run("SELECT set_config($1, $2, true)", {std::string(name), std::string(value)});
}

// Row 8 and 18 of the protocol: a wait of the mover is bounded, and the bound is the mover's own.
void PgShard::wait_at_most(milliseconds budget) {
  set_local("lock_timeout", text(budget.count()));
}

GroupCatalog PgShard::describe(const Unit& unit) {
  try {
    GroupCatalog catalog = read_catalog(session(), unit);
    fingerprints_.clear();
    for (const TableShape& table : catalog.tables) fingerprints_.push_back(table.fingerprint);
    return catalog;
  } catch (const SqlFailure& failure) {
    throw step_failure(failure);
  }
}

void PgShard::adopt(std::shared_ptr<const MovePlan> plan) {
  plan_ = std::move(plan);
}

// ---- Token ----------------------------------------------------------------------------------

void PgShard::install_token(const Unit& unit, std::int64_t token) {
  const Rows rows =
      run("INSERT INTO collegedb.move_token AS t (op, token) VALUES ($1, $2::bigint)"
          " ON CONFLICT (op) DO UPDATE SET token = excluded.token WHERE t.token <= excluded.token"
          " RETURNING token",
          {unit.op, text(token)});
  if (!rows.empty()) return;
  throw StepFailure(Event::kFenced, make_error(ErrorCode::kRecoveryFenced,
                                               "operation " + unit.op + " was taken over"));
}

bool PgShard::try_raise(const Unit& unit, std::int64_t token) {
  try {
    session().run("SELECT set_config('lock_timeout', '200', false)");
    session().run(
        "INSERT INTO collegedb.move_token AS t (op, token) VALUES ($1, $2::bigint)"
        " ON CONFLICT (op) DO UPDATE SET token = greatest(t.token, excluded.token)",
        {unit.op, text(token)});
    session().run("SELECT set_config('lock_timeout', $1, false)", {text(kLockTimeout.count())});
    return true;
  } catch (const SqlFailure& failure) {
    if (failure.error().sqlstate == "55P03") return false;
    throw step_failure(failure);
  }
}

void PgShard::raise_token(const Unit& unit, std::int64_t token, std::int32_t attempt, Side side) {
  const std::string current = gid_of(unit, attempt, side);
  for (int tries = 0; tries < 25; ++tries) {
    // A prepared half holds the token row; it also proves that its mover can prepare nothing more.
    bool is_prepared = false;
    for (const std::string& gid : halves(unit)) {
      const std::int32_t found = attempt_of(unit, gid);
      if (found > attempt) {
        throw StepFailure(Event::kFenced,
                          make_error(ErrorCode::kRecoveryFenced,
                                     "operation " + unit.op + " has a newer attempt"));
      }
      is_prepared = is_prepared || gid == current;
      // Of an older attempt: only the journaled one can be decided.
      if (found < attempt) rollback_prepared(gid);
    }
    if (is_prepared || try_raise(unit, token)) return;
    // An older mover's transaction is open. Its session is not ours, and nobody needs it.
    run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1"
        " AND datname = current_database() AND pid <> pg_backend_pid()",
        {application_name_});
    std::this_thread::sleep_for(milliseconds(20));
  }
  throw StepFailure(Event::kLost,
                    make_error(ErrorCode::kMoveRefused,
                               "an older mover of operation " + unit.op + " does not end"));
}

void PgShard::forget_token(const Unit& unit) {
  run("DELETE FROM collegedb.move_token WHERE op = $1", {unit.op});
}

// ---- Transactions ---------------------------------------------------------------------------

// The first act of a transaction that may be prepared is to hold the token row: whoever raises the
// token afterwards waits for this transaction, or finds its prepared half.
void PgShard::begin(const Unit& unit, std::int64_t token) {
  run("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE");
  const Rows rows =
      run("SELECT token, set_config('collegedb.guarded', 'on', true),"
          " current_setting('session_replication_role') FROM collegedb.move_token"
          " WHERE op = $1 FOR SHARE",
          {unit.op});
  if (rows.empty() || rows.int8(0, 0) != token) {
    throw StepFailure(Event::kFenced, make_error(ErrorCode::kRecoveryFenced,
                                                 "operation " + unit.op + " was taken over"));
  }
  // Of the session, not of the transaction: the next move will want the same.
  const std::string role = plan_->replica_role ? "replica" : "origin";
  if (rows.view(0, 2) != role) {
    run("SELECT set_config('session_replication_role', $1, false)", {role});
  }
}

std::string PgShard::begin_snapshot(const Unit& unit) {
  run("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY");
  const Rows position = run("SELECT pg_current_wal_lsn()::text");
  refuse_tombstones(unit);
  const Rows unlike = run(unlike_sql(*plan_, unit.keys));
  if (!unlike.empty()) {
    throw refused(ErrorCode::kMoveRefused, "key " + unlike.text(0, 0) +
                                               " is not the canonical text of a value of the key "
                                               "column of table " +
                                               unlike.text(0, 1));
  }
  return position.text(0, 0);
}

void PgShard::refuse_unseen(const Unit& unit) {
  const Rows rows = run(unseen_sql(*plan_, unit.keys));
  if (rows.empty()) return;
  throw refused(ErrorCode::kMoveRefused, "table " + rows.text(0, 0) + " on shard \"" + shard_.name +
                                             "\" has rows of the key that the move does not find");
}

void PgShard::end_snapshot() {
  run("COMMIT");
}

// Key by key, whatever the planner thinks of a table that grows by hundreds of rows a second and
// has not been analyzed for a minute.
std::vector<std::pair<std::string, std::string>> PgShard::tombstones(const Unit& unit) {
  const Rows rows =
      run("SELECT r.key, r.moved_to FROM unnest($3::text[]) AS k CROSS JOIN LATERAL"
          " (SELECT key, moved_to FROM collegedb.retired"
          " WHERE scope = $1 AND grp = $2 AND key = k LIMIT 1) AS r",
          {unit.scope, unit.group, array_text(unit.keys)});
  std::vector<std::pair<std::string, std::string>> out;
  for (int i = 0; i < rows.size(); ++i) out.emplace_back(rows.text(i, 0), rows.text(i, 1));
  return out;
}

void PgShard::refuse_tombstones(const Unit& unit) {
  const auto found = tombstones(unit);
  if (found.empty()) return;
  const auto& [key, moved_to] = found.front();
  throw refused(ErrorCode::kMoveRefused, "key " + key + " is not on shard \"" + shard_.name +
                                             "\": it moved to \"" + moved_to + "\"");
}

void PgShard::begin_cutover(const Unit& unit, std::int64_t token) {
  begin(unit, token);
  session().set_statement_timeout(kCutoverTimeout);
  wait_at_most(milliseconds(250));
  std::string tables;
  for (const TablePlan& table : plan_->tables) {
    tables += (tables.empty() ? "" : ", ") + table.qualified;
  }
  run("LOCK TABLE " + tables + " IN ROW EXCLUSIVE MODE");
  refuse_unequal_catalog(unit);
}

// From here on nobody can alter the tables: what the copy was made for is what they are.
void PgShard::refuse_unequal_catalog(const Unit& unit) {
  const std::vector<std::vector<std::string>> planned = fingerprints_;
  try {
    const GroupCatalog now = read_catalog(session(), unit);
    for (std::size_t i = 0; i < now.tables.size(); ++i) {
      if (now.tables[i].fingerprint != planned.at(i)) {
        throw refused(ErrorCode::kMoveRefused,
                      "table " + plan_->tables.at(i).label + " was altered during the move");
      }
    }
  } catch (const SqlFailure& failure) {
    throw step_failure(failure);
  }
}

void PgShard::begin_import(const Unit& unit, std::int64_t token) {
  begin(unit, token);
  // Trigger functions of constraints and defaults see what an ordinary session sees.
  run("SET CONSTRAINTS ALL IMMEDIATE");
  refuse_rows(unit);
  std::vector<std::string> here;
  for (auto& [key, moved_to] : tombstones(unit)) here.push_back(std::move(key));
  if (!here.empty()) {
    run("DELETE FROM collegedb.retired WHERE scope = $1 AND grp = $2 AND key = ANY ($3::text[])",
        {unit.scope, unit.group, array_text(here)});
  }
  run("INSERT INTO collegedb.incoming (scope, grp, key, op) SELECT $1, $2, k, $4"
      " FROM unnest($3::text[]) AS k",
      {unit.scope, unit.group, array_text(unit.keys), unit.op});
}

void PgShard::refuse_rows(const Unit& unit) {
  for (const TablePlan& table : plan_->tables) {
    if (run(count_sql(table)).int8(0, 0) == 0) continue;
    if (table.internal) {
      // Identities of writes that came with the key when it was here before.
      run(delete_sql(table));
      continue;
    }
    throw refused(ErrorCode::kDestinationConflict, conflict_text(shard_.name) + " in table " +
                                                       table.label + ", which operation " +
                                                       unit.op + " has not brought");
  }
}

void PgShard::clear_import() {
  for (auto table = plan_->tables.rbegin(); table != plan_->tables.rend(); ++table) {
    run(delete_sql(*table));
  }
}

void PgShard::rollback() {
  if (!prepared_.empty()) {
    rollback_prepared(std::exchange(prepared_, {}));
    return;
  }
  if (session_ == nullptr) return;
  // In the middle of a COPY, or broken: the server rolls back when the session goes.
  const auto status = PQtransactionStatus(session_->native());
  if (status == PQTRANS_ACTIVE || status == PQTRANS_UNKNOWN) {
    session_.reset();
    return;
  }
  if (status != PQTRANS_IDLE) run("ROLLBACK");
  try {
    session_->set_statement_timeout(kCopyTimeout);
  } catch (const SqlFailure& failure) {
    throw step_failure(failure);
  }
}

// ---- Rows -----------------------------------------------------------------------------------

void PgShard::copy_failed() {
  PGconn* connection = session().native();
  if (PQstatus(connection) != CONNECTION_OK) {
    throw StepFailure(Event::kLost, make_error(ErrorCode::kShardUnavailable,
                                               "shard \"" + shard_.name + "\" cannot be reached"));
  }
  const std::unique_ptr<PGresult, decltype(&PQclear)> result(PQgetResult(connection), &PQclear);
  SqlError error = error_of(result.get());
  while (PGresult* rest = PQgetResult(connection)) PQclear(rest);
  if (PQstatus(connection) != CONNECTION_OK || error.sqlstate.empty()) {
    throw StepFailure(Event::kLost, make_error(ErrorCode::kShardUnavailable,
                                               "shard \"" + shard_.name + "\" cannot be reached"));
  }
  throw step_failure(SqlFailure(std::move(error), shard_.name));
}

void PgShard::copy_out(std::size_t table, const std::function<void(std::string_view)>& sink) {
  PGconn* connection = session().native();
  const std::string sql = copy_out_sql(plan_->tables.at(table));
  const std::unique_ptr<PGresult, decltype(&PQclear)> started(PQexec(connection, sql.c_str()),
                                                              &PQclear);
  if (PQresultStatus(started.get()) != PGRES_COPY_OUT) {
    if (PQstatus(connection) != CONNECTION_OK) copy_failed();
    throw step_failure(SqlFailure(error_of(started.get()), shard_.name));
  }
  char* bytes = nullptr;
  int length = 0;
  while ((length = PQgetCopyData(connection, &bytes, 0)) > 0) {
    const std::unique_ptr<char, decltype(&PQfreemem)> owned(bytes, &PQfreemem);
    sink({bytes, static_cast<std::size_t>(length)});
  }
  if (length == -2) copy_failed();
  const std::unique_ptr<PGresult, decltype(&PQclear)> done(PQgetResult(connection), &PQclear);
  if (PQresultStatus(done.get()) != PGRES_COMMAND_OK) {
    if (PQstatus(connection) != CONNECTION_OK) copy_failed();
    throw step_failure(SqlFailure(error_of(done.get()), shard_.name));
  }
  while (PGresult* rest = PQgetResult(connection)) PQclear(rest);
}

void PgShard::copy_in_begin(std::size_t table) {
  PGconn* connection = session().native();
  const std::string sql = copy_in_sql(plan_->tables.at(table));
  const std::unique_ptr<PGresult, decltype(&PQclear)> started(PQexec(connection, sql.c_str()),
                                                              &PQclear);
  if (PQresultStatus(started.get()) == PGRES_COPY_IN) return;
  if (PQstatus(connection) != CONNECTION_OK) copy_failed();
  throw step_failure(SqlFailure(error_of(started.get()), shard_.name));
}

void PgShard::copy_in(std::string_view bytes) {
  PGconn* connection = session().native();
  if (PQputCopyData(connection, bytes.data(), static_cast<int>(bytes.size())) != 1) copy_failed();
}

void PgShard::copy_in_end() {
  PGconn* connection = session().native();
  if (PQputCopyEnd(connection, nullptr) != 1) copy_failed();
  const std::unique_ptr<PGresult, decltype(&PQclear)> done(PQgetResult(connection), &PQclear);
  if (PQresultStatus(done.get()) != PGRES_COMMAND_OK) {
    if (PQstatus(connection) != CONNECTION_OK) copy_failed();
    SqlError error = error_of(done.get());
    while (PGresult* rest = PQgetResult(connection)) PQclear(rest);
    throw step_failure(SqlFailure(std::move(error), shard_.name));
  }
  while (PGresult* rest = PQgetResult(connection)) PQclear(rest);
}

Digest PgShard::digest() {
  return digest_of(*plan_, run(digest_sql(*plan_)));
}

std::int64_t PgShard::count_rows() {
  return run(count_sql(*plan_)).int8(0, 0);
}

const TablePlan* PgShard::find_table(std::string_view label) const {
  const auto found = std::find_if(plan_->tables.begin(), plan_->tables.end(),
                                  [&](const TablePlan& table) { return table.label == label; });
  return found == plan_->tables.end() ? nullptr : &*found;
}

// Under session_replication_role = replica no foreign key is checked by the server.
void PgShard::check_references() {
  for (const ForeignKey& key : plan_->foreign_keys) {
    const TablePlan* referencing = find_table(key.table);
    if (referencing == nullptr || key.follows_key) continue;
    if (run(dangling_sql(*referencing, key)).empty()) continue;
    throw refused(ErrorCode::kDestinationConflict,
                  "a row of table " + key.table + " references a row of table " + key.referenced +
                      " that shard \"" + shard_.name + "\" does not have (foreign key " + key.name +
                      ")");
  }
}

void PgShard::refuse_outside_references(const Unit& unit) {
  for (const ForeignKey& key : plan_->foreign_keys) {
    const TablePlan* referenced = find_table(key.referenced);
    if (referenced == nullptr || key.follows_key) continue;
    // Held against new references until this transaction ends.
    run(lock_rows_sql(*referenced));
    if (run(referenced_sql(*referenced, key, find_table(key.table))).empty()) continue;
    throw refused(ErrorCode::kMoveRefused, "a row of table " + key.table +
                                               " that does not move references the rows of key " +
                                               unit.keys.front() + " in table " + key.referenced +
                                               " (foreign key " + key.name + ")");
  }
}

// ---- Cutover --------------------------------------------------------------------------------

void PgShard::lock_sweep(milliseconds budget) {
  session().set_statement_timeout(kCutoverTimeout);
  wait_at_most(budget);
  run("LOCK TABLE collegedb.sweep IN ROW EXCLUSIVE MODE");
}

void PgShard::lock_keys(const std::vector<std::int32_t>& buckets, milliseconds budget) {
  wait_at_most(budget);
  try {
    take_key_fence(session(), buckets);
  } catch (const SqlFailure& failure) {
    if (failure.error().sqlstate == "55000") throw StepFailure(Event::kRefused, failure.error());
    throw step_failure(failure);
  }
}

Digest PgShard::retire_rows(const Unit& unit) {
  wait_at_most(milliseconds(250));
  refuse_outside_references(unit);
  run("INSERT INTO collegedb.retired (scope, grp, key, op, moved_to, purge_after)"
      " SELECT $1, $2, k, $4, $5, clock_timestamp() + make_interval(secs => $6::int8)"
      " FROM unnest($3::text[]) AS k",
      {unit.scope, unit.group, array_text(unit.keys), unit.op, unit.destination,
       text(unit.retire_after.count())});
  return digest_of(*plan_, run(retire_sql(*plan_, unit.op)));
}

void PgShard::prepare(const Unit& unit, const std::string& gid) {
  run("UPDATE collegedb.move_token SET token = $2::bigint WHERE op = $1",
      {unit.op, text(kClosedToken)});
  run("PREPARE TRANSACTION " + quote_literal(gid));
  prepared_ = gid;
}

void PgShard::commit_prepared(const Unit& unit, const std::string& gid, Side side) {
  try {
    session().run("COMMIT PREPARED " + quote_literal(gid));
    prepared_.clear();
    return;
  } catch (const SqlFailure& failure) {
    if (failure.connection_lost() || failure.error().sqlstate != "42704") {
      throw StepFailure(Event::kLost, failure.error());
    }
  }
  prepared_.clear();
  // No such half. That is success only if what it did is there to be seen.
  const std::string seen = side == Side::kSource
                               ? "SELECT 1 FROM collegedb.retired WHERE op = $1 LIMIT 1"
                               : "SELECT 1 FROM collegedb.incoming WHERE op = $1 LIMIT 1";
  if (!run(seen, {unit.op}).empty()) return;
  throw StepFailure(Event::kLost,
                    make_error(ErrorCode::kMoveRefused, "half " + gid +
                                                            " is neither prepared nor "
                                                            "committed on shard \"" +
                                                            shard_.name + "\""));
}

bool PgShard::drop_copy(const Unit& unit, std::int64_t token, const Digest& expected) {
  adopt(std::make_shared<const MovePlan>(plan_of(unit, describe(unit))));
  install_token(unit, token);
  begin(unit, token);
  // Rows that change between the two looks do not go: the digest is of what was deleted.
  const Digest deleted = digest_of(*plan_, run(drop_sql(*plan_)));
  const bool equal = deleted == expected;
  run(equal ? "COMMIT" : "ROLLBACK");
  return equal;
}

void PgShard::clear_incoming(const Unit& unit) {
  run("DELETE FROM collegedb.incoming WHERE op = $1", {unit.op});
}

}  // namespace collegedb::migration
