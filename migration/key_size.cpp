#include "migration/key_size.h"

#include "routing/key.h"

namespace collegedb::migration {

KeySize key_size(ControlSession& session, const routing::Snapshot& snapshot,
                 const routing::GroupKey& key) {
  std::string parts;
  for (const routing::TableInfo& table : snapshot.tables) {
    if (table.kind != routing::TableKind::kSharded || table.group != key.group) continue;
    parts += (parts.empty() ? "" : " UNION ALL ") +
             ("SELECT count(*), sum(pg_catalog.pg_column_size(t.*)) FROM " +
              quote_identifier(table.name.schema) + "." + quote_identifier(table.name.name) +
              " t WHERE " +
              routing::sql_key_condition(table.key_type, "t." + quote_identifier(table.key_column),
                                         "$1::pg_catalog.text"));
  }
  if (parts.empty()) return {};
  const Rows rows =
      session.run("SELECT coalesce(sum(n), 0)::int8, coalesce(sum(b), 0)::int8 FROM (" + parts +
                      ") part (n, b)",
                  {key.key});
  return {.rows = rows.int8(0, 0), .bytes = rows.int8(0, 1)};
}

}  // namespace collegedb::migration
