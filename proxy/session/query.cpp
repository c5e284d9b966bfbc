// A simple Query: parsed, planned, and either answered here or run on one shard.
#include <algorithm>

#include "proxy/session/session_impl.h"

namespace collegedb::session {

using parser::StatementKind;

// Declared in session_impl.h.
bool allowed_in_failed_transaction(const parser::Statement& statement) {
  switch (statement.kind) {
    case StatementKind::kCommit:
    case StatementKind::kRollback:
    case StatementKind::kRollbackTo:
    case StatementKind::kRollbackPrepared:
    case StatementKind::kPrepareTransaction:
      return true;
    default:
      return false;
  }
}

const SqlError& transaction_aborted() {
  static const SqlError error = make_error(
      "25P02", "current transaction is aborted, commands ignored until end of transaction block");
  return error;
}

void SessionImpl::start_query() {
  extended_ = false;
  const auto decoded = wire::Query::decode(body(turn_.front()));
  if (!decoded) {
    abort_and_fail(decoded.error());
    return;
  }
  query_ = decoded->query;
  // A simple Query destroys the unnamed statement and the unnamed portal.
  statements_.erase("");
  portals_.erase("");
  text_plan_ = plan_of(query_);
  if (text_plan_->error) {
    abort_and_fail(*text_plan_->error);
    return;
  }
  if (text_plan_->statements.empty()) {
    wire::encode_empty_query_response(client_out_);
    finish_turn();
    return;
  }
  if (text_plan_->statements.size() > 1) {
    run_several();
    return;
  }
  plan_ = text_plan_->statements.front();
  run_statement();
}

void SessionImpl::run_statement() {
  if (txn_.failed() && !allowed_in_failed_transaction(plan_->statement)) {
    fail_turn(transaction_aborted());
    return;
  }
  if (plan_->kind == routing::PlanKind::kRefuse) {
    abort_and_fail(plan_->error);
    return;
  }
  std::optional<Target> target;
  if (!is_local(plan_.get())) {
    auto routed = target_for(plan_, {});
    if (!routed) {
      abort_and_fail(routed.error());
      return;
    }
    if (find_first(*routed, &SessionImpl::run_or_resend)) {
      return;
    }
    target = std::move(*routed);
  } else if (plan_->kind == routing::PlanKind::kSession) {
    Utility done = utility(plan_, query_);
    if (done.error) {
      abort_and_fail(*done.error);
      return;
    }
    if (done.trial) {
      start_trial(plan_->statement, query_, &SessionImpl::simple_trial_done);
      return;
    }
    if (!done.target) {
      client_out_ += done.reply;
      finish_turn();
      return;
    }
    target = std::move(done.target);
  } else if (plan_->kind == routing::PlanKind::kScatter) {
    start_scatter(plan_, query_, nullptr, &SessionImpl::simple_scatter_done);
    return;
  } else {
    auto request = control_request(*plan_, query_, {});
    if (!request) {
      abort_and_fail(request.error());
      return;
    }
    start_control(std::move(*request), &SessionImpl::simple_control_done);
    return;
  }
  attempt_ = Attempt{};
  attempt_.target = std::move(*target);
  send_query();
}

// What drivers send to reset a session ("CLOSE ALL; UNLISTEN *; RESET ALL"): nothing that a
// transaction would have to hold together.
bool SessionImpl::may_run_one_by_one() const {
  if (txn_.open()) {
    return false;
  }
  const auto& statements = text_plan_->statements;
  const auto harmless = [](const std::shared_ptr<const routing::Plan>& plan) {
    const parser::Statement& statement = plan->statement;
    if (plan->kind == routing::PlanKind::kNoTable) {
      return !plan->writes;
    }
    return plan->kind == routing::PlanKind::kSession &&
           (statement.kind == StatementKind::kReset ||
            (statement.kind == StatementKind::kSet && !statement.local) ||
            statement.kind == StatementKind::kDeallocate ||
            (statement.kind == StatementKind::kCloseCursor && statement.name.empty()) ||
            (statement.kind == StatementKind::kDiscard && statement.name != "all"));
  };
  const auto in_session = [](const std::shared_ptr<const routing::Plan>& plan) {
    return plan->kind == routing::PlanKind::kSession;
  };
  return std::all_of(statements.begin(), statements.end(), harmless) &&
         std::any_of(statements.begin(), statements.end(), in_session);
}

// The next statement of a text whose statements run one after the other. False: none is left, or
// the last one failed.
bool SessionImpl::continue_several() {
  if (!several_ || turn_failed_ || several_next_ == several_->statements.size()) {
    several_.reset();
    return false;
  }
  const parser::Statement& statement = several_->statements[several_next_++]->statement;
  if (link_) {
    release_link();
  }
  attempt_ = Attempt{};
  patience_ = Patience{};
  turn_error_.reset();
  query_ = several_text_.substr(statement.location, statement.length);
  text_plan_ = plan_of(query_);
  if (text_plan_->error || text_plan_->statements.size() != 1) {
    several_.reset();
    abort_and_fail(text_plan_->error.value_or(
        make_error("XX000", "a statement cannot be read alone", "Send it as a query of its own.")));
    return true;
  }
  plan_ = text_plan_->statements.front();
  run_statement();
  return true;
}

// Several statements in one Query are one implicit transaction: they run together on one shard, or
// not at all.
void SessionImpl::run_several() {
  if (may_run_one_by_one()) {
    several_ = text_plan_;
    several_text_ = query_;
    several_next_ = 0;
    continue_several();
    return;
  }
  std::optional<Target> whole;
  for (const auto& plan : text_plan_->statements) {
    if (plan->kind == routing::PlanKind::kRefuse) {
      abort_and_fail(plan->error);
      return;
    }
    if (is_local(plan.get()) || plan->kind == routing::PlanKind::kSession) {
      abort_and_fail(make_error(
          "0A000",
          plan->statement.verb + " cannot be one of several statements in a single query string",
          "Send BEGIN, COMMIT, SET, admin functions and the like as queries of their own."));
      return;
    }
    auto target = target_for(plan, {});
    if (!target) {
      abort_and_fail(target.error());
      return;
    }
    if (find_first(*target, &SessionImpl::run_or_resend)) {
      return;
    }
    if (!whole) {
      whole = std::move(*target);
      continue;
    }
    if (whole->any_shard && !target->any_shard) {
      whole->shard = target->shard;
      whole->any_shard = false;
    }
    if (!target->any_shard && target->shard != whole->shard) {
      abort_and_fail(make_error(
          ErrorCode::kCrossShardTransaction,
          "the statements of one query string belong to different shards",
          "Send them as separate queries, or write rows of one key only in one query string."));
      return;
    }
    whole->in_transaction = whole->in_transaction || target->in_transaction;
    whole->keys.insert(whole->keys.end(), target->keys.begin(), target->keys.end());
  }
  // No one plan stands for all of them: guarded, fenced, and taken as writing.
  whole->plan = nullptr;
  if (txn_.failed()) {
    fail_turn(transaction_aborted());
    return;
  }
  attempt_ = Attempt{};
  attempt_.target = std::move(*whole);
  send_query();
}

void SessionImpl::send_query() {
  switch (acquire(attempt_.target, &SessionImpl::send_query)) {
    case Acquired::kWaiting:
      return;
    case Acquired::kRefused:
      abort_and_fail(*turn_error_);
      return;
    case Acquired::kReady:
      break;
  }
  const Target target = attempt_.target;
  begin_attempt(target, true);
  Link& link = *link_;
  wire::Query{query_}.encode(link.out);
  link.owe(Expect::kQuery, Role::kClient, target.plan);
  link.executed = true;
  link.unnamed.reset();
  writes_in_flight_ = !target.plan || target.plan->writes;
  await_drain(&SessionImpl::query_done);
}

void SessionImpl::query_done() {
  if (attempt_.failure) {
    if (handle_failure(&SessionImpl::run_or_resend)) {
      return;
    }
  } else if (attempt_.empty) {
    client_out_.resize(attempt_.client_mark);
    patience_.force_guard = true;
    run_or_resend();
    return;
  }
  report_and_finish();
}

// The same client message once more, with whatever has been learned since.
void SessionImpl::run_or_resend() {
  text_plan_ = plan_of(query_);  // the registry may be another one by now
  if (text_plan_->error) {
    abort_and_fail(*text_plan_->error);
    return;
  }
  plan_ = text_plan_->statements.front();
  if (text_plan_->statements.size() > 1) {
    run_several();
  } else {
    run_statement();
  }
}

void SessionImpl::report_and_finish() {
  if (turn_error_) {
    report(*turn_error_);
  }
  finish_turn();
}

// An error of the proxy's own making aborts the client's transaction as a server's would, on the
// server as well.
void SessionImpl::abort_and_fail(SqlError error) {
  turn_error_ = std::move(error);
  undo_implicit_settings();
  if (txn_.open() && !txn_.failed()) {
    if (txn_.bound() && link_) {
      poison();
      wire::encode_sync(link_->out);
      link_->owe(Expect::kSync, Role::kSilent);
      link_->open = false;
      await_drain(&SessionImpl::report_and_finish);
      return;
    }
    txn_.fail();
  }
  report_and_finish();
}

}  // namespace collegedb::session
