// collegedb_locate and collegedb_explain: what this process would do, by its newest snapshot.
#include "migration/allocator.h"
#include "parser/analyze.h"
#include "proxy/admin/handlers.h"
#include "proxy/admin/key_names.h"
#include "routing/explain.h"
#include "routing/hash.h"
#include "routing/route.h"

namespace collegedb::admin {
namespace {

constexpr std::chrono::seconds kRefresh{2};

std::string via_text(const routing::Snapshot& snapshot, const routing::Owner& owner) {
  if (owner.via != routing::Via::kEpoch) {
    return std::string(routing::name_of(owner.via));
  }
  for (const routing::Epoch& epoch : snapshot.epochs) {
    if (epoch.state == routing::EpochState::kActive) {
      return "epoch " + std::to_string(epoch.id);
    }
  }
  return "epoch";
}

// By the directory; a key that it does not have may have rows from before it was kept. REQUIRES:
// mapped placement, which needs a journal shard.
Result<std::optional<migration::Allocator::Whereabouts>> whereabouts(
    Services& services, const routing::Snapshot& snapshot, const routing::RoutedKey& key) {
  return migration::Allocator(services.runner->options()).look(snapshot, key, false);
}

Reply locate_mapped(Services& services, const routing::Snapshot& snapshot,
                    const routing::GroupKey& key) {
  const auto found = whereabouts(
      services, snapshot, {key.group, key.key, routing::gate_bucket(key.group, key.key), true});
  if (found.has_error()) {
    return found.error();
  }
  if (!*found) {
    return make_error(
        ErrorCode::kMappingNotFound,
        "key \"" + key.key + "\" of group " + key.group + " has no mapping and no rows",
        "A key gets its shard when it is first written.");
  }
  session::AdminRows rows;
  add_row(rows, snapshot.shards.at((*found)->shard).name,
          (*found)->mapped ? routing::name_of(routing::Via::kMapping) : "rows",
          snapshot.generation);
  return rows;
}

}  // namespace

Reply locate(Services& services, const Arguments& arguments,
             const session::SessionContext& context) {
  const auto text = arguments.required(0);
  if (text.has_error()) {
    return text.error();
  }
  // As the journal has it now, if it answers.
  const auto snapshot = services.store.refresh(services.store.current()->version, kRefresh);
  const auto key = key_called(services, *snapshot, *text, arguments.text(1), context.search_path,
                              WithoutJournal::kAsKey);
  if (key.has_error()) {
    return key.error();
  }
  if (snapshot->placement == routing::Placement::kMapped) {
    return locate_mapped(services, *snapshot, *key);
  }
  const routing::Owner owner = routing::locate(*snapshot, key->group, key->key);
  session::AdminRows rows;
  add_row(rows, snapshot->shards.at(owner.shard).name, via_text(*snapshot, owner),
          snapshot->generation);
  return rows;
}

Reply explain(Services& services, const Arguments& arguments,
              const session::SessionContext& context) {
  const auto sql = arguments.required(0);
  if (sql.has_error()) {
    return sql.error();
  }
  auto statements = parser::analyze(*sql);
  if (statements.has_error()) {
    return statements.error();
  }
  const auto snapshot = services.store.current();
  const routing::Directory directory =
      [&](const routing::RoutedKey& key) -> Result<std::optional<routing::ShardId>> {
    const auto found = whereabouts(services, *snapshot, key);
    if (found.has_error()) {
      return found.error();
    }
    return *found ? std::optional((*found)->shard) : std::nullopt;
  };
  session::AdminRows rows;
  int step = 0;
  for (parser::Statement& statement : *statements) {
    const auto plan = routing::make_plan(std::move(statement), *snapshot, context.search_path);
    const routing::Explanation each = routing::explain(*plan, {}, *snapshot, directory);
    add_row(rows, ++step, each.shards, each.kind, each.table, each.key, each.reason);
  }
  return rows;
}

}  // namespace collegedb::admin
