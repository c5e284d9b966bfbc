#include "proxy/session/session.h"

#include <algorithm>

#include "proxy/session/lower.h"
#include "proxy/session/scatter.h"
#include "proxy/session/search_path.h"
#include "proxy/session/session_impl.h"
#include "proxy/session/settings_policy.h"

namespace collegedb::session {
namespace {

// Extended messages kept before the batch is worked on without a Sync or Flush.
constexpr std::size_t kBatchBytes = 256 << 10;

// Start-up parameters that are no GUCs.
bool is_connection_parameter(std::string_view name) {
  return name == "user" || name == "database" || name == "replication" || name == "options";
}

}  // namespace

Session::Session(WorkerContext& context, Identity identity, std::optional<Greeting> greeting)
    : impl_(std::make_unique<SessionImpl>(context, std::move(identity), std::move(greeting))) {}
Session::~Session() = default;
Wait Session::wait() const {
  return impl_->wait_;
}
std::vector<Command> Session::take_commands() {
  return std::exchange(impl_->commands_, {});
}
void Session::on_client(const wire::Frame& frame) {
  impl_->on_client(frame);
}
void Session::on_client_gone() {
  impl_->on_client_gone();
}
void Session::on_leased(LinkId link, ServerState& state) {
  impl_->on_leased(link, state);
}
void Session::on_lease_failed(LinkId, SqlError error) {
  impl_->on_lease_failed(std::move(error));
}
void Session::on_server(LinkId link, const wire::Frame& frame) {
  impl_->on_server(link, frame);
}
void Session::on_server_lost(LinkId link, std::string_view reason) {
  impl_->on_server_lost(link, reason);
}
void Session::on_control(ControlReply reply) {
  impl_->on_control(std::move(reply));
}
void Session::on_deadline() {
  impl_->on_deadline();
}
void Session::on_drain() {
  impl_->on_drain();
}
std::string& Session::client_out() {
  return impl_->client_out_;
}
std::string& Session::server_out(LinkId link) {
  return impl_->server_out(link);
}
bool Session::may_flush_client() const {
  return impl_->may_flush();
}
std::string_view Session::state_name() const {
  return impl_->state_name();
}
bool Session::in_transaction() const {
  return impl_->in_transaction();
}

SessionImpl::SessionImpl(WorkerContext& context, Identity identity,
                         std::optional<Greeting> greeting)
    : context_(context), identity_(std::move(identity)), greeting_(std::move(greeting)) {
  auto base = std::make_shared<Settings>();
  for (const auto& [name, value] : identity_.parameters) {
    if (!is_connection_parameter(name) && !name.starts_with("_pq_.")) {
      (*base)[lower(name)] = value;
    }
  }
  if (!base->empty()) {
    base_ = std::move(base);
  }
  settings_.session = base_;
  settings_changed();
  start_up();
}

SessionImpl::~SessionImpl() = default;

// --- events ---------------------------------------------------------------------------------

void SessionImpl::on_client(const wire::Frame& frame) {
  if (copy_in_ && std::string_view("PBDECQF").find(frame.tag) != std::string_view::npos) {
    end_session(make_error(
        "08P01", std::string("unexpected message '") + frame.tag + "' during COPY from stdin",
        "End the COPY with CopyDone or CopyFail first."));
    return;
  }
  switch (frame.tag) {
    case 'X':
      on_client_gone();
      return;
    case 'd':
    case 'c':
    case 'f':
      copy_message(frame);
      return;
    case 'P':
    case 'B':
    case 'D':
    case 'E':
    case 'C':
      append_message(frame);
      if (turn_bytes_.size() < kBatchBytes && !fails_at_once()) {
        return;
      }
      break;
    case 'H':
    case 'S':
      if (copy_in_) {
        return;  // PostgreSQL ignores both while it reads CopyData
      }
      append_message(frame);
      break;
    case 'Q':
      append_message(frame);
      if (turn_.size() == 1 && !skip_until_sync_ && !(link_ && link_->open)) {
        start_query();
        return;
      }
      break;
    case 'F':
      append_message(frame);
      break;
    default:
      end_session(make_error("08P01", "invalid frontend message type " +
                                          std::to_string(static_cast<unsigned char>(frame.tag))));
      return;
  }
  extended_ = true;
  run_batch();
}

// The last message cannot go well, as far as can be told without a server: PostgreSQL reports that
// without waiting for Sync or Flush.
bool SessionImpl::fails_at_once() {
  if (skip_until_sync_) {
    return false;
  }
  const std::string_view bytes = body(turn_.back());
  switch (turn_.back().tag) {
    case 'P': {
      const auto parse = wire::Parse::decode(bytes);
      return !parse || plan_of(parse->query)->error.has_value();
    }
    case 'B': {
      const auto bind = wire::Bind::decode(bytes);
      return !bind || !is_named(wire::Target::kStatement, bind->statement);
    }
    case 'D': {
      const auto describe = wire::Describe::decode(bytes);
      return !describe || !is_named(describe->target, describe->name);
    }
    case 'E': {
      const auto execute = wire::Execute::decode(bytes);
      return !execute || !is_named(wire::Target::kPortal, execute->portal);
    }
    default:
      return !wire::CloseMessage::decode(bytes);
  }
}

// A statement or portal of this name exists, or will by the messages before the last one.
bool SessionImpl::is_named(wire::Target target, std::string_view name) const {
  const bool statement = target == wire::Target::kStatement;
  for (std::size_t i = turn_.size() - 1; i-- > cursor_;) {
    wire::Reader reader(body(turn_[i]));
    const char tag = turn_[i].tag;
    if (tag == 'C') {
      const bool closes = reader.u8() == (statement ? 'S' : 'P') && reader.cstring() == name;
      if (closes) {
        return false;
      }
    } else if (tag == (statement ? 'P' : 'B') && reader.cstring() == name) {
      return true;
    }
  }
  return statement ? statements_.contains(std::string(name)) : portals_.contains(std::string(name));
}

void SessionImpl::on_client_gone() {
  client_gone_ = true;
  scatter_.reset_links(commands_);
  discard_link();
  attempt_ = Attempt{};
  wait_ = Wait{};
  wait_.kind = Wait::Kind::kClosed;
}

void SessionImpl::on_leased(LinkId id, ServerState& state) {
  if (wait_.kind != Wait::Kind::kLease) {
    commands_.push_back(Command{Command::Kind::kDiscard, id});
    return;
  }
  auto link = std::make_unique<Link>();
  link->id = id;
  link->shard = wait_.shard;
  link->state = &state;
  link->committed = state.settings;
  if (scatter_.active()) {
    scatter_.run->links.push_back(std::move(link));
  } else {
    link_ = std::move(link);
  }
  (this->*step_)();
}

void SessionImpl::on_lease_failed(SqlError error) {
  if (wait_.kind != Wait::Kind::kLease) {
    return;
  }
  if (scatter_.active()) {
    scatter_.run->error = std::move(error);
    scatter_give_up();
    return;
  }
  if (attempt_.target.any_shard && ++patience_.lease_failures < context_.snapshot->shards.size()) {
    attempt_.target.shard = any_shard();
    wait_.shard = attempt_.target.shard;
    return;  // the same wait, another shard
  }
  if (greeting_) {
    end_session(std::move(error));
    return;
  }
  if (extended_) {
    turn_error_ = std::move(error);
    batch_error();
  } else {
    abort_and_fail(std::move(error));
  }
}

void SessionImpl::on_server(LinkId id, const wire::Frame& frame) {
  if (scatter_.active()) {
    if (Link* link = scatter_.run->find(id)) {
      scatter_reply(*link, frame);
    }
    return;
  }
  if (!link_ || link_->id != id) {
    return;
  }
  Link& link = *link_;
  switch (frame.tag) {
    case 'S':
      parameter_status(link, frame);
      return;
    case 'N':
      if (link.owed.empty() || link.owed.front().role == Role::kClient ||
          link.owed.front().role == Role::kPreamble || link.owed.front().role == Role::kTrial) {
        client_out_ += frame.raw;
      }
      return;
    case 'A':
      return;  // nobody listens: LISTEN is refused
    case 'E':
      server_error(link, frame);
      break;
    default:
      if (link.owed.empty()) {
        violation("a reply nobody waits for");
        return;
      }
      extended_reply(link, frame);
      break;
  }
  // Replies may have replaced the link (lost) or started something else.
  if (wait_.kind == Wait::Kind::kServer && link_ && link_->id == wait_.link &&
      link_->owed.empty()) {
    cancelling_ = false;
    (this->*step_)();
  }
}

void SessionImpl::on_server_lost(LinkId id, std::string_view reason) {
  SqlError error = make_error(ErrorCode::kShardUnavailable,
                              "the connection to the shard was lost: " + std::string(reason),
                              "Try again; the shard may be restarting.");
  if (scatter_.active()) {
    if (Link* link = scatter_.run->find(id)) {
      link->dirty = link->lost = true;
      scatter_error(*link, std::move(error));
    }
    return;
  }
  if (link_ && link_->id == id) {
    link_lost(std::move(error));
  }
}

void SessionImpl::on_control(ControlReply reply) {
  if (wait_.kind != Wait::Kind::kControl) {
    return;
  }
  control_.reset();
  control_reply_ = std::move(reply);
  (this->*step_)();
}

void SessionImpl::on_deadline() {
  switch (wait_.kind) {
    case Wait::Kind::kDelay:
      (this->*step_)();
      return;
    case Wait::Kind::kServer:
      server_deadline();
      return;
    case Wait::Kind::kClient:
      if (txn_.open()) {
        end_session(
            make_error("25P03", "terminating connection due to idle-in-transaction timeout"));
      }
      return;
    default:
      return;
  }
}

// The server is told to stop first; one that does not answer even then is given up.
void SessionImpl::server_deadline() {
  if (cancelling_) {
    const std::string_view silent = "the server did not answer a cancel request in time";
    const LinkId link = wait_.link;
    if (scatter_.active()) {
      on_server_lost(link, silent);
    } else {
      link_lost(make_error("57014", "canceling statement due to timeout",
                           "The connection to the shard was closed.", silent));
    }
    return;
  }
  cancelling_ = true;
  if (attempt_.gates > 0) {
    patience_.timed_out = true;
  }
  if (scatter_.active()) {
    for (const auto& link : scatter_.run->links) {
      if (!link->owed.empty() && !link->lost) {
        commands_.push_back(Command{Command::Kind::kCancel, link->id});
      }
    }
  } else {
    commands_.push_back(Command{Command::Kind::kCancel, wait_.link});
  }
  // Of another length than the wait before, so that it counts from now.
  wait_.timeout_ms = wait_.timeout_ms == kCancelGraceMs ? kCancelGraceMs + 1 : kCancelGraceMs;
}

void SessionImpl::on_drain() {
  draining_ = true;
  if (wait_.kind == Wait::Kind::kClient && !txn_.open() && turn_.empty() && !copy_in_ && !link_ &&
      !skip_until_sync_) {
    end_session(make_error("57P01", "terminating connection due to administrator command"));
  }
}

// --- waits ----------------------------------------------------------------------------------

void SessionImpl::await_client() {
  wait_ = Wait{};
  wait_.kind = Wait::Kind::kClient;
  if (link_) {
    wait_.link = link_->id;
  }
  wait_.timeout_ms = txn_.open() ? context_.idle_transaction_timeout_ms : 0;
}

void SessionImpl::await_drain(Step then) {
  step_ = then;
  if (link_->owed.empty()) {
    (this->*step_)();
    return;
  }
  wait_ = Wait{};
  wait_.kind = Wait::Kind::kServer;
  wait_.link = link_->id;
  wait_.timeout_ms = cancelling_          ? kCancelGraceMs
                     : attempt_.gates > 0 ? context_.write_hold_ms
                                          : context_.query_timeout_ms;
}

void SessionImpl::await_delay(std::uint32_t milliseconds, Step then) {
  step_ = then;
  wait_ = Wait{};
  wait_.kind = Wait::Kind::kDelay;
  wait_.timeout_ms = milliseconds;
}

void SessionImpl::finish_turn() {
  if (several_ && continue_several()) {
    return;
  }
  if (link_ && !(txn_.open() && txn_.bound())) {
    release_link();
  }
  if (!txn_.open()) {
    portals_.clear();
    txn_snapshot_.reset();
  }
  // Parsed for nobody yet when the batch failed: the client has seen no ParseComplete.
  boost::unordered::erase_if(statements_,
                             [](const auto& entry) { return entry.second->parse_due; });
  implicit_settings_.reset();
  writes_in_flight_ = false;
  tell_reports();
  wire::ReadyForQuery{static_cast<wire::TransactionStatus>(txn_.status())}.encode(client_out_);
  skip_until_sync_ = false;
  clear_turn();
  if (draining_ && !txn_.open()) {
    end_session(make_error("57P01", "terminating connection due to administrator command"));
    return;
  }
  await_client();
}

void SessionImpl::clear_turn() {
  turn_.clear();
  turn_bytes_.clear();
  cursor_ = 0;
  furthest_ = 0;
  extended_ = false;
  sync_sent_ = false;
  turn_error_.reset();
  plan_.reset();
  text_plan_.reset();
  row_limit_ = 0;
  turn_failed_ = false;
  attempt_ = Attempt{};
  patience_ = Patience{};
  trial_.reset();
  cancelling_ = false;
}

void SessionImpl::end_session(SqlError error) {
  error.severity = "FATAL";
  context_.stats->count_error(error);
  wire::encode_error(client_out_, error);
  on_client_gone();
}

void SessionImpl::append_message(const wire::Frame& frame) {
  turn_.push_back(Message{frame.tag, static_cast<std::uint32_t>(turn_bytes_.size()),
                          static_cast<std::uint32_t>(frame.payload.size())});
  turn_bytes_ += frame.payload;
}

std::string_view SessionImpl::body(const Message& message) const {
  return std::string_view(turn_bytes_).substr(message.offset, message.size);
}

void SessionImpl::report(const SqlError& error, bool from_shard) {
  turn_failed_ = true;
  context_.stats->count_error(error, from_shard);
  wire::encode_error(client_out_, error);
}

void SessionImpl::fail_turn(const SqlError& error) {
  report(error);
  finish_turn();
}

// COPY FROM STDIN: the client's data goes on to the server that asked for it; outside a COPY these
// messages are ignored, as PostgreSQL does after a failed one.
void SessionImpl::copy_message(const wire::Frame& frame) {
  if (!copy_in_ || !link_) {
    return;
  }
  link_->out += frame.raw;
  if (frame.tag == 'd') {
    return;
  }
  copy_in_ = false;
  if (extended_) {
    clear_turn();  // the Sync that answers follows from the client
    extended_ = false;
    await_client();
    return;
  }
  await_drain(&SessionImpl::query_done);
}

// --- facts ----------------------------------------------------------------------------------

std::string& SessionImpl::server_out(LinkId id) {
  if (link_ && link_->id == id) {
    return link_->out;
  }
  if (scatter_.active()) {
    if (Link* link = scatter_.run->find(id)) {
      return link->out;
    }
  }
  scratch_.clear();
  return scratch_;
}

std::string_view SessionImpl::state_name() const {
  switch (wait_.kind) {
    case Wait::Kind::kClient:
      return txn_.open() ? "idle in transaction" : "idle";
    case Wait::Kind::kLease:
    case Wait::Kind::kDelay:
      return "waiting";
    default:
      return "active";
  }
}

std::shared_ptr<const TextPlan> SessionImpl::plan_of(std::string_view sql) {
  const std::uint64_t misses = context_.plans.misses();
  const std::uint64_t evictions = context_.plans.evictions();
  const std::uint64_t started = context_.stats->now_ns();
  auto plan = context_.plans.get(sql, path_identity_, search_path_, *context_.snapshot);
  if (context_.plans.misses() != misses) {
    context_.stats->plan_cache_misses.add();
    context_.stats->plan_cache_evictions.add(context_.plans.evictions() - evictions);
    context_.stats->parse_time.observe_ns(context_.stats->now_ns() - started);
  } else {
    context_.stats->plan_cache_hits.add();
  }
  return plan;
}

const std::string* SessionImpl::find_setting(std::string_view name) const {
  for (const SettingsPtr* layer : {&settings_.local, &settings_.session}) {
    if (*layer) {
      if (const auto found = (*layer)->find(std::string(name)); found != (*layer)->end()) {
        return &found->second;
      }
    }
  }
  return nullptr;
}

std::string_view SessionImpl::setting(std::string_view name) const {
  const std::string* value = find_setting(name);
  return value != nullptr ? std::string_view(*value) : std::string_view();
}

void SessionImpl::settings_changed() {
  const std::string_view role = setting("role");
  const std::string* path = find_setting("search_path");
  search_path_text_ = path != nullptr ? *path : kDefaultSearchPath;
  reports_due_ = true;
  speaks_utf8_ = is_utf8(setting("client_encoding"));
  search_path_ = split_search_path(
      search_path_text_, role.empty() || role == "none" ? std::string_view(identity_.user) : role);
  // What it means for this user and role: "$user" is one text for all of them.
  path_identity_.clear();
  for (const std::string& schema : search_path_) {
    path_identity_ += schema;
    path_identity_ += '\0';
  }
}

SessionContext SessionImpl::session_context() const {
  SessionContext context;
  context.search_path = search_path_;
  for (const SettingsPtr& layer : {settings_.session, settings_.local}) {
    if (layer) {
      context.settings.insert(context.settings.end(), layer->begin(), layer->end());
    }
  }
  return context;
}

}  // namespace collegedb::session
