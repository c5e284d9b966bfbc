#include "migration/key_probe.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "proxy/session/guard.h"
#include "routing/key.h"

namespace collegedb::migration {
namespace {

using routing::ShardId;

constexpr int kMaxHops = 4;

// $1 scope, $2 group, $3 key.
std::string probe_sql(const routing::Snapshot& snapshot, const std::string& group) {
  std::string any;
  for (const routing::TableInfo& table : snapshot.tables) {
    if (table.kind != routing::TableKind::kSharded || table.group != group ||
        table.key_column.empty()) {
      continue;
    }
    any += (any.empty() ? "" : " OR ") +
           ("EXISTS (SELECT 1 FROM " + quote_identifier(table.name.schema) + "." +
            quote_identifier(table.name.name) + " WHERE " +
            routing::sql_key_condition(table.key_type, quote_identifier(table.key_column),
                                       "$3::pg_catalog.text") +
            ")");
  }
  return "SELECT " + (any.empty() ? "false" : any) +
         ", (SELECT moved_to FROM collegedb.retired WHERE scope = $1::pg_catalog.text"
         " AND grp = $2::pg_catalog.text AND key = $3::pg_catalog.text)";
}

}  // namespace

bool passes(const SqlFailure& failure) {
  constexpr std::array<std::string_view, 3> kPassing = {"55P03", "40001", "40P01"};
  return std::find(kPassing.begin(), kPassing.end(), failure.error().sqlstate) != kPassing.end();
}

SqlError not_found_out(const SqlFailure& failure, const routing::RoutedKey& key, bool for_write) {
  if (!for_write || failure.error().sqlstate == session::guard::kStale) return failure.error();
  return make_error(ErrorCode::kWriteUnresolved,
                    "the shard of key \"" + key.key + "\" of group " + key.group +
                        " could not be found out; the write was not applied",
                    "Try again.", failure.error().message);
}

KeyProbe::KeyProbe(const RunnerOptions& options, const routing::Snapshot& snapshot,
                   const routing::RoutedKey& key)
    : options_(options), snapshot_(snapshot), key_(key), sql_(probe_sql(snapshot, key.group)) {}

KeyProbe::Found KeyProbe::ask(ControlSession& session) const {
  const Rows rows = session.run_prepared(sql_, {snapshot_.scope, key_.group, key_.key});
  return {.rows = rows.boolean(0, 0), .moved_to = rows.value(0, 1)};
}

KeyProbe::Found KeyProbe::ask(ShardId shard) const {
  LeasedSession leased = session(shard);
  return ask(*leased);
}

LeasedSession KeyProbe::session(ShardId shard) const {
  SessionOptions options;
  options.application_name = "collegedb find";
  options.statement_timeout = std::chrono::seconds(5);
  options.lock_timeout = options_.limits.cutover_lock_timeout;
  options.dies_with_client = true;
  return {*options_.sessions, options_.shards.at(shard), options};
}

ShardId KeyProbe::shard_named(const std::string& name) const {
  if (const auto shard = snapshot_.find_shard(name)) return *shard;
  throw SqlFailure(make_error(ErrorCode::kMigrationLookupUnavailable,
                              "the key moved to shard " + name + ", which is not configured here",
                              "Add the shard to this proxy's configuration."),
                   name);
}

std::optional<KeyProbe::Trail> KeyProbe::follow(std::string name) const {
  for (int hops = 0; hops < kMaxHops; ++hops) {
    const ShardId shard = shard_named(name);
    Found found = ask(shard);
    if (found.rows || !found.moved_to) return Trail{shard, found.rows};
    name = std::move(*found.moved_to);
  }
  return std::nullopt;
}

}  // namespace collegedb::migration
