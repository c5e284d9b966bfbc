// The configuration file (TOML) as one value: every field with its default and its meaning.
// Loaded once at start and on SIGHUP; immutable afterwards. Names as in docs/configuration.md.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "proxy/login_config.h"

namespace collegedb {

struct ShardConfig {
  std::string name;
  std::string conninfo;  // libpq connection string, password included after password_env/PGPASSFILE
  std::string region;
  std::uint64_t max_size = 0;  // bytes; 0 = no limit
};

struct TableConfig {
  std::string name;  // optionally schema-qualified
  std::string key;
  std::string colocate_with;  // empty = its own group
};

struct Config {
  struct Proxy {
    std::vector<std::string> listen = {"127.0.0.1:6432"};
    std::string database = "app";
    std::vector<std::string> aliases;
    unsigned workers = 0;  // 0 = one per core
    unsigned max_clients = 10000;
    std::string log_level = "info";
    std::string log_format = "text";
    std::chrono::milliseconds drain_timeout{30000};
  } proxy;
  using AuthMethod = collegedb::AuthMethod;
  struct Auth {
    AuthMethod method = AuthMethod::kScram;
    std::string users_file;
    std::string auth_query_shard;
    std::vector<std::string> admin_users = {"postgres"};
  } auth;
  // From auth.users_file: [[users]] name, password or verifier, admin.
  using User = collegedb::User;
  std::vector<User> users;
  using TlsMode = collegedb::TlsMode;
  struct Tls {
    TlsMode mode = TlsMode::kPrefer;
    std::string cert, key, ca;
  } tls;
  enum class PoolMode : std::uint8_t { kTransaction, kSession };
  struct Pool {
    PoolMode mode = PoolMode::kTransaction;
    unsigned size = 20;  // server connections per shard per process, hard cap
    unsigned min_size = 0;
    std::chrono::milliseconds wait_timeout{10000};
    std::chrono::milliseconds server_idle_timeout{600000};
    std::chrono::milliseconds server_lifetime{3600000};
    std::chrono::milliseconds client_login_timeout{15000};
    std::chrono::milliseconds idle_transaction_timeout{0};
    std::chrono::milliseconds query_timeout{0};
  } pool;
  struct Routing {
    std::string placement = "computed";
    std::string strategy = "hash";  // or "mixed" with the two below
    std::string strategy_read, strategy_write;
    std::string target_region;
    std::chrono::milliseconds mapping_cache_ttl{30000};
    bool fanout_unroutable = true;
    bool scatter_writes = true;
    bool cross_shard_two_phase = true;
  } routing;
  struct Journal {
    std::string shard;  // empty = not configured
    std::string scope = "default";
    std::chrono::milliseconds recovery_interval{5000};
    bool auto_init = true;
  } journal;
  struct Migration {
    std::uint64_t copy_rate = 50'000'000;  // bytes per second
    unsigned max_concurrent_moves = 4;
    std::int64_t stream_threshold_rows = 10000;
    std::chrono::milliseconds cutover_lock_timeout{250};
    unsigned cutover_attempts = 3;
    std::chrono::milliseconds write_hold{5000};
    std::chrono::seconds retire_after{7 * 24 * 3600};
  } migration;
  struct Metrics {
    std::string listen = "127.0.0.1:9187";  // empty = off
  } metrics;
  std::vector<ShardConfig> shards;
  std::vector<TableConfig> tables;
  std::vector<std::string> reference_tables;

  // The shard whose schema collegedb holds the journal; index into shards. REQUIRES a valid config.
  [[nodiscard]] std::size_t journal_index() const;
  // False for several shards and no journal.shard: static placement, no moves.
  [[nodiscard]] bool has_journal() const;
  // The part that logins need.
  operator LoginConfig() const;  // NOLINT(google-explicit-constructor): a Config is one
};

struct ConfigFault {
  int line = 0;  // 1-based; 0 = the file as a whole
  std::string text;
};
struct LoadedConfig {
  Config config;
  std::vector<ConfigFault> faults;   // empty = usable
  std::vector<std::string> notices;  // accepted keys of features that are not active yet
};

// Reads the file and the users file beside it; reports every fault at once. Never throws.
[[nodiscard]] LoadedConfig load_config(const std::string& path);
[[nodiscard]] LoadedConfig parse_config(std::string_view text, const std::string& directory);

}  // namespace collegedb
