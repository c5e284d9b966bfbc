// The half of Connection that runs before there is a session: session::Login over the socket.
#include <utility>

#include "proxy/net/connection.h"
#include "proxy/net/printable.h"
#include "proxy/net/random.h"
#include "proxy/net/worker.h"

namespace collegedb::net {

Task<bool> Connection::log_in() {
  deadline_ = connected_at_ + worker_.login_timeout();
  session::LoginChannel channel{.tls_available = worker_.client_tls() != nullptr && !local_,
                                .local = local_,
                                .refused = refused_,
                                .nonce = random_base64(18),
                                .salt = random_bytes(4)};
  session::Login login(worker_.policy(), std::move(channel));
  bool complete = false;
  for (bool going = true; going && !complete;) {
    const session::Login::Progress progress = login.on_bytes(in_.data());
    in_.consume(progress.consumed);
    going = co_await login_write(&login);
    if (!going) break;
    switch (progress.step) {
      case session::LoginStep::kNeedMore:
        going = co_await login_read();
        break;
      case session::LoginStep::kStartTls:
        going = co_await login_tls(&login);
        break;
      case session::LoginStep::kAuthenticated:
        complete = co_await login_finish(&login);
        going = false;
        break;
      case session::LoginStep::kCancel:
        co_await login_cancel(login.cancel());
        co_return false;
      case session::LoginStep::kClose:
        going = false;
        break;
    }
  }
  count_login(login);
  deadline_ = TimePoint::max();
  co_return complete;
}

Task<bool> Connection::login_read() {
  const auto room = in_.prepare(0, ReadBuffer::kSmall);
  arm(false);
  suspended_ = Suspended::kClientRead;
  const IoResult result = co_await client_.read(room);
  disarm();
  if (result.status == IoStatus::kDone) in_.commit(result.n);
  co_return result.status == IoStatus::kDone && !terminated_;
}

Task<bool> Connection::login_write(session::Login* login) {
  if (login->out().empty()) co_return true;
  arm(false);
  suspended_ = Suspended::kWrite;
  const IoResult result = co_await client_.write_all(login->out());
  disarm();
  login->out().clear();
  co_return result.status == IoStatus::kDone && !terminated_;
}

Task<bool> Connection::login_tls(session::Login* login) {
  const bool plaintext_left = !in_.empty();
  in_.clear();
  arm(false);
  suspended_ = Suspended::kWrite;
  const Result<void> done = co_await client_.handshake_server(worker_.client_tls());
  disarm();
  if (!done || terminated_) {
    spdlog::debug("client {}: {}", address_, done ? "login timeout" : done.error().message);
    co_return false;
  }
  const session::LoginStep step = login->on_tls_started(plaintext_left, client_.peer_common_name());
  if (step == session::LoginStep::kNeedMore) co_return true;
  co_await login_write(login);
  co_return false;
}

// What servers report at login, for the ParameterStatus set; asks one when none was seen yet.
Task<Result<session::ReportedParameters>> Connection::fetch_reported() {
  if (session::ReportedParameters known = worker_.reported(); !known.empty()) co_return known;
  SqlError last = make_error("57P03", "no shard is configured");
  for (const std::size_t shard : worker_.shards_by_preference()) {
    Pool& pool = worker_.pool(static_cast<routing::ShardId>(shard));
    Waiter waiter(event_);
    pool.wait(waiter);
    while (!waiter.done() && !terminated_) {
      co_await await_event();
      if (client_gone_) terminated_ = true;
    }
    const bool granted = waiter.backend != nullptr;
    pool.forget(waiter);  // gives a granted connection back
    if (granted) co_return worker_.reported();
    if (terminated_) break;
    if (waiter.error) last = std::move(*waiter.error);
  }
  co_return last;
}

Task<bool> Connection::login_finish(session::Login* login) {
  const Result<session::ReportedParameters> reported = co_await fetch_reported();
  if (!reported) {
    if (terminated_) co_return false;
    login->fail(reported.error());
    co_await login_write(login);
    co_return false;
  }
  const CancelKeys::Key key = worker_.add_key(*this);
  key_pid_ = key.pid;
  const session::Identity& identity = login->identity();
  user_ = identity.user;
  database_ = identity.database;
  for (const auto& [name, value] : identity.parameters) {
    if (name == "application_name") application_name_ = value;
  }
  session::Greeting greeting = login->greeting(*reported, key.pid, key.secret);
  const bool written = co_await login_write(login);
  if (written) {
    session_ = std::make_unique<session::Session>(worker_.context(), identity, std::move(greeting));
  }
  co_return written;
}

Task<void> Connection::login_cancel(wire::CancelRequest request) {
  // Closed only once the shards have taken it: whoever waits for the close may send its next
  // statement then.
  if (!worker_.route_cancel(request.pid, request.secret, weak_from_this())) co_return;
  while (!cancel_settled_ && !terminated_ && !client_gone_) co_await await_event();
}

void Connection::count_login(const session::Login& login) {
  using metrics::LoginResult;
  LoginResult result = LoginResult::kOk;
  if (const std::optional<SqlError>& error = login.error()) {
    result = LoginResult::kFailed;
    if (login.authentication_failed()) result = LoginResult::kAuthFailed;
    if (refused_) result = LoginResult::kRefused;
    worker_.stats().count_error(*error);
    // Text of the client's choice (user, database) is in the message: kept on one line.
    spdlog::info("login from {} refused: {} {}", address_, error->sqlstate,
                 printable(error->message));
  } else if (!session_) {
    // Connect and close is what every port check does: not worth a line.
    if (login.identity().user.empty() && !deadline_hit_) return;
    result = deadline_hit_ ? LoginResult::kTimeout : LoginResult::kFailed;
  }
  worker_.stats().client_logins[result].add();
}

}  // namespace collegedb::net
