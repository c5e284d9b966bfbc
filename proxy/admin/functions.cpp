#include "proxy/admin/functions.h"

#include <algorithm>
#include <array>

#include "proxy/admin/handlers.h"

namespace collegedb::admin {
namespace {

using session::AdminFunction;
using Argument = AdminFunction::Argument;
using Column = AdminFunction::Column;

constexpr std::uint32_t kBool = 16;
constexpr std::uint32_t kInt8 = 20;
constexpr std::uint32_t kInt4 = 23;
constexpr std::uint32_t kText = 25;
constexpr std::uint32_t kFloat8 = 701;
constexpr std::uint32_t kInt4Array = 1007;
constexpr std::uint32_t kTextArray = 1009;
constexpr std::uint32_t kInterval = 1186;
constexpr std::uint32_t kJsonb = 3802;

std::string_view type_name(std::uint32_t oid) {
  switch (oid) {
    case kBool:
      return "boolean";
    case kInt8:
      return "bigint";
    case kInt4:
      return "integer";
    case kFloat8:
      return "double precision";
    case kInt4Array:
      return "integer[]";
    case kTextArray:
      return "text[]";
    case kInterval:
      return "interval";
    case kJsonb:
      return "jsonb";
    default:
      return "text";
  }
}

constexpr std::array kOp{Argument{"op", kText, true}};
constexpr std::array kSql{Argument{"sql", kText, true}};
constexpr std::array kTable{Argument{"table", kText, true}};
constexpr std::array kImport{Argument{"table", kText, true},
                             Argument{"dry_run", kBool, false, "false"}};
constexpr std::array kImportColumns{Column{"examined", kInt8}, Column{"mapped", kInt8},
                                    Column{"conflicts", kJsonb}};
constexpr std::array kLookup{Argument{"key", kText, true}, Argument{"table", kText, true},
                             Argument{"lookup", kTextArray, true}};
constexpr std::array kLookupColumns{Column{"key"}, Column{"changed", kInt8},
                                    Column{"lookups", kTextArray}};
constexpr std::array kLookups{Argument{"key", kText, true}, Argument{"table", kText, true}};
constexpr std::array kLookupsColumns{Column{"key"}, Column{"lookup"}};
constexpr std::array kKeyAndTable{Argument{"key", kText, true}, Argument{"table"}};
constexpr std::array kReassign{Argument{"key", kText, true}, Argument{"shard", kText, true},
                               Argument{"table"},
                               Argument{"retire_after", kInterval, false, "'7 days'"},
                               Argument{"dry_run", kBool, false, "false"}};
constexpr std::array kShardTable{Argument{"table", kText, true},
                                 Argument{"key", kText, false, "'id'"}, Argument{"colocate_with"}};

constexpr std::array kHotKeys{Argument{"n", kInt4, false, "20"},
                              Argument{"sizes", kBool, false, "false"}};
constexpr std::array kShard{Argument{"shard", kText, true},
                            Argument{"dry_run", kBool, false, "false"}};

constexpr std::array kPrune{
    Argument{"tables", kTextArray}, Argument{"pk_columns", kJsonb, false, "'{}'"},
    Argument{"dry_run", kBool, false, "false"}, Argument{"page_size", kInt4, false, "10000"},
    Argument{"concurrency", kInt4, false, "2"}};

constexpr std::array kPruneColumns{Column{"removed", kInt4Array}, Column{"retained", kInt4Array},
                                   Column{"dependents", kJsonb}, Column{"scanned", kInt8}};
constexpr std::array kTopologyColumns{Column{"shard"}, Column{"epoch", kInt4},
                                      Column{"generation", kInt8}, Column{"state"},
                                      Column{"steps", kTextArray}};
constexpr std::array kMoveColumns{Column{"op"},
                                  Column{"key"},
                                  Column{"source"},
                                  Column{"destination"},
                                  Column{"state"},
                                  Column{"tables", kInt4},
                                  Column{"rows", kInt8},
                                  Column{"bytes", kInt8},
                                  Column{"copies", kInt4},
                                  Column{"write_stall_ms", kFloat8},
                                  Column{"duration_ms", kFloat8}};
constexpr std::array kStatusColumns{Column{"op"},
                                    Column{"key"},
                                    Column{"source"},
                                    Column{"destination"},
                                    Column{"state"},
                                    Column{"tables", kInt4},
                                    Column{"rows", kInt8},
                                    Column{"bytes", kInt8},
                                    Column{"copies", kInt4},
                                    Column{"write_stall_ms", kFloat8},
                                    Column{"duration_ms", kFloat8},
                                    Column{"grp"},
                                    Column{"attempt", kInt4},
                                    Column{"error"},
                                    Column{"started_at"},
                                    Column{"updated_at"}};
constexpr std::array kRecoverColumns{Column{"examined", kInt8}, Column{"committed", kInt8},
                                     Column{"aborted", kInt8},  Column{"released", kInt8},
                                     Column{"skipped", kInt8},  Column{"failed", kJsonb}};
constexpr std::array kTableAndKey{Argument{"table", kText, true}, Argument{"key"}};
constexpr std::array kDiffColumns{Column{"path"}, Column{"shard_a"}, Column{"shard_b"},
                                  Column{"rows_differing", kInt8}};
constexpr std::array kRepair{Argument{"repair", kBool, false, "false"}};
constexpr std::array kVerifyColumns{Column{"dangling_ops", kJsonb},
                                    Column{"ghosts", kJsonb},
                                    Column{"stranded_archives", kJsonb},
                                    Column{"stranded_copies", kJsonb},
                                    Column{"stale_cutovers", kJsonb},
                                    Column{"repaired", kJsonb},
                                    Column{"clean", kBool}};
constexpr std::array kMaxOps{Argument{"max_ops", kInt4}};
constexpr std::array kPurgeColumns{Column{"purged", kJsonb}, Column{"refused", kJsonb}};
constexpr std::array kTableColumns{Column{"table"}, Column{"kind"}, Column{"grp"},
                                   Column{"key_column"}, Column{"key_type"}};
constexpr std::array kLocateColumns{Column{"shard"}, Column{"via"}, Column{"generation", kInt8}};
constexpr std::array kExplainColumns{Column{"step", kInt4}, Column{"shards", kTextArray},
                                     Column{"kind"},        Column{"table"},
                                     Column{"key"},         Column{"reason"}};
constexpr std::array kRebalance{
    Argument{"table"},           Argument{"dry_run", kBool, false, "false"},
    Argument{"max_keys", kInt8}, Argument{"concurrency", kInt4},
    Argument{"source"},          Argument{"destination"}};
constexpr std::array kRebalanceColumns{Column{"examined", kInt8}, Column{"agreed", kInt8},
                                       Column{"moved", kInt8}, Column{"failed", kInt8},
                                       Column{"failures", kJsonb}};
constexpr std::array kReconcile{Argument{"max_rows", kInt4}, Argument{"verify_tables", kTextArray},
                                Argument{"repair", kBool, false, "false"},
                                Argument{"prune_verified", kBool, false, "false"}};
constexpr std::array kReconcileColumns{
    Column{"examined", kInt8},         Column{"routing_agreed", kInt8},
    Column{"record_verified", kInt8},  Column{"record_missing_count", kInt8},
    Column{"record_unchecked", kInt8}, Column{"disagreeing_count", kInt8},
    Column{"missing_keys", kJsonb},    Column{"disagreeing_keys", kJsonb},
    Column{"repaired", kInt8},         Column{"pruned", kInt8}};
constexpr std::array kStateColumns{Column{"state"}};
constexpr std::array kPoolColumns{Column{"shard"},           Column{"worker", kInt4},
                                  Column{"size", kInt4},     Column{"connecting", kInt4},
                                  Column{"idle", kInt4},     Column{"leased", kInt4},
                                  Column{"reserved", kInt4}, Column{"waiting", kInt4},
                                  Column{"up", kBool},       Column{"last_error"}};
constexpr std::array kClientColumns{Column{"pid", kInt4},
                                    Column{"worker", kInt4},
                                    Column{"user"},
                                    Column{"database"},
                                    Column{"application_name"},
                                    Column{"address"},
                                    Column{"state"},
                                    Column{"tls", kBool},
                                    Column{"connected_ms", kInt8},
                                    Column{"shards", kTextArray}};
constexpr std::array kHotKeyColumns{Column{"table"},
                                    Column{"key"},
                                    Column{"shard"},
                                    Column{"statements_per_second", kFloat8},
                                    Column{"writes_per_second", kFloat8},
                                    Column{"rows", kInt8},
                                    Column{"bytes", kInt8}};
constexpr std::array kServerColumns{Column{"shard"},
                                    Column{"worker", kInt4},
                                    Column{"state"},
                                    Column{"pid", kInt4},
                                    Column{"address"},
                                    Column{"tls", kBool},
                                    Column{"connected_ms", kInt8},
                                    Column{"user"}};

struct Entry {
  AdminFunction function;
  Handler handler;
};

// Sorted by name.
constexpr std::array kEntries{
    Entry{{"collegedb_add_shard", kShard, kTopologyColumns, true,
           "makes a configured shard a part of the cluster"},
          &add_shard},
    Entry{{"collegedb_cancel_move", kOp, kStateColumns, true,
           "stops an operation before its decision"},
          &cancel_move},
    Entry{{"collegedb_clients", {}, kClientColumns, false, "client connections of this process"},
          &clients},
    Entry{{"collegedb_diff", kTableAndKey, kDiffColumns, false,
           "where a reference table differs between shards, or a key's rows from their archive"},
          &diff},
    Entry{{"collegedb_drain_shard", kShard, kTopologyColumns, true,
           "gives a shard no new keys; the next step before its removal is a rebalance"},
          &drain_shard},
    Entry{{"collegedb_explain", kSql, kExplainColumns, false,
           "where a statement would go, without running it"},
          &explain},
    Entry{{"collegedb_hot_keys", kHotKeys, kHotKeyColumns, false,
           "the keys this process is asked for most, and their sizes"},
          &hot_keys},
    Entry{{"collegedb_import", kImport, kImportColumns, true,
           "brings keys that are not where routing looks into the directory"},
          &import},
    Entry{{"collegedb_local_table", kTable, kTableColumns, true,
           "the table lives whole on the journal shard"},
          &local_table},
    Entry{{"collegedb_locate", kKeyAndTable, kLocateColumns, false, "the shard that owns a key"},
          &locate},
    Entry{{"collegedb_lookup_add", kLookup, kLookupColumns, true, "gives a key secondary names"},
          &lookup_add},
    Entry{{"collegedb_lookup_remove", kLookup, kLookupColumns, true,
           "takes secondary names of a key away"},
          &lookup_remove},
    Entry{{"collegedb_lookups", kLookups, kLookupsColumns, false, "the secondary names of a key"},
          &lookups},
    Entry{{"collegedb_migration_status", kKeyAndTable, kStatusColumns, false,
           "the latest move of a key"},
          &migration_status},
    Entry{{"collegedb_pause_moves",
           {},
           kStateColumns,
           true,
           "lets no move begin, in any process, until collegedb_resume_moves()"},
          &pause_moves},
    Entry{{"collegedb_pools", {}, kPoolColumns, false, "server connection pools of this process"},
          &pools},
    Entry{{"collegedb_prune_epochs", kPrune, kPruneColumns, true,
           "drops the epochs that no row depends on"},
          &prune_epochs},
    Entry{{"collegedb_purge_retired", kMaxOps, kPurgeColumns, true,
           "drops the archives of moves that were kept long enough and verified since"},
          &purge_retired},
    Entry{{"collegedb_reassign", kReassign, kMoveColumns, true,
           "moves a key, with its whole colocation group, to another shard"},
          &reassign},
    Entry{{"collegedb_rebalance", kRebalance, kRebalanceColumns, true,
           "moves keys to the shards that placement gives them now"},
          &rebalance},
    Entry{{"collegedb_reconcile", kReconcile, kReconcileColumns, true,
           "compares the ledger of allocations with the directory and the rows"},
          &reconcile},
    Entry{{"collegedb_recover",
           {},
           kRecoverColumns,
           true,
           "finishes or undoes moves whose mover is dead"},
          &recover},
    Entry{{"collegedb_reference_table", kTable, kTableColumns, true,
           "the table has the same rows on every shard"},
          &reference_table},
    Entry{{"collegedb_remove_shard", kShard, kTopologyColumns, true,
           "ends the membership of a shard that has nothing any more"},
          &remove_shard},
    Entry{{"collegedb_restore", kOp, kMoveColumns, true,
           "moves the keys of a finished move back, with what was written since"},
          &restore},
    Entry{{"collegedb_resume_moves",
           {},
           kStateColumns,
           true,
           "ends what collegedb_pause_moves() began"},
          &resume_moves},
    Entry{{"collegedb_servers", {}, kServerColumns, false, "server connections of this process"},
          &servers},
    Entry{{"collegedb_shard_table", kShardTable, kTableColumns, true,
           "splits a table over the shards by a key column"},
          &shard_table},
    Entry{{"collegedb_verify", kRepair, kVerifyColumns, true,
           "looks for what moves must not leave behind, and repairs what can be proven"},
          &verify},
};

constexpr auto kFunctions = [] {
  std::array<AdminFunction, kEntries.size()> out{};
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = kEntries[i].function;
  }
  return out;
}();

migration::FunctionStub stub_of(const AdminFunction& function) {
  migration::FunctionStub stub;
  stub.name = function.name;
  bool shared_name = false;
  for (const Argument& argument : function.arguments) {
    stub.arguments += (stub.arguments.empty() ? "" : ", ") +
                      migration::quote_identifier(argument.name) + " " +
                      std::string(type_name(argument.type_oid));
    if (!argument.required) {
      stub.arguments += " DEFAULT " + std::string(argument.default_sql);
    }
    for (const Column& column : function.columns) {
      shared_name = shared_name || column.name == argument.name;
    }
  }
  // An output column cannot have the name of an argument.
  if (shared_name) {
    stub.result = "SETOF record";
    return stub;
  }
  for (const Column& column : function.columns) {
    stub.result += (stub.result.empty() ? "TABLE (" : ", ") +
                   migration::quote_identifier(column.name) + " " +
                   std::string(type_name(column.type_oid));
  }
  stub.result += ")";
  return stub;
}

}  // namespace

std::span<const AdminFunction> functions() {
  return kFunctions;
}

Handler handler_of(const AdminFunction& function) {
  const auto found = std::find_if(kEntries.begin(), kEntries.end(), [&](const Entry& entry) {
    return entry.function.name == function.name;
  });
  return found != kEntries.end() ? found->handler : nullptr;
}

std::vector<migration::FunctionStub> stubs() {
  std::vector<migration::FunctionStub> out;
  for (const AdminFunction& function : kFunctions) {
    out.push_back(stub_of(function));
  }
  return out;
}

}  // namespace collegedb::admin
