// collegedb_import, collegedb_lookup_add, collegedb_lookup_remove, collegedb_lookups: the
// directory.
#include "migration/cluster.h"
#include "migration/import.h"
#include "migration/lookups.h"
#include "proxy/admin/handlers.h"
#include "proxy/admin/key_names.h"
#include "proxy/admin/key_space.h"

namespace collegedb::admin {
namespace {

constexpr std::chrono::seconds kRefresh{5};

SqlError no_journal() {
  return make_error(ErrorCode::kJournalNotConfigured, "the directory needs a journal shard",
                    "Name one as journal.shard in the configuration of every proxy.");
}

std::string json(const migration::ImportResult& result) {
  std::string out = "{\"count\": " + std::to_string(result.conflicts) + ", \"keys\": [";
  for (bool first = true; const migration::ImportConflict& each : result.listed) {
    out += std::string(first ? "" : ", ") +
           "{\"key\": " + (each.key ? json_string(*each.key) : "null") + ", \"shards\": [";
    first = false;
    for (std::size_t i = 0; i < each.shards.size(); ++i) {
      out += (i > 0 ? ", " : "") + json_string(each.shards[i]);
    }
    out += "], \"directory\": " + (each.directory ? json_string(*each.directory) : "null") +
           ", \"reason\": " + json_string(each.reason) + "}";
  }
  return out + "]}";
}

// One call about the names of one key: `act` gets a session on the journal shard, the key and the
// text of the names, which is empty when the function has no such argument.
template <class Act>
Reply about_names(Services& services, const Arguments& arguments,
                  const session::SessionContext& context, bool with_names, Act act) {
  const auto key = arguments.required(0);
  const auto table = arguments.required(1);
  const auto names = with_names ? arguments.required(2) : Result<std::string>(std::string());
  for (const auto* each : {&key, &table, &names}) {
    if (each->has_error()) {
      return each->error();
    }
  }
  const Config& config = services.config;
  if (!config.has_journal()) {
    return no_journal();
  }
  const auto snapshot = services.store.refresh(services.store.current()->version, kRefresh);
  const auto meant = key_called(services, *snapshot, *key, *table, context.search_path);
  if (meant.has_error()) {
    return meant.error();
  }
  try {
    migration::ControlSession journal(config.shards[config.journal_index()]);
    session::AdminRows rows;
    act(journal, *meant, *names, rows);
    return rows;
  } catch (const migration::SqlFailure& failure) {
    return failure.error();
  }
}

Reply change_names(Services& services, const Arguments& arguments,
                   const session::SessionContext& context,
                   decltype(&migration::add_lookups) change) {
  return about_names(services, arguments, context, true,
                     [&](migration::ControlSession& journal, const routing::GroupKey& key,
                         const std::string& names, session::AdminRows& rows) {
                       const auto done = change(journal, services.config.journal.scope, key.group,
                                                key.key, names);
                       add_row(rows, key.key, done.changed, done.names);
                     });
}

}  // namespace

Reply import(Services& services, const Arguments& arguments,
             const session::SessionContext& context) {
  const auto table = arguments.required(0);
  const auto dry_run = arguments.boolean(1, false);
  if (table.has_error()) {
    return table.error();
  }
  if (dry_run.has_error()) {
    return dry_run.error();
  }
  const auto snapshot = services.store.refresh(services.store.current()->version, kRefresh);
  const auto group = group_meant(*snapshot, *table, context.search_path);
  if (group.has_error()) {
    return group.error();
  }
  migration::ImportRequest request{.group = *group, .dry_run = *dry_run};
  request.stopping = [stopping = services.stopping] { return stopping->load(); };
  const auto done = migration::import_group(services.config, request);
  if (done.has_error()) {
    return done.error();
  }
  if (!request.dry_run) {
    // Only to spare the caller's next statement the way over a tombstone.
    services.store.refresh(snapshot->version, kRefresh);
  }
  session::AdminRows rows;
  add_row(rows, done->examined, done->mapped, json(*done));
  return rows;
}

Reply lookup_add(Services& services, const Arguments& arguments,
                 const session::SessionContext& context) {
  return change_names(services, arguments, context, &migration::add_lookups);
}

Reply lookup_remove(Services& services, const Arguments& arguments,
                    const session::SessionContext& context) {
  return change_names(services, arguments, context, &migration::remove_lookups);
}

Reply lookups(Services& services, const Arguments& arguments,
              const session::SessionContext& context) {
  return about_names(services, arguments, context, false,
                     [&](migration::ControlSession& journal, const routing::GroupKey& key,
                         const std::string&, session::AdminRows& rows) {
                       for (const std::string& name : migration::lookups_of(
                                journal, services.config.journal.scope, key.group, key.key)) {
                         add_row(rows, key.key, name);
                       }
                     });
}

}  // namespace collegedb::admin
