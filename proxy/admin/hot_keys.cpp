// collegedb_hot_keys: which keys this process is asked for most, and how large they are.
#include <spdlog/spdlog.h>

#include "migration/key_size.h"
#include "proxy/admin/handlers.h"

namespace collegedb::admin {
namespace {

constexpr std::int64_t kMost = 1000;
constexpr std::chrono::seconds kPatience{5};

// nullopt when it cannot be found out now: a rate without a size is still of use.
std::optional<migration::KeySize> size_of(const ShardConfig& shard,
                                          std::unique_ptr<migration::ControlSession>& session,
                                          const routing::Snapshot& snapshot,
                                          const session::HotKey& key) {
  try {
    if (!session) {
      migration::SessionOptions options;
      options.application_name = "collegedb hot keys";
      options.statement_timeout = kPatience;
      options.dies_with_client = true;
      session = std::make_unique<migration::ControlSession>(shard, options);
    }
    return migration::key_size(*session, snapshot, {key.group, key.key});
  } catch (const migration::SqlFailure& failure) {
    session.reset();
    spdlog::warn("size of a hot key of {} on {}: {}", key.group, shard.name,
                 failure.error().message);
    return std::nullopt;
  }
}

}  // namespace

Reply hot_keys(Services& services, const Arguments& arguments, const session::SessionContext&) {
  const auto wanted = arguments.integer(0);
  const auto with_sizes = arguments.boolean(1, false);
  if (wanted.has_error()) {
    return wanted.error();
  }
  if (with_sizes.has_error()) {
    return with_sizes.error();
  }
  if (*with_sizes && !arguments.by_admin()) {
    return make_error("42501", "sizes are read from the shards: that is for administrators",
                      "See auth.admin_users.");
  }
  const std::int64_t limit = wanted->value_or(20);
  if (limit < 0) {
    return make_error("2201W", "n must not be negative");
  }
  const auto snapshot = services.store.current();
  std::vector<std::unique_ptr<migration::ControlSession>> sessions(services.config.shards.size());
  session::AdminRows rows;
  for (const session::HotKey& key :
       services.probes.hot_keys(static_cast<std::size_t>(std::min(limit, kMost)))) {
    const ShardConfig& shard = services.config.shards.at(key.shard);
    std::optional<std::int64_t> count;
    std::optional<std::int64_t> bytes;
    if (*with_sizes) {
      if (const auto size = size_of(shard, sessions[key.shard], *snapshot, key)) {
        count = size->rows;
        bytes = size->bytes;
      }
    }
    add_row(rows, key.group, key.key, shard.name, key.statements_per_second, key.writes_per_second,
            count, bytes);
  }
  return rows;
}

}  // namespace collegedb::admin
