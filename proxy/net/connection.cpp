#include "proxy/net/connection.h"

#include <algorithm>
#include <boost/asio/post.hpp>
#include <utility>

#include "proxy/net/spawn.h"
#include "proxy/net/worker.h"
#include "proxy/wire/backend.h"

namespace collegedb::net {
namespace {

// Replies above this wait for the client before more is read from a server.
constexpr std::size_t kHighMark = 64UL << 10;
// Turns without suspending before others get the thread.
constexpr unsigned kMaxBurst = 64;
constexpr unsigned kSmallReadsToShrink = 16;

std::uint64_t age_ms(TimePoint since, TimePoint now) {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<Milliseconds>(now - since).count());
}

bool same_wait(const session::Wait& a, const session::Wait& b) {
  return a.kind == b.kind && a.link == b.link && a.shard == b.shard &&
         a.timeout_ms == b.timeout_ms && a.control == b.control;
}

}  // namespace

Connection::Connection(Worker& worker, std::uint64_t id, Socket socket, std::string address,
                       bool local, bool refused)
    : worker_(worker),
      id_(id),
      client_(std::move(socket)),
      address_(std::move(address)),
      local_(local),
      refused_(refused),
      connected_at_(Clock::now()),
      event_(worker.executor()) {}

Connection::~Connection() = default;

void Connection::start() {
  spawn(worker_.executor(), "client connection", run(shared_from_this()));
}

Task<void> Connection::run(std::shared_ptr<Connection> self) {
  struct AtEnd {
    Connection& connection;
    ~AtEnd() { connection.finish(); }
  };
  const AtEnd at_end{*self};
  const bool logged_in = co_await self->log_in();
  if (logged_in) co_await self->serve();
}

void Connection::finish() {
  disarm();
  session_.reset();  // before the links whose state it refers to
  drop_links();
  client_.close();
  worker_.remove(*this);
}

std::string_view Connection::state_name() const {
  return session_ ? session_->state_name() : std::string_view("login");
}

ClientInfo Connection::info(TimePoint now) const {
  ClientInfo info;
  info.pid = key_pid_;
  info.worker = worker_.index();
  info.user = user_;
  info.database = database_;
  info.application_name = application_name_;
  info.address = address_;
  info.state = state_name();
  info.tls = client_.is_tls();
  info.connected_ms = age_ms(connected_at_, now);
  for (const Link& link : links_) info.shards.push_back(link.pool->target().name);
  return info;
}

// --- the loop ---------------------------------------------------------------------------------

Task<void> Connection::serve() {
  using Kind = session::Wait::Kind;
  while (!terminated_) {
    perform_commands();
    if (!flush_servers_now()) co_await flush_servers();
    const session::Wait wait = session_->wait();
    begin_wait(wait);
    if (wait.kind == Kind::kClosed || (gone_told_ && wait.kind == Kind::kClient)) break;
    if (apply_interrupts()) continue;
    if (session_->client_out().size() >= kHighMark && !flush_client_now(false)) {
      co_await flush_client();
    }
    if (++burst_ > kMaxBurst) {
      burst_ = 0;
      co_await asio::post(worker_.executor(), asio::use_awaitable_t<Executor>{});
    }
    switch (wait.kind) {
      case Kind::kClient:
        co_await client_turn();
        break;
      case Kind::kServer:
        co_await server_turn(wait.link);
        break;
      case Kind::kLease:
        if (!try_lease(worker_.pool(wait.shard))) co_await lease_turn();
        break;
      case Kind::kControl:
        co_await control_turn();
        break;
      case Kind::kDelay:
        co_await delay_turn();
        break;
      case Kind::kClosed:
        break;
    }
  }
  if (terminated_) {
    say_goodbye();
  } else if (!flush_client_now(true)) {
    co_await flush_client();
  }
  perform_commands();
}

void Connection::begin_wait(const session::Wait& wait) {
  if (same_wait(wait, waiting_for_)) return;
  waiting_for_ = wait;
  deadline_hit_ = false;
  deadline_ =
      wait.timeout_ms == 0 ? TimePoint::max() : Clock::now() + Milliseconds(wait.timeout_ms);
}

bool Connection::apply_interrupts() {
  if (client_gone_ && !gone_told_) {
    gone_told_ = true;
    session_->on_client_gone();
    return true;
  }
  if (drain_ && !drain_told_) {
    drain_told_ = true;
    session_->on_drain();
    return true;
  }
  if (deadline_hit_) {
    deadline_hit_ = false;
    session_->on_deadline();
    return true;
  }
  return false;
}

// --- client -----------------------------------------------------------------------------------

Task<void> Connection::client_turn() {
  if (feed_client()) co_return;
  if (!flush_client_now(false)) co_await flush_client();
  if (client_gone_ || terminated_) co_return;
  co_await read_client();
}

bool Connection::feed_client() {
  bool any = false;
  while (session_->wait().kind == session::Wait::Kind::kClient) {
    const wire::SplitResult split = wire::split(in_.data(), wire::Direction::kFrontend);
    if (split.status == wire::SplitResult::Status::kNeedMore) {
      client_need_ = split.need;
      break;
    }
    any = true;
    if (split.status == wire::SplitResult::Status::kMalformed) {
      // A wrong length is answered by nothing but the end, as PostgreSQL does.
      if (split.error.kind != wire::FramingFault::Kind::kLength) {
        wire::encode_error(session_->client_out(), split.error.to_error());
      }
      gone_told_ = true;
      session_->on_client_gone();
      break;
    }
    session_->on_client(split.frame);
    in_.consume(split.frame.raw.size());
  }
  return any;
}

Task<void> Connection::read_client() {
  if (in_.empty() &&
      (small_reads_ > kSmallReadsToShrink || in_.capacity() > 4 * ReadBuffer::kNormal)) {
    in_.shrink(ReadBuffer::kSmall);
    small_reads_ = 0;
  }
  const std::size_t usual = client_more_likely_ ? ReadBuffer::kNormal : ReadBuffer::kSmall;
  const auto room = in_.prepare(client_need_, usual);
  IoResult result{.status = IoStatus::kWouldBlock, .n = 0, .direction = {}, .error = {}};
  if (client_more_likely_) result = client_.read_now(room);
  if (result.status == IoStatus::kWouldBlock) {
    arm(false);
    suspended_ = Suspended::kClientRead;
    result = co_await client_.read(room);
    disarm();
  }
  on_client_read(result, room.size());
}

void Connection::on_client_read(const IoResult& result, std::size_t room) {
  if (result.status == IoStatus::kAborted) return;
  if (result.status != IoStatus::kDone) {
    client_gone_ = true;
    return;
  }
  worker_.stats().bytes[metrics::Direction::kFromClients].add(result.n);
  in_.commit(result.n);
  client_more_likely_ = result.n == room;
  if (result.n > ReadBuffer::kSmall)
    small_reads_ = 0;
  else if (in_.capacity() > ReadBuffer::kSmall)
    ++small_reads_;
}

// --- servers ----------------------------------------------------------------------------------

Task<void> Connection::server_turn(session::LinkId id) {
  Link* link = find_link(id);
  if (link == nullptr) {
    session_->on_server_lost(id, "the connection is not held any more");
    co_return;
  }
  if (feed_server(*link)) co_return;
  if (!link->lost.empty()) {
    session_->on_server_lost(id, link->lost);
    co_return;
  }
  co_await read_server(link);
}

bool Connection::feed_server(Link& link) {
  Backend& backend = *link.backend;
  bool any = false;
  for (;;) {
    const session::Wait wait = session_->wait();
    if (wait.kind != session::Wait::Kind::kServer || wait.link != link.id) return true;
    if (session_->client_out().size() >= kHighMark && session_->may_flush_client()) return true;
    const wire::SplitResult split = wire::split(backend.in.data(), wire::Direction::kBackend);
    if (split.status == wire::SplitResult::Status::kNeedMore) {
      link.need = split.need;
      return any;
    }
    any = true;
    if (split.status == wire::SplitResult::Status::kMalformed) {
      backend.tainted = true;
      session_->on_server_lost(link.id, "malformed message from the server");
      return true;
    }
    if (split.frame.tag == 'Z') backend.busy = false;
    session_->on_server(link.id, split.frame);
    backend.in.consume(split.frame.raw.size());
  }
}

Task<void> Connection::read_server(Link* link) {
  Backend& backend = *link->backend;
  if (backend.in.empty() && backend.in.capacity() > 4 * ReadBuffer::kNormal) backend.in.shrink(0);
  auto room = backend.in.prepare(link->need, ReadBuffer::kNormal);
  IoResult result{.status = IoStatus::kWouldBlock, .n = 0, .direction = {}, .error = {}};
  if (backend.more_likely) result = backend.stream.read_now(room);
  if (result.status == IoStatus::kWouldBlock) {
    // About to wait: what the client is owed so far must not wait too.
    if (!flush_client_now(false)) co_await flush_client();
    if ((client_gone_ && !gone_told_) || terminated_) co_return;
    arm(!gone_told_);
    suspended_ = Suspended::kServerRead;
    reading_link_ = link->id;
    result = co_await backend.stream.read(room);
    disarm();
  }
  on_server_read(*link, result, room.size());
}

void Connection::on_server_read(Link& link, const IoResult& result, std::size_t room) {
  if (result.status == IoStatus::kAborted) return;
  Backend& backend = *link.backend;
  if (result.status != IoStatus::kDone) {
    backend.tainted = true;
    backend.busy = false;  // nothing runs there any more
    session_->on_server_lost(link.id, result.error ? result.error.message()
                                                   : "server closed the connection unexpectedly");
    return;
  }
  worker_.stats().bytes[metrics::Direction::kFromShards].add(result.n);
  backend.in.commit(result.n);
  backend.more_likely = result.n == room;
}

// --- leases -----------------------------------------------------------------------------------

void Connection::adopt(Backend& backend, Pool& pool) {
  backend.user = user_;
  backend.more_likely = false;
  const session::LinkId id = next_link_++;
  links_.push_back(Link{.id = id, .backend = &backend, .pool = &pool, .lost = {}});
  session_->on_leased(id, backend.state);
}

bool Connection::try_lease(Pool& pool) {
  Backend* backend = pool.try_lease();
  if (backend == nullptr) return false;
  adopt(*backend, pool);
  return true;
}

Task<void> Connection::lease_turn() {
  const session::Wait wait = session_->wait();
  Pool& pool = worker_.pool(wait.shard);
  if (!flush_client_now(false)) co_await flush_client();
  if (terminated_ || client_gone_) co_return;
  deadline_ = std::min(deadline_, Clock::now() + worker_.wait_timeout());
  cancel_wait_ = false;
  Waiter waiter(event_);
  pool.wait(waiter);
  while (!waiter.done()) {
    co_await await_event();
    const bool ended = terminated_ || (client_gone_ && !gone_told_);
    if (!ended && !cancel_wait_ && !deadline_hit_) continue;
    if (!ended && waiter.done()) break;
    pool.forget(waiter);
    if (ended) co_return;
    if (cancel_wait_) {
      session_->on_lease_failed(0, make_error("57014", "canceling statement due to user request"));
    } else {
      deadline_hit_ = false;
      lease_timed_out(pool, wait.timeout_ms);
    }
    co_return;
  }
  if (waiter.backend != nullptr) {
    adopt(*waiter.backend, pool);
  } else if (waiter.error) {
    session_->on_lease_failed(0, std::move(*waiter.error));
  }
}

void Connection::lease_timed_out(const Pool& pool, std::uint32_t timeout_ms) {
  const auto limit = static_cast<std::uint32_t>(worker_.wait_timeout().count());
  if (timeout_ms != 0 && timeout_ms <= limit) {
    session_->on_deadline();
    if (session_->wait().kind != session::Wait::Kind::kLease) return;
  }
  const std::optional<SqlError>& last = pool.last_error();
  const std::string detail = last ? last->detail : std::string{};
  session_->on_lease_failed(
      0, make_error(collegedb::ErrorCode::kPoolTimeout,
                    "no server connection of shard \"" + pool.target().name + "\" within " +
                        std::to_string(limit) + " ms",
                    "Raise pool.size or pool.wait_timeout, or shorten transactions.", detail));
}

// --- control plane and delays -----------------------------------------------------------------

Task<void> Connection::control_turn() {
  const session::ControlRequest* request = session_->wait().control;
  const std::uint64_t ticket = ++control_ticket_;
  control_reply_.reset();
  worker_.call_control(*request, weak_from_this(), ticket);
  if (!flush_client_now(false)) co_await flush_client();
  while (!control_reply_) {
    co_await await_event();
    if (control_reply_) break;
    if (terminated_) co_return;
    apply_interrupts();
    const session::Wait wait = session_->wait();
    if (wait.kind != session::Wait::Kind::kControl || wait.control != request) {
      ++control_ticket_;  // the reply is nobody's any more
      co_return;
    }
  }
  session::ControlReply reply = std::move(*control_reply_);
  control_reply_.reset();
  ++control_ticket_;
  session_->on_control(std::move(reply));
}

Task<void> Connection::delay_turn() {
  const Milliseconds time(session_->wait().timeout_ms);
  if (!flush_client_now(false)) co_await flush_client();
  timer_.emplace(worker_.executor(), time);
  deadline_ = TimePoint::max();  // the timer is more exact
  arm(true);
  suspended_ = Suspended::kTimer;
  const auto [ec] = co_await timer_->async_wait(tup);
  disarm();
  timer_.reset();
  if (!ec && !terminated_) session_->on_deadline();
}

}  // namespace collegedb::net
