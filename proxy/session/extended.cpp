// Extended messages: a batch up to Sync, Flush or a full buffer, worked through message by message.
//
// Each handler either finishes its message or starts a wait; after the wait the message is handled
// again from its start, so handlers check before they act. A Parse goes to the server together with
// the Bind that decides the shard; without one in the batch, to any shard.
#include <algorithm>

#include "proxy/session/session_impl.h"

namespace collegedb::session {
namespace {

// Unanswered bytes towards a server before its replies are read: both sides must never block on
// full socket buffers.
constexpr std::size_t kChunkBytes = 32 << 10;

std::string made(void (*encode)(std::string&)) {
  std::string out;
  encode(out);
  return out;
}

SqlError no_statement(std::string_view name) {
  return name.empty() ? make_error("26000", "unnamed prepared statement does not exist")
                      : make_error("26000", "prepared statement \"" + std::string(name) +
                                                "\" does not exist");
}

SqlError no_portal(std::string_view name) {
  return make_error("34000", "portal \"" + std::string(name) + "\" does not exist");
}

}  // namespace

// --- the loop -------------------------------------------------------------------------------

void SessionImpl::run_batch() {
  while (cursor_ < turn_.size()) {
    first_visit_ = cursor_ >= furthest_;
    furthest_ = std::max(furthest_, cursor_ + 1);
    if (!handle(turn_[cursor_])) {
      return;
    }
    ++cursor_;
    if (link_ && link_->out.size() > kChunkBytes && !link_->owed.empty() &&
        cursor_ < turn_.size()) {
      wire::encode_flush(link_->out);
      await_drain(&SessionImpl::batch_drained);
      return;
    }
  }
  // No Sync, Flush or Query ended the batch: its buffer was full.
  if (flush_first()) {
    return;
  }
  const bool skipping = skip_until_sync_;
  clear_turn();
  skip_until_sync_ = skipping;
  await_client();
}

void SessionImpl::step_batch() {
  ++cursor_;
  run_batch();
}

void SessionImpl::retry_batch() {
  cursor_ = attempt_.cursor_mark;
  skip_until_sync_ = false;
  sync_sent_ = false;
  run_batch();
}

bool SessionImpl::handle(const Message& message) {
  const std::string_view bytes = body(message);
  if (message.tag == 'S') {
    return on_sync();
  }
  if (skip_until_sync_) {
    return true;
  }
  switch (message.tag) {
    case 'P':
      return on_parse(bytes);
    case 'B':
      return on_bind(bytes);
    case 'D':
      return on_describe(bytes);
    case 'E':
      return on_execute(bytes);
    case 'C':
      return on_close(bytes);
    case 'H':
      return on_flush();
    case 'Q':
      return on_query_in_batch();
    default:
      // FunctionCall is its own synchronisation point.
      abort_and_fail(make_error("0A000", "function calls by OID are not routed",
                                "Call the function with SELECT."));
      return false;
  }
}

// Everything owed before a wait has been answered; what the guard or an empty read says comes
// first.
void SessionImpl::batch_drained() {
  if (attempt_.failure) {
    if (handle_failure(&SessionImpl::retry_batch)) {
      return;
    }
    batch_error();
    return;
  }
  if (attempt_.empty) {
    client_out_.resize(attempt_.client_mark);
    patience_.force_guard = true;
    const std::size_t cursor = attempt_.cursor_mark;
    attempt_ = Attempt{};
    attempt_.cursor_mark = cursor;
    retry_batch();
    return;
  }
  if (turn_error_) {
    batch_error();
    return;
  }
  if (sync_sent_) {
    finish_turn();
    return;
  }
  run_batch();
}

// True: waiting until nothing is owed; the message is handled again.
bool SessionImpl::flush_first() {
  if (!link_ || link_->owed.empty()) {
    return false;
  }
  wire::encode_flush(link_->out);
  await_drain(&SessionImpl::batch_drained);
  return true;
}

void SessionImpl::answer(std::string bytes) {
  if (link_ && !link_->owed.empty()) {
    link_->owe(Expect::kMade, Role::kClient).made = std::move(bytes);
  } else {
    client_out_ += bytes;
  }
}

// --- errors of the proxy's own making -----------------------------------------------------------

bool SessionImpl::fail_batch(SqlError error) {
  turn_error_ = std::move(error);
  if (link_ && !link_->owed.empty()) {
    wire::encode_flush(link_->out);
    await_drain(&SessionImpl::batch_drained);
    return false;
  }
  batch_error();
  return false;
}

// turn_error_ goes to the client, unless the server has reported an earlier one; what is open on
// the server is lost; the rest of the batch up to Sync is skipped.
void SessionImpl::batch_error() {
  const std::optional<SqlError> error = std::exchange(turn_error_, std::nullopt);
  attempt_.undecided = false;
  if (error && !skip_until_sync_) {
    report(*error);
    skip_until_sync_ = true;
    if (link_ && !sync_sent_ && (txn_.bound() || link_->open) && !link_->skipping) {
      poison();
    } else if (txn_.open() && !txn_.bound()) {
      txn_.fail();
    }
  }
  if (sync_sent_) {
    finish_turn();
    return;
  }
  step_batch();
}

// An error in the open transaction of the server, so that neither a Sync nor a COMMIT can keep it.
void SessionImpl::poison() {
  wire::Bind bind;
  bind.statement = "collegedb_abort";  // exists nowhere
  bind.encode(link_->out);
  link_->owe(Expect::kBind, Role::kAbort);
  link_->open = true;
}

// --- Parse ------------------------------------------------------------------------------------

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
             plan->statement.kind != parser::StatementKind::kCloseCursor;
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
    statements_[name] = std::move(statement);
    answer(made(wire::encode_parse_complete));
    return true;
  }
  statement->parse_due = true;
  statements_[name] = statement;
  if (find_bind(name)) {
    return true;
  }
  Target target;
  target.plan = statement->plan;
  target.shard = any_shard();
  target.any_shard = true;
  target.in_transaction = txn_.bound();
  if (!open_for(target)) {
    return false;
  }
  ensure_parsed(statement);
  return true;
}

// Plan and id hold for one registry and one search_path; both may have changed since Parse.
void SessionImpl::refresh_plan(Prepared& statement) {
  if (statement.registry_version == context_.snapshot->registry_version &&
      statement.search_path == search_path_text_) {
    return;
  }
  if (statement.registry_version >= 0 && statement.plan) {
    const auto text = plan_of(statement.sql);
    if (!text->error && text->statements.size() == 1) {
      statement.plan = text->statements.front();
    }
  }
  statement.registry_version = context_.snapshot->registry_version;
  statement.search_path = search_path_text_;
  if (!statement.name.empty() && statement.plan) {
    statement.id = context_.statements.id_of(statement.sql, statement.types, search_path_text_,
                                             setting("role"));
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
        answer(made(wire::encode_parse_complete));
      }
      return;
    }
    if (server.prepared.size() >= kMaxServerStatements) {
      const auto oldest =
          std::min_element(server.prepared.begin(), server.prepared.end(),
                           [](const auto& a, const auto& b) { return a.second < b.second; });
      const std::string gone = StatementRegistry::name_of(oldest->first);
      server.prepared.erase(oldest);
      wire::CloseMessage{wire::Target::kStatement, gone}.encode(link_->out);
      link_->owe(Expect::kClose, Role::kSilent);
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

// --- Bind -------------------------------------------------------------------------------------

Result<SessionImpl::Target> SessionImpl::target_of_bind(const wire::Bind& bind,
                                                        const Prepared& statement) {
  boost::container::small_vector<routing::Parameter, 8> parameters;
  parameters.reserve(bind.parameters.size());
  for (std::size_t i = 0; i < bind.parameters.size(); ++i) {
    parameters.push_back(routing::Parameter{bind.parameters[i], bind.parameter_is_binary(i),
                                            i < statement.types.size() ? statement.types[i] : 0});
  }
  return target_for(statement.plan, std::span(parameters.data(), parameters.size()));
}

// One plain read and nothing else, all of it at hand: only then may it go unguarded, because its
// result can still be taken back when it is empty.
bool SessionImpl::lone_read_batch() const {
  if (txn_.open() || turn_.empty() || turn_.back().tag != 'S') {
    return false;
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
  Target target = wanted;
  switch (acquire(target, &SessionImpl::run_batch)) {
    case Acquired::kWaiting:
      return false;
    case Acquired::kRefused:
      return fail_batch(*std::exchange(turn_error_, std::nullopt));
    case Acquired::kReady:
      break;
  }
  const bool preamble_due = target.in_transaction && txn_.open() && !txn_.bound();
  if (!attempt_.active || !link_->open || preamble_due || !covered(target)) {
    begin_attempt(target, lone_read_batch());
    if (attempt_.watch_empty) {
      attempt_.cursor_mark = 0;  // an empty result replays the batch, its Parse included
    }
  } else {
    emit_fence(target);
  }
  return true;
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
  if (first_visit_ && !portal_name.empty() && portals_.contains(portal_name)) {
    return fail_batch(make_error("42P03", "cursor \"" + portal_name + "\" already exists"));
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

// --- Describe, Execute, Close -----------------------------------------------------------------

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
  if (portal.done) {
    return fail_batch(
        make_error("55000", "portal \"" + std::string(execute.portal) + "\" cannot be run"));
  }
  if (portal.plan->kind == routing::PlanKind::kSession) {
    return execute_utility(portal);
  }
  if (execute.max_rows > 0) {
    return fail_batch(make_error("0A000", "a row limit is not supported for this statement",
                                 "Execute it without a row limit."));
  }
  if (flush_first()) {
    return false;
  }
  portal.done = true;
  if (portal.plan->kind == routing::PlanKind::kScatter) {
    if (link_ && !txn_.bound() && link_->open && !link_->executed) {
      portal.done = false;
      wire::encode_sync(link_->out);  // only a Describe so far
      link_->owe(Expect::kSync, Role::kSilent);
      link_->open = false;
      await_drain(&SessionImpl::batch_drained);
      return false;
    }
    if (link_ && !link_->executed && !txn_.bound()) {
      release_link();
    }
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
bool SessionImpl::execute_utility(const Portal& portal) {
  if (flush_first()) {
    return false;
  }
  Utility done = utility(portal.plan, portal.statement->sql);
  if (done.error) {
    return fail_batch(*done.error);
  }
  if (!done.target) {
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
  wire::Bind{}.encode(link_->out);
  link_->owe(Expect::kBind, Role::kSilent, nullptr, portal.statement);
  wire::Execute{}.encode(link_->out);
  link_->owe(Expect::kExecute, Role::kClient, portal.plan);
  link_->open = true;
  link_->executed = true;
  return true;
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

// --- ends of a batch --------------------------------------------------------------------------

bool SessionImpl::on_sync() {
  if (sync_sent_) {
    return true;
  }
  if (!link_ || (!link_->open && !link_->skipping && link_->owed.empty())) {
    finish_turn();
    return false;
  }
  wire::encode_sync(link_->out);
  link_->owe(Expect::kSync, Role::kClient);
  link_->open = false;
  link_->skipping = false;
  sync_sent_ = true;
  await_drain(&SessionImpl::batch_drained);
  return false;
}

bool SessionImpl::on_flush() {
  if (flush_first()) {
    return false;
  }
  const bool skipping = skip_until_sync_;
  clear_turn();
  skip_until_sync_ = skipping;
  await_client();
  return false;
}

// PostgreSQL runs the Query in the transaction that the messages before it have opened.
bool SessionImpl::on_query_in_batch() {
  if (flush_first()) {
    return false;
  }
  if (link_ && link_->open && link_->executed && !txn_.bound()) {
    return fail_batch(make_error(
        "0A000", "a simple Query must not follow extended messages without a Sync between them",
        "Send Sync first."));
  }
  if (link_ && link_->open) {
    wire::encode_sync(link_->out);
    link_->owe(Expect::kSync, Role::kSilent);
    link_->open = false;
    await_drain(&SessionImpl::batch_drained);
    return false;
  }
  const Message query = turn_[cursor_];
  const std::string bytes(body(query));
  clear_turn();
  append_message(wire::Frame{'Q', bytes, {}});
  start_query();
  return false;
}

}  // namespace collegedb::session
