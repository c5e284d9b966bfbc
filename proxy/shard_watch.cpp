#include "proxy/shard_watch.h"

#include <spdlog/spdlog.h>

namespace collegedb {
namespace {

// LIKE without its special characters: scopes may hold '_'.
constexpr std::string_view kCount =
    "SELECT count(*) FROM pg_catalog.pg_prepared_xacts"
    " WHERE pg_catalog.starts_with(gid, $1) AND database = pg_catalog.current_database()";

migration::SessionOptions watch_options() {
  migration::SessionOptions options;
  options.application_name = "collegedb watch";
  options.connect_timeout = std::chrono::seconds(3);
  options.statement_timeout = std::chrono::seconds(3);
  return options;
}

}  // namespace

void ShardWatch::look() {
  for (std::size_t shard = 0; shard < sessions_.size(); ++shard) {
    try {
      look_at(shard);
      stats_.shards[shard].up.set(1);
    } catch (const std::exception& error) {
      spdlog::debug("watch: {}: {}", config_.shards[shard].name, error.what());
      sessions_[shard].reset();
      stats_.shards[shard].up.set(0);
    }
  }
}

void ShardWatch::look_at(std::size_t shard) {
  auto& session = sessions_[shard];
  if (!session) {
    session = std::make_unique<migration::ControlSession>(config_.shards[shard], watch_options());
  }
  const auto rows = session->run(kCount, {"collegedb:" + config_.journal.scope + ":"});
  stats_.shards[shard].prepared_transactions.set(rows.int8(0, 0));
}

}  // namespace collegedb
