// What a server answers, matched with what it owes.
#include <charconv>

#include "proxy/session/guard.h"
#include "proxy/session/lower.h"
#include "proxy/session/session_impl.h"

namespace collegedb::session {
namespace {

using parser::StatementKind;

metrics::QueryKind query_kind(StatementKind kind) {
  switch (kind) {
    case StatementKind::kSelect:
      return metrics::QueryKind::kSelect;
    case StatementKind::kInsert:
      return metrics::QueryKind::kInsert;
    case StatementKind::kUpdate:
      return metrics::QueryKind::kUpdate;
    case StatementKind::kDelete:
      return metrics::QueryKind::kDelete;
    case StatementKind::kCopyFrom:
    case StatementKind::kCopyTo:
      return metrics::QueryKind::kCopy;
    default:
      return metrics::QueryKind::kOther;
  }
}

bool is_fatal(const SqlError& error) {
  return error.severity == "FATAL" || error.severity == "PANIC";
}

}  // namespace

void SessionImpl::pop_owed(Link& link) {
  link.owed.pop_front();
  while (!link.owed.empty() && link.owed.front().expect == Expect::kMade) {
    client_out_ += link.owed.front().made;
    link.owed.pop_front();
  }
}

void SessionImpl::extended_reply(Link& link, const wire::Frame& frame) {
  Owed& owed = link.owed.front();
  const bool for_client = owed.role == Role::kClient;
  const auto expect_tag = [&](char tag) {
    if (frame.tag != tag) {
      violation("an answer out of order");
      return;
    }
    if (for_client) {
      client_out_ += frame.raw;
    }
    pop_owed(link);
  };
  switch (owed.expect) {
    case Expect::kParse:
      expect_tag('1');
      return;
    case Expect::kBind:
      expect_tag('2');
      return;
    case Expect::kClose:
      expect_tag('3');
      return;
    case Expect::kDescribeStatement:
      if (frame.tag == 't') {
        client_out_ += frame.raw;
        return;
      }
      [[fallthrough]];
    case Expect::kDescribePortal:
      expect_tag(frame.tag == 'n' ? 'n' : 'T');
      return;
    case Expect::kSync:
      if (frame.tag != 'Z') {
        violation("an answer out of order");
        return;
      }
      ready_for_query(link, frame);
      return;
    case Expect::kExecute:
    case Expect::kQuery:
      result_reply(link, frame);
      return;
    case Expect::kMade:
      violation("an answer out of order");
      return;
  }
}

void SessionImpl::result_reply(Link& link, const wire::Frame& frame) {
  Owed& owed = link.owed.front();
  const bool for_client = owed.role == Role::kClient;
  const bool query = owed.expect == Expect::kQuery;
  switch (frame.tag) {
    case 'D':
      ++owed.rows;
      if (for_client) {
        attempt_.watch_empty = false;
        attempt_.hold = false;
        attempt_.undecided = attempt_.gates > 0;
        client_out_ += frame.raw;
      }
      return;
    case 'C':
      command_complete(link, frame);
      return;
    case 'I':
    case 's':
      if (!for_client && !query) {
        violation("no rows where the guard or a setting gives one");
        return;
      }
      if (for_client) {
        client_out_ += frame.raw;
      }
      if (!query) {
        pop_owed(link);
      }
      return;
    case 'Z':
      if (!query) {
        violation("ReadyForQuery in the middle of a statement");
        return;
      }
      ready_for_query(link, frame);
      return;
    case 'G':
      if (!for_client) {
        violation("a COPY nobody asked for");
        return;
      }
      client_out_ += frame.raw;
      if (copy_is_followed(link)) {
        end_session(make_error("08P01", "unexpected message during COPY from stdin",
                               "Send what follows a COPY after its CopyDone."));
        return;
      }
      copy_in_ = true;
      attempt_.undecided = false;
      while (!link.owed.empty() && link.owed.back().expect == Expect::kSync) {
        link.owed.pop_back();  // the server ignores a Sync while it reads CopyData
        sync_sent_ = false;
        link.open = true;
      }
      await_client();
      return;
    case 'T':
    case 'H':
    case 'd':
    case 'c':
      if (for_client) {
        client_out_ += frame.raw;
      }
      return;
    default:
      violation("a message type of no use here");
      return;
  }
}

// Messages behind the Execute of a COPY, other than Sync and Flush: PostgreSQL gives the connection
// up over them.
bool SessionImpl::copy_is_followed(const Link& link) const {
  for (std::size_t i = 1; i < link.owed.size(); ++i) {
    if (link.owed[i].expect != Expect::kSync) {
      return true;
    }
  }
  for (std::size_t i = cursor_; extended_ && i < turn_.size(); ++i) {
    if (turn_[i].tag != 'S' && turn_[i].tag != 'H') {
      return true;
    }
  }
  return false;
}

void SessionImpl::command_complete(Link& link, const wire::Frame& frame) {
  Owed& owed = link.owed.front();
  const bool query = owed.expect == Expect::kQuery;
  const auto complete = wire::CommandComplete::decode(frame.payload);
  if (!complete) {
    violation("a malformed CommandComplete");
    return;
  }
  const Role role = owed.role;
  if (role == Role::kGate) {
    if (owed.rows != 1) {
      violation("the gate's answer is not one row");
      return;
    }
    pop_owed(link);
    if (--attempt_.gates == 0 && !attempt_.failure) {
      guard_passed();
    }
    return;
  }
  if (role == Role::kClient) {
    if (attempt_.watch_empty && owed.rows == 0 && complete->tag == "SELECT 0") {
      attempt_.empty = true;
    } else {
      attempt_.hold = false;
      attempt_.undecided = attempt_.gates > 0;
    }
    client_out_ += frame.raw;
    if (owed.plan) {
      const auto plan = owed.plan;
      statement_completed(*plan, complete->tag);
    }
  }
  if (!query) {
    pop_owed(link);
  }
}

void SessionImpl::ready_for_query(Link& link, const wire::Frame& frame) {
  const auto ready = wire::ReadyForQuery::decode(frame.payload);
  if (!ready) {
    violation("a malformed ReadyForQuery");
    return;
  }
  const Role role = link.owed.front().role;
  link.status = static_cast<char>(ready->status);
  link.open = false;
  link.skipping = false;
  if (link.status == 'I') {
    link.executed = false;
    link.fence_off = false;  // collegedb.guarded was local to the transaction
  }
  pop_owed(link);
  transaction_status(role, link.status);
  if (role == Role::kTrial && trial_ && link.status == 'T') {
    trial_->passed = true;
    if (const std::string* value = reported_value(*link.state, trial_->name)) {
      trial_->reported = *value;
    }
  }
  if (role == Role::kClient && std::exchange(set_by_server_, false)) {
    adopt_reported_form(link);
  }
  if (link.status == 'I') {
    link.committed = link.state->settings;
  }
}

// ReadyForQuery is the truth about the transaction, whatever the statements' texts said.
void SessionImpl::transaction_status(Role role, char status) {
  if (!txn_.open()) {
    if (status != 'I' && role == Role::kClient) {
      txn_.adopt(implicit_settings_.value_or(settings_));
      implicit_settings_.reset();
      if (status == 'E') {
        txn_.fail();
      }
    }
    return;
  }
  if (!txn_.bound()) {
    return;
  }
  if (status == 'E') {
    txn_.fail();
  } else if (status == 'I' && attempt_.preamble_failed) {
    // BEGIN itself was refused, and the client has been told that it is in a transaction: nothing
    // may run as if it were outside before the client has ended it.
    txn_.unbind();
    txn_.fail();
  } else if (status == 'I') {
    settings_ = txn_.end(false, settings_);
    link_->state->settings = settings_.session;
    settings_changed();
  }
}

// The server answers nothing more up to the next Sync.
void SessionImpl::drop_to_sync(Link& link, bool will_retry) {
  while (!link.owed.empty() && link.owed.front().expect != Expect::kSync) {
    Owed& owed = link.owed.front();
    if (owed.expect == Expect::kParse) {
      parse_dropped(link, owed, will_retry);
    } else if (owed.evicted != 0) {
      link.state->prepared.emplace(owed.evicted, 0);  // not closed after all
    } else if (owed.expect == Expect::kMade && owed.statement && !will_retry) {
      forget_statement(owed.statement);
    }
    link.owed.pop_front();
  }
  link.skipping = link.owed.empty();
}

// A Parse that failed or was never looked at: the name is free again, unless the batch is replayed.
void SessionImpl::parse_dropped(Link& link, Owed& owed, bool will_retry) {
  if (!owed.statement) {
    if (owed.role == Role::kSilent) {
      link.state->guard_ready = false;
    }
    return;
  }
  link.state->prepared.erase(owed.statement->id);
  if (link.unnamed == owed.statement) {
    link.unnamed.reset();
  }
  if (owed.role != Role::kClient) {
    return;
  }
  if (will_retry) {
    owed.statement->parse_due = true;
    return;
  }
  forget_statement(owed.statement);
}

// A name counts only once its ParseComplete has reached the client.
void SessionImpl::forget_statement(const std::shared_ptr<Prepared>& statement) {
  const auto known = statements_.find(statement->name);
  if (known != statements_.end() && known->second == statement) {
    statements_.erase(known);
  }
}

void SessionImpl::undo_implicit_settings() {
  if (implicit_settings_) {
    const SettingsState undone = std::exchange(settings_, *implicit_settings_);
    implicit_settings_.reset();
    settings_changed();
    for (auto& [name, report] : reports_) {
      // Told as if it stood: to be taken back before ReadyForQuery.
      report.mine = report.mine || (undone.session && undone.session->contains(lower(name)));
    }
    if (link_) {
      link_->state->settings = link_->committed;
    }
  }
}

void SessionImpl::server_error(Link& link, const wire::Frame& frame) {
  auto decoded = wire::decode_error(frame.payload);
  SqlError error = decoded ? std::move(*decoded) : decoded.error();
  if (is_fatal(error)) {
    link_lost(std::move(error));
    return;
  }
  if (link.owed.empty()) {
    violation("an error nobody caused");
    return;
  }
  const Owed front = link.owed.front();
  if (front.role == Role::kSettings) {
    link.dirty = true;
    turn_error_ = std::move(error);
    return;  // its ReadyForQuery follows
  }
  undo_implicit_settings();
  if (front.role == Role::kPreamble) {
    // The server skips what follows it; the client hears of this one.
    context_.stats->count_error(error, true);
    attempt_.failure = std::move(error);
    attempt_.preamble_failed = true;
    attempt_.gates = 0;
    drop_to_sync(link, false);
    return;
  }
  const bool in_hold =
      attempt_.hold && (error.sqlstate == "40P01" || error.sqlstate == guard::kOtherKey);
  const bool guard_error = front.role == Role::kQueue || front.role == Role::kGate || in_hold;
  if (guard_error) {
    attempt_.failure = std::move(error);
    attempt_.gates = 0;
    if (in_hold) {
      attempt_.retryable = !txn_.open();
    }
  } else if (front.role != Role::kAbort) {
    attempt_.hold = false;
    attempt_.watch_empty = false;
    attempt_.undecided = false;
    turn_failed_ = true;
    context_.stats->count_error(error, true);
    if (error.sqlstate == "0A000" && front.statement &&
        error.message == "cached plan must not change result type") {
      context_.statements.forget(front.statement->id);
    }
    if (patience_.timed_out && error.sqlstate == "57014") {
      // The guard passed after all, and the statement met the cancel request meant for it.
      wire::encode_error(client_out_, held_too_long());
    } else if (error.sqlstate.starts_with(guard::kOurs)) {
      wire::encode_error(client_out_, in_our_words(error));
    } else {
      client_out_ += frame.raw;
    }
    if (!txn_.bound()) {
      txn_.fail();  // it ran beside the client's transaction, which no server has heard of yet
    }
  }
  if (front.role == Role::kSilent && !front.statement) {
    link.dirty = true;  // settings or guard statements: not as they should be
  }
  if (front.expect == Expect::kQuery) {
    return;  // its ReadyForQuery follows
  }
  drop_to_sync(link, guard_error && attempt_.retryable);
  if (!guard_error) {
    skip_until_sync_ = true;
  }
}

void SessionImpl::parameter_status(Link& link, const wire::Frame& frame) {
  const auto status = wire::ParameterStatus::decode(frame.payload);
  if (!status) {
    return;
  }
  link.state->reported[std::string(status->name)] = status->value;
  if (!link.owed.empty() && link.owed.front().role != Role::kClient) {
    return;
  }
  const auto known = reports_.find(std::string(status->name));
  if (known != reports_.end()) {
    if (known->second.told == status->value) {
      return;
    }
    known->second.told = status->value;
  }
  client_out_ += frame.raw;
}

void SessionImpl::count_statement(const routing::Plan& plan) {
  if (!link_ || link_->shard >= context_.stats->shards.size()) {
    return;
  }
  auto& shard = context_.stats->shards[link_->shard];
  const metrics::QueryKind kind = query_kind(plan.statement.kind);
  shard.queries[kind][extended_ ? metrics::Protocol::kExtended : metrics::Protocol::kSimple].add();
  if (attempt_.active) {
    shard.query_time[kind].observe_ns(context_.stats->now_ns() - attempt_.started_ns);
  }
}

// A statement the client sent has succeeded on the server: what the session must remember of it.
void SessionImpl::statement_completed(const routing::Plan& plan, std::string_view tag) {
  count_statement(plan);
  const parser::Statement& statement = plan.statement;
  switch (statement.kind) {
    case StatementKind::kBegin:
      if (!txn_.open()) {
        txn_.adopt(implicit_settings_.value_or(settings_));
        implicit_settings_.reset();
        txn_.set_characteristics(statement);
      }
      break;
    case StatementKind::kCommit:
    case StatementKind::kRollback:
      if (txn_.open() && txn_.bound()) {
        const Transaction before = txn_;
        settings_ = txn_.end(tag == "COMMIT", settings_);
        if (statement.and_chain) {
          txn_ = before;
          txn_.chain(settings_);
        }
        settings_changed();
        link_->state->settings = settings_.session;
      }
      implicit_settings_.reset();
      break;
    case StatementKind::kSavepoint:
      txn_.savepoint(statement.name, settings_);
      break;
    case StatementKind::kRelease:
      txn_.release(statement.name);
      break;
    case StatementKind::kRollbackTo:
      link_->fence_off = true;  // unknown: what it was at the savepoint
      if (txn_.rollback_to(statement.name, settings_)) {
        settings_changed();
        link_->state->settings = settings_.session;
      }
      break;
    case StatementKind::kSetTransaction:
      txn_.set_characteristics(statement);
      break;
    case StatementKind::kSet:
    case StatementKind::kReset:
      keep_implicit_settings();
      apply_set(statement);
      set_by_server_ = true;
      link_->state->settings = settings_.session;
      break;
    default:
      break;
  }
}

// --- lost servers ---------------------------------------------------------------------------

void SessionImpl::violation(std::string_view what) {
  link_lost(make_error(ErrorCode::kShardUnavailable,
                       "the shard broke the protocol: " + std::string(what),
                       "The connection was closed; try again."));
}

// The server connection is gone, or its FATAL error has been read. What was under way there is
// reported once: 08007 when it may have been applied.
void SessionImpl::link_lost(SqlError reason) {
  const bool server_said = reason.severity == "FATAL" || reason.severity == "PANIC";
  bool commit = false;
  for (const Owed& owed : link_->owed) {
    commit = commit || (owed.plan && owed.plan->statement.kind == StatementKind::kCommit);
  }
  // A Sync or a Query that nobody has answered may have committed.
  const bool owes_client = !link_->owed.empty();
  const bool in_transaction = txn_.open() && txn_.bound();
  const bool doubtful = commit || (!in_transaction && writes_in_flight_ && owes_client &&
                                   !server_said && !attempt_.failure);
  SqlError error = std::move(reason);
  if (doubtful) {
    error = make_error("08007",
                       "the connection to the shard was lost while a write was in flight: whether "
                       "it was applied is unknown",
                       "Read the row again before repeating the write.", error.message);
  }
  while (!link_->owed.empty()) {
    drop_to_sync(*link_, false);
    if (!link_->owed.empty()) {
      link_->owed.pop_front();
    }
  }
  if (greeting_) {
    end_session(std::move(error));
    return;
  }
  const bool sync_eaten = copy_in_ && extended_;
  const bool between_messages = wait_.kind == Wait::Kind::kClient && !copy_in_;
  undo_implicit_settings();
  discard_link();
  copy_in_ = false;
  trial_.reset();
  set_by_server_ = false;
  attempt_.undecided = false;
  attempt_.failure.reset();
  attempt_.empty = false;
  attempt_.gates = 0;
  if (in_transaction) {
    end_session(std::move(error));
    return;
  }
  error.severity = "ERROR";
  txn_.fail();
  if (between_messages) {
    // Extended messages without their Sync yet: what they did is gone.
    report(error);
    skip_until_sync_ = true;
    return;
  }
  if (!extended_) {
    fail_turn(error);
    return;
  }
  if (!skip_until_sync_) {
    report(error);
  }
  skip_until_sync_ = true;
  if (sync_eaten) {
    clear_turn();
    skip_until_sync_ = true;
    await_client();
    return;
  }
  if (sync_sent_) {
    finish_turn();
    return;
  }
  run_batch();
}

}  // namespace collegedb::session
