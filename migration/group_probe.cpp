#include "migration/group_probe.h"

#include <algorithm>
#include <utility>

#include "routing/key.h"

namespace collegedb::migration {
namespace {

std::string exists_sql(ControlSession& journal, const RegisteredTable& table) {
  const auto key = describe_key(journal, table.name, table.key_column);
  if (key.has_error()) throw SqlFailure(key.error(), journal.shard());
  return "EXISTS (SELECT 1 FROM " + table.name.qualified + " WHERE " +
         routing::sql_key_condition(key->type, quote_identifier(table.key_column), "u.k") + ")";
}

}  // namespace

bool KeyTraces::rows() const {
  return std::find(tables.begin(), tables.end(), true) != tables.end();
}

GroupProbe::GroupProbe(ControlSession& journal, std::string scope, std::string group,
                       const std::vector<RegisteredTable>& tables)
    : scope_(std::move(scope)), group_(std::move(group)) {
  std::string columns;
  for (const RegisteredTable& table : tables) {
    if (!find_table(journal, table.name, {})) continue;
    columns += exists_sql(journal, table) + ", ";
    tables_.push_back(table);
  }
  sql_ = "SELECT " + columns +
         "r.moved_to FROM pg_catalog.unnest($1::pg_catalog.text[]) WITH ORDINALITY u (k, i)"
         " LEFT JOIN collegedb.retired r ON r.scope = $2 AND r.grp = $3 AND r.key = u.k"
         " ORDER BY u.i";
}

std::vector<KeyTraces> GroupProbe::look(ControlSession& session,
                                        std::span<const std::string> keys) const {
  const Rows rows = session.run(sql_, {array_text(keys), scope_, group_});
  std::vector<KeyTraces> out(keys.size());
  for (int i = 0; i < rows.size(); ++i) {
    KeyTraces& traces = out.at(static_cast<std::size_t>(i));
    for (int table = 0; table < static_cast<int>(tables_.size()); ++table) {
      traces.tables.push_back(rows.boolean(i, table));
    }
    traces.moved_to = rows.value(i, static_cast<int>(tables_.size()));
  }
  return out;
}

std::vector<RegisteredTable> group_tables(ControlSession& journal, const std::string& scope,
                                          const std::string& group) {
  std::vector<RegisteredTable> out;
  for (RegisteredTable& table : read_registry(journal, scope)) {
    if (table.kind == "sharded" && table.group == group && !table.key_type.empty()) {
      out.push_back(std::move(table));
    }
  }
  return out;
}

}  // namespace collegedb::migration
