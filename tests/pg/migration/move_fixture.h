// Moves on real servers: a group of two tables, a runner, writers that behave as a proxy does, and
// the invariants that hold after every move, crash and recovery.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "migration/failpoint.h"
#include "migration/recovery.h"
#include "migration/runner.h"
#include "proxy/session/guard.h"
#include "routing/hash.h"
#include "store/snapshot_reader.h"
#include "tests/pg/migration/cluster_fixture.h"

namespace collegedb::pgtest {

namespace guard = session::guard;

class MoveTest : public ClusterTest {
 protected:
  static constexpr std::string_view kTables =
      "CREATE TABLE users (id bigint PRIMARY KEY, name text NOT NULL, n bigint NOT NULL DEFAULT 0);"
      "CREATE TABLE orders (user_id bigint NOT NULL REFERENCES users (id) ON DELETE CASCADE,"
      " no int NOT NULL, total numeric(12,2) NOT NULL, note text,"
      " PRIMARY KEY (user_id, no));";

  void SetUp() override {
    ClusterTest::SetUp();
    if (HasFatalFailure()) return;
    config.tables = {{.name = "users", .key = "id", .colocate_with = ""},
                     {.name = "orders", .key = "user_id", .colocate_with = "users"}};
    config.migration.cutover_lock_timeout = std::chrono::milliseconds(250);
    failpoints = std::make_shared<migration::Failpoints>();
  }

  // Creates the tables and the schema. Call it first.
  void open(std::string_view tables = kTables) {
    tell_all(tables);
    install();
    snapshot_ = snapshot();
  }

  std::shared_ptr<const routing::Snapshot> snapshot() {
    auto loaded = store::read_snapshot(own(0), config, nullptr);
    return std::make_shared<const routing::Snapshot>(std::move(loaded.snapshot));
  }

  migration::RunnerOptions options() {
    if (!snapshot_) snapshot_ = snapshot();
    const auto now = snapshot_;
    return {.shards = config.shards,
            .journal = 0,
            .scope = config.journal.scope,
            .limits = config.migration,
            .routing = config.routing,
            .snapshot = [now] { return now; },
            .failpoints = failpoints,
            .sessions = sessions};
  }

  // For a child process: it must not speak over the sessions of its parent.
  migration::RunnerOptions child_options() {
    auto out = options();
    out.sessions.reset();
    return out;
  }

  Result<migration::MoveResult> reassign(const std::string& key, const std::string& shard,
                                         bool dry_run = false) {
    migration::Runner runner(options());
    return runner.reassign(
        {.group = std::string(kGroup), .key = key, .shard = shard, .dry_run = dry_run});
  }
  Result<migration::RecoveryResult> recover() { return migration::Recovery(options()).run(); }

  [[nodiscard]] std::string name(std::size_t shard) const { return config.shards[shard].name; }
  [[nodiscard]] std::size_t index(const std::string& shard) const {
    return static_cast<std::size_t>(shard.at(1) - 'a');
  }
  static constexpr std::string_view kGroup = "public.users";

  // One session per shard for looking and preparing; the test's own thread only.
  std::string ask(std::size_t shard, std::string_view sql) {
    const migration::Rows found = own(shard).run(sql);
    return found.empty() ? "" : found.text(0, 0);
  }
  void tell(std::size_t shard, std::string_view sql) { own(shard).script(sql); }
  void tell_all(std::string_view sql) {
    for (std::size_t i = 0; i < 3; ++i) tell(i, sql);
  }
  // The shard that placement computes.
  [[nodiscard]] std::size_t owner(const std::string& key) const {
    std::size_t best = 0;
    for (std::size_t i = 1; i < 3; ++i) {
      if (routing::hrw_score(name(i), key) > routing::hrw_score(name(best), key)) best = i;
    }
    return best;
  }

  [[nodiscard]] bool mapped() const { return config.routing.placement == "mapped"; }
  // The shard that the directory has for the key, "" for none.
  std::string entry(const std::string& key) {
    return ask(0, std::string("SELECT shard FROM collegedb.") +
                      (mapped() ? "mappings" : "exceptions") + " WHERE key = '" + key + "'");
  }
  void map(const std::string& key, std::size_t shard) {
    tell(0, "INSERT INTO collegedb.mappings VALUES ('" + config.journal.scope + "', '" +
                std::string(kGroup) + "', '" + key + "', '" + name(shard) + "')");
  }

  // A key's rows, on the shard that owns it by placement; returns that shard.
  std::size_t add_key(const std::string& key, int orders = 3) {
    const std::size_t home = owner(key);
    tell(home, "INSERT INTO users (id, name) VALUES (" + key + ", 'user " + key + "');" +
                   "INSERT INTO orders SELECT " + key +
                   ", g, g * 1.10, 'note ' || g FROM generate_series(1, " + std::to_string(orders) +
                   ") g");
    if (mapped()) map(key, home);
    return home;
  }
  [[nodiscard]] std::size_t other_than(std::size_t shard) const { return (shard + 1) % 3; }

  // All rows of the key on one shard, as text.
  std::string rows(std::size_t shard, const std::string& key) {
    return ask(shard,
               "SELECT coalesce((SELECT string_agg(u::text, ';' ORDER BY id) FROM users u"
               " WHERE id = " +
                   key +
                   "), '') || '|' || coalesce((SELECT"
                   " string_agg(o::text, ';' ORDER BY no) FROM orders o WHERE user_id = " +
                   key + "), '')");
  }

  // One guarded autocommit statement as a proxy sends it: queue, gate, statement in one
  // transaction. Returns the error, with an empty SQLSTATE for success.
  SqlError guarded(migration::ControlSession& session, const std::string& key,
                   const std::string& sql, std::string_view begin = "BEGIN") {
    try {
      migration::Transaction transaction(session, begin);
      take_guard(session, key);
      session.run(sql);
      transaction.commit();
    } catch (const migration::SqlFailure& failure) {
      return failure.error();
    }
    SqlError none;
    none.sqlstate.clear();
    return none;
  }
  void take_guard(migration::ControlSession& session, const std::string& key) {
    const std::string bucket = std::to_string(routing::gate_bucket(kGroup, key));
    session.run(guard::kQueueSql, {bucket});
    const std::vector<std::string> keys = {key};
    const migration::Rows row =
        session.run(guard::kGateSql, {bucket, "1", config.journal.scope, std::string(kGroup),
                                      migration::array_text(keys), "on"});
    ASSERT_EQ(row.size(), 1);
  }

  // Where the guard says the key is writable, starting at `from`; follows tombstones.
  std::size_t writable_at(std::size_t from, const std::string& key, int hops = 4) {
    const SqlError error = guarded(own(from), key, "SELECT 1");
    if (error.sqlstate.empty()) return from;
    if (error.sqlstate != guard::kMoved || hops == 0) {
      ADD_FAILURE() << "guard on " << name(from) << ": " << error.sqlstate << " " << error.message;
      return from;
    }
    return writable_at(index(error.detail.substr(0, error.detail.find('\n'))), key, hops - 1);
  }

  // One owner with exactly these rows; directory, tombstones and guard agree on it.
  void expect_owner(const std::string& key, std::size_t owner_shard, const std::string& expected) {
    SCOPED_TRACE("key " + key);
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(rows(i, key), i == owner_shard ? expected : "|") << "on " << name(i);
    }
    const std::size_t home = owner(key);
    EXPECT_EQ(writable_at(home, key), owner_shard);
    EXPECT_EQ(entry(key), owner_shard == home && !mapped() ? "" : name(owner_shard));
    if (mapped()) EXPECT_EQ(ask(0, "SELECT count(*) FROM collegedb.exceptions"), "0");
  }

  // Nothing of any move is left running.
  void expect_quiet() {
    for (std::size_t i = 0; i < 3; ++i) {
      SCOPED_TRACE(name(i));
      EXPECT_EQ(ask(i,
                    "SELECT string_agg(gid, ' ') FROM pg_prepared_xacts"
                    " WHERE database = current_database()"),
                "");
      EXPECT_EQ(ask(i, "SELECT count(*) FROM collegedb.incoming"), "0");
      await(
          [&] {
            return ask(i,
                       "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND database ="
                       " (SELECT oid FROM pg_database WHERE datname = current_database())") == "0";
          },
          "advisory locks");
      await(
          [&] {
            return ask(i,
                       "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
                       " AND application_name LIKE 'collegedb move%' AND state <> 'idle'") == "0";
          },
          "sessions of movers at work");
    }
    EXPECT_EQ(ask(0, "SELECT count(*) FROM collegedb.claims"), "0");
    EXPECT_EQ(ask(0,
                  "SELECT string_agg(op || ' ' || state, ' ') FROM collegedb.moves"
                  " WHERE state NOT IN ('retired', 'aborted')"),
              "");
  }
  static void await(const std::function<bool()>& done, std::string_view what) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (!done()) {
      ASSERT_LT(std::chrono::steady_clock::now(), deadline) << "still there: " << what;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }

  // Runs `body` in a child process that may die; returns its exit status (137: a crash point).
  static int in_child(const std::function<void()>& body) {
    const pid_t child = ::fork();
    if (child == 0) {
      body();
      ::_exit(0);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

  std::shared_ptr<migration::Failpoints> failpoints;
  std::shared_ptr<migration::SessionPool> sessions = std::make_shared<migration::SessionPool>();

 private:
  migration::ControlSession& own(std::size_t shard) {
    auto& session = sessions_[shard];
    if (!session || !session->alive()) session = this->session(shard);
    return *session;
  }

  std::map<std::size_t, std::unique_ptr<migration::ControlSession>> sessions_;
  std::shared_ptr<const routing::Snapshot> snapshot_;  // placement and registry stay as they are
};

// Adds 1 to users.n of one key for as long as it lives, through the guard, following the key as a
// proxy does. Counts what was acknowledged; every error but the ones a proxy swallows is kept.
class Writer {
 public:
  using Guarded = std::function<SqlError(migration::ControlSession&, const std::string&,
                                         const std::string&, std::string_view)>;
  Writer(const Config& config, Guarded guarded, std::string key, std::size_t at,
         std::string begin = "BEGIN")
      : thread_([this, config, guarded = std::move(guarded), key = std::move(key), at,
                 begin = std::move(begin)] { run(config, guarded, key, at, begin); }) {}
  ~Writer() { stop(); }
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  void stop() {
    stopping_ = true;
    if (thread_.joinable()) thread_.join();
  }
  [[nodiscard]] std::int64_t acknowledged() const { return acknowledged_; }
  [[nodiscard]] double longest_ms() const { return longest_ms_; }
  // REQUIRES: stopped.
  [[nodiscard]] const std::vector<std::string>& errors() const { return errors_; }

 private:
  void run(const Config& config, const Guarded& guarded, const std::string& key, std::size_t at,
           std::string_view begin) {
    std::map<std::size_t, std::unique_ptr<migration::ControlSession>> sessions;
    const std::string sql = "UPDATE users SET n = n + 1 WHERE id = " + key;
    auto begun = std::chrono::steady_clock::now();
    while (!stopping_) {
      auto& session = sessions[at];
      if (!session) {
        session = std::make_unique<migration::ControlSession>(config.shards[at]);
        session->run("SET search_path = public");
      }
      const SqlError error = guarded(*session, key, sql, begin);
      const std::string_view state = error.sqlstate;
      if (state.empty()) {
        ++acknowledged_;
        const auto now = std::chrono::steady_clock::now();
        longest_ms_ =
            std::max(longest_ms_, std::chrono::duration<double, std::milli>(now - begun).count());
        begun = now;
      } else if (state == guard::kMoved) {
        at = static_cast<std::size_t>(error.detail.at(1) - 'a');
      } else if (state == guard::kIncoming) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      } else if (state != "40001" || begin == "BEGIN") {
        errors_.push_back(error.sqlstate + " " + error.message);
        return;
      }
    }
  }

  std::atomic<bool> stopping_{false};
  std::atomic<std::int64_t> acknowledged_{0};
  double longest_ms_ = 0;
  std::vector<std::string> errors_;
  std::thread thread_;  // last: it uses the others
};

}  // namespace collegedb::pgtest
