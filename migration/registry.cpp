#include "migration/registry.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <thread>

#include "migration/census.h"
#include "migration/hazards.h"
#include "migration/mappings.h"
#include "migration/reference_rows.h"
#include "migration/schema_change.h"
#include "migration/sequences.h"

namespace collegedb::migration {
namespace {

using namespace std::chrono_literals;

SessionOptions long_options() {
  SessionOptions options;
  options.statement_timeout = 0ms;
  options.idle_in_transaction_timeout = 0ms;
  return options;
}

SqlError named(const SqlFailure& failure) {
  SqlError error = failure.error();
  if (error.detail.empty() && !failure.shard().empty()) {
    error.detail = "On shard \"" + failure.shard() + "\".";
  }
  return error;
}

void lock_tables(Cluster& shards, const TableName& table) {
  for (std::size_t i = 0; i < shards.size(); ++i) {
    shards[i].run("LOCK TABLE " + table.qualified + " IN SHARE ROW EXCLUSIVE MODE");
  }
}

// The key column as every shard has it.
Result<KeyColumn> describe_everywhere(Cluster& shards, const TableName& table,
                                      const std::string& column) {
  if (auto equal = same_shape(shards, {table}); equal.has_error()) {
    return equal.error();
  }
  return describe_new_key(shards[0], table, column);
}

// One change of the registry: the journal's transaction with the locks that keep other changes and
// new moves out, and a transaction on every shard.
class Change {
 public:
  explicit Change(const Config& config)
      : journal_(config.shards[config.journal_index()], long_options()),
        transaction_(journal_),
        config_(locked(journal_, config)),
        shards_(config_, long_options()) {
    // A mover claims its keys before it reads the group's tables.
    journal_.run("LOCK TABLE collegedb.claims IN SHARE MODE");
    registry_ = read_registry(journal_, scope());
    slots_ = read_slots(journal_, config_);
    shards_.begin();
  }

  [[nodiscard]] const Config& config() const { return config_; }
  [[nodiscard]] const std::string& scope() const { return config_.journal.scope; }
  [[nodiscard]] ControlSession& journal() { return journal_; }
  [[nodiscard]] Cluster& shards() { return shards_; }
  [[nodiscard]] const std::vector<int>& slots() const { return slots_; }
  [[nodiscard]] const std::vector<RegisteredTable>& registry() const { return registry_; }

  [[nodiscard]] const RegisteredTable* registered(const TableName& name) const {
    for (const RegisteredTable& table : registry_) {
      if (table.name.schema == name.schema && table.name.name == name.name) {
        return &table;
      }
    }
    return nullptr;
  }

  // The table the request names: on the journal shard, else in the registry, else (if it may be
  // missing) as it will be called. `exists` tells which.
  Result<TableName> resolve(const std::string& text, const TableRequest& request, bool& exists) {
    ControlSession& session = shards_[config_.journal_index()];
    TableName name = parse_table_name(session, text);
    const auto found = find_table(session, name, request.search_path);
    exists = found.has_value();
    if (found) {
      return *found;
    }
    if (name.schema.empty()) {
      name = parse_table_name(session, "public." + text);
    }
    if (registered(name) == nullptr && !request.may_be_missing) {
      return make_error("42P01", "relation \"" + text + "\" does not exist");
    }
    return name;
  }

  // Every shard or none.
  Result<void> same_presence(const TableName& name, bool exists) {
    for (std::size_t i = 0; i < shards_.size(); ++i) {
      if (find_table(shards_[i], name, {}).has_value() != exists) {
        return make_error("55000", "table " + name.qualified + " does not exist on every shard",
                          "Create it through the proxy, or on each shard alike.",
                          exists ? "It is missing on shard \"" + shards_[i].shard() + "\"."
                                 : "It exists on shard \"" + shards_[i].shard() + "\".");
      }
    }
    return {};
  }

  Result<void> refuse_moving(const std::string& group) {
    const Rows rows = journal_.run(
        "SELECT op FROM collegedb.claims WHERE scope = $1 AND grp = $2 LIMIT 1", {scope(), group});
    if (rows.empty()) {
      return {};
    }
    return make_error("55006", "keys of group " + group + " are being moved",
                      "Wait for the move, or cancel it with collegedb_cancel_move.",
                      "Operation " + rows.text(0, 0) + ".");
  }

  // Directory first: once the shards' locks go, every reader must find the rows.
  std::int64_t commit(const RegistryChange& change, const std::vector<MisplacedKey>& exceptions,
                      const std::string& group) {
    apply_registry_change(journal_, scope(), change);
    record(exceptions, group);
    const Rows version =
        journal_.run("SELECT registry_version FROM collegedb.manifest WHERE scope = $1", {scope()});
    transaction_.commit();
    // The locks on the shards keep the statements of stale proxies waiting meanwhile.
    await_proxies(journal_, scope(), version.int8(0, 0));
    shards_.commit();
    return version.int8(0, 0);
  }

 private:
  void record(const std::vector<MisplacedKey>& exceptions, const std::string& group) {
    if (exceptions.empty()) {
      return;
    }
    std::vector<std::string> keys;
    std::vector<std::string> homes;
    for (const MisplacedKey& each : exceptions) {
      keys.push_back(each.key);
      homes.push_back(each.shard);
    }
    journal_.run(
        "WITH v AS (UPDATE collegedb.manifest SET exception_version = exception_version + 1"
        " WHERE scope = $1 RETURNING exception_version)"
        " INSERT INTO collegedb.exceptions (scope, grp, key, shard, kind, version)"
        " SELECT $1, $2, u.key, u.shard, 'move', v.exception_version FROM v,"
        " unnest($3::pg_catalog.text[], $4::pg_catalog.text[]) u (key, shard)"
        " ON CONFLICT (scope, grp, key) DO UPDATE SET shard = excluded.shard, kind = excluded.kind,"
        " version = excluded.version, updated_at = pg_catalog.clock_timestamp()",
        {scope(), group, array_text(keys), array_text(homes)});
  }

  // The cluster as it stays while the registry is locked.
  static Config locked(ControlSession& journal, const Config& config) {
    journal.run(
        "SELECT pg_catalog.pg_advisory_xact_lock("
        "pg_catalog.hashtextextended('collegedb:registry', 0))");
    return member_config(journal, config);
  }

  ControlSession journal_;
  Transaction transaction_;
  Config config_;
  Cluster shards_;
  std::vector<RegisteredTable> registry_;
  std::vector<int> slots_;
};

Result<std::string> group_for(Change& change, const TableName& name, const TableRequest& request,
                              std::string_view key_type) {
  if (request.colocate_with.empty()) {
    return name.qualified;
  }
  bool exists = false;
  const auto root = change.resolve(request.colocate_with, request, exists);
  if (root.has_error()) {
    return root.error();
  }
  const RegisteredTable* other = change.registered(*root);
  if (other == nullptr || other->kind != "sharded") {
    return make_error(ErrorCode::kUnknownTable, root->qualified + " is not a sharded table",
                      "Shard it first with collegedb_shard_table.");
  }
  if (!key_type.empty() && !other->key_type.empty() &&
      !compatible_keys(key_type, other->key_type)) {
    return make_error("42804", "the keys of " + name.qualified + " (" + std::string(key_type) +
                                   ") and " + other->name.qualified + " (" + other->key_type +
                                   ") are of different types");
  }
  return other->group;
}

enum class Look : std::uint8_t {
  kFirst,   // nothing is done for a table that is registered so already
  kRepair,  // everything is done again
  kSecond,  // at a table that has just been registered
};

// `done` is left false when nothing had to be changed.
Result<RegisteredTable> register_sharded(const Config& config, const TableRequest& request,
                                         Look look, bool& done) {
  Change change(config);
  bool exists = false;
  const auto name = change.resolve(request.table, request, exists);
  if (name.has_error()) {
    return name.error();
  }
  if (auto everywhere = change.same_presence(*name, exists); everywhere.has_error()) {
    return everywhere.error();
  }
  RegisteredTable table{*name, "sharded", {}, request.key, {}, {}};
  if (exists) {
    lock_tables(change.shards(), *name);
    const auto key = describe_everywhere(change.shards(), *name, request.key);
    if (key.has_error()) {
      return key.error();
    }
    table.key_type = routing::name_of(key->type);
    table.key_expression = key->expression;
  }
  const auto group = group_for(change, *name, request, table.key_type);
  if (group.has_error()) {
    return group.error();
  }
  table.group = *group;

  const RegisteredTable* old = change.registered(*name);
  if (old != nullptr && old->kind == "sharded") {
    const bool same = old->key_column == table.key_column &&
                      (request.colocate_with.empty() || old->group == table.group);
    if (!same) {
      return make_error("42710", "table " + name->qualified + " is already sharded by " +
                                     old->key_column + " in group " + old->group);
    }
    if (look == Look::kFirst && (!exists || !old->key_type.empty())) {
      return *old;
    }
    table.group = old->group;
  }
  if (!exists) {
    change.commit({{table}, {}}, {}, table.group);
    return table;
  }
  if (auto moving = change.refuse_moving(table.group); moving.has_error()) {
    return moving.error();
  }
  std::vector<MisplacedKey> exceptions;
  if (has_mapped_placement(change.journal(), change.scope())) {
    auto sound = mapped_census(change.journal(), change.shards(), change.scope(), table);
    if (sound.has_error()) {
      return sound.error();
    }
  } else if (change.shards().size() > 1) {
    const auto placement = read_placement(change.journal(), change.scope(), table.group);
    if (placement.has_error()) {
      return placement.error();
    }
    auto found = census(change.shards(), *placement, table);
    if (found.has_error()) {
      return found.error();
    }
    exceptions = std::move(*found);
  }
  for (std::size_t i = 0; i < change.shards().size(); ++i) {
    ensure_fences(change.shards()[i], change.scope(), {&table, 1});
  }
  stride_sequences(change.shards(), change.slots(), {&table, 1});
  if (look == Look::kSecond && exceptions.empty()) {
    return table;
  }
  change.commit({{table}, {}}, exceptions, table.group);
  done = true;
  return table;
}

Result<void> same_contents(Cluster& shards, const TableName& table) {
  const std::string first = table_contents(shards[0], table);
  for (std::size_t i = 1; i < shards.size(); ++i) {
    if (table_contents(shards[i], table) != first) {
      return make_error("55000",
                        "table " + table.qualified + " has different rows on shards \"" +
                            shards[0].shard() + "\" and \"" + shards[i].shard() + "\"",
                        "A reference table must have the same rows on every shard.");
    }
  }
  return {};
}

Result<RegisteredTable> register_reference(const Config& config, const TableRequest& request) {
  Change change(config);
  bool exists = false;
  const auto name = change.resolve(request.table, request, exists);
  if (name.has_error()) {
    return name.error();
  }
  const RegisteredTable* old = change.registered(*name);
  if (old != nullptr && old->kind == "sharded") {
    return make_error("55000", "table " + name->qualified + " is sharded by " + old->key_column);
  }
  if (auto everywhere = change.same_presence(*name, exists); everywhere.has_error()) {
    return everywhere.error();
  }
  if (exists) {
    lock_tables(change.shards(), *name);
    if (auto equal = same_shape(change.shards(), {*name}); equal.has_error()) {
      return equal.error();
    }
    if (auto equal = same_contents(change.shards(), *name); equal.has_error()) {
      return equal.error();
    }
  }
  RegisteredTable table{*name, "reference", {}, {}, {}, {}};
  if (old == nullptr || old->kind != "reference") {
    change.commit({{table}, {}}, {}, {});
  }
  return table;
}

// Rows of the table that no statement would reach once it is local.
Result<void> refuse_rows_elsewhere(Change& change, const TableName& name) {
  const Config& config = change.config();
  for (std::size_t i = 0; i < change.shards().size(); ++i) {
    ControlSession& session = change.shards()[i];
    if (i == config.journal_index()) {
      continue;
    }
    if (!session.run("SELECT 1 FROM " + name.qualified + " LIMIT 1").empty()) {
      return make_error(
          "55000",
          "table " + name.qualified + " has rows on shard \"" + session.shard() +
              "\", which is not the journal shard",
          "Move its keys to shard \"" + config.shards[config.journal_index()].name + "\" first.");
    }
  }
  return {};
}

Result<RegisteredTable> register_local(const Config& config, const TableRequest& request) {
  Change change(config);
  bool exists = false;
  const auto name = change.resolve(request.table, request, exists);
  if (name.has_error()) {
    return name.error();
  }
  RegisteredTable table{*name, "local", {}, {}, {}, {}};
  const RegisteredTable* old = change.registered(*name);
  if (old != nullptr && old->kind == "sharded" && exists) {
    if (auto moving = change.refuse_moving(old->group); moving.has_error()) {
      return moving.error();
    }
    lock_tables(change.shards(), *name);
    if (auto lost = refuse_rows_elsewhere(change, *name); lost.has_error()) {
      return lost.error();
    }
    for (std::size_t i = 0; i < change.shards().size(); ++i) {
      drop_fence(change.shards()[i], *name);
    }
  }
  if (old == nullptr || old->kind != "local") {
    change.commit({{table}, {}}, {}, {});
  }
  return table;
}

// A table that cannot be put right is named and left as it is: the others are not its fault. A lost
// journal is everybody's.
template <class F>
void one_table(const RegisteredTable& table, const ControlSession& journal, F act) {
  SqlError error;
  try {
    const Result<void> done = act();
    if (done.has_value()) {
      return;
    }
    error = done.error();
  } catch (const SqlFailure& failure) {
    if (!journal.alive()) {
      throw;
    }
    error = failure.error();
  }
  spdlog::warn("registry: table {}: {}", table.name.qualified, error.message);
}

// Registers tables again whose key expression is another than routing's: fences, and the directory
// of keys that it had under other names.
void repair_expressions(const Config& config, ControlSession& journal) {
  for (const RegisteredTable& table :
       sound_tables(journal, read_registry(journal, config.journal.scope))) {
    if (table.kind != "sharded" || table.key_type.empty()) {
      continue;
    }
    one_table(table, journal, [&]() -> Result<void> {
      if (!find_table(journal, table.name, {})) {
        return {};
      }
      const auto key = describe_key(journal, table.name, table.key_column);
      if (key.has_error() || key->expression == table.key_expression) {
        return {};
      }
      const TableRequest request{.table = table.name.qualified, .key = table.key_column};
      for (const bool again : {false, true}) {
        bool done = false;
        auto repaired =
            register_sharded(config, request, again ? Look::kSecond : Look::kRepair, done);
        if (repaired.has_error()) {
          return repaired.error();
        }
      }
      spdlog::warn("registry: table {}: its key expression was {}, now {}", table.name.qualified,
                   table.key_expression, key->expression);
      return {};
    });
  }
}

void tell_hazards(const Config& config, const RegisteredTable& table) {
  ControlSession journal(config.shards[config.journal_index()]);
  for (const std::string& each :
       hazards(journal, table, read_registry(journal, config.journal.scope), false)) {
    spdlog::warn("registry: {}", each);
  }
}

template <class F>
Result<RegisteredTable> guarded(const Config& config, F change) {
  if (!config.has_journal()) {
    return make_error(ErrorCode::kJournalNotConfigured,
                      "the registry of tables needs a journal shard",
                      "Name one as journal.shard in the configuration of every proxy.");
  }
  try {
    return change();
  } catch (const SqlFailure& failure) {
    return named(failure);
  }
}

}  // namespace

Result<RegisteredTable> shard_table(const Config& config, const TableRequest& request) {
  return guarded(config, [&]() -> Result<RegisteredTable> {
    bool done = false;
    auto table = register_sharded(config, request, Look::kFirst, done);
    if (!done || config.shards.size() == 1) {
      return table;
    }
    tell_hazards(config, *table);
    // Statements that were routed before the registration and waited for its locks have put their
    // rows on the journal shard by now.
    return register_sharded(config, request, Look::kSecond, done);
  });
}

Result<RegisteredTable> reference_table(const Config& config, const TableRequest& request) {
  return guarded(config, [&] { return register_reference(config, request); });
}

Result<RegisteredTable> local_table(const Config& config, const TableRequest& request) {
  return guarded(config, [&] { return register_local(config, request); });
}

void await_proxies(ControlSession& journal, const std::string& scope,
                   std::int64_t registry_version) {
  const auto deadline = std::chrono::steady_clock::now() + 3s;
  while (std::chrono::steady_clock::now() < deadline) {
    const Rows behind = journal.run(
        "SELECT 1 FROM collegedb.proxies WHERE scope = $1"
        " AND registry_version < $2::pg_catalog.int8"
        " AND heartbeat_at > pg_catalog.clock_timestamp() - interval '10 seconds' LIMIT 1",
        {scope, std::to_string(registry_version)});
    if (behind.empty()) {
      return;
    }
    std::this_thread::sleep_for(10ms);
  }
  spdlog::warn("a proxy has not taken over registry version {} in time", registry_version);
}

void complete_tables(const Config& config) {
  ControlSession journal(config.shards[config.journal_index()]);
  for (const RegisteredTable& table : read_registry(journal, config.journal.scope)) {
    if (table.kind == "sharded" && table.key_type.empty()) {
      one_table(table, journal, [&]() -> Result<void> {
        if (!find_table(journal, table.name, {})) {
          return {};
        }
        const auto done =
            shard_table(config, {.table = table.name.qualified, .key = table.key_column});
        return done.has_error() ? Result<void>(done.error()) : Result<void>{};
      });
    }
  }
}

void resolve_tables(const Config& config) {
  complete_tables(config);
  ControlSession journal(config.shards[config.journal_index()]);
  repair_expressions(config, journal);
  const Config cluster = member_config(journal, config);
  const std::vector<RegisteredTable> tables =
      sound_tables(journal, read_registry(journal, config.journal.scope));
  Cluster shards(cluster);
  shards.begin();
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const int repaired = ensure_fences(shards[i], config.journal.scope, tables);
    if (repaired > 0) {
      spdlog::warn("shard {}: installed the insert fence on {} relations that lacked it",
                   shards[i].shard(), repaired);
    }
  }
  stride_sequences(shards, read_slots(journal, cluster), tables);
  shards.commit();
}

}  // namespace collegedb::migration
