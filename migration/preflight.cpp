// What `collegedb check` finds on the shards. Reads only.
#include <charconv>
#include <memory>
#include <optional>

#include "migration/hazards.h"
#include "migration/manifest.h"
#include "migration/schema.h"
#include "migration/schema_change.h"
#include "migration/table_catalog.h"

namespace collegedb::migration {
namespace {

using Severity = Finding::Severity;

constexpr std::int64_t kLeastPreparedTransactions = 16;

class Preflight {
 public:
  explicit Preflight(const Config& config) : config_(config) {}

  std::vector<Finding> run() {
    for (const ShardConfig& shard : config_.shards) {
      connect(shard);
    }
    if (sessions_.size() == config_.shards.size()) {
      find_members();
      check_tables();
    }
    return std::move(findings_);
  }

 private:
  void add(Severity severity, const std::string& shard, std::string text, std::string hint = {}) {
    findings_.push_back({severity, shard, std::move(text), std::move(hint)});
  }

  void add(const SqlFailure& failure) {
    std::string text = failure.error().message;
    if (!failure.error().detail.empty()) {
      text += " (" + failure.error().detail + ")";
    }
    add(Severity::kError, failure.shard(), std::move(text), failure.error().hint);
  }

  void connect(const ShardConfig& shard) {
    try {
      auto session = std::make_unique<ControlSession>(shard);
      check_version(*session);
      check_settings(*session);
      check_privileges(*session);
      check_installed(*session);
      sessions_.push_back(std::move(session));
    } catch (const SqlFailure& failure) {
      add(failure);
    }
  }

  void check_version(ControlSession& session) {
    if (session.server_version() < 130000) {
      add(Severity::kError, session.shard(),
          "MIGRATION_UNSUPPORTED_DIALECT: the server is older than PostgreSQL 13");
    }
  }

  void check_settings(ControlSession& session) {
    const Rows rows = session.run(
        "SELECT pg_catalog.current_setting('max_prepared_transactions')::pg_catalog.int4,"
        " (SELECT setting::pg_catalog.int8 FROM pg_catalog.pg_settings"
        " WHERE name = 'deadlock_timeout'),"
        " pg_catalog.current_setting('server_encoding')");
    if (rows.int8(0, 0) == 0 && config_.shards.size() > 1) {
      add(Severity::kError, session.shard(),
          "MIGRATION_NO_ATOMIC_BATCH: max_prepared_transactions is 0",
          "Set it to at least 16 and restart the server.");
    } else if (rows.int8(0, 0) < kLeastPreparedTransactions && config_.shards.size() > 1) {
      add(Severity::kWarning, session.shard(),
          "max_prepared_transactions is " + rows.text(0, 0) +
              ": moves and schema changes may have to wait for each other or fail",
          "Set it to at least 16 and restart the server.");
    }
    const auto cutover = config_.migration.cutover_lock_timeout.count();
    if (rows.int8(0, 1) <= cutover) {
      add(Severity::kError, session.shard(),
          "deadlock_timeout (" + rows.text(0, 1) + " ms) is not above migration." +
              "cutover_lock_timeout (" + std::to_string(cutover) + " ms)",
          "A client's transaction could be ended by a move; raise deadlock_timeout.");
    }
    if (rows.view(0, 2) != "UTF8") {
      add(Severity::kError, session.shard(), "server_encoding is " + rows.text(0, 2),
          "Keys are compared as UTF-8: use databases with encoding UTF8.");
    }
  }

  void check_privileges(ControlSession& session) {
    const Rows rows = session.run(
        "SELECT pg_catalog.has_database_privilege(pg_catalog.current_database(), 'CREATE'),"
        " r.rolsuper, current_user FROM pg_catalog.pg_roles r WHERE r.rolname = current_user");
    if (!rows.boolean(0, 0) &&
        session.run("SELECT pg_catalog.to_regnamespace('collegedb') IS NULL").boolean(0, 0)) {
      add(Severity::kError, session.shard(),
          "role " + rows.text(0, 2) + " may not create schema collegedb",
          "GRANT CREATE ON DATABASE ... TO " + rows.text(0, 2) + ".");
    }
    if (!rows.boolean(0, 1)) {
      add(Severity::kNote, session.shard(),
          "role " + rows.text(0, 2) +
              " is no superuser: moves cannot switch triggers off, so "
              "tables with user triggers or cascading foreign keys from other groups stay where "
              "they "
              "are");
    }
  }

  void check_installed(ControlSession& session) {
    if (session.run("SELECT pg_catalog.to_regclass('collegedb.schema_version') IS NULL")
            .boolean(0, 0)) {
      add(Severity::kNote, session.shard(), "schema collegedb is not installed yet",
          "collegedb serve and collegedb init install it.");
      return;
    }
    try {
      const bool journal =
          config_.has_journal() && session.shard() == config_.shards[config_.journal_index()].name;
      check_shard_schema(session, config_.journal.scope, journal);
      if (journal) check_placement(session, config_);
      installed_ = installed_ || session.shard() == config_.shards[home()].name;
    } catch (const SqlFailure& failure) {
      add(failure);
    }
  }

  [[nodiscard]] std::size_t home() const {
    return config_.has_journal() ? config_.journal_index() : 0;
  }

  // A shard that has not been added yet, or no longer belongs to the cluster, may have any tables.
  void find_members() {
    std::optional<Manifest> manifest;
    try {
      if (installed_ && config_.has_journal()) {
        manifest = read_manifest(*sessions_[home()], config_.journal.scope);
      }
    } catch (const SqlFailure&) {
      // The scope has none before its first start.
    }
    for (const auto& session : sessions_) {
      const MemberRow* member = manifest ? manifest->find(session->shard()) : nullptr;
      if (!manifest || (member != nullptr && member->state != "removed")) {
        members_.push_back(session.get());
      } else {
        add(Severity::kNote, session->shard(), "is no part of the cluster: it gets no keys",
            "SELECT * FROM collegedb_add_shard('" + session->shard() + "') adds it.");
      }
    }
  }

  // As the journal has them; before the first start as the configuration does.
  std::vector<RegisteredTable> tables() {
    ControlSession& journal = *sessions_[home()];
    if (installed_ && config_.has_journal()) {
      return read_registry(journal, config_.journal.scope);
    }
    std::vector<RegisteredTable> out;
    const auto add_table = [&](const std::string& text, const std::string& kind,
                               const std::string& key) {
      TableName name = parse_table_name(journal, text);
      if (name.schema.empty()) {
        name = find_table(journal, name, {}).value_or(parse_table_name(journal, "public." + text));
      }
      out.push_back({name, kind, {}, key, {}, {}});
    };
    for (const TableConfig& table : config_.tables) {
      add_table(table.name, "sharded", table.key);
    }
    for (const std::string& table : config_.reference_tables) {
      add_table(table, "reference", {});
    }
    return out;
  }

  void check_tables() {
    try {
      registry_ = tables();
      for (const RegisteredTable& table : registry_) {
        if (table.kind != "local") {
          check_table(table);
        }
      }
    } catch (const SqlFailure& failure) {
      add(failure);
    }
  }

  void check_table(const RegisteredTable& table) {
    ControlSession& journal = *sessions_[home()];
    const std::string first = table_shape(*members_.front(), table.name);
    for (ControlSession* member : members_) {
      if (table_shape(*member, table.name) != first) {
        add(Severity::kError, member->shard(),
            "table " + table.name.qualified + " differs from that of shard \"" +
                members_.front()->shard() + "\"",
            "It needs the same columns in the same order on every shard.");
      }
    }
    if (!find_table(journal, table.name, {})) {
      add(Severity::kNote, {}, "table " + table.name.qualified + " does not exist yet",
          "Create it through the proxy.");
      return;
    }
    if (table.kind != "sharded") {
      return;
    }
    check_key(journal, table);
    for (const std::string& each : hazards(journal, table, registry_, true)) {
      add(Severity::kWarning, {}, each);
    }
    for (ControlSession* session : members_) {
      if (!table.key_expression.empty() && !is_fenced(*session, config_.journal.scope, table)) {
        add(Severity::kWarning, session->shard(),
            "table " + table.name.qualified + " lacks the insert fence",
            "collegedb init installs it.");
      }
    }
  }

  // What makes the proxy refuse statements on the table.
  void check_key(ControlSession& journal, const RegisteredTable& table) {
    const auto key = describe_new_key(journal, table.name, table.key_column);
    if (key.has_error()) {
      add(Severity::kError, {}, "table " + table.name.qualified + ": " + key.error().message,
          key.error().hint);
    } else if (!table.key_type.empty() && routing::name_of(key->type) != table.key_type) {
      add(Severity::kError, {},
          "key column " + table.name.qualified + "." + table.key_column + " is of type " +
              std::string(routing::name_of(key->type)) + " but was registered as " + table.key_type,
          "Change it back: registered tables are changed only through the proxy.");
    } else if (!table.key_expression.empty() && key->expression != table.key_expression) {
      add(Severity::kError, {},
          "table " + table.name.qualified + " is registered with key expression " +
              table.key_expression + " instead of " + key->expression,
          "collegedb init and collegedb serve repair it, or log why not.");
    }
  }

  const Config& config_;
  std::vector<RegisteredTable> registry_;
  std::vector<std::unique_ptr<ControlSession>> sessions_;
  std::vector<ControlSession*> members_;  // of these, those that share the tables
  std::vector<Finding> findings_;
  bool installed_ = false;  // on the journal shard
};

}  // namespace

std::vector<Finding> preflight(const Config& config) {
  return Preflight(config).run();
}

}  // namespace collegedb::migration
