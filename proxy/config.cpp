#include "proxy/config.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <tuple>

#include "proxy/config_reader.h"
#include "proxy/config_values.h"
#include "proxy/conninfo.h"
#include "proxy/users_file.h"
#include "proxy/wire/error.h"
#include "routing/regions.h"

namespace collegedb {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

// Where relative paths of the file start, and what reading it gathers.
struct Reading {
  fs::path directory;
  LoadedConfig& loaded;

  [[nodiscard]] Config& config() const { return loaded.config; }
  [[nodiscard]] std::string resolve(const std::string& path) const {
    if (path.empty() || path.front() == '/') return path;
    return (directory / path).lexically_normal().string();
  }
  void notice(const ConfigSection& section, std::string_view key, std::string_view text) const {
    loaded.notices.push_back("line " + std::to_string(section.line_of(key)) + ": " +
                             section.name_of(key) + ": " + std::string(text));
  }
};

void read_proxy(ConfigSection section, Reading& reading) {
  auto& proxy = reading.config().proxy;
  section.texts("listen", proxy.listen);
  section.text_not_empty("database", proxy.database);
  section.texts("aliases", proxy.aliases);
  section.number("workers", proxy.workers, 0, 1024);
  section.number("max_clients", proxy.max_clients, 1, 1'000'000);
  section.choice<std::string>("log_level", proxy.log_level,
                              {{"trace", "trace"},
                               {"debug", "debug"},
                               {"info", "info"},
                               {"warning", "warning"},
                               {"error", "error"},
                               {"off", "off"}});
  section.choice<std::string>("log_format", proxy.log_format, {{"text", "text"}, {"json", "json"}});
  section.duration("drain_timeout", proxy.drain_timeout);
  if (proxy.listen.empty()) section.fault("listen", "must name at least one address");
  for (const auto& address : proxy.listen) {
    if (!parse_listen(address)) {
      section.fault("listen", "\"" + address +
                                  "\" is not host:port, [v6]:port or /directory of a unix socket");
    }
  }
  section.finish();
}

void read_auth(ConfigSection section, Reading& reading) {
  auto& auth = reading.config().auth;
  section.choice<Config::AuthMethod>("method", auth.method,
                                     {{"trust", Config::AuthMethod::kTrust},
                                      {"password", Config::AuthMethod::kPassword},
                                      {"md5", Config::AuthMethod::kMd5},
                                      {"scram-sha-256", Config::AuthMethod::kScram},
                                      {"cert", Config::AuthMethod::kCert}});
  std::string users_file = "users.toml";
  section.text("users_file", users_file);
  const auto path = reading.resolve(users_file);
  // Left out, the file need not exist; the check of auth.method below says when it must.
  if (section.has("users_file") || fs::exists(path)) auth.users_file = path;
  section.text("auth_query_shard", auth.auth_query_shard);
  section.texts("admin_users", auth.admin_users);
  if (!auth.auth_query_shard.empty()) {
    reading.notice(section, "auth_query_shard",
                   "not available yet: only users of users_file can log in");
  }
  const bool needs_users = auth.method == Config::AuthMethod::kPassword ||
                           auth.method == Config::AuthMethod::kMd5 ||
                           auth.method == Config::AuthMethod::kScram;
  if (needs_users && auth.users_file.empty()) {
    section.fault("users_file", "there is no " + path +
                                    "; this auth.method needs users (or set method = \"trust\")");
  }
  section.finish();
}

void read_tls(ConfigSection section, Reading& reading) {
  auto& tls = reading.config().tls;
  section.choice<Config::TlsMode>("mode", tls.mode,
                                  {{"disable", Config::TlsMode::kDisable},
                                   {"prefer", Config::TlsMode::kPrefer},
                                   {"require", Config::TlsMode::kRequire},
                                   {"verify-full", Config::TlsMode::kVerifyFull}});
  const std::pair<std::string_view, std::string*> files[] = {
      {"cert", &tls.cert}, {"key", &tls.key}, {"ca", &tls.ca}};
  for (const auto& [key, path] : files) {
    section.text(key, *path);
    *path = reading.resolve(*path);
    if (!path->empty() && !fs::exists(*path)) section.fault(key, "there is no file " + *path);
  }
  const bool required =
      tls.mode == Config::TlsMode::kRequire || tls.mode == Config::TlsMode::kVerifyFull;
  if (required && tls.cert.empty()) section.fault("mode", "needs tls.cert and tls.key");
  if (tls.cert.empty() != tls.key.empty()) {
    section.fault(tls.cert.empty() ? "key" : "cert", "tls.cert and tls.key go together");
  }
  if (reading.config().auth.method == Config::AuthMethod::kCert && tls.ca.empty()) {
    section.fault("ca", "auth.method = \"cert\" needs tls.cert, tls.key and tls.ca");
  }
  if (tls.mode == Config::TlsMode::kVerifyFull && tls.ca.empty()) {
    section.fault("mode", "verify-full needs tls.ca to check client certificates against");
  }
  section.finish();
}

void read_pool(ConfigSection section, Reading& reading) {
  auto& pool = reading.config().pool;
  section.choice<Config::PoolMode>(
      "mode", pool.mode,
      {{"transaction", Config::PoolMode::kTransaction}, {"session", Config::PoolMode::kSession}});
  section.number("size", pool.size, 1, 10'000);
  section.number("min_size", pool.min_size, 0, 10'000);
  section.duration("wait_timeout", pool.wait_timeout);
  section.duration("server_idle_timeout", pool.server_idle_timeout);
  section.duration("server_lifetime", pool.server_lifetime);
  section.duration("client_login_timeout", pool.client_login_timeout, milliseconds(1));
  section.duration("idle_transaction_timeout", pool.idle_transaction_timeout);
  section.duration("query_timeout", pool.query_timeout);
  if (pool.mode == Config::PoolMode::kSession) {
    reading.notice(section, "mode", "session is not available yet: pooling is by transaction");
  }
  if (pool.min_size > pool.size) section.fault("min_size", "must not be above pool.size");
  section.finish();
}

void read_strategy(ConfigSection& section, Config::Routing& routing) {
  const std::initializer_list<ConfigSection::Choice<std::string>> strategies = {
      {"hash", "hash"},
      {"round-robin", "round-robin"},
      {"random", "random"},
      {"location", "location"}};
  const auto* node = section.take("strategy");
  if (node && node->is_table()) {
    auto mixed = section.section("strategy");
    routing.strategy = "mixed";
    for (const auto& [key, out] :
         {std::pair{"read", &routing.strategy_read}, std::pair{"write", &routing.strategy_write}}) {
      mixed.choice<std::string>(key, *out, strategies);
      if (!mixed.has(key)) mixed.fault(key, "is missing: strategy = { read = ..., write = ... }");
    }
    mixed.finish();
    return;
  }
  section.choice<std::string>("strategy", routing.strategy, strategies);
}

constexpr std::chrono::hours kLongestMappingLife{1};

bool uses_location(const Config::Routing& routing) {
  return routing.strategy == "location" || routing.strategy_read == "location" ||
         routing.strategy_write == "location";
}

std::string known_regions() {
  std::string out;
  for (const routing::Region& region : routing::kRegions) {
    out.append(out.empty() ? "" : ", ").append(region.name);
  }
  return out;
}

void read_routing(ConfigSection section, Reading& reading) {
  auto& routing = reading.config().routing;
  section.choice<std::string>("placement", routing.placement,
                              {{"computed", "computed"}, {"mapped", "mapped"}});
  read_strategy(section, routing);
  section.text("target_region", routing.target_region);
  section.duration("mapping_cache_ttl", routing.mapping_cache_ttl);
  section.choice<bool>("on_unroutable", routing.fanout_unroutable,
                       {{"fanout", true}, {"error", false}});
  section.flag("scatter_writes", routing.scatter_writes);
  section.choice<bool>("cross_shard_transactions", routing.cross_shard_two_phase,
                       {{"two-phase", true}, {"refuse", false}});
  // A tombstone must outlive what is remembered of the way before it.
  if (routing.mapping_cache_ttl > kLongestMappingLife) {
    section.fault("mapping_cache_ttl", "must not be above 1h");
  }
  if (uses_location(routing) && routing::find_region(routing.target_region) == nullptr) {
    section.fault("target_region", "strategy \"location\" needs one of " + known_regions());
  }
  if (section.has("scatter_writes")) {
    reading.notice(section, "scatter_writes",
                   "has no effect yet: a keyless UPDATE or DELETE of a sharded table is refused");
  }
  if (section.has("cross_shard_transactions")) {
    reading.notice(
        section, "cross_shard_transactions",
        "has no effect yet: a transaction that would write on a second shard is refused");
  }
  section.finish();
}

void read_journal(ConfigSection section, Reading& reading) {
  auto& journal = reading.config().journal;
  section.text("shard", journal.shard);
  section.text_not_empty("scope", journal.scope);
  section.duration("recovery_interval", journal.recovery_interval, milliseconds(100));
  section.flag("auto_init", journal.auto_init);
  // The scope is part of transaction identifiers ("collegedb:<scope>:...").
  const bool plain = std::all_of(journal.scope.begin(), journal.scope.end(), [](unsigned char c) {
    return std::isalnum(c) || c == '_' || c == '-';
  });
  if (!plain || journal.scope.size() > 40) {
    section.fault("scope", "must be at most 40 letters, digits, '_' and '-'");
  }
  section.finish();
}

void read_migration(ConfigSection section, Reading& reading) {
  auto& migration = reading.config().migration;
  section.size("copy_rate", migration.copy_rate, true);
  section.number("max_concurrent_moves", migration.max_concurrent_moves, 1, 1000);
  section.number("stream_threshold_rows", migration.stream_threshold_rows, std::int64_t{1},
                 std::int64_t{1'000'000'000});
  if (section.has("stream_threshold_rows")) {
    reading.notice(section, "stream_threshold_rows",
                   "has no effect yet: keys of every size are copied before the cutover");
  }
  section.duration("cutover_lock_timeout", migration.cutover_lock_timeout, milliseconds(1));
  section.number("cutover_attempts", migration.cutover_attempts, 1, 1000);
  section.duration("write_hold", migration.write_hold, milliseconds(1));
  auto retire = std::chrono::duration_cast<milliseconds>(migration.retire_after);
  section.duration("retire_after", retire);
  migration.retire_after = std::chrono::duration_cast<std::chrono::seconds>(retire);
  if (migration.copy_rate == 0) section.fault("copy_rate", "must be above 0");
  section.finish();
}

void read_metrics(ConfigSection section, Reading& reading) {
  auto& metrics = reading.config().metrics;
  section.text("listen", metrics.listen);
  const auto address = parse_listen(metrics.listen);
  if (!metrics.listen.empty() && (!address || address->host.empty())) {
    section.fault("listen", "\"" + metrics.listen + "\" is not host:port or [v6]:port");
  }
  section.finish();
}

// The connection string with its password filled in; faults when it cannot be used.
void read_conninfo(ConfigSection& section, ShardConfig& shard) {
  section.required_text("conninfo", shard.conninfo);
  std::string variable;
  section.text("password_env", variable);
  if (shard.conninfo.empty()) return;
  auto keywords = parse_conninfo(shard.conninfo);
  if (keywords.has_error()) return section.fault("conninfo", keywords.error().message);
  if (!variable.empty()) {
    const char* password = std::getenv(variable.c_str());
    if (!password) {
      return section.fault("password_env", "the environment has no variable " + variable);
    }
    (*keywords)["password"] = password;
  }
  add_passfile_password(*keywords);
  shard.conninfo = make_conninfo(*keywords);
}

void read_shards(ConfigSection& top, Reading& reading) {
  std::set<std::string> names;
  for (auto& section : top.sections("shards")) {
    ShardConfig shard;
    section.required_text("name", shard.name);
    read_conninfo(section, shard);
    section.text("region", shard.region);
    section.size("max_size", shard.max_size);
    if (!shard.name.empty() && !names.insert(shard.name).second) {
      section.fault("name", "two shards are named \"" + shard.name + "\"");
    }
    if (shard.name.size() > 63) section.fault("name", "is longer than 63 bytes");
    if (uses_location(reading.config().routing) && !shard.region.empty() &&
        routing::find_region(shard.region) == nullptr) {
      section.fault("region", "strategy \"location\" knows " + known_regions());
    }
    section.finish();
    reading.config().shards.push_back(std::move(shard));
  }
  if (reading.config().shards.empty() && !top.has("shards")) {
    reading.loaded.faults.push_back({0, "shards: at least one [[shards]] is needed"});
  }
}

// Follows colocate_with of each table to its root; faults on names nobody has and on cycles.
void check_colocation(const std::vector<TableConfig>& tables,
                      std::vector<ConfigSection>& sections) {
  std::map<std::string, std::size_t> index;
  for (std::size_t i = 0; i < tables.size(); ++i) index.emplace(tables[i].name, i);
  for (std::size_t start = 0; start < tables.size(); ++start) {
    std::size_t at = start;
    for (std::size_t steps = 0; !tables[at].colocate_with.empty(); ++steps) {
      const auto next = index.find(tables[at].colocate_with);
      if (next == index.end()) {
        if (at == start) {
          sections[start].fault("colocate_with",
                                "no [[tables]] is named \"" + tables[at].colocate_with + "\"");
        }
        break;
      }
      at = next->second;
      if (at == start || steps > tables.size()) {
        if (at == start) sections[start].fault("colocate_with", "leads back to this table");
        break;
      }
    }
  }
}

void read_tables(ConfigSection& top, Reading& reading) {
  auto& config = reading.config();
  std::set<std::string> names;
  auto sections = top.sections("tables");
  for (auto& section : sections) {
    TableConfig table;
    section.required_text("name", table.name);
    table.key = "id";
    section.text_not_empty("key", table.key);
    section.text("colocate_with", table.colocate_with);
    section.finish();
    if (!table.name.empty() && !names.insert(table.name).second) {
      section.fault("name", "two tables are named \"" + table.name + "\"");
    }
    config.tables.push_back(std::move(table));
  }
  check_colocation(config.tables, sections);
  for (auto& section : top.sections("reference_tables")) {
    std::string name;
    section.required_text("name", name);
    section.finish();
    if (!name.empty() && !names.insert(name).second) {
      section.fault("name", "two tables are named \"" + name + "\"");
    }
    config.reference_tables.push_back(std::move(name));
  }
}

void check_shard_names(ConfigSection& top, Reading& reading) {
  auto& config = reading.config();
  std::string known;
  const auto exists = [&](const std::string& name) {
    return std::any_of(config.shards.begin(), config.shards.end(),
                       [&](const ShardConfig& shard) { return shard.name == name; });
  };
  for (const auto& shard : config.shards) known += (known.empty() ? "" : ", ") + shard.name;
  auto journal = top.section("journal");
  if (config.shards.size() == 1 && config.journal.shard.empty()) {
    config.journal.shard = config.shards.front().name;
  }
  if (config.shards.size() > 1 && config.journal.shard.empty()) {
    reading.notice(journal, "shard",
                   "not set: placement is static, nothing can be moved "
                   "(JOURNAL_NOT_CONFIGURED)");
  }
  if (!config.journal.shard.empty() && !exists(config.journal.shard)) {
    const auto error = make_error(
        ErrorCode::kInvalidJournalShard,
        "\"" + config.journal.shard + "\" names no configured shard (configured: " + known + ")");
    journal.fault("shard", error.message);
  }
  if (config.routing.placement == "mapped" && config.shards.size() > 1 &&
      config.journal.shard.empty()) {
    top.section("routing").fault("placement", "mapped needs a journal shard: it has the mappings");
  }
  auto auth = top.section("auth");
  if (!config.auth.auth_query_shard.empty() && !exists(config.auth.auth_query_shard)) {
    auth.fault("auth_query_shard", "\"" + config.auth.auth_query_shard +
                                       "\" names no configured shard (configured: " + known + ")");
  }
}

void read_users_file(Reading& reading) {
  const auto& auth = reading.config().auth;
  if (auth.users_file.empty()) return;
  auto users = load_users(auth.users_file, auth.admin_users);
  reading.config().users = std::move(users.users);
  for (auto& fault : users.faults) reading.loaded.faults.push_back({0, std::move(fault)});
}

void read_all(const toml::table& table, Reading& reading) {
  ConfigSection top(&table, "", 0, reading.loaded.faults);
  read_proxy(top.section("proxy"), reading);
  read_auth(top.section("auth"), reading);
  read_tls(top.section("tls"), reading);
  read_pool(top.section("pool"), reading);
  read_routing(top.section("routing"), reading);
  read_journal(top.section("journal"), reading);
  read_migration(top.section("migration"), reading);
  read_metrics(top.section("metrics"), reading);
  read_shards(top, reading);
  read_tables(top, reading);
  top.finish();
  check_shard_names(top, reading);
  read_users_file(reading);
}

}  // namespace

bool Config::has_journal() const {
  return shards.size() == 1 || !journal.shard.empty();
}

std::size_t Config::journal_index() const {
  for (std::size_t i = 0; i < shards.size(); ++i) {
    if (shards[i].name == journal.shard) return i;
  }
  return 0;
}

Config::operator LoginConfig() const {
  LoginConfig login{.method = auth.method,
                    .tls_mode = tls.mode,
                    .databases = proxy.aliases,
                    .admin_users = auth.admin_users,
                    .users = users};
  login.databases.push_back(proxy.database);
  return login;
}

LoadedConfig parse_config(std::string_view text, const std::string& directory) {
  LoadedConfig loaded;
  Reading reading{.directory = directory, .loaded = loaded};
  try {
    read_all(toml::parse(text), reading);
  } catch (const toml::parse_error& error) {
    loaded.faults.push_back(
        {static_cast<int>(error.source().begin.line), std::string(error.description())});
  } catch (const std::exception& error) {
    loaded.faults.push_back({0, error.what()});
  }
  std::sort(loaded.faults.begin(), loaded.faults.end(),
            [](const ConfigFault& a, const ConfigFault& b) {
              return std::tie(a.line, a.text) < std::tie(b.line, b.text);
            });
  return loaded;
}

LoadedConfig load_config(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  if (file) text << file.rdbuf();
  if (!file) {
    LoadedConfig loaded;
    loaded.faults.push_back({0, "cannot read " + path});
    return loaded;
  }
  return parse_config(text.str(), fs::path(path).parent_path().string());
}

}  // namespace collegedb
