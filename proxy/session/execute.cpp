// One statement on one server connection: what is sent before it (settings, the transaction's
// preamble, the guard).
#include <algorithm>

#include "proxy/session/guard.h"
#include "proxy/session/quote.h"
#include "proxy/session/session_impl.h"

namespace collegedb::session {
namespace {

// What unknown code may have left behind, but for SQL-level prepared statements: their names are
// nobody's. Every part may run in a transaction.
constexpr std::string_view kCleanUp =
    "RESET ALL;RESET ROLE;CLOSE ALL;UNLISTEN *;DISCARD TEMP;DISCARD SEQUENCES;"
    "SELECT pg_catalog.pg_advisory_unlock_all();";

bool by_bucket(const routing::RoutedKey& a, const routing::RoutedKey& b) {
  return a.bucket != b.bucket ? a.bucket < b.bucket : a.group < b.group;
}

// {"a","b"}: the text form of text[].
std::string text_array(std::span<const routing::RoutedKey* const> keys) {
  std::string out = "{";
  for (const routing::RoutedKey* key : keys) {
    if (out.size() > 1) {
      out += ',';
    }
    out += '"';
    for (const char c : key->key) {
      if (c == '"' || c == '\\') {
        out += '\\';
      }
      out += c;
    }
    out += '"';
  }
  return out += '}';
}

void bind_and_execute(Link& link, Role role, std::string_view statement,
                      std::vector<std::optional<std::string_view>> parameters) {
  wire::Bind bind;
  bind.statement = statement;
  bind.parameters = std::move(parameters);
  bind.encode(link.out);
  link.owe(Expect::kBind, role);
  wire::Execute{}.encode(link.out);
  link.owe(Expect::kExecute, role);
  link.open = true;
}

void parse_named(Link& link, std::string_view name, std::string_view sql) {
  wire::Parse parse;
  parse.statement = name;
  parse.query = sql;
  parse.encode(link.out);
  link.owe(Expect::kParse, Role::kSilent);
  link.open = true;
}

}  // namespace

// --- the server connection ------------------------------------------------------------------

SessionImpl::Acquired SessionImpl::acquire(Target& target, Step then) {
  if (link_ && link_->dirty && turn_error_) {
    return Acquired::kRefused;  // the client's settings could not be put in force
  }
  if (link_) {
    if (target.any_shard) {
      target.shard = link_->shard;
    }
    const bool needs_preamble = target.in_transaction && txn_.open() && !txn_.bound();
    if (link_->shard == target.shard && !(needs_preamble && link_->open)) {
      // A statement must not run under other settings than its client's: they come first, alone.
      if (!txn_.bound() && !link_->open && link_->owed.empty() && emit_settings(*link_)) {
        await_drain(then);
        return Acquired::kWaiting;
      }
      return Acquired::kReady;
    }
    if (txn_.bound() || link_->executed) {
      turn_error_ = other_shard(target);
      return Acquired::kRefused;
    }
    if (link_->open) {  // only Parse and Describe so far: they end here
      wire::encode_sync(link_->out);
      link_->owe(Expect::kSync, Role::kSilent);
      link_->open = false;
    }
    if (!link_->owed.empty()) {
      await_drain(then);
      return Acquired::kWaiting;
    }
    if (link_->shard == target.shard) {
      return acquire(target, then);
    }
    release_link();
  }
  attempt_.target.any_shard = target.any_shard;
  step_ = then;
  wait_ = Wait{};
  wait_.kind = Wait::Kind::kLease;
  wait_.shard = target.shard;
  return Acquired::kWaiting;
}

// A statement that belongs elsewhere than its transaction. A key that was here when the transaction
// began has moved meanwhile: that is worth another try.
SqlError SessionImpl::other_shard(const Target& target) const {
  const auto was_here = [this](const routing::RoutedKey& key) {
    if (!txn_snapshot_) {
      return false;
    }
    const routing::Owner said = routing::locate(*txn_snapshot_, key.group, key.key);
    return said.via != routing::Via::kMapping && said.shard == link_->shard;
  };
  for (const routing::RoutedKey& key : target.keys) {
    if (txn_.touched(key) || was_here(key)) {
      return make_error(ErrorCode::kMovedInTransaction,
                        "a key of this transaction has moved to another shard",
                        "Run the transaction again.");
    }
  }
  return make_error(
      ErrorCode::kCrossShardTransaction,
      "this transaction already runs on shard " + context_.snapshot->shards[link_->shard].name +
          ", the statement belongs to shard " + context_.snapshot->shards[target.shard].name,
      "Keep a transaction to keys of one shard; see collegedb_locate().");
}

void SessionImpl::release_link() {
  if (!link_) {
    return;
  }
  const bool clean = link_->owed.empty() && !link_->open && !link_->skipping && !link_->dirty &&
                     link_->status == 'I';
  commands_.push_back(
      Command{clean ? Command::Kind::kRelease : Command::Kind::kDiscard, link_->id});
  link_.reset();
}

void SessionImpl::discard_link() {
  if (link_) {
    commands_.push_back(Command{Command::Kind::kDiscard, link_->id});
    link_.reset();
  }
}

// --- what is sent before a statement ----------------------------------------------------------

// Every key of the target is guarded already: in the open transaction, or by the present attempt.
bool SessionImpl::covered(const Target& target) const {
  const auto held = [this](const routing::RoutedKey& key) {
    if (txn_.open() && txn_.guarded(key)) {
      return true;
    }
    return std::any_of(attempt_.keys.begin(), attempt_.keys.end(), [&](const auto& other) {
      return other.bucket == key.bucket && other.key == key.key && other.group == key.group;
    });
  };
  return std::all_of(target.keys.begin(), target.keys.end(), held);
}

void SessionImpl::begin_attempt(const Target& target, bool may_watch_empty) {
  // Statements of one batch whose replies are all still to come share their fate: one attempt.
  const bool joins = attempt_.active && !link_->owed.empty();
  if (!joins) {
    Attempt fresh;
    fresh.active = true;
    fresh.client_mark = client_out_.size();
    // Its Parse, where that has waited for it, is part of what a retry starts over.
    fresh.cursor_mark = cursor_ - (parse_waiting_before_cursor() ? 1 : 0);
    fresh.retryable = !link_->executed;
    fresh.started_ns = context_.stats->now_ns();
    attempt_ = std::move(fresh);
  } else if (txn_.open()) {
    attempt_.retryable = false;
  }
  attempt_.target = target;
  for (const routing::RoutedKey& key : target.keys) {
    if (!key.sought && txn_.bound()) {
      txn_.settle(key);
    }
  }
  if (target.in_transaction && txn_.open() && !txn_.bound()) {
    emit_preamble();
  }
  if (txn_.open() && !txn_snapshot_) {
    txn_snapshot_ = context_.snapshot;
  }
  const routing::Plan* plan = target.plan.get();
  for (const routing::RoutedKey& key : target.keys) {
    context_.hot_keys.count(key, target.shard, plan == nullptr || plan->writes,
                            attempt_.started_ns);
  }
  const bool autocommit = !txn_.open();
  attempt_.watch_empty = false;
  // Behind other statements of the same implicit transaction there is no trying again: they would
  // be lost with it.
  attempt_.hold = !joins && attempt_.retryable && autocommit && plan != nullptr && plan->writes &&
                  !plan->statement.has_returning;
  if (autocommit && plan != nullptr && plan->plain_read && may_watch_empty && !joins &&
      !patience_.force_guard && !target.keys.empty()) {
    attempt_.watch_empty = true;
    attempt_.keys.assign(target.keys.begin(), target.keys.end());
  } else if (!target.keys.empty()) {
    emit_guard(target);
  }
  emit_fence(target);
  attempt_.undecided = attempt_.gates > 0 || attempt_.watch_empty || attempt_.hold;
}

// What a server connection carries before the client's transaction begins there.
const SettingsPtr& SessionImpl::settings_wanted() const {
  return txn_.open() ? txn_.at_begin().session : settings_.session;
}

// GUCs the client has set and this server connection does not carry, as one Query.
bool SessionImpl::emit_settings(Link& link) {
  const bool touched = std::exchange(link.state->touched, false);
  const SettingsPtr& have = link.state->settings;
  const SettingsPtr& want = settings_wanted();
  if (have == want && !touched) {
    return false;
  }
  static const Settings kNone;
  const Settings& old_values = have && !touched ? *have : kNone;
  const Settings& new_values = want ? *want : kNone;
  if (old_values == new_values && !touched) {
    link.state->settings = want;
    return false;
  }
  std::string sql(touched ? kCleanUp : "");
  for (const auto& [name, value] : old_values) {
    if (!new_values.contains(name)) {
      sql += "RESET " + quote_identifier_path(name) + ";";
    }
  }
  std::string sets;
  for (const auto& [name, value] : new_values) {
    const auto old_value = old_values.find(name);
    if (old_value == old_values.end() || old_value->second != value) {
      sets += sets.empty() ? "SELECT " : ", ";
      sets +=
          "pg_catalog.set_config(" + quote_literal(name) + "," + quote_literal(value) + ",false)";
    }
  }
  sql += sets;
  wire::Query{sql}.encode(link.out);
  link.owe(Expect::kQuery, Role::kSettings);
  link.state->settings = want;
  link.committed = want;
  return true;
}

// Without a Sync: a server that refuses a part of it skips everything behind it, so nothing of the
// client's can run outside its transaction.
void SessionImpl::emit_preamble() {
  for (const std::string& statement : txn_.preamble()) {
    wire::Parse parse;
    parse.query = statement;
    parse.encode(link_->out);
    link_->owe(Expect::kParse, Role::kPreamble);
    bind_and_execute(*link_, Role::kPreamble, "", {});
  }
  link_->unnamed.reset();
  txn_.bind();
}

void SessionImpl::emit_guard_statements() {
  if (link_->state->guard_ready) {
    return;
  }
  parse_named(*link_, guard::kQueueName, guard::kQueueSql);
  parse_named(*link_, guard::kGateName, guard::kGateSql);
  parse_named(*link_, guard::kGateReadOnlyName, guard::kGateReadOnlySql);
  parse_named(*link_, guard::kFenceOnName, guard::kFenceOnSql);
  link_->state->guard_ready = true;
}

// Queue and gate row of every bucket, in order of buckets.
void SessionImpl::emit_guard(const Target& target) {
  std::vector<const routing::RoutedKey*> keys;
  for (const routing::RoutedKey& key : target.keys) {
    if (!txn_.open() || !txn_.guarded(key)) {
      keys.push_back(&key);
      attempt_.keys.push_back(key);
    }
  }
  emit_guard_statements();
  std::sort(keys.begin(), keys.end(),
            [](const auto* a, const auto* b) { return by_bucket(*a, *b); });
  const bool fence_off = target.plan && (target.plan->known_writes || target.plan->plain_read);
  const std::string generation = std::to_string(context_.snapshot->generation);
  const std::string_view gate = read_only_now() ? guard::kGateReadOnlyName : guard::kGateName;
  for (std::size_t i = 0; i < keys.size();) {
    std::size_t end = i;
    while (end < keys.size() && keys[end]->bucket == keys[i]->bucket &&
           keys[end]->group == keys[i]->group) {
      ++end;
    }
    const std::string bucket = std::to_string(keys[i]->bucket);
    const std::string names = text_array(std::span(keys).subspan(i, end - i));
    bind_and_execute(*link_, Role::kQueue, guard::kQueueName, {bucket});
    bind_and_execute(*link_, Role::kGate, gate,
                     {bucket, generation, context_.snapshot->scope, keys[i]->group, names,
                      fence_off ? "on" : "off"});
    ++attempt_.gates;
    i = end;
  }
  if (!keys.empty()) {
    // The guard's answer must not wait for the statement's: write_hold bounds the guard alone,
    // never the statement's own row locks.
    wire::encode_flush(link_->out);
  }
  if (!keys.empty()) {
    link_->fence_off = fence_off;
  }
}

// A statement whose writes the proxy does not know meets the insert fence, whatever ran before it
// in the transaction.
void SessionImpl::emit_fence(const Target& target) {
  if (target.plan == nullptr || target.plan->opaque) {
    link_->state->touched = true;
  }
  const bool known = target.plan && (target.plan->known_writes || target.plan->plain_read ||
                                     target.plan->free_standing ||
                                     target.plan->kind == routing::PlanKind::kSession);
  if (!link_->fence_off || known) {
    return;
  }
  emit_guard_statements();
  bind_and_execute(*link_, Role::kSilent, guard::kFenceOnName, {});
  link_->fence_off = false;
}

}  // namespace collegedb::session
