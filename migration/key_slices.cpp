#include "migration/key_slices.h"

#include <algorithm>

#include "routing/hash.h"

namespace collegedb::migration {
namespace {

constexpr std::int64_t kSliceRows = 4'000'000;

}  // namespace

std::string bucket_sql(const std::string& group, const std::string& key) {
  return "(pg_catalog.hashtextextended((" + quote_literal(group) +
         " OPERATOR(pg_catalog.||) E'\\x01' OPERATOR(pg_catalog.||) " + key +
         ") COLLATE \"C\", 0) & " + std::to_string(routing::kGateBuckets - 1) +
         ")::pg_catalog.int4";
}

std::vector<RegisteredTable> present_tables(ControlSession& session,
                                            std::vector<RegisteredTable> tables) {
  std::erase_if(tables,
                [&](const RegisteredTable& table) { return !find_table(session, table.name, {}); });
  return tables;
}

std::int32_t slice_width(ControlSession& session, const std::vector<RegisteredTable>& tables) {
  std::int64_t rows = 0;
  for (const RegisteredTable& table : tables) {
    rows += session
                .run(
                    "SELECT coalesce(sum(greatest(c.reltuples, c.relpages * 10)),"
                    " 0)::pg_catalog.int8 FROM pg_catalog.pg_class c WHERE c.relkind <> 'p'"
                    " AND (c.oid = $1::pg_catalog.regclass OR c.oid IN (SELECT t.relid FROM"
                    " pg_catalog.pg_partition_tree($1::pg_catalog.regclass) t))",
                    {table.name.qualified})
                .int8(0, 0);
  }
  return static_cast<std::int32_t>(
      std::max<std::int64_t>(1, routing::kGateBuckets / (rows / kSliceRows + 1)));
}

std::string distinct_keys_sql(const std::string& group, const std::vector<RegisteredTable>& tables,
                              std::int32_t first, std::int32_t last) {
  std::string keys;
  for (const RegisteredTable& table : tables) {
    keys += (keys.empty() ? "SELECT (" : " UNION ALL SELECT (") + table.key_expression +
            ") COLLATE \"C\" AS k FROM " + table.name.qualified;
  }
  const std::string bucket = bucket_sql(group, "k");
  return "SELECT DISTINCT k, " + bucket + " AS b FROM (" + keys +
         ") AS r WHERE k IS NOT NULL AND " + bucket + " BETWEEN " + std::to_string(first) +
         " AND " + std::to_string(last);
}

}  // namespace collegedb::migration
