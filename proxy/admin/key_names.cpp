#include "proxy/admin/key_names.h"

#include <span>

#include "migration/cluster.h"
#include "migration/group_probe.h"
#include "migration/key_probe.h"
#include "migration/lookups.h"
#include "proxy/admin/key_space.h"

namespace collegedb::admin {
namespace {

migration::SessionOptions look_options() {
  migration::SessionOptions options;
  options.application_name = "collegedb names";
  options.connect_timeout = std::chrono::seconds{2};
  options.statement_timeout = std::chrono::seconds{10};
  return options;
}

bool has_entry(migration::ControlSession& journal, const std::string& scope,
               const routing::GroupKey& key) {
  return !journal
              .run(
                  "SELECT 1 FROM collegedb.mappings WHERE scope = $1 AND grp = $2 AND key = $3"
                  " UNION ALL SELECT 1 FROM collegedb.exceptions"
                  " WHERE scope = $1 AND grp = $2 AND key = $3 LIMIT 1",
                  {scope, key.group, key.key})
              .empty();
}

bool has_rows(migration::ControlSession& journal, const Config& config,
              const routing::GroupKey& key) {
  const std::string& scope = config.journal.scope;
  const migration::GroupProbe probe(journal, scope, key.group,
                                    migration::group_tables(journal, scope, key.group));
  for (const ShardConfig& shard : migration::member_config(journal, config).shards) {
    migration::ControlSession session(shard, look_options());
    if (probe.look(session, std::span(&key.key, 1)).front().rows()) {
      return true;
    }
  }
  return false;
}

}  // namespace

Result<routing::GroupKey> key_called(Services& services, const routing::Snapshot& snapshot,
                                     const std::string& text,
                                     const std::optional<std::string>& table,
                                     const std::vector<std::string>& search_path,
                                     WithoutJournal without) {
  auto literal = key_meant(snapshot, text, table, search_path);
  const auto group = group_meant(snapshot, table, search_path);
  const Config& config = services.config;
  if (group.has_error() || services.runner == nullptr) {
    return literal;
  }
  try {
    migration::LeasedSession session(*services.runner->options().sessions,
                                     config.shards[config.journal_index()], look_options());
    migration::ControlSession& journal = *session;
    auto named = migration::key_with_lookup(journal, config.journal.scope, *group, text);
    if (!named || (literal && (has_entry(journal, config.journal.scope, *literal) ||
                               has_rows(journal, config, *literal)))) {
      return literal;
    }
    return routing::GroupKey{*group, std::move(*named)};
  } catch (const migration::SqlFailure& failure) {
    const bool silent = failure.connection_lost() || failure.error().sqlstate.starts_with("08");
    if (silent && failure.shard() == config.shards[config.journal_index()].name &&
        without == WithoutJournal::kAsKey) {
      return literal;
    }
    return failure.error();
  }
}

}  // namespace collegedb::admin
