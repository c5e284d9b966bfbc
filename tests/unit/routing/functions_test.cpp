#include "routing/functions.h"

#include <gtest/gtest.h>

namespace collegedb::routing {
namespace {

TEST(Functions, Classes) {
  struct Row {
    std::string_view name;
    FunctionClass expected;
  };
  const Row kRows[] = {
      {"lower", FunctionClass::kPlain},
      {"pg_sleep", FunctionClass::kPlain},
      {"random", FunctionClass::kPlain},
      {"gen_random_uuid", FunctionClass::kPlain},
      {"format_type", FunctionClass::kPlain},
      {"pg_advisory_unlock_all", FunctionClass::kPlain},
      {"pg_advisory_lock", FunctionClass::kSessionState},
      {"pg_advisory_lock_shared", FunctionClass::kSessionState},
      {"pg_try_advisory_lock", FunctionClass::kSessionState},
      {"pg_try_advisory_lock_shared", FunctionClass::kSessionState},
      {"pg_advisory_unlock", FunctionClass::kSessionState},
      {"pg_advisory_unlock_shared", FunctionClass::kSessionState},
      {"setseed", FunctionClass::kSessionState},
      {"currval", FunctionClass::kSessionState},
      {"lastval", FunctionClass::kSessionState},
      {"set_config", FunctionClass::kSessionState},
      {"pg_export_snapshot", FunctionClass::kSessionState},
      {"now", FunctionClass::kTransaction},
      {"transaction_timestamp", FunctionClass::kTransaction},
      {"txid_current", FunctionClass::kTransaction},
      {"pg_current_xact_id", FunctionClass::kTransaction},
      {"pg_backend_pid", FunctionClass::kTransaction},
      {"nextval", FunctionClass::kJournal},
      {"setval", FunctionClass::kJournal},
      {"pg_notify", FunctionClass::kJournal},
      {"pg_advisory_xact_lock", FunctionClass::kJournal},
      {"pg_try_advisory_xact_lock_shared", FunctionClass::kJournal},
      {"lo_create", FunctionClass::kJournal},
      {"lo_get", FunctionClass::kJournal},
      {"loread", FunctionClass::kJournal},
      {"pg_cancel_backend", FunctionClass::kJournal},
      {"pg_logical_slot_get_changes", FunctionClass::kJournal},
      {"pg_stat_reset_shared", FunctionClass::kJournal},
      {"pg_total_relation_size", FunctionClass::kJournal},
      {"query_to_xml", FunctionClass::kOpaque},
      {"ts_stat", FunctionClass::kOpaque},
      {"ts_rewrite", FunctionClass::kOpaque},
      {"cursor_to_xml", FunctionClass::kOpaque},
      {"schema_to_xmlschema", FunctionClass::kOpaque},
      {"database_to_xml_and_xmlschema", FunctionClass::kOpaque},
      {"domain_in", FunctionClass::kOpaque},
      {"pg_input_is_valid", FunctionClass::kOpaque},
      {"satisfies_hash_partition", FunctionClass::kOpaque},
      {"table_to_xml_and_xmlschema", FunctionClass::kOpaque},
  };
  for (const Row& row : kRows) EXPECT_EQ(classify_builtin(row.name), row.expected) << row.name;
}

TEST(Functions, Aggregates) {
  for (const auto* name : {"count", "sum", "string_agg", "array_agg", "xmlagg", "any_value",
                           "percentile_cont", "bool_and"}) {
    EXPECT_TRUE(is_builtin_aggregate(name)) << name;
  }
  for (const auto* name : {"lower", "row_number", "generate_series", "", "counts"}) {
    EXPECT_FALSE(is_builtin_aggregate(name)) << name;
  }
}

}  // namespace
}  // namespace collegedb::routing
