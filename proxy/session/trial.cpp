// SET that no server has to hear of yet, in a transaction block or outside: a server connection is
// borrowed to try it on, in a transaction that is rolled back. The client hears at once what is
// wrong with it, or how the server reports the value; where it will run next stays open.
#include "proxy/session/lower.h"
#include "proxy/session/session_impl.h"

namespace collegedb::session {

void SessionImpl::start_trial(const parser::Statement& statement, std::string text, Step then) {
  trial_ = Trial{lower(statement.name), std::move(text), then, false, {}};
  run_trial();
}

void SessionImpl::run_trial() {
  Target target;
  target.shard = any_shard();
  target.any_shard = true;
  switch (acquire(target, &SessionImpl::run_trial)) {
    case Acquired::kWaiting:
      return;
    case Acquired::kRefused:
      (this->*trial_->then)();
      return;
    case Acquired::kReady:
      break;
  }
  std::string sql = txn_.open() ? "" : "BEGIN;\n";
  for (const std::string& statement : txn_.preamble()) {
    sql += statement + ";\n";  // a line comment at the end of one must not swallow the next
  }
  wire::Query{sql + trial_->text}.encode(link_->out);
  link_->owe(Expect::kQuery, Role::kTrial);
  wire::Query{"ROLLBACK"}.encode(link_->out);
  link_->owe(Expect::kQuery, Role::kSilent);
  link_->unnamed.reset();
  await_drain(trial_->then);
}

// The trial has ended. True: the server took the statement, and the client's transaction has it.
bool SessionImpl::trial_passed(const routing::Plan& plan) {
  const Trial trial = *std::exchange(trial_, std::nullopt);
  if (link_) {
    release_link();
  }
  if (turn_error_ || !trial.passed) {
    return false;
  }
  const parser::Statement& statement = plan.statement;
  if (trial.name != "datestyle") {  // what is left out of its value stays as it is
    context_.accepted.learn(trial.name, statement.value, trial.reported.value_or(statement.value));
  }
  if (txn_.open()) {
    txn_.add_to_preamble(trial.text);
  } else {
    keep_implicit_settings();
  }
  apply_set(statement, trial.reported);
  return true;
}

void SessionImpl::simple_trial_done() {
  if (trial_passed(*plan_)) {
    wire::CommandComplete{"SET"}.encode(client_out_);
    finish_turn();
  } else if (turn_error_) {
    abort_and_fail(*std::exchange(turn_error_, std::nullopt));
  } else {
    finish_turn();
  }
}

void SessionImpl::extended_trial_done() {
  Portal& portal = portals_.at(running_portal_);
  if (trial_passed(*portal.plan)) {
    portal.done = true;
    wire::CommandComplete{"SET"}.encode(client_out_);
  } else if (turn_error_) {
    fail_batch(*std::exchange(turn_error_, std::nullopt));
    return;
  } else {
    skip_until_sync_ = true;
  }
  step_batch();
}

}  // namespace collegedb::session
