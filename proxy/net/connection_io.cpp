// The half of Connection that moves bytes and links; the turns are in connection.cpp.
#include <algorithm>

#include "proxy/net/connection.h"
#include "proxy/net/worker.h"
#include "proxy/wire/backend.h"

namespace collegedb::net {
namespace {

// How long a wait goes on before the client is looked at.
constexpr Milliseconds kClientCheck{1000};
// Replies read ahead while a server does not take our bytes. More than that is given up.
constexpr std::size_t kMaxReadAhead = 64UL << 20;
constexpr std::size_t kKeepOut = 64UL << 10;

void reuse(std::string& buffer) {
  buffer.clear();
  if (buffer.capacity() > 4 * kKeepOut) buffer.shrink_to_fit();
}

}  // namespace

// --- suspending and waking --------------------------------------------------------------------

void Connection::arm(bool watch_client) {
  burst_ = 0;
  watches_client_ = watch_client;
  TimePoint due = deadline_;
  if (watch_client) due = std::min(due, worker_.watchdog().now() + kClientCheck);
  if (due != TimePoint::max()) worker_.watchdog().watch(*this, due);
}

void Connection::disarm() {
  suspended_ = Suspended::kNo;
  if (is_linked()) Watchdog::unwatch(*this);
}

void Connection::on_due(TimePoint now) {
  if (now >= deadline_) {
    deadline_ = TimePoint::max();
    deadline_hit_ = true;
    if (!session_) terminated_ = true;  // nobody logs in that slowly
  }
  if (watches_client_ && client_.peek().gone) client_gone_ = true;
  if (deadline_hit_ || client_gone_) {
    wake();
  } else {
    arm(watches_client_);
  }
}

void Connection::wake() {
  switch (suspended_) {
    case Suspended::kNo:
      break;
    case Suspended::kClientRead:
      client_.cancel();
      break;
    case Suspended::kServerRead:
      if (Link* link = find_link(reading_link_)) link->backend->stream.cancel();
      break;
    case Suspended::kEvent:
      event_.set();
      break;
    case Suspended::kTimer:
      if (timer_) timer_->cancel();
      break;
    case Suspended::kWrite:
      // Half a message is out: only the end of the connection may interrupt that.
      if (!terminated_) break;
      client_.cancel();
      for (Link& link : links_) link.backend->stream.cancel();
      break;
  }
}

Task<void> Connection::await_event() {
  arm(true);
  suspended_ = Suspended::kEvent;
  co_await event_.wait();
  disarm();
}

// --- the client's side ------------------------------------------------------------------------

bool Connection::flush_client_now(bool force) {
  std::string& out = session_->client_out();
  if (out.empty() || (!force && !session_->may_flush_client())) return true;
  std::string_view rest = out;
  while (!rest.empty() && !client_gone_) {
    const IoResult result = client_.write_now(rest);
    if (result.status == IoStatus::kDone) {
      rest.remove_prefix(result.n);
      continue;
    }
    if (result.status == IoStatus::kWouldBlock) {
      pending_.assign(rest);
      pending_direction_ = result.direction;
      worker_.stats().bytes[metrics::Direction::kToClients].add(out.size());
      reuse(out);
      return false;
    }
    client_gone_ = true;
  }
  worker_.stats().bytes[metrics::Direction::kToClients].add(out.size());
  reuse(out);
  return true;
}

Task<void> Connection::flush_client() {
  mid_write_ = true;
  std::string_view rest = pending_;
  Socket::wait_type direction = pending_direction_;
  burst_ = 0;
  while (!rest.empty() && !terminated_) {
    suspended_ = Suspended::kWrite;
    const IoResult waited = co_await client_.wait(direction);
    suspended_ = Suspended::kNo;
    if (waited.status != IoStatus::kDone) {
      client_gone_ = client_gone_ || waited.status == IoStatus::kClosed;
      if (client_gone_ || terminated_) break;
      continue;
    }
    const IoResult result = client_.write_now(rest);
    if (result.status == IoStatus::kDone) {
      rest.remove_prefix(result.n);
    } else if (result.status == IoStatus::kWouldBlock) {
      direction = result.direction;
    } else {
      client_gone_ = true;
      break;
    }
  }
  mid_write_ = !rest.empty();
  reuse(pending_);
}

void Connection::say_goodbye() {
  if (mid_write_ || client_gone_) return;
  SqlError error = make_error("57P01", "terminating connection due to administrator command");
  error.severity = "FATAL";
  std::string message;
  wire::encode_error(message, error);
  static_cast<void>(client_.write_now(message));
}

// --- the servers' side ------------------------------------------------------------------------

bool Connection::flush_servers_now() {
  bool all = true;
  for (Link& link : links_) {
    std::string& out = session_->server_out(link.id);
    if (out.empty()) continue;
    link.backend->busy = true;
    std::string_view rest = out;
    while (!rest.empty() && !link.write_failed) {
      const IoResult result = link.backend->stream.write_now(rest);
      if (result.status == IoStatus::kDone) {
        rest.remove_prefix(result.n);
      } else if (result.status == IoStatus::kWouldBlock) {
        break;
      } else {
        // The reason, if the server gave one, is still to be read.
        link.write_failed = true;
      }
    }
    worker_.stats().bytes[metrics::Direction::kToShards].add(out.size() - rest.size());
    if (link.write_failed || rest.empty()) {
      reuse(out);
    } else {
      out.erase(0, out.size() - rest.size());
      all = false;
    }
  }
  return all;
}

Task<void> Connection::flush_servers() {
  for (std::size_t i = 0; i < links_.size(); ++i) {
    if (!session_->server_out(links_[i].id).empty()) co_await flush_server(&links_[i]);
  }
}

// A server that does not take our bytes may be waiting for us to take its replies: read meanwhile.
Task<void> Connection::flush_server(Link* link) {
  std::string& out = session_->server_out(link->id);
  std::string_view rest = out;
  burst_ = 0;
  while (!rest.empty() && !link->write_failed && !terminated_) {
    const IoResult result = link->backend->stream.write_now(rest);
    if (result.status == IoStatus::kDone) {
      rest.remove_prefix(result.n);
      continue;
    }
    if (result.status != IoStatus::kWouldBlock) {
      link->write_failed = true;
      break;
    }
    suspended_ = Suspended::kWrite;
    const IoResult waited = co_await link->backend->stream.wait_any();
    suspended_ = Suspended::kNo;
    if (waited.status == IoStatus::kClosed)
      link->write_failed = true;
    else
      read_while_writing(*link);
  }
  worker_.stats().bytes[metrics::Direction::kToShards].add(out.size() - rest.size());
  if (!rest.empty()) link->backend->tainted = true;
  reuse(out);
}

void Connection::read_while_writing(Link& link) {
  Backend& backend = *link.backend;
  if (backend.in.data().size() >= kMaxReadAhead) {
    link.lost = "too many replies while the statements of one pipeline were still being sent";
    link.write_failed = true;
    backend.tainted = true;
    return;
  }
  const auto room = backend.in.prepare(0, ReadBuffer::kNormal);
  const IoResult result = backend.stream.read_now(room);
  if (result.status == IoStatus::kDone) {
    worker_.stats().bytes[metrics::Direction::kFromShards].add(result.n);
    backend.in.commit(result.n);
  } else if (result.status == IoStatus::kClosed) {
    link.lost = "server closed the connection unexpectedly";
    link.write_failed = true;
    backend.tainted = true;
    backend.busy = false;
  }
}

// --- links ------------------------------------------------------------------------------------

Connection::Link* Connection::find_link(session::LinkId id) {
  const auto found = std::ranges::find(links_, id, &Link::id);
  return found == links_.end() ? nullptr : &*found;
}

void Connection::perform_commands() {
  for (const session::Command& command : session_->take_commands()) {
    Link* link = find_link(command.link);
    if (link == nullptr) continue;
    if (command.kind == session::Command::Kind::kCancel) {
      link->pool->cancel(*link->backend);
      continue;
    }
    const Link ended = *link;
    links_.erase(links_.begin() + (link - links_.data()));
    if (command.kind == session::Command::Kind::kRelease) {
      ended.pool->release(*ended.backend);
    } else {
      ended.pool->discard(*ended.backend);
    }
  }
}

void Connection::drop_links() {
  while (!links_.empty()) {
    const Link ended = links_.back();
    links_.pop_back();
    ended.pool->discard(*ended.backend);
  }
}

void Connection::cancel_request(const std::shared_ptr<void>& settled) {
  if (!session_) return;
  const session::Wait wait = session_->wait();
  if (wait.kind == session::Wait::Kind::kLease) {
    cancel_wait_ = true;
    wake();
    return;
  }
  for (Link& link : links_) {
    const bool waited_for = wait.kind == session::Wait::Kind::kServer && wait.link == link.id;
    if (waited_for || link.backend->busy) link.pool->cancel(*link.backend, settled);
  }
}

void Connection::drain() {
  drain_ = true;
  if (!session_) terminated_ = true;
  wake();
}

void Connection::terminate() {
  terminated_ = true;
  wake();
}

void Connection::on_control_reply(std::uint64_t ticket, session::ControlReply reply) {
  if (ticket != control_ticket_) return;
  control_reply_ = std::move(reply);
  event_.set();
}

void Connection::on_cancel_settled() {
  cancel_settled_ = true;
  event_.set();
}

}  // namespace collegedb::net
