#include "proxy/session/scatter.h"

#include <algorithm>
#include <charconv>

#include "proxy/session/guard.h"
#include "proxy/session/quote.h"
#include "proxy/session/session_impl.h"

namespace collegedb::session {
namespace {

// All shards are asked for their sweep lock at once; two scatters and a cutover may then wait for
// each other in a ring. Whoever cannot have all of them within this time gives back and takes them
// in the order of shard names.
constexpr std::uint32_t kTogetherMs = 20;

std::string lock_query(const routing::Snapshot& snapshot, const std::string& shard,
                       std::uint32_t timeout_ms) {
  return "BEGIN ISOLATION LEVEL REPEATABLE READ; SAVEPOINT collegedb_sweep; SET LOCAL lock_timeout "
         "= " +
         std::to_string(timeout_ms) +
         "; LOCK TABLE collegedb.sweep IN SHARE MODE; SELECT min_generation FROM "
         "collegedb.topology "
         "WHERE scope = " +
         quote_literal(snapshot.scope) + " AND shard = " + quote_literal(shard);
}

void owe_query(Link& link, Role role, std::string_view sql) {
  wire::Query{sql}.encode(link.out);
  link.owe(Expect::kQuery, role);
}

}  // namespace

Link* ScatterRun::find(LinkId id) const {
  for (const auto& link : links) {
    if (link->id == id) {
      return link.get();
    }
  }
  return nullptr;
}

Link* ScatterRun::owing() const {
  for (const auto& link : links) {
    if (!link->owed.empty()) {
      return link.get();
    }
  }
  return nullptr;
}

std::string ScatterRun::count_row() const {
  std::string value = std::to_string(count);
  if (count_binary) {
    value.clear();
    wire::Writer writer(value);
    writer.u32(static_cast<std::uint32_t>(static_cast<std::uint64_t>(count) >> 32));
    writer.u32(static_cast<std::uint32_t>(count));
  }
  wire::DataRow row;
  row.values.emplace_back(value);
  std::string out;
  row.encode(out);
  return out;
}

std::string ScatterRun::add_description(const wire::Frame& frame) {
  if (description.empty()) {
    description = frame.payload;
    return {};
  }
  const auto first = wire::RowDescription::decode(description);
  const auto other = wire::RowDescription::decode(frame.payload);
  if (!first || !other || first->fields.size() != other->fields.size()) {
    return "the number of columns";
  }
  for (std::size_t i = 0; i < first->fields.size(); ++i) {
    if (first->fields[i].name != other->fields[i].name ||
        first->fields[i].type_oid != other->fields[i].type_oid) {
      return "column " + std::string(first->fields[i].name);
    }
  }
  return {};
}

bool ScatterRun::add_count(std::string_view row) {
  const auto data = wire::DataRow::decode(row);
  if (!data || data->values.size() != 1 || !data->values[0]) {
    return false;
  }
  const std::string_view value = *data->values[0];
  std::int64_t number = 0;
  if (count_binary) {
    wire::Reader reader(value);
    const std::uint64_t high = reader.u32();
    number = static_cast<std::int64_t>((high << 32) | reader.u32());
    if (!reader.at_end()) {
      return false;
    }
  } else {
    const auto [end, ec] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (ec != std::errc{} || end != value.data() + value.size()) {
      return false;
    }
  }
  return !__builtin_add_overflow(count, number, &count);
}

void ScatterSlot::reset_links(std::vector<Command>& commands) {
  if (run) {
    for (const auto& link : run->links) {
      commands.push_back(Command{Command::Kind::kDiscard, link->id});
    }
    run.reset();
  }
}

// --- the steps --------------------------------------------------------------------------------

void SessionImpl::start_scatter(std::shared_ptr<const routing::Plan> plan, std::string sql,
                                const Portal* portal, Step then) {
  scatter_.run = std::make_unique<ScatterRun>();
  ScatterRun& run = *scatter_.run;
  run.plan = std::move(plan);
  run.sql = std::move(sql);
  run.then = then;
  if (portal != nullptr) {
    run.extended = true;
    run.bind = portal->bind;
    run.types = portal->statement->types;
    if (const auto bind = wire::Bind::decode(run.bind)) {
      run.count_binary = run.plan->count_star && bind->result_is_binary(0);
    }
  }
  if (txn_.open() || link_) {
    run.error = make_error(ErrorCode::kCrossShardTransaction,
                           "a query over all shards cannot be part of a transaction block yet",
                           "Run it outside BEGIN ... COMMIT, or restrict it to one key.");
    scatter_give_up();
    return;
  }
  if (!context_.fanout_unroutable) {
    run.error = make_error(ErrorCode::kUnroutableQuery,
                           "the query names no key, and routing.on_unroutable is \"error\"",
                           "Restrict it to one key.");
    scatter_give_up();
    return;
  }
  context_.stats
      ->scatter[run.plan->count_star ? metrics::ScatterKind::kRowCount
                                     : metrics::ScatterKind::kConcat]
      .add();
  scatter_lease();
}

void SessionImpl::scatter_lease() {
  ScatterRun& run = *scatter_.run;
  if (run.error) {
    scatter_give_up();
    return;
  }
  for (const routing::ShardId shard : context_.snapshot->members()) {
    if (std::find(run.shards.begin(), run.shards.end(), shard) == run.shards.end()) {
      run.shards.push_back(shard);
    }
  }
  if (run.links.size() < run.shards.size()) {
    step_ = &SessionImpl::scatter_lease;
    wait_ = Wait{};
    wait_.kind = Wait::Kind::kLease;
    wait_.shard = run.shards[run.links.size()];
    return;
  }
  const auto& shards = context_.snapshot->shards;
  for (std::size_t i = 0; i < run.links.size(); ++i) {
    run.order.push_back(i);
    emit_settings(*run.links[i]);
  }
  std::sort(run.order.begin(), run.order.end(), [&](std::size_t a, std::size_t b) {
    return shards[run.shards[a]].name < shards[run.shards[b]].name;
  });
  scatter_lock();
}

void SessionImpl::scatter_lock() {
  ScatterRun& run = *scatter_.run;
  if (run.error) {  // a server lost meanwhile
    scatter_roll_back(&SessionImpl::scatter_finish);
    return;
  }
  run.phase = ScatterRun::Phase::kLocking;
  const auto& shards = context_.snapshot->shards;
  const std::uint32_t timeout = run.ordered ? context_.write_hold_ms : kTogetherMs;
  const std::size_t end = run.ordered ? run.locked + 1 : run.order.size();
  for (; run.locked < end; ++run.locked) {
    const std::size_t at = run.order[run.locked];
    owe_query(*run.links[at], Role::kGate,
              lock_query(*context_.snapshot, shards[run.shards[at]].name, timeout));
  }
  scatter_drain(&SessionImpl::scatter_locked);
}

void SessionImpl::scatter_locked() {
  ScatterRun& run = *scatter_.run;
  if (run.error) {
    scatter_roll_back(&SessionImpl::scatter_finish);
  } else if (run.stale && !run.reloaded) {
    scatter_roll_back(&SessionImpl::scatter_lock_again);
  } else if (run.stale) {
    run.error = make_error(ErrorCode::kStaleTopology,
                           "a shard refuses this proxy's topology even after a reload",
                           "Try again; check that the journal shard can be reached.");
    scatter_roll_back(&SessionImpl::scatter_finish);
  } else if (run.lock_missed && run.ordered) {
    run.error = make_error(ErrorCode::kMigrationCutoverPending,
                           "the query waited too long for a move to finish", "Try again.");
    scatter_roll_back(&SessionImpl::scatter_finish);
  } else if (run.lock_missed) {
    scatter_roll_back(&SessionImpl::scatter_lock_again);
  } else if (run.locked < run.order.size()) {
    scatter_lock();
  } else {
    scatter_run();
  }
}

void SessionImpl::scatter_lock_again() {
  ScatterRun& run = *scatter_.run;
  run.locked = 0;
  if (run.stale) {
    context_.stats->stale_routes[metrics::StaleReason::kGeneration].add();
    run.stale = false;
    run.reloaded = true;
    start_control(ControlRequest{Reload{context_.snapshot->version}, {}},
                  &SessionImpl::scatter_reloaded);
    return;
  }
  run.lock_missed = false;
  run.ordered = true;
  scatter_lock();
}

void SessionImpl::scatter_reloaded() {
  adopt_reloaded();
  ScatterRun& run = *scatter_.run;
  run.order.clear();
  scatter_lease();  // the new topology may have more shards
}

void SessionImpl::scatter_run() {
  ScatterRun& run = *scatter_.run;
  run.phase = ScatterRun::Phase::kRunning;
  for (const auto& link : run.links) {
    owe_query(*link, Role::kSilent, "ROLLBACK TO SAVEPOINT collegedb_sweep");
    if (!run.extended) {
      owe_query(*link, Role::kClient, run.sql);
    } else {
      wire::Parse parse;
      parse.query = run.sql;
      parse.parameter_types = run.types;
      parse.encode(link->out);
      wire::encode_rebound(link->out, run.bind, "", "");
      wire::Describe{wire::Target::kPortal, ""}.encode(link->out);
      wire::Execute{}.encode(link->out);
      wire::encode_sync(link->out);
      link->owe(Expect::kSync, Role::kClient);
    }
    owe_query(*link, Role::kSilent, "COMMIT");
  }
  scatter_drain(&SessionImpl::scatter_finish);
}

void SessionImpl::scatter_roll_back(Step then) {
  for (const auto& link : scatter_.run->links) {
    if (link->status != 'I' && !link->lost) {
      owe_query(*link, Role::kSilent, "ROLLBACK");
    }
  }
  scatter_drain(then);
}

// Reads one link after the other; rows reach the client in the order of shards.
void SessionImpl::scatter_drain(Step then) {
  step_ = then;
  Link* link = scatter_.run->owing();
  if (link == nullptr) {
    cancelling_ = false;
    (this->*step_)();
    return;
  }
  wait_ = Wait{};
  wait_.kind = Wait::Kind::kServer;
  wait_.link = link->id;
  wait_.timeout_ms = cancelling_ ? kCancelGraceMs : context_.query_timeout_ms;
}

void SessionImpl::scatter_finish() {
  const std::unique_ptr<ScatterRun> run = std::move(scatter_.run);
  for (const auto& link : run->links) {
    const bool clean = link->owed.empty() && link->status == 'I' && !link->dirty;
    commands_.push_back(
        Command{clean ? Command::Kind::kRelease : Command::Kind::kDiscard, link->id});
  }
  if (run->error) {
    turn_error_ = run->error;
  } else {
    if (run->plan->count_star) {
      client_out_ += run->count_row();
    }
    end_rows(run->plan->count_star ? 1 : run->rows);
  }
  (this->*run->then)();
}

void SessionImpl::scatter_give_up() {
  scatter_finish();
}

void SessionImpl::simple_scatter_done() {
  if (turn_error_) {
    abort_and_fail(*std::exchange(turn_error_, std::nullopt));
  } else {
    finish_turn();
  }
}

void SessionImpl::extended_scatter_done() {
  if (turn_error_) {
    fail_batch(*std::exchange(turn_error_, std::nullopt));
  } else {
    step_batch();
  }
}

// --- replies ----------------------------------------------------------------------------------

void SessionImpl::scatter_reply(Link& link, const wire::Frame& frame) {
  ScatterRun& run = *scatter_.run;
  if (frame.tag == 'S') {
    if (const auto status = wire::ParameterStatus::decode(frame.payload)) {
      link.state->reported[std::string(status->name)] = status->value;
    }
    return;
  }
  if (frame.tag == 'N' || frame.tag == 'A') {
    if (frame.tag == 'N' && run.phase == ScatterRun::Phase::kRunning && !run.error) {
      client_out_ += frame.raw;
    }
    return;
  }
  if (link.owed.empty()) {
    link.dirty = link.lost = true;
    scatter_error(link, make_error(ErrorCode::kShardUnavailable,
                                   "the shard broke the protocol: a reply nobody waits for",
                                   "The connection was closed; try again."));
    return;
  }
  if (frame.tag == 'Z') {
    link.status = frame.payload.empty() ? 'E' : frame.payload[0];
    link.owed.pop_front();
  } else if (frame.tag == 'E') {
    auto error = wire::decode_error(frame.payload);
    scatter_error(link, error ? std::move(*error) : error.error());
    return;
  } else if (run.phase == ScatterRun::Phase::kLocking) {
    scatter_lock_reply(link, frame);
  } else if (link.owed.front().role == Role::kClient) {
    scatter_result(link, frame);
  }
  if (scatter_.active() && wait_.kind == Wait::Kind::kServer && link.owed.empty()) {
    scatter_drain(step_);
  }
}

void SessionImpl::scatter_lock_reply(Link& link, const wire::Frame& frame) {
  ScatterRun& run = *scatter_.run;
  if (link.owed.front().role != Role::kGate || frame.tag != 'D') {
    if (frame.tag == 'C' && link.owed.front().role == Role::kGate &&
        frame.payload.starts_with("SELECT") && link.owed.front().rows != 1) {
      run.error = make_error(
          ErrorCode::kPlacementUnverified,
          "shard " + context_.snapshot->shards[link.shard].name + " does not know its own name",
          "Run collegedb init.");
    }
    return;
  }
  ++link.owed.front().rows;
  const auto row = wire::DataRow::decode(frame.payload);
  if (row && row->values.size() == 1 && row->values[0]) {
    std::int64_t least = 0;
    std::from_chars(row->values[0]->data(), row->values[0]->data() + row->values[0]->size(), least);
    run.stale = run.stale || least > context_.snapshot->generation;
  }
}

void SessionImpl::scatter_result(Link& link, const wire::Frame& frame) {
  ScatterRun& run = *scatter_.run;
  if (run.error) {
    return;
  }
  switch (frame.tag) {
    case 'T': {
      const bool first = run.description.empty();
      const std::string difference = run.add_description(frame);
      if (!difference.empty()) {
        scatter_error(link, make_error(ErrorCode::kUnroutableQuery,
                                       "the shards disagree on " + difference + " of the result",
                                       "Bring the schemas together; see collegedb check."));
        return;
      }
      if (first && !run.extended) {
        client_out_ += frame.raw;
      }
      return;
    }
    case 'D':
      if (!run.plan->count_star) {
        ++run.rows;
        client_out_ += frame.raw;
      } else if (!run.add_count(frame.payload)) {
        scatter_error(link, make_error("22003", "count out of range"));
      }
      return;
    default:
      return;
  }
}

// The first error is the client's; the other shards are told to stop, and what they still send is
// read and dropped.
void SessionImpl::scatter_error(Link& link, SqlError error) {
  ScatterRun& run = *scatter_.run;
  const bool fatal = error.severity == "FATAL" || error.severity == "PANIC" || link.lost;
  link.dirty = link.dirty || (!link.owed.empty() && link.owed.front().role == Role::kSettings);
  const bool lock_timeout =
      run.phase == ScatterRun::Phase::kLocking && error.sqlstate == "55P03" && !fatal;
  if (lock_timeout) {
    run.lock_missed = true;
  } else if (!run.error) {
    error.severity = "ERROR";
    run.error = std::move(error);
    if (run.phase == ScatterRun::Phase::kRunning) {
      for (const auto& other : run.links) {
        if (other.get() != &link && !other->owed.empty()) {
          commands_.push_back(Command{Command::Kind::kCancel, other->id});
        }
      }
    }
  }
  if (fatal) {
    link.dirty = link.lost = true;
    link.owed.clear();
    if (wait_.kind == Wait::Kind::kServer && wait_.link == link.id) {
      scatter_drain(step_);
    }
  }
}

}  // namespace collegedb::session
