// The guard: what a proxy runs on the owner, in the same transaction and before a statement with
// known keys. Objects it uses: migration/sql/shard*.sql. Why this form:
// docs/adr/0005-guard-and-gate.md.
#pragma once

#include <cstdint>
#include <string_view>

namespace collegedb::session::guard {

// First key of every two-key advisory lock of ours ("CDB1").
inline constexpr std::int32_t kLockClass = 1128546865;

// The fair queue. $1 bucket. Writers and a mover pass it in order of arrival.
inline constexpr std::string_view kQueueName = "collegedb_queue";
inline constexpr std::string_view kQueueSql =
    "SELECT pg_catalog.pg_advisory_xact_lock_shared(1128546865, $1::pg_catalog.int4)";

// The gate row. $1 bucket, $2 generation, $3 scope, $4 group, $5 keys of this bucket (text[]),
// $6 'on' when the proxy knows every key the statement writes, else 'off'.
// It raises whatever it objects to, a missing gate row included: the server then skips what is
// pipelined behind it. One row comes back when the statement may run; from then on the fence lets
// the transaction write these keys (collegedb.keys, migration/sql/shard_3.sql).
inline constexpr std::string_view kGateName = "collegedb_gate";
inline constexpr std::string_view kGateSql =
    "SELECT pg_catalog.set_config('collegedb.guarded', CASE WHEN (SELECT CASE"
    " WHEN min_generation > $2::pg_catalog.int8"
    " THEN collegedb.raise_stale($2::pg_catalog.int8, min_generation)"
    " WHEN cutovers > 0 THEN collegedb.check_moved($3::pg_catalog.text, $4::pg_catalog.text,"
    " $5::pg_catalog.text[]) END IS NULL"
    " FROM collegedb.gate WHERE bucket = $1::pg_catalog.int4 FOR SHARE)"
    " THEN $6::pg_catalog.text ELSE collegedb.raise_no_gate($1::pg_catalog.int4) END, true),"
    " pg_catalog.set_config('collegedb.keys', (NULLIF(pg_catalog.current_setting('collegedb.keys',"
    " true), '')::pg_catalog.text[] OPERATOR(pg_catalog.||) ARRAY(SELECT $4::pg_catalog.text"
    " OPERATOR(pg_catalog.||) pg_catalog.chr(1) OPERATOR(pg_catalog.||) k"
    " FROM pg_catalog.unnest($5::pg_catalog.text[]) k))::pg_catalog.text, true)";

// The same where FOR SHARE is not allowed (READ ONLY at READ COMMITTED).
inline constexpr std::string_view kGateReadOnlyName = "collegedb_gate_ro";
inline constexpr std::string_view kGateReadOnlySql =
    "SELECT pg_catalog.set_config('collegedb.guarded', CASE WHEN (SELECT CASE"
    " WHEN min_generation > $2::pg_catalog.int8"
    " THEN collegedb.raise_stale($2::pg_catalog.int8, min_generation)"
    " WHEN cutovers > 0 THEN collegedb.check_moved($3::pg_catalog.text, $4::pg_catalog.text,"
    " $5::pg_catalog.text[]) END IS NULL"
    " FROM collegedb.gate WHERE bucket = $1::pg_catalog.int4)"
    " THEN $6::pg_catalog.text ELSE collegedb.raise_no_gate($1::pg_catalog.int4) END, true),"
    " pg_catalog.set_config('collegedb.keys', (NULLIF(pg_catalog.current_setting('collegedb.keys',"
    " true), '')::pg_catalog.text[] OPERATOR(pg_catalog.||) ARRAY(SELECT $4::pg_catalog.text"
    " OPERATOR(pg_catalog.||) pg_catalog.chr(1) OPERATOR(pg_catalog.||) k"
    " FROM pg_catalog.unnest($5::pg_catalog.text[]) k))::pg_catalog.text, true)";

// Switches the insert fence on again inside a transaction whose earlier statements ran without it.
inline constexpr std::string_view kFenceOnName = "collegedb_fence_on";
inline constexpr std::string_view kFenceOnSql =
    "SELECT pg_catalog.set_config('collegedb.guarded', 'off', true)";

// SQLSTATEs the guard raises.
inline constexpr std::string_view kStale = "CDB01";     // DETAIL: min_generation
inline constexpr std::string_view kMoved = "CDB02";     // DETAIL: shard \n op \n key
inline constexpr std::string_view kApplied = "CDB03";   // operation_id seen before
inline constexpr std::string_view kIncoming = "CDB04";  // arriving; wait and try again
inline constexpr std::string_view kDamaged = "CDB05";   // no gate row of that bucket
// Raised by the statement: it writes a key that was not guarded.
inline constexpr std::string_view kOtherKey = "CDB06";
inline constexpr std::string_view kOurs = "CDB";  // what all of them begin with

}  // namespace collegedb::session::guard
