// Describe, Execute and Close. A local portal is one the proxy executes itself.
#include "proxy/session/made_replies.h"
#include "proxy/session/session_impl.h"

namespace collegedb::session {
namespace {

// The server's portal in which a named portal of the session's own runs there.
constexpr std::string_view kUtilityPortal = "collegedb_utility";

}  // namespace

bool SessionImpl::on_describe(std::string_view bytes) {
  const auto describe = wire::Describe::decode(bytes);
  if (!describe) {
    return fail_batch(describe.error());
  }
  if (describe->target == wire::Target::kStatement) {
    const auto found = statements_.find(std::string(describe->name));
    if (found == statements_.end()) {
      return fail_batch(no_statement(describe->name));
    }
    return describe_statement(found->second);
  }
  const auto found = portals_.find(std::string(describe->name));
  if (found == portals_.end()) {
    return fail_batch(no_portal(describe->name));
  }
  Portal& portal = found->second;
  if (!portal.local) {
    if (!link_) {
      return fail_batch(no_portal(describe->name));
    }
    describe->encode(link_->out);
    link_->owe(Expect::kDescribePortal, Role::kClient);
    link_->open = true;
    return true;
  }
  return describe_local(portal);
}

bool SessionImpl::describe_statement(const std::shared_ptr<Prepared>& statement) {
  refresh_plan(*statement);
  const routing::Plan* plan = statement->plan.get();
  if (is_local(plan) && !(plan && plan->kind == routing::PlanKind::kScatter)) {
    std::string out;
    if (auto error = describe_made(plan, {}, true, out)) {
      return fail_batch(*error);
    }
    answer(std::move(out));
    return true;
  }
  if (plan->kind == routing::PlanKind::kRefuse) {
    return fail_batch(plan->error);
  }
  Target target;
  target.plan = statement->plan;
  target.shard = any_shard();
  target.any_shard = true;
  target.in_transaction = txn_.bound();
  // With its Bind in this batch it goes where the Bind will go.
  if (const auto at = find_bind(statement->name); at && plan->kind != routing::PlanKind::kScatter) {
    if (const auto bind = wire::Bind::decode(body(turn_[*at]))) {
      auto routed = target_of_bind(*bind, *statement);
      if (!routed) {
        return fail_batch(routed.error());
      }
      target = std::move(*routed);
    }
  }
  if (!open_for(target)) {
    return false;
  }
  if (plan->kind == routing::PlanKind::kScatter) {
    statement->parse_due = false;  // answered already
  }
  ensure_parsed(statement);
  const std::string name =
      statement->name.empty() ? std::string() : StatementRegistry::name_of(statement->id);
  wire::Describe{wire::Target::kStatement, name}.encode(link_->out);
  link_->owe(Expect::kDescribeStatement, Role::kClient);
  link_->open = true;
  return true;
}

// Portals the proxy executes itself. A scatter's columns are those of any one shard.
bool SessionImpl::describe_local(Portal& portal) {
  const routing::Plan* plan = portal.plan.get();
  const auto bind = wire::Bind::decode(portal.bind);
  if (plan == nullptr || plan->kind != routing::PlanKind::kScatter) {
    std::string out;
    if (auto error = describe_made(plan, bind->result_formats, false, out)) {
      return fail_batch(*error);
    }
    answer(std::move(out));
    return true;
  }
  Target target;
  target.plan = portal.plan;
  target.shard = any_shard();
  target.any_shard = true;
  target.in_transaction = txn_.bound();
  if (!open_for(target)) {
    return false;
  }
  ensure_parsed(portal.statement);
  wire::encode_rebound(link_->out, portal.bind, "",
                       portal.statement->name.empty()
                           ? std::string()
                           : StatementRegistry::name_of(portal.statement->id));
  link_->owe(Expect::kBind, Role::kSilent, nullptr, portal.statement);
  wire::Describe{wire::Target::kPortal, ""}.encode(link_->out);
  link_->owe(Expect::kDescribePortal, Role::kClient);
  link_->open = true;
  return true;
}

bool SessionImpl::on_execute(std::string_view bytes) {
  const auto execute = wire::Execute::decode(bytes);
  if (!execute) {
    return fail_batch(execute.error());
  }
  const auto found = portals_.find(std::string(execute->portal));
  if (found == portals_.end()) {
    return fail_batch(no_portal(execute->portal));
  }
  Portal& portal = found->second;
  if (portal.plan && txn_.failed() && !allowed_in_failed_transaction(portal.plan->statement)) {
    return fail_batch(transaction_aborted());
  }
  if (portal.local) {
    return execute_local(portal, *execute);
  }
  if (!link_) {
    return fail_batch(no_portal(execute->portal));
  }
  execute->encode(link_->out);
  link_->owe(Expect::kExecute, Role::kClient, portal.plan, portal.statement);
  link_->open = true;
  link_->executed = true;
  writes_in_flight_ = writes_in_flight_ || portal.plan->writes;
  return true;
}

bool SessionImpl::execute_local(Portal& portal, const wire::Execute& execute) {
  if (portal.plan == nullptr) {
    answer(made(wire::encode_empty_query_response));
    return true;
  }
  if (portal.done && first_visit_) {
    return fail_batch(
        make_error("55000", "portal \"" + std::string(execute.portal) + "\" cannot be run"));
  }
  running_portal_ = execute.portal;
  if (portal.plan->kind == routing::PlanKind::kSession) {
    return execute_utility(portal);
  }
  row_limit_ = execute.max_rows > 0 ? static_cast<std::uint32_t>(execute.max_rows) : 0;
  if (row_limit_ > 0 && portal.plan->kind == routing::PlanKind::kScatter &&
      !portal.plan->count_star) {
    return fail_batch(row_limit_error());
  }
  if (flush_first()) {
    return false;
  }
  portal.done = true;
  if (link_ && !txn_.bound() && !link_->executed) {
    // Nothing but Parse and Describe: their locks must not stand in the way of the other shards'
    // connections.
    if (link_->open) {
      wire::encode_sync(link_->out);
      link_->owe(Expect::kSync, Role::kSilent);
      link_->open = false;
      await_drain(&SessionImpl::batch_drained);
      return false;
    }
    release_link();
  }
  if (portal.plan->kind == routing::PlanKind::kBroadcast && link_ && !txn_.bound()) {
    return fail_batch(make_error(ErrorCode::kCrossShardTransaction,
                                 portal.plan->statement.verb +
                                     " runs on every shard and cannot follow other statements "
                                     "without a Sync between them",
                                 "Send Sync first."));
  }
  if (portal.plan->kind == routing::PlanKind::kScatter) {
    start_scatter(portal.plan, portal.statement->sql, &portal, &SessionImpl::extended_scatter_done);
    return false;
  }
  const auto bind = wire::Bind::decode(portal.bind);
  boost::container::small_vector<routing::Parameter, 8> parameters;
  for (std::size_t i = 0; i < bind->parameters.size(); ++i) {
    const auto& types = portal.statement->types;
    parameters.push_back(routing::Parameter{bind->parameters[i], bind->parameter_is_binary(i),
                                            i < types.size() ? types[i] : 0});
  }
  auto request = control_request(*portal.plan, portal.statement->sql,
                                 std::span(parameters.data(), parameters.size()));
  if (!request) {
    return fail_batch(request.error());
  }
  plan_ = portal.plan;
  control_formats_ = bind->result_formats;
  start_control(std::move(*request), &SessionImpl::extended_control_done);
  return false;
}

// BEGIN, SET and the like: what a server must do goes to it in the protocol of the batch.
bool SessionImpl::execute_utility(Portal& portal) {
  if (flush_first()) {
    return false;
  }
  Utility done = utility(portal.plan, portal.statement->sql);
  if (done.error) {
    return fail_batch(*done.error);
  }
  if (done.trial) {
    start_trial(portal.plan->statement, portal.statement->sql, &SessionImpl::extended_trial_done);
    return false;
  }
  if (!done.target) {
    portal.done = true;
    client_out_ += done.reply;
    return true;
  }
  if (!open_for(*done.target)) {
    return false;
  }
  wire::Parse parse;
  parse.query = portal.statement->sql;
  parse.encode(link_->out);
  link_->unnamed.reset();
  link_->owe(Expect::kParse, Role::kSilent, nullptr, portal.statement);
  // The client's unnamed portal, if it has one there, stays.
  wire::Bind bind;
  bind.portal = running_portal_.empty() ? std::string_view() : kUtilityPortal;
  bind.encode(link_->out);
  link_->owe(Expect::kBind, Role::kSilent, nullptr, portal.statement);
  wire::Execute execute;
  execute.portal = bind.portal;
  execute.encode(link_->out);
  link_->owe(Expect::kExecute, Role::kClient, portal.plan);
  if (!bind.portal.empty()) {
    wire::CloseMessage{wire::Target::kPortal, bind.portal}.encode(link_->out);
    link_->owe(Expect::kClose, Role::kSilent);
  }
  link_->open = true;
  link_->executed = true;
  portal.done = true;
  if (cursor_ + 1 < turn_.size() && turn_[cursor_ + 1].tag == 'S') {
    return true;
  }
  wire::encode_flush(link_->out);
  ++cursor_;
  await_drain(&SessionImpl::utility_done);
  return false;
}

bool SessionImpl::on_close(std::string_view bytes) {
  const auto close = wire::CloseMessage::decode(bytes);
  if (!close) {
    return fail_batch(close.error());
  }
  const std::string name(close->name);
  if (close->target == wire::Target::kStatement) {
    statements_.erase(name);
    answer(made(wire::encode_close_complete));
    return true;
  }
  const auto found = portals_.find(name);
  const bool remote = found != portals_.end() && !found->second.local && link_;
  if (found != portals_.end()) {
    portals_.erase(found);
  }
  if (!remote) {
    answer(made(wire::encode_close_complete));
    return true;
  }
  close->encode(link_->out);
  link_->owe(Expect::kClose, Role::kClient);
  link_->open = true;
  return true;
}

}  // namespace collegedb::session
