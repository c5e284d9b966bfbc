// Parse and Bind: where a statement goes, and what its server connection must know first.
#include <algorithm>

#include "proxy/session/made_replies.h"
#include "proxy/session/session_impl.h"

namespace collegedb::session {

bool SessionImpl::is_local(const routing::Plan* plan) const {
  if (plan == nullptr) {
    return true;
  }
  const bool several = context_.snapshot->shards.size() > 1;
  switch (plan->kind) {
    case routing::PlanKind::kAdmin:
      return true;
    case routing::PlanKind::kBroadcast:
    case routing::PlanKind::kScatter:
      return several;
    case routing::PlanKind::kSession:
      return plan->statement.kind != parser::StatementKind::kShow &&
             plan->statement.kind != parser::StatementKind::kFetch &&
             (plan->statement.kind != parser::StatementKind::kCloseCursor ||
              (plan->statement.name.empty() && !txn_.bound()));  // CLOSE ALL of nothing
    default:
      return false;
  }
}

bool SessionImpl::on_parse(std::string_view bytes) {
  const auto parse = wire::Parse::decode(bytes);
  if (!parse) {
    return fail_batch(parse.error());
  }
  const std::string name(parse->statement);
  if (first_visit_) {
    if (name.empty()) {
      statements_.erase(name);
    } else if (statements_.contains(name)) {
      return fail_batch(make_error("42P05", "prepared statement \"" + name + "\" already exists"));
    }
  }
  const auto text = plan_of(parse->query);
  if (text->error) {
    return fail_batch(*text->error);
  }
  if (text->statements.size() > 1) {
    return fail_batch(
        make_error("42601", "cannot insert multiple commands into a prepared statement"));
  }
  auto statement = std::make_shared<Prepared>();
  statement->name = name;
  statement->sql = parse->query;
  statement->types = parse->parameter_types;
  if (!text->statements.empty()) {
    statement->plan = text->statements.front();
    if (txn_.failed() && !allowed_in_failed_transaction(statement->plan->statement)) {
      return fail_batch(transaction_aborted());
    }
    if (statement->plan->kind == routing::PlanKind::kRefuse) {
      return fail_batch(statement->plan->error);
    }
    if (statement->plan->kind == routing::PlanKind::kAdmin) {
      auto known = control_request(*statement->plan, statement->sql, {});
      if (!known && known.error().sqlstate == "42883") {
        return fail_batch(known.error());
      }
    }
  }
  refresh_plan(*statement);
  if (is_local(statement->plan.get())) {
    statements_[name] = statement;
    answer(made(wire::encode_parse_complete), std::move(statement));
    return true;
  }
  statement->parse_due = true;
  statements_[name] = statement;
  if (bound_next(name)) {
    return true;
  }
  Target target;
  target.plan = statement->plan;
  target.shard = any_shard();
  target.any_shard = true;
  target.in_transaction = txn_.bound();
  if (const auto at = find_bind(name)) {
    if (const auto bind = wire::Bind::decode(body(turn_[*at]))) {
      if (auto routed = target_of_bind(*bind, *statement)) {
        target = std::move(*routed);
      }
    }
  }
  if (!open_for(target)) {
    return false;
  }
  ensure_parsed(statement);
  return true;
}

// Plan and id hold for one registry and one search_path; both may have changed since Parse.
void SessionImpl::refresh_plan(Prepared& statement) {
  if (statement.registry_version == context_.snapshot->registry_version &&
      statement.search_path == path_identity_) {
    return;
  }
  if (statement.registry_version >= 0 && statement.plan) {
    const auto text = plan_of(statement.sql);
    if (!text->error && text->statements.size() == 1) {
      statement.plan = text->statements.front();
    }
  }
  statement.registry_version = context_.snapshot->registry_version;
  statement.search_path = path_identity_;
  if (!statement.name.empty() && statement.plan) {
    statement.id =
        context_.statements.id_of(statement.sql, statement.types, path_identity_, setting("role"));
  }
}

// Sends the Parse that link_ needs before this statement can be used there; answers the client's.
void SessionImpl::ensure_parsed(const std::shared_ptr<Prepared>& statement) {
  ServerState& server = *link_->state;
  const Role role = statement->parse_due ? Role::kClient : Role::kSilent;
  std::string server_name;
  if (statement->name.empty()) {
    if (!statement->parse_due && link_->unnamed == statement) {
      return;
    }
    link_->unnamed = statement;
  } else {
    const auto known = server.prepared.find(statement->id);
    if (known != server.prepared.end()) {
      known->second = ++server.turn;
      if (statement->parse_due) {
        statement->parse_due = false;
        answer(made(wire::encode_parse_complete), statement);
      }
      return;
    }
    if (server.prepared.size() >= kMaxServerStatements) {
      const auto oldest =
          std::min_element(server.prepared.begin(), server.prepared.end(),
                           [](const auto& a, const auto& b) { return a.second < b.second; });
      const std::string gone = StatementRegistry::name_of(oldest->first);
      wire::CloseMessage{wire::Target::kStatement, gone}.encode(link_->out);
      link_->owe(Expect::kClose, Role::kSilent).evicted = oldest->first;
      server.prepared.erase(oldest);
      link_->open = true;
    }
    server.prepared.emplace(statement->id, ++server.turn);
    server_name = StatementRegistry::name_of(statement->id);
  }
  wire::Parse parse;
  parse.statement = server_name;
  parse.query = statement->sql;
  parse.parameter_types = statement->types;
  parse.encode(link_->out);
  link_->owe(Expect::kParse, role, nullptr, statement);
  link_->open = true;
  statement->parse_due = false;
}

// The message of this batch that binds `statement`, before it is parsed anew.
std::optional<std::size_t> SessionImpl::find_bind(std::string_view statement) const {
  for (std::size_t i = cursor_ + 1; i < turn_.size(); ++i) {
    const Message& message = turn_[i];
    wire::Reader reader(body(message));
    if (message.tag == 'B') {
      reader.cstring();
      if (reader.cstring() == statement && reader.ok()) {
        return i;
      }
    } else if ((message.tag == 'P' && reader.cstring() == statement) || message.tag == 'S' ||
               message.tag == 'H' || message.tag == 'Q') {
      return std::nullopt;
    }
  }
  return std::nullopt;
}

// The next message binds or describes `statement`: its Parse may wait for that, and reach the shard
// the Bind decides. Never longer, because replies come in the order of messages.
bool SessionImpl::bound_next(std::string_view statement) const {
  if (cursor_ + 1 >= turn_.size()) {
    return false;
  }
  const Message& next = turn_[cursor_ + 1];
  wire::Reader reader(body(next));
  if (next.tag == 'B') {
    reader.cstring();
    return reader.cstring() == statement && reader.ok();
  }
  return next.tag == 'D' && reader.u8() == 'S' && reader.cstring() == statement && reader.ok();
}

// The statement of the Parse before cursor_, when bound_next() let that wait; else nullptr.
std::shared_ptr<Prepared> SessionImpl::parse_waiting_before_cursor() const {
  if (cursor_ == 0 || turn_[cursor_ - 1].tag != 'P') {
    return nullptr;
  }
  wire::Reader reader(body(turn_[cursor_ - 1]));
  const auto known = statements_.find(std::string(reader.cstring()));
  return known != statements_.end() && known->second->parse_due ? known->second : nullptr;
}

// --- Bind -------------------------------------------------------------------------------------

Result<SessionImpl::Target> SessionImpl::target_of_bind(const wire::Bind& bind,
                                                        const Prepared& statement) {
  boost::container::small_vector<routing::Parameter, 8> parameters;
  parameters.reserve(bind.parameters.size());
  for (std::size_t i = 0; i < bind.parameters.size(); ++i) {
    parameters.push_back(routing::Parameter{bind.parameters[i], bind.parameter_is_binary(i),
                                            i < statement.types.size() ? statement.types[i] : 0});
  }
  auto target = target_for(statement.plan, std::span(parameters.data(), parameters.size()));
  if (target && !bind.portal.empty()) {
    target->in_transaction = true;  // a named portal lives as long as the transaction
  }
  return target;
}

// One plain read and nothing else, all of it at hand: only then may it go unguarded, because its
// result can still be taken back when it is empty.
bool SessionImpl::lone_read_batch() const {
  if (txn_.open() || turn_.empty() || turn_.back().tag != 'S') {
    return false;
  }
  if (cursor_ > (parse_waiting_before_cursor() ? 1U : 0U)) {
    return false;  // replies before this one would be given twice
  }
  std::size_t executes = 0;
  std::size_t binds = 0;
  std::size_t parses = 0;
  for (const Message& message : turn_) {
    executes += message.tag == 'E' ? 1 : 0;
    binds += message.tag == 'B' ? 1 : 0;
    parses += message.tag == 'P' ? 1 : 0;
    if (message.tag == 'C' || message.tag == 'H' || message.tag == 'Q') {
      return false;
    }
  }
  const std::size_t syncs = static_cast<std::size_t>(
      std::count_if(turn_.begin(), turn_.end(), [](const Message& m) { return m.tag == 'S'; }));
  return executes == 1 && binds == 1 && parses <= 1 && syncs == 1;
}

bool SessionImpl::open_for(const Target& wanted) {
  if (find_first(wanted, &SessionImpl::run_batch)) {
    return false;
  }
  Target target = wanted;
  switch (acquire(target, &SessionImpl::run_batch)) {
    case Acquired::kWaiting:
      return false;
    case Acquired::kRefused:
      return fail_batch(*std::exchange(turn_error_, std::nullopt));
    case Acquired::kReady:
      break;
  }
  open_attempt(target);
  return true;
}

void SessionImpl::open_attempt(const Target& target) {
  const bool preamble_due = target.in_transaction && txn_.open() && !txn_.bound();
  if (!attempt_.active || !link_->open || preamble_due || !covered(target)) {
    begin_attempt(target, lone_read_batch());
  } else {
    emit_fence(target);
  }
}

bool SessionImpl::on_bind(std::string_view bytes) {
  const auto bind = wire::Bind::decode(bytes);
  if (!bind) {
    return fail_batch(bind.error());
  }
  const auto found = statements_.find(std::string(bind->statement));
  if (found == statements_.end()) {
    return fail_batch(no_statement(bind->statement));
  }
  const std::shared_ptr<Prepared> statement = found->second;
  const std::string portal_name(bind->portal);
  if (first_visit_ && !portal_name.empty()) {
    // A server's portal may have gone with a savepoint: the server is asked.
    const auto taken = portals_.find(portal_name);
    if (taken != portals_.end() && (taken->second.local || is_local(found->second->plan.get()))) {
      return fail_batch(make_error("42P03", "cursor \"" + portal_name + "\" already exists"));
    }
  }
  refresh_plan(*statement);
  const auto& plan = statement->plan;
  if (plan && txn_.failed() && !allowed_in_failed_transaction(plan->statement)) {
    return fail_batch(transaction_aborted());
  }
  if (plan && plan->kind == routing::PlanKind::kRefuse) {
    return fail_batch(plan->error);
  }
  Portal portal{statement, plan, {}, is_local(plan.get()), false};
  if (portal.local) {
    const std::size_t wanted = plan ? plan->statement.max_param : 0;
    if (plan && plan->kind != routing::PlanKind::kScatter && bind->parameters.size() != wanted) {
      return fail_batch(
          make_error("08P01", "bind message supplies " + std::to_string(bind->parameters.size()) +
                                  " parameters, but prepared statement \"" + statement->name +
                                  "\" requires " + std::to_string(wanted)));
    }
    portal.bind = bytes;
    portals_[portal_name] = std::move(portal);
    answer(made(wire::encode_bind_complete));
    return true;
  }
  auto target = target_of_bind(*bind, *statement);
  if (!target) {
    return fail_batch(target.error());
  }
  if (!open_for(*target)) {
    return false;
  }
  ensure_parsed(statement);
  wire::encode_rebound(
      link_->out, bytes, portal_name,
      statement->name.empty() ? std::string() : StatementRegistry::name_of(statement->id));
  link_->owe(Expect::kBind, Role::kClient, nullptr, statement);
  link_->open = true;
  portals_[portal_name] = std::move(portal);
  return true;
}

}  // namespace collegedb::session
