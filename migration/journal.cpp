#include "migration/journal.h"

#include <array>
#include <cstdlib>
#include <utility>

namespace collegedb::migration {
namespace {

constexpr std::string_view kUndecided =
    " AND state IN ('claim', 'prepared', 'copied', 'verified', 'cutover_pending')";

std::string text(std::int64_t value) {
  return std::to_string(value);
}

SqlParameter optional_text(const std::string& value) {
  return value.empty() ? SqlParameter{} : SqlParameter{value};
}

SqlParameter number(const std::optional<double>& value) {
  return value ? SqlParameter{std::to_string(*value)} : SqlParameter{};
}

// The tables of a group as one text, as kGroupText builds it on the server.
std::string tables_text(const std::vector<GroupTable>& tables) {
  std::string out;
  for (const GroupTable& table : tables) {
    out += table.schema + "." + table.name + "." + table.key_column + "\n";
  }
  return out;
}

constexpr std::string_view kGroupText =
    "coalesce((SELECT string_agg(t.schema_name || '.' || t.table_name || '.' || t.key_column"
    " || E'\\n', '' ORDER BY t.schema_name COLLATE \"C\", t.table_name COLLATE \"C\")"
    " FROM collegedb.tables t WHERE t.scope = m.scope AND t.grp = m.grp AND t.kind = 'sharded'),"
    " '')";

// Appends to the history what the statement before it has written.
std::string with_history(const std::string& update) {
  return "WITH m AS (" + update +
         " RETURNING op, state, attempt, token, error, cancel_requested),"
         " h AS (INSERT INTO collegedb.move_history (op, state, attempt, token, note)"
         " SELECT op, state, attempt, token, error FROM m) SELECT cancel_requested FROM m";
}

// SQL: some session holds collegedb.move_lock(name).
std::string held(const std::string& name) {
  return "EXISTS (SELECT 1 FROM pg_locks k WHERE k.locktype = 'advisory' AND k.objsubid = 1"
         " AND k.granted AND k.database = (SELECT oid FROM pg_database"
         " WHERE datname = current_database())"
         " AND (k.classid::bigint << 32) | k.objid::bigint = collegedb.move_lock(" +
         name + "))";
}

bool starts_with_any(std::string_view state, std::initializer_list<std::string_view> heads) {
  for (const std::string_view head : heads) {
    if (state.starts_with(head)) return true;
  }
  return false;
}

}  // namespace

void fenced(const MoveRecord& record) {
  throw StepFailure(Event::kFenced,
                    make_error(ErrorCode::kRecoveryFenced,
                               "operation " + record.unit.op + " was taken over by another"));
}

StepFailure step_failure(const SqlFailure& failure) {
  const std::string_view state = failure.error().sqlstate;
  if (failure.connection_lost() || starts_with_any(state, {"08", "57P"})) {
    return {Event::kLost, failure.error()};
  }
  // Lock timeout, statement timeout, deadlock, serialization; no resources for now.
  if (starts_with_any(state, {"55P03", "57014", "40", "53"})) {
    return {Event::kMissed, failure.error()};
  }
  if (starts_with_any(state, {"23"})) {
    return {Event::kRefused,
            make_error(ErrorCode::kDestinationConflict,
                       "shard \"" + failure.shard() + "\": " + failure.error().message, {},
                       failure.error().detail)};
  }
  SqlError error = failure.error();
  error.message = "shard \"" + failure.shard() + "\": " + error.message;
  return {Event::kRefused, std::move(error)};
}

PgJournal::PgJournal(SessionPool& pool, const ShardConfig& shard, std::string scope)
    : pool_(pool), scope_(std::move(scope)) {
  try {
    // Idle for as long as a copy takes, with the lock: no timeout may end it.
    session_ = pool_.take(
        shard, SessionOptions{.application_name = "collegedb journal",
                              .statement_timeout = std::chrono::milliseconds(15000),
                              .lock_timeout = std::chrono::milliseconds(10000),
                              .idle_in_transaction_timeout = std::chrono::milliseconds(0),
                              .dies_with_client = true});
  } catch (const SqlFailure& failure) {
    throw StepFailure(Event::kLost, failure.error());
  }
}

// A held lock means a live mover: the session is kept only if it certainly holds none.
PgJournal::~PgJournal() {
  if (!session_->idle()) return;
  try {
    session_->run("SELECT pg_advisory_unlock_all()");
    pool_.give_back(std::move(session_));
  } catch (const std::exception&) {
    // Closed with the object, and its locks with it.
  }
}

// Whatever goes wrong here leaves the state of the journal to be read again.
Rows PgJournal::run(std::string_view sql, std::initializer_list<SqlParameter> parameters) {
  try {
    return session_->run(sql, parameters);
  } catch (const SqlFailure& failure) {
    throw StepFailure(Event::kLost, failure.error());
  }
}

bool PgJournal::lock(const std::string& op) {
  return run("SELECT pg_try_advisory_lock(collegedb.move_lock($1))", {op}).boolean(0, 0);
}

void PgJournal::unlock(const std::string& op) {
  run("SELECT pg_advisory_unlock(collegedb.move_lock($1))", {op});
}

std::string PgJournal::new_operation_id() {
  return run("SELECT gen_random_uuid()::text", {}).text(0, 0);
}

std::int64_t PgJournal::take_over(const MoveRecord& record) {
  const std::string update =
      "UPDATE collegedb.moves SET token = token + 1, updated_at = clock_timestamp()"
      " WHERE op = $1 AND token = $2::bigint";
  const std::string suffix = " RETURNING token";
  const Rows rows =
      lease_ ? run(update +
                       " AND EXISTS (SELECT 1 FROM collegedb.recovery_lease l WHERE l.scope = $3"
                       " AND l.holder = $4 AND l.generation = $5::bigint"
                       " AND l.expires_at > clock_timestamp())" +
                       suffix,
                   {record.unit.op, text(record.token), scope_, lease_->holder,
                    text(lease_->generation)})
             : run(update + suffix, {record.unit.op, text(record.token)});
  if (rows.empty()) fenced(record);
  return rows.int8(0, 0);
}

std::optional<MoveRecord> PgJournal::load(const std::string& op) {
  const Rows rows =
      run("SELECT scope, state, grp, source, destination, attempt, token, coalesce(error, ''),"
          " coalesce(position, ''), coalesce(digest, ''), rows, bytes, copies, write_stall_ms,"
          " extract(epoch FROM retire_after)::bigint, cancel_requested,"
          " extract(epoch FROM coalesce(finished_at, clock_timestamp()) - started_at) * 1000,"
          " (SELECT array_agg(k.key ORDER BY k.key) FROM collegedb.move_keys k WHERE k.op = m.op),"
          " tables, coalesce(rebalance, '') FROM collegedb.moves m WHERE op = $1",
          {op});
  if (rows.empty()) return std::nullopt;
  MoveRecord out;
  out.unit = {.scope = rows.text(0, 0),
              .op = op,
              .group = rows.text(0, 2),
              .source = rows.text(0, 3),
              .destination = rows.text(0, 4),
              .keys = rows.array(0, 17),
              .retire_after = std::chrono::seconds(rows.int8(0, 14))};
  const auto state = state_from(rows.view(0, 1));
  if (!state || out.unit.keys.empty()) {
    throw StepFailure(Event::kLost, make_error(ErrorCode::kMoveRefused,
                                               "operation " + op + " is damaged in the journal"));
  }
  out.state = *state;
  out.attempt = static_cast<std::int32_t>(rows.int8(0, 5));
  out.token = rows.int8(0, 6);
  out.error = rows.text(0, 7);
  out.position = rows.text(0, 8);
  out.digest = {.text = rows.text(0, 9), .rows = rows.int8(0, 10), .bytes = rows.int8(0, 11)};
  out.copies = static_cast<std::int32_t>(rows.int8(0, 12));
  if (!rows.null(0, 13)) out.write_stall_ms = std::strtod(rows.text(0, 13).c_str(), nullptr);
  out.cancel_requested = rows.boolean(0, 15);
  out.duration_ms = std::strtod(rows.text(0, 16).c_str(), nullptr);
  out.rebalance = rows.text(0, 19);
  out.unit.tables = group_tables(out.unit);
  return out;
}

std::vector<GroupTable> PgJournal::group_tables(const Unit& unit) {
  return directory(unit.group, {}).tables;
}

bool PgJournal::record(const MoveRecord& record, State state) {
  const Rows rows = run(
      with_history("UPDATE collegedb.moves SET state = $3, attempt = $4::int, digest = $5,"
                   " position = $6, rows = $7::bigint, bytes = $8::bigint, copies = $9::int,"
                   " tables = $10::int, error = $11, updated_at = clock_timestamp()"
                   " WHERE op = $1 AND token = $2::bigint" +
                   std::string(kUndecided)),
      {record.unit.op, text(record.token), std::string(name_of(state)), text(record.attempt),
       optional_text(record.digest.text), optional_text(record.position), text(record.digest.rows),
       text(record.digest.bytes), text(record.copies),
       text(static_cast<std::int64_t>(record.unit.tables.size())), optional_text(record.error)});
  if (rows.empty()) fenced(record);
  return rows.boolean(0, 0);
}

bool PgJournal::decide(const MoveRecord& record) {
  const Rows rows =
      run(with_history("UPDATE collegedb.moves m SET state = 'committed', error = NULL,"
                       " updated_at = clock_timestamp() WHERE op = $1 AND token = $2::bigint" +
                       std::string(kUndecided) + " AND NOT cancel_requested AND " +
                       std::string(kGroupText) + " = $3"),
          {record.unit.op, text(record.token), tables_text(record.unit.tables)});
  if (!rows.empty()) return true;
  // Refused, or not ours any more?
  if (run("SELECT 1 FROM collegedb.moves WHERE op = $1 AND token = $2::bigint" +
              std::string(kUndecided),
          {record.unit.op, text(record.token)})
          .empty()) {
    fenced(record);
  }
  return false;
}

void PgJournal::publish(const MoveRecord& record) {
  try {
    Transaction transaction(*session_);
    if (is_mapped()) {
      write_mappings(record.unit);
    } else {
      write_exceptions(record);
    }
    const Rows rows =
        run(with_history("UPDATE collegedb.moves SET state = 'published',"
                         " write_stall_ms = coalesce($3::float8, write_stall_ms),"
                         " updated_at = clock_timestamp() WHERE op = $1 AND token = $2::bigint"
                         " AND state IN ('committed', 'published')"),
            {record.unit.op, text(record.token), number(record.write_stall_ms)});
    if (rows.empty()) fenced(record);
    transaction.commit();
  } catch (const SqlFailure& failure) {
    throw StepFailure(Event::kLost, failure.error());
  }
}

void PgJournal::retire(const MoveRecord& record) {
  const Rows rows =
      run("WITH c AS (DELETE FROM collegedb.claims WHERE op = $1 AND EXISTS"
          " (SELECT 1 FROM collegedb.moves WHERE op = $1 AND token = $2::bigint)), " +
              with_history("UPDATE collegedb.moves SET state = 'retired',"
                           " updated_at = clock_timestamp(), finished_at = clock_timestamp()"
                           " WHERE op = $1 AND token = $2::bigint AND state = 'published'")
                  .substr(5),
          {record.unit.op, text(record.token)});
  if (rows.empty()) fenced(record);
}

void PgJournal::abort(const MoveRecord& record) {
  const Rows rows =
      run("WITH c AS (DELETE FROM collegedb.claims WHERE op = $1 AND EXISTS"
          " (SELECT 1 FROM collegedb.moves WHERE op = $1 AND token = $2::bigint)), " +
              with_history("UPDATE collegedb.moves SET state = 'aborted', error = $3,"
                           " updated_at = clock_timestamp(), finished_at = clock_timestamp()"
                           " WHERE op = $1 AND token = $2::bigint" +
                           std::string(kUndecided))
                  .substr(5),
          {record.unit.op, text(record.token), record.error});
  if (rows.empty()) fenced(record);
}

// A holder of ours has an advisory lock for as long as its session lives, so that the lease of one
// that was killed need not be sat out. Any other holder's is.
std::optional<PgJournal::Lease> PgJournal::take_lease(const std::string& holder,
                                                      std::chrono::seconds span) {
  const std::string own = "collegedb/" + holder;
  if (!run("SELECT pg_try_advisory_lock(collegedb.move_lock($1))", {own}).boolean(0, 0)) {
    return std::nullopt;
  }
  const Rows rows =
      run("INSERT INTO collegedb.recovery_lease AS l (scope, holder, generation, expires_at)"
          " VALUES ($1, $2, 1, clock_timestamp() + make_interval(secs => $3::int))"
          " ON CONFLICT (scope) DO UPDATE SET holder = excluded.holder,"
          " generation = l.generation + 1, expires_at = excluded.expires_at"
          " WHERE l.expires_at <= clock_timestamp()"
          " OR (starts_with(l.holder, 'collegedb/') AND l.holder <> excluded.holder AND NOT " +
              held("l.holder") + ") RETURNING generation",
          {scope_, own, text(span.count())});
  if (rows.empty()) {
    unlock(own);
    return std::nullopt;
  }
  return Lease{.holder = own, .generation = rows.int8(0, 0)};
}

bool PgJournal::has_lease(const Lease& lease) {
  return !run("SELECT 1 FROM collegedb.recovery_lease WHERE scope = $1 AND holder = $2"
              " AND generation = $3::bigint AND expires_at > clock_timestamp()",
              {scope_, lease.holder, text(lease.generation)})
              .empty();
}

void PgJournal::release_lease(const Lease& lease) {
  run("UPDATE collegedb.recovery_lease SET expires_at = clock_timestamp()"
      " WHERE scope = $1 AND holder = $2 AND generation = $3::bigint",
      {scope_, lease.holder, text(lease.generation)});
  unlock(lease.holder);
}

ClaimResult PgJournal::claim(const MoveRecord& record) {
  const Unit& unit = record.unit;
  try {
    Transaction transaction(*session_);
    if (!lock(unit.op)) fenced(record);
    if (!run("SELECT 1 FROM collegedb.paused_moves WHERE scope = $1", {scope_}).empty()) {
      unlock(unit.op);
      ClaimResult none;
      none.paused = true;
      return none;
    }
    const std::string keys = array_text(unit.keys);
    // In key order, so that two claims of the same keys do not deadlock.
    run("INSERT INTO collegedb.claims (scope, grp, key, op) SELECT $1, $2, k, $4"
        " FROM unnest($3::text[]) AS k ORDER BY k ON CONFLICT DO NOTHING",
        {scope_, unit.group, keys, unit.op});
    const Rows taken =
        run("SELECT c.op, coalesce(m.destination, ''), c.key FROM collegedb.claims c"
            " LEFT JOIN collegedb.moves m ON m.op = c.op WHERE c.scope = $1 AND c.grp = $2"
            " AND c.key = ANY ($3::text[]) AND c.op <> $4 ORDER BY c.key LIMIT 1",
            {scope_, unit.group, keys, unit.op});
    if (!taken.empty()) {
      unlock(unit.op);
      return {.op = taken.text(0, 0), .destination = taken.text(0, 1), .key = taken.text(0, 2)};
    }
    require_open_topology(unit);
    if (is_mapped()) require_mappings(unit);
    run("WITH m AS (INSERT INTO collegedb.moves (op, scope, state, grp, source, destination, token,"
        " retire_after, rebalance) VALUES ($1, $2, 'claim', $3, $4, $5, $6::bigint,"
        " make_interval(secs => $7::int8), $9) RETURNING op),"
        " k AS (INSERT INTO collegedb.move_keys (op, scope, grp, key) SELECT m.op, $2, $3, key"
        " FROM m, unnest($8::text[]) AS key)"
        " INSERT INTO collegedb.move_history (op, state, attempt, token)"
        " SELECT op, 'claim', 0, $6::bigint FROM m",
        {unit.op, scope_, unit.group, unit.source, unit.destination, text(record.token),
         text(unit.retire_after.count()), keys, optional_text(record.rebalance)});
    transaction.commit();
  } catch (const SqlFailure& failure) {
    throw StepFailure(Event::kLost, failure.error());
  }
  return {.claimed = true, .op = unit.op, .destination = unit.destination, .key = {}};
}

// After the claims are in, so that whoever locks them and then looks misses no move: a shard is not
// removed, nor an epoch dropped, with a move on its way.
void PgJournal::require_open_topology(const Unit& unit) {
  const Rows removed =
      run("SELECT s FROM unnest(ARRAY[$2, $3]) AS s WHERE NOT EXISTS (SELECT 1"
          " FROM collegedb.shards m WHERE m.scope = $1 AND m.shard = s AND m.state <> 'removed')",
          {scope_, unit.source, unit.destination});
  if (!removed.empty()) {
    unlock(unit.op);
    throw StepFailure(Event::kRefused,
                      make_error(ErrorCode::kUnknownShard,
                                 "shard \"" + removed.text(0, 0) + "\" is no part of the cluster",
                                 "Add it with collegedb_add_shard."));
  }
  if (!run("SELECT 1 FROM collegedb.prunes WHERE scope = $1", {scope_}).empty()) {
    unlock(unit.op);
    throw StepFailure(Event::kRefused,
                      make_error("55006", "epochs are being dropped; no key is moved meanwhile",
                                 "Try again when collegedb.prunes is empty."));
  }
}

std::vector<std::string> PgJournal::active_operations() {
  const Rows rows =
      run("SELECT op FROM collegedb.moves WHERE scope = $1 AND state NOT IN ('retired', 'aborted')"
          " ORDER BY started_at, op",
          {scope_});
  std::vector<std::string> out;
  for (int i = 0; i < rows.size(); ++i) out.push_back(rows.text(i, 0));
  return out;
}

std::vector<std::string> PgJournal::orphaned_operations() {
  const Rows rows =
      run("SELECT m.op FROM collegedb.moves m WHERE m.scope = $1"
          " AND m.state NOT IN ('retired', 'aborted') AND NOT " +
              held("m.op"),
          {scope_});
  std::vector<std::string> out;
  for (int i = 0; i < rows.size(); ++i) out.push_back(rows.text(i, 0));
  return out;
}

bool PgJournal::has_orphaned_claims() {
  return !run("SELECT 1 FROM collegedb.claims c WHERE c.scope = $1 AND NOT EXISTS"
              " (SELECT 1 FROM collegedb.moves m WHERE m.op = c.op"
              " AND m.state NOT IN ('retired', 'aborted')) LIMIT 1",
              {scope_})
              .empty();
}

std::int64_t PgJournal::release_orphaned_claims() {
  return run("DELETE FROM collegedb.claims c WHERE c.scope = $1 AND NOT EXISTS"
             " (SELECT 1 FROM collegedb.moves m WHERE m.op = c.op"
             " AND m.state NOT IN ('retired', 'aborted'))",
             {scope_})
      .affected();
}

std::optional<std::string> PgJournal::latest(const std::string& group, const std::string& key) {
  const Rows rows =
      run("SELECT m.op FROM collegedb.move_keys k JOIN collegedb.moves m ON m.op = k.op"
          " WHERE k.scope = $1 AND k.grp = $2 AND k.key = $3 ORDER BY m.started_at DESC LIMIT 1",
          {scope_, group, key});
  if (rows.empty()) return std::nullopt;
  return rows.text(0, 0);
}

MoveStatus PgJournal::status(const std::string& op, const std::string& key) {
  const Rows rows =
      run("SELECT source, destination, state, tables, rows, bytes, copies, write_stall_ms,"
          " extract(epoch FROM coalesce(finished_at, clock_timestamp()) - started_at) * 1000, grp,"
          " attempt, coalesce(error, ''), started_at::text, updated_at::text FROM collegedb.moves"
          " WHERE op = $1",
          {op});
  MoveStatus out;
  if (rows.empty()) return out;
  out.move = {.op = op,
              .key = key,
              .source = rows.text(0, 0),
              .destination = rows.text(0, 1),
              .state = rows.text(0, 2),
              .tables = static_cast<std::int32_t>(rows.int8(0, 3)),
              .rows = rows.int8(0, 4),
              .bytes = rows.int8(0, 5),
              .copies = static_cast<std::int32_t>(rows.int8(0, 6)),
              .duration_ms = std::strtod(rows.text(0, 8).c_str(), nullptr)};
  if (!rows.null(0, 7)) out.move.write_stall_ms = std::strtod(rows.text(0, 7).c_str(), nullptr);
  out.group = rows.text(0, 9);
  out.attempt = static_cast<std::int32_t>(rows.int8(0, 10));
  out.error = rows.text(0, 11);
  out.started_at = rows.text(0, 12);
  out.updated_at = rows.text(0, 13);
  return out;
}

std::optional<State> PgJournal::request_cancel(const std::string& op) {
  run("UPDATE collegedb.moves SET cancel_requested = true WHERE op = $1" + std::string(kUndecided),
      {op});
  const Rows rows = run("SELECT state FROM collegedb.moves WHERE op = $1", {op});
  if (rows.empty()) return std::nullopt;
  return state_from(rows.view(0, 0));
}

}  // namespace collegedb::migration
