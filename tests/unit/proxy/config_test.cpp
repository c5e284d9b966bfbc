#include "proxy/config.h"

#include <gmock/gmock.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace collegedb {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

auto fault(int line, const std::string& text) {
  return AllOf(Field("line", &ConfigFault::line, line),
               Field("text", &ConfigFault::text, HasSubstr(text)));
}

// A directory that ends with the test.
class ConfigTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = std::filesystem::temp_directory_path() / "config_test.XXXXXX";
    directory_ = ::mkdtemp(pattern.data());
    // Passwords must come from the test alone.
    ::setenv("PGPASSFILE", (directory_ / "pgpass").c_str(), 1);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  void write(const std::string& name, const std::string& text,
             std::filesystem::perms perms = std::filesystem::perms::owner_all) {
    std::ofstream(directory_ / name) << text;
    std::filesystem::permissions(directory_ / name, perms);
  }
  [[nodiscard]] LoadedConfig parse(const std::string& text) const {
    return parse_config(text, directory_);
  }

  std::filesystem::path directory_;
};

constexpr const char* kOneShard =
    "[auth]\nmethod = \"trust\"\n[[shards]]\nname = \"only\"\nconninfo = \"host=h\"\n";

TEST_F(ConfigTest, OneShardNeedsNothingElse) {
  const auto loaded = parse(kOneShard);
  ASSERT_THAT(loaded.faults, IsEmpty());
  EXPECT_THAT(loaded.notices, IsEmpty());
  const auto& config = loaded.config;
  EXPECT_THAT(config.proxy.listen, ElementsAre("127.0.0.1:6432"));
  EXPECT_EQ(config.journal.shard, "only");
  EXPECT_EQ(config.journal_index(), 0U);
  EXPECT_TRUE(config.has_journal());
  EXPECT_EQ(config.pool.size, 20U);
  EXPECT_EQ(config.migration.retire_after, std::chrono::hours(7 * 24));
}

TEST_F(ConfigTest, ReadsEveryKeyOfTheContract) {
  write("users.toml",
        "[[users]]\nname = \"app\"\npassword = \"s\"\n"
        "[[users]]\nname = \"postgres\"\nverifier = \"md5abc\"\n"
        "[[users]]\nname = \"boss\"\npassword = \"b\"\nadmin = true\n");
  const auto loaded = parse(R"(
[proxy]
listen = ["127.0.0.1:7000", "[::1]:7000", "/tmp/sock"]
database = "shop"
aliases = ["shop2"]
workers = 3
max_clients = 77
log_level = "debug"
log_format = "json"
drain_timeout = "5s"
[auth]
method = "scram-sha-256"
users_file = "users.toml"
admin_users = ["postgres"]
[tls]
mode = "disable"
[pool]
mode = "transaction"
size = 9
min_size = 2
wait_timeout = "1s"
server_idle_timeout = "2m"
server_lifetime = "3h"
client_login_timeout = "4s"
idle_transaction_timeout = "5min"
query_timeout = "0"
[routing]
on_unroutable = "error"
[journal]
shard = "b"
scope = "blue"
recovery_interval = "250ms"
auto_init = false
[migration]
copy_rate = "10MiB/s"
max_concurrent_moves = 2
cutover_lock_timeout = "100ms"
cutover_attempts = 5
write_hold = "2s"
retire_after = "1d"
[metrics]
listen = "0.0.0.0:9000"
[[shards]]
name = "a"
conninfo = "host=/tmp dbname=x"
[[shards]]
name = "b"
conninfo = "postgresql://u@h:5433/d"
[[tables]]
name = "users"
key = "id"
[[tables]]
name = "orders"
key = "user_id"
colocate_with = "users"
[[reference_tables]]
name = "countries"
)");
  ASSERT_THAT(loaded.faults, IsEmpty());
  EXPECT_THAT(loaded.notices, IsEmpty());
  const auto& c = loaded.config;
  EXPECT_THAT(c.proxy.listen, ElementsAre("127.0.0.1:7000", "[::1]:7000", "/tmp/sock"));
  EXPECT_EQ(c.proxy.workers, 3U);
  EXPECT_EQ(c.proxy.max_clients, 77U);
  EXPECT_EQ(c.proxy.log_format, "json");
  EXPECT_EQ(c.tls.mode, Config::TlsMode::kDisable);
  EXPECT_EQ(c.pool.server_idle_timeout, std::chrono::minutes(2));
  EXPECT_EQ(c.pool.idle_transaction_timeout, std::chrono::minutes(5));
  EXPECT_EQ(c.pool.query_timeout, milliseconds(0));
  EXPECT_FALSE(c.routing.fanout_unroutable);
  EXPECT_EQ(c.journal_index(), 1U);
  EXPECT_FALSE(c.journal.auto_init);
  EXPECT_EQ(c.migration.copy_rate, 10U << 20);
  EXPECT_EQ(c.migration.retire_after, std::chrono::hours(24));
  EXPECT_EQ(c.tables.at(1).colocate_with, "users");
  EXPECT_THAT(c.reference_tables, ElementsAre("countries"));
  ASSERT_EQ(c.users.size(), 3U);
  EXPECT_FALSE(c.users[0].admin);
  EXPECT_TRUE(c.users[1].admin) << "named in admin_users";
  EXPECT_TRUE(c.users[2].admin) << "admin = true";
  EXPECT_EQ(c.users[1].secret, "md5abc");
}

TEST_F(ConfigTest, ReportsAllFaultsWithTheirLines) {
  const auto loaded = parse(R"([proxy]
listn = ["127.0.0.1:1"]
workers = -1
drain_timeout = "soon"
[auth]
method = "scram"
[pool]
size = 5
min_size = 6
[[shards]]
name = "a"
conninfo = "host"
[[shards]]
name = "a"
conninfo = "host=h"
max_sise = "1GB"
[journal]
shard = "z"
)");
  EXPECT_THAT(
      loaded.faults,
      UnorderedElementsAre(
          fault(2, "proxy.listn: unknown key; did you mean \"listen\"?"),
          fault(3, "proxy.workers: must be a whole number from 0 to 1024"),
          fault(4, "proxy.drain_timeout: must be a duration"),
          fault(6, "auth.method: \"scram\" is not one of trust, password, md5, scram-sha-256"),
          fault(5, "auth.users_file: there is no"),
          fault(9, "pool.min_size: must not be above pool.size"),
          fault(12, "shards[0].conninfo: missing \"=\""), fault(14, "two shards are named \"a\""),
          fault(16, "shards[1].max_sise: unknown key; did you mean \"max_size\"?"),
          fault(18, "INVALID_JOURNAL_SHARD: \"z\" names no configured shard (configured: a, a)")));
}

TEST_F(ConfigTest, RefusesAnUnknownSection) {
  const auto loaded = parse(std::string(kOneShard) + "[polo]\nsize = 1\n");
  EXPECT_THAT(loaded.faults, ElementsAre(fault(6, "polo: unknown key; did you mean \"pool\"?")));
}

TEST_F(ConfigTest, ReportsASyntaxErrorWithItsLine) {
  EXPECT_THAT(parse("[proxy]\nworkers = = 3\n").faults, ElementsAre(fault(2, "")));
}

TEST_F(ConfigTest, NeedsAShard) {
  EXPECT_THAT(parse("[auth]\nmethod = \"trust\"\n").faults,
              ElementsAre(fault(0, "at least one [[shards]]")));
}

TEST_F(ConfigTest, NamesAFileThatCannotBeRead) {
  EXPECT_THAT(load_config(directory_ / "absent.toml").faults, ElementsAre(fault(0, "cannot read")));
}

TEST_F(ConfigTest, FindsTheUsersFileBesideTheFile) {
  write("users.toml", "[[users]]\nname = \"u\"\npassword = \"p\"\n");
  write("collegedb.toml", "[[shards]]\nname = \"s\"\nconninfo = \"host=h\"\n");
  const auto loaded = load_config(directory_ / "collegedb.toml");
  EXPECT_THAT(loaded.faults, IsEmpty());
  ASSERT_EQ(loaded.config.users.size(), 1U);
  EXPECT_EQ(loaded.config.users[0].secret, "p");
}

TEST_F(ConfigTest, ReportsFaultsOfTheUsersFile) {
  write("users.toml",
        "[[users]]\nname = \"u\"\nverifier = \"plain\"\n[[users]]\nname = \"u\"\npasword = \"\"\n");
  const auto loaded = parse("[[shards]]\nname = \"s\"\nconninfo = \"host=h\"\n");
  EXPECT_THAT(
      loaded.faults,
      UnorderedElementsAre(fault(0, "users.toml line 3: users[0].verifier: must start with"),
                           fault(0, "users.toml line 5: users[1].name: two users are named \"u\""),
                           fault(0,
                                 "users.toml line 6: users[1].pasword: unknown key; did you mean "
                                 "\"password\"?")));
}

TEST_F(ConfigTest, TakesPasswordsFromTheEnvironmentAndThePasswordFile) {
  ::setenv("CONFIG_TEST_SECRET", "it's", 1);
  write("pgpass", "# comment\nother:*:*:*:no\nh:5433:d:u:a\\:b\n",
        std::filesystem::perms::owner_read);
  const auto loaded = parse(
      "[auth]\nmethod = \"trust\"\n"
      "[[shards]]\nname = \"a\"\nconninfo = \"host=h\"\npassword_env = \"CONFIG_TEST_SECRET\"\n"
      "[[shards]]\nname = \"b\"\nconninfo = \"host=h port=5433 dbname=d user=u\"\n"
      "[[shards]]\nname = \"c\"\nconninfo = \"host=h\"\npassword_env = \"CONFIG_TEST_NONE\"\n");
  EXPECT_THAT(loaded.faults,
              ElementsAre(fault(13, "the environment has no variable CONFIG_TEST_NONE")));
  EXPECT_EQ(loaded.config.shards[0].conninfo, "host='h' password='it\\'s'");
  EXPECT_THAT(loaded.config.shards[1].conninfo, HasSubstr("password='a:b'"));
}

TEST_F(ConfigTest, IgnoresAPasswordFileOthersCanRead) {
  write("pgpass", "*:*:*:*:leaked\n",
        std::filesystem::perms::owner_all | std::filesystem::perms::others_read);
  EXPECT_EQ(parse(kOneShard).config.shards[0].conninfo, "host='h'");
}

TEST_F(ConfigTest, RefusesColocationWithNobodyAndCycles) {
  const auto loaded = parse(std::string(kOneShard) +
                            "[[tables]]\nname = \"a\"\ncolocate_with = \"b\"\n"
                            "[[tables]]\nname = \"b\"\ncolocate_with = \"a\"\n"
                            "[[tables]]\nname = \"c\"\ncolocate_with = \"nobody\"\n"
                            "[[tables]]\nname = \"d\"\ncolocate_with = \"a\"\n"
                            "[[reference_tables]]\nname = \"c\"\n");
  EXPECT_THAT(loaded.faults,
              UnorderedElementsAre(fault(8, "tables[0].colocate_with: leads back to this table"),
                                   fault(11, "tables[1].colocate_with: leads back"),
                                   fault(14, "no [[tables]] is named \"nobody\""),
                                   fault(19, "two tables are named \"c\"")));
}

TEST_F(ConfigTest, TakesMappedPlacementWithAStrategy) {
  const auto loaded = parse(std::string(kOneShard) +
                            "region = \"weur\"\nmax_size = \"1MB\"\n"
                            "[routing]\nplacement = \"mapped\"\n"
                            "strategy = { read = \"location\", write = \"random\" }\n"
                            "target_region = \"eeur\"\nmapping_cache_ttl = \"1h\"\n");
  EXPECT_THAT(loaded.faults, IsEmpty());
  EXPECT_THAT(loaded.notices, IsEmpty());
  EXPECT_EQ(loaded.config.routing.placement, "mapped");
  EXPECT_EQ(loaded.config.routing.strategy, "mixed");
  EXPECT_EQ(loaded.config.routing.strategy_write, "random");
}

TEST_F(ConfigTest, RefusesWhatMappedPlacementCannotHave) {
  const std::string second = "[[shards]]\nname = \"two\"\nconninfo = \"host=h\"\n";
  const auto loaded = parse(std::string(kOneShard) + second +
                            "region = \"atlantis\"\n[routing]\nplacement = \"mapped\"\n"
                            "strategy = \"location\"\nmapping_cache_ttl = \"61m\"\n");
  EXPECT_THAT(loaded.faults,
              UnorderedElementsAre(
                  fault(11, "routing.placement: mapped needs a journal shard"),
                  fault(10, "routing.target_region: strategy \"location\" needs one of wnam, enam"),
                  fault(9, "shards[1].region: strategy \"location\" knows wnam"),
                  fault(13, "routing.mapping_cache_ttl: must not be above 1h")));
}

TEST_F(ConfigTest, SaysThatSeveralShardsWithoutJournalAreStatic) {
  const auto loaded =
      parse(std::string(kOneShard) + "[[shards]]\nname = \"two\"\nconninfo = \"host=h\"\n");
  EXPECT_THAT(loaded.faults, IsEmpty());
  EXPECT_THAT(loaded.notices, ElementsAre(HasSubstr("JOURNAL_NOT_CONFIGURED")));
  EXPECT_FALSE(loaded.config.has_journal());
}

TEST_F(ConfigTest, ChecksTlsFilesTogether) {
  write("c.pem", "");
  const auto loaded = parse(std::string(kOneShard) +
                            "[tls]\nmode = \"verify-full\"\ncert = \"c.pem\"\nca = \"no.pem\"\n");
  EXPECT_THAT(loaded.faults, UnorderedElementsAre(fault(9, "tls.ca: there is no file"),
                                                  fault(8, "tls.cert: tls.cert and tls.key go")));
  EXPECT_EQ(loaded.config.tls.cert, (directory_ / "c.pem").string());
}

// The text of the first ```toml block of a page.
std::string toml_of(const std::string& page) {
  std::ostringstream text;
  text << std::ifstream(std::string(COLLEGEDB_SOURCE_DIR) + "/" + page).rdbuf();
  const std::string all = text.str();
  const auto start = all.find("```toml\n");
  if (start == std::string::npos) return {};
  return all.substr(start + 8, all.find("```", start + 8) - start - 8);
}

TEST_F(ConfigTest, TheDocumentedFileIsTheDefaults) {
  const auto text = toml_of("docs/configuration.md");
  ASSERT_FALSE(text.empty());
  const auto loaded = parse(text);
  EXPECT_THAT(loaded.faults, IsEmpty());
  const Config defaults;
  const auto& config = loaded.config;
  EXPECT_EQ(config.proxy.max_clients, defaults.proxy.max_clients);
  EXPECT_EQ(config.proxy.drain_timeout, defaults.proxy.drain_timeout);
  EXPECT_EQ(config.pool.size, defaults.pool.size);
  EXPECT_EQ(config.pool.wait_timeout, defaults.pool.wait_timeout);
  EXPECT_EQ(config.pool.server_idle_timeout, defaults.pool.server_idle_timeout);
  EXPECT_EQ(config.pool.server_lifetime, defaults.pool.server_lifetime);
  EXPECT_EQ(config.pool.client_login_timeout, defaults.pool.client_login_timeout);
  EXPECT_EQ(config.journal.recovery_interval, defaults.journal.recovery_interval);
  EXPECT_EQ(config.migration.copy_rate, defaults.migration.copy_rate);
  EXPECT_EQ(config.migration.cutover_lock_timeout, defaults.migration.cutover_lock_timeout);
  EXPECT_EQ(config.migration.write_hold, defaults.migration.write_hold);
  EXPECT_EQ(config.migration.retire_after, defaults.migration.retire_after);
  EXPECT_EQ(config.metrics.listen, defaults.metrics.listen);
}

TEST_F(ConfigTest, TheComposeFilesConfigurationLoads) {
  ::setenv("SHARD_PASSWORD", "p", 1);
  const auto loaded = load_config(std::string(COLLEGEDB_SOURCE_DIR) + "/docker/proxy.toml");
  EXPECT_THAT(loaded.faults, IsEmpty());
  EXPECT_THAT(loaded.notices, IsEmpty());
  EXPECT_EQ(loaded.config.users.size(), 1U);
}

TEST_F(ConfigTest, CertificateLoginsNeedAnAuthority) {
  const auto loaded =
      parse("[auth]\nmethod = \"cert\"\n[[shards]]\nname = \"s\"\nconninfo = \"host=h\"\n");
  EXPECT_THAT(loaded.faults,
              ElementsAre(fault(0, "tls.ca: auth.method = \"cert\" needs tls.cert")));
}

TEST_F(ConfigTest, RefusesAScopeThatWouldBreakTransactionNames) {
  const auto loaded = parse(std::string(kOneShard) + "[journal]\nscope = \"a:b\"\n");
  EXPECT_THAT(loaded.faults, ElementsAre(fault(7, "journal.scope: must be at most 40 letters")));
}

}  // namespace
}  // namespace collegedb
