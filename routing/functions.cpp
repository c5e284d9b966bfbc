// Decisions worth knowing:
// - nextval and setval are kJournal: a sequence that one statement names must have one home, or
//   shards would hand out equal numbers. Column defaults are another matter (migration/sequences).
// - pg_advisory_xact_lock is kJournal too, so that two clients meet at the same lock.
// - pg_advisory_unlock_all is plain: session locks are refused, so nothing can be held, and pools
//   call it whenever a connection is given back.
// - set_config is kSessionState; the planner lets is_local => true pass.
#include "routing/functions.h"

#include <algorithm>
#include <array>

namespace collegedb::routing {
namespace {

// All tables are sorted (checked below).
constexpr auto kSessionState = std::to_array<std::string_view>({
    "currval",
    "lastval",
    "pg_advisory_lock",
    "pg_advisory_lock_shared",
    "pg_advisory_unlock",
    "pg_advisory_unlock_shared",
    "pg_export_snapshot",
    "pg_replication_origin_session_is_setup",
    "pg_replication_origin_session_progress",
    "pg_replication_origin_session_reset",
    "pg_replication_origin_session_setup",
    "pg_replication_origin_xact_reset",
    "pg_replication_origin_xact_setup",
    "pg_try_advisory_lock",
    "pg_try_advisory_lock_shared",
    "set_config",
    "setseed",
});

constexpr auto kTransaction = std::to_array<std::string_view>({
    "age",
    "inet_client_addr",
    "inet_client_port",
    "inet_server_addr",
    "inet_server_port",
    "mxid_age",
    "now",
    "pg_backend_pid",
    "pg_conf_load_time",
    "pg_current_snapshot",
    "pg_current_wal_flush_lsn",
    "pg_current_wal_insert_lsn",
    "pg_current_wal_lsn",
    "pg_current_xact_id",
    "pg_current_xact_id_if_assigned",
    "pg_is_in_recovery",
    "pg_last_committed_xact",
    "pg_last_wal_receive_lsn",
    "pg_last_wal_replay_lsn",
    "pg_last_xact_replay_timestamp",
    "pg_postmaster_start_time",
    "pg_xact_commit_timestamp",
    "pg_xact_commit_timestamp_origin",
    "pg_xact_status",
    "statement_timestamp",
    "transaction_timestamp",
    "txid_current",
    "txid_current_if_assigned",
    "txid_current_snapshot",
    "txid_status",
});

constexpr auto kJournal = std::to_array<std::string_view>({
    "loread",
    "lowrite",
    "nextval",
    "pg_advisory_xact_lock",
    "pg_advisory_xact_lock_shared",
    "pg_backup_start",
    "pg_backup_stop",
    "pg_blocking_pids",
    "pg_cancel_backend",
    "pg_copy_logical_replication_slot",
    "pg_copy_physical_replication_slot",
    "pg_create_logical_replication_slot",
    "pg_create_physical_replication_slot",
    "pg_create_restore_point",
    "pg_current_logfile",
    "pg_database_size",
    "pg_drop_replication_slot",
    "pg_extension_config_dump",
    "pg_hba_file_rules",
    "pg_ident_file_mappings",
    "pg_import_system_collations",
    "pg_indexes_size",
    "pg_lock_status",
    "pg_log_backend_memory_contexts",
    "pg_nextoid",
    "pg_notification_queue_usage",
    "pg_notify",
    "pg_prepared_xact",
    "pg_promote",
    "pg_relation_size",
    "pg_reload_conf",
    "pg_rotate_logfile",
    "pg_rotate_logfile_old",
    "pg_safe_snapshot_blocking_pids",
    "pg_sequence_last_value",
    "pg_start_backup",
    "pg_stat_file",
    "pg_stop_backup",
    "pg_switch_wal",
    "pg_table_size",
    "pg_tablespace_size",
    "pg_terminate_backend",
    "pg_total_relation_size",
    "pg_try_advisory_xact_lock",
    "pg_try_advisory_xact_lock_shared",
    "setval",
});

constexpr auto kJournalPrefixes = std::to_array<std::string_view>({
    "binary_upgrade_",
    "lo_",
    "pg_control_",
    "pg_logical_",
    "pg_ls_",
    "pg_read_",
    "pg_replication_",
    "pg_stat_reset",
    "pg_wal_replay_",
});

// Those that take the type or the relation as a value run the code of domains, operator classes and
// expression indexes.
constexpr auto kOpaque = std::to_array<std::string_view>({
    "array_in",
    "array_recv",
    "brin_desummarize_range",
    "brin_summarize_new_values",
    "brin_summarize_range",
    "currtid2",
    "cursor_to_xml",
    "cursor_to_xmlschema",
    "database_to_xml",
    "database_to_xml_and_xmlschema",
    "database_to_xmlschema",
    "domain_in",
    "domain_recv",
    "gin_clean_pending_list",
    "multirange_in",
    "multirange_recv",
    "pg_input_error_info",
    "pg_input_is_valid",
    "query_to_xml",
    "query_to_xml_and_xmlschema",
    "query_to_xmlschema",
    "range_in",
    "range_recv",
    "record_in",
    "record_recv",
    "satisfies_hash_partition",
    "schema_to_xml",
    "schema_to_xml_and_xmlschema",
    "schema_to_xmlschema",
    "table_to_xml",
    "table_to_xml_and_xmlschema",
    "table_to_xmlschema",
    "ts_rewrite",
    "ts_stat",
});

constexpr auto kAggregates = std::to_array<std::string_view>({
    "any_value",
    "array_agg",
    "avg",
    "bit_and",
    "bit_or",
    "bit_xor",
    "bool_and",
    "bool_or",
    "corr",
    "count",
    "covar_pop",
    "covar_samp",
    "cume_dist",
    "dense_rank",
    "every",
    "json_agg",
    "json_agg_strict",
    "json_object_agg",
    "json_object_agg_strict",
    "json_object_agg_unique",
    "json_object_agg_unique_strict",
    "jsonb_agg",
    "jsonb_agg_strict",
    "jsonb_object_agg",
    "jsonb_object_agg_strict",
    "jsonb_object_agg_unique",
    "jsonb_object_agg_unique_strict",
    "max",
    "min",
    "mode",
    "percent_rank",
    "percentile_cont",
    "percentile_disc",
    "range_agg",
    "range_intersect_agg",
    "rank",
    "regr_avgx",
    "regr_avgy",
    "regr_count",
    "regr_intercept",
    "regr_r2",
    "regr_slope",
    "regr_sxx",
    "regr_sxy",
    "regr_syy",
    "stddev",
    "stddev_pop",
    "stddev_samp",
    "string_agg",
    "sum",
    "var_pop",
    "var_samp",
    "variance",
    "xmlagg",
});

static_assert(std::ranges::is_sorted(kSessionState) && std::ranges::is_sorted(kTransaction) &&
              std::ranges::is_sorted(kJournal) && std::ranges::is_sorted(kOpaque) &&
              std::ranges::is_sorted(kAggregates));

template <std::size_t N>
bool contains(const std::array<std::string_view, N>& table, std::string_view name) {
  return std::ranges::binary_search(table, name);
}

}  // namespace

FunctionClass classify_builtin(std::string_view name) noexcept {
  if (contains(kSessionState, name)) return FunctionClass::kSessionState;
  if (contains(kTransaction, name)) return FunctionClass::kTransaction;
  if (contains(kOpaque, name)) return FunctionClass::kOpaque;
  if (contains(kJournal, name)) return FunctionClass::kJournal;
  const bool journal = std::ranges::any_of(
      kJournalPrefixes, [&](std::string_view prefix) { return name.starts_with(prefix); });
  return journal ? FunctionClass::kJournal : FunctionClass::kPlain;
}

std::span<const std::string_view> opaque_builtins() noexcept {
  return kOpaque;
}

std::span<const std::string_view> session_builtins() noexcept {
  return kSessionState;
}

bool is_builtin_aggregate(std::string_view name) noexcept {
  return contains(kAggregates, name);
}

}  // namespace collegedb::routing
