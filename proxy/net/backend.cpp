#include "proxy/net/backend.h"

#include <netinet/in.h>
#include <netinet/tcp.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <utility>

#include "proxy/net/backend_login.h"
#include "proxy/net/random.h"
#include "proxy/net/socket_options.h"
#include "proxy/wire/startup.h"

namespace collegedb::net {
namespace {

SqlError cannot_connect(const std::string& text) {
  return make_error("08006", text);
}

// A login error after which `prefer` and `allow` try the other encryption (no matching hba line).
bool depends_on_encryption(const SqlError& error) {
  return error.sqlstate == "28000";
}

Endpoint unix_endpoint(const Host& host) {
  return asio::local::stream_protocol::endpoint(host.text());
}

}  // namespace

// Aborts the connector when the time for one host is over. The timer's handler may outlive this
// object, so both share the flag.
class Connector::Limit {
 public:
  Limit(Connector& connector, Milliseconds time)
      : timer_(connector.executor_, time), alive_(std::make_shared<bool>(true)) {
    connector.timed_out_ = false;
    timer_.async_wait([&connector, alive = alive_](IoError ec) {
      if (ec || !*alive) return;
      connector.timed_out_ = true;
      connector.abort();
    });
  }
  ~Limit() { *alive_ = false; }
  Limit(const Limit&) = delete;
  Limit& operator=(const Limit&) = delete;

 private:
  Timer timer_;
  std::shared_ptr<bool> alive_;
};

void Connector::abort() {
  if (!timed_out_) aborted_ = true;
  IoError ignored;
  if (resolver_ != nullptr) resolver_->cancel();
  if (socket_ != nullptr) socket_->close(ignored);
  if (stream_ != nullptr) stream_->abort();
}

SqlError Connector::interrupted() const {
  return cannot_connect(aborted_ ? "the proxy is shutting down" : "timeout expired");
}

Task<ConnectResult> Connector::connect(const ShardTarget* shard) {
  SqlError last = cannot_connect("no host to connect to");
  for (const Host& host : shard->target.hosts) {
    const Limit limit(*this, shard->target.connect_timeout);
    ConnectResult result = co_await connect_host(shard, &host);
    if (result) co_return result;
    last = std::move(result).error();
    if (aborted_) co_return interrupted();
    if (timed_out_) last = interrupted();
    const std::string prefix = "connection to server at \"" + host.text() + "\" failed: ";
    last.message.insert(0, prefix);
  }
  co_return last;
}

Task<Result<std::vector<Endpoint>>> Connector::resolve(const Host* host) {
  std::vector<Endpoint> endpoints;
  const std::string& name = host->address.empty() ? host->name : host->address;
  if (host->address.empty() && host->is_unix()) {
    endpoints.push_back(unix_endpoint(*host));
    co_return endpoints;
  }
  IoError not_numeric;
  const auto address = asio::ip::make_address(name, not_numeric);
  if (!not_numeric) {
    endpoints.emplace_back(asio::ip::tcp::endpoint(address, host->port));
    co_return endpoints;
  }
  asio::ip::basic_resolver<asio::ip::tcp, Executor> resolver(executor_);
  resolver_ = &resolver;
  const std::string service = std::to_string(host->port);
  const auto [ec, found] = co_await resolver.async_resolve(name, service, tup);
  resolver_ = nullptr;
  if (aborted_ || timed_out_) co_return interrupted();
  if (ec) {
    co_return cannot_connect("could not translate host name \"" + name + "\": " + ec.message());
  }
  for (const auto& entry : found) endpoints.emplace_back(entry.endpoint());
  co_return endpoints;
}

Task<ConnectResult> Connector::connect_host(const ShardTarget* shard, const Host* host) {
  const auto endpoints = co_await resolve(host);
  if (!endpoints) co_return endpoints.error();
  const SslMode mode = host->is_unix() ? SslMode::kDisable : shard->target.ssl_mode;
  Tls first = Tls::kMust;
  if (mode == SslMode::kDisable || mode == SslMode::kAllow) first = Tls::kNo;
  if (mode == SslMode::kPrefer) first = Tls::kIfOffered;
  SqlError last = cannot_connect("the host name has no address");
  for (const Endpoint& endpoint : *endpoints) {
    ConnectResult result = co_await attempt(shard, host, endpoint, first);
    const bool other = !result && depends_on_encryption(result.error()) && !aborted_ && !timed_out_;
    if (other && mode == SslMode::kPrefer) {
      result = co_await attempt(shard, host, endpoint, Tls::kNo);
    } else if (other && mode == SslMode::kAllow) {
      result = co_await attempt(shard, host, endpoint, Tls::kMust);
    }
    if (result) co_return result;
    last = std::move(result).error();
    if (aborted_ || timed_out_) break;
  }
  co_return last;
}

Task<Result<void>> Connector::open(Socket* socket, Endpoint endpoint) {
  IoError ec;
  socket->open(endpoint.protocol(), ec);
  if (ec) co_return cannot_connect(ec.message());
  socket_ = socket;
  const auto [failure] = co_await socket->async_connect(endpoint, tup);
  socket_ = nullptr;
  if (aborted_ || timed_out_) co_return interrupted();
  if (failure) co_return cannot_connect(failure.message());
  set_stream_options(*socket);
  co_return Result<void>{};
}

Task<ConnectResult> Connector::attempt(const ShardTarget* shard, const Host* host,
                                       Endpoint endpoint, Tls tls) {
  Socket socket(executor_);
  const Result<void> opened = co_await open(&socket, endpoint);
  if (!opened) co_return opened.error();
  auto backend = std::make_unique<Backend>(std::move(socket));
  stream_ = &backend->stream;
  Result<void> done = co_await negotiate_tls(&backend->stream, shard, host, tls);
  if (done) done = co_await log_in(backend.get(), shard);
  stream_ = nullptr;
  if (aborted_ || timed_out_) co_return interrupted();
  if (!done) co_return done.error();
  backend->address = {endpoint, *host, backend->stream.is_tls()};
  backend->connected_at = Clock::now();
  co_return backend;
}

Task<Result<void>> Connector::negotiate_tls(Stream* stream, const ShardTarget* shard,
                                            const Host* host, Tls tls) {
  if (tls == Tls::kNo || !shard->tls) co_return Result<void>{};
  std::string request;
  wire::encode_ssl_request(request);
  const IoResult sent = co_await stream->write_all(request);
  if (sent.status != IoStatus::kDone) co_return cannot_connect("the server closed the connection");
  // One byte is the answer; anything after it in clear was not sent by the server we talk to.
  char answer[2];
  const IoResult received = co_await stream->read(answer);
  if (received.status != IoStatus::kDone) {
    co_return cannot_connect("the server closed the connection during TLS negotiation");
  }
  if (received.n > 1) co_return cannot_connect("received unencrypted data after SSL response");
  if (answer[0] == 'N') {
    if (tls == Tls::kMust) co_return cannot_connect("the server does not support TLS");
    co_return Result<void>{};
  }
  // An error at this point is not authenticated: its text is not shown.
  if (answer[0] != 'S') co_return cannot_connect("the server refused to negotiate TLS");
  const bool verify_host = shard->target.ssl_mode == SslMode::kVerifyFull;
  std::string name = host->name.empty() ? host->address : host->name;
  co_return co_await stream->handshake_client(shard->tls.get(), std::move(name), verify_host);
}

Task<Result<void>> Connector::log_in(Backend* backend, const ShardTarget* shard) {
  BackendLogin login(shard->target, shard->target.password, random_base64(18));
  for (;;) {
    if (!login.out().empty()) {
      const IoResult sent = co_await backend->stream.write_all(login.out());
      login.out().clear();
      if (sent.status == IoStatus::kAborted) co_return interrupted();
    }
    const wire::SplitResult split = wire::split(backend->in.data(), wire::Direction::kBackend);
    if (split.status == wire::SplitResult::Status::kMalformed) {
      co_return split.error.to_error();
    }
    if (split.status == wire::SplitResult::Status::kFrame) {
      const BackendLogin::Step step = login.on_frame(split.frame);
      backend->in.consume(split.frame.raw.size());
      if (step == BackendLogin::Step::kFailed) co_return login.error();
      if (step == BackendLogin::Step::kReady) break;
      continue;
    }
    // Nothing a server says before it is ready is that long.
    if (split.need > ReadBuffer::kNormal) co_return cannot_connect("oversized login message");
    const auto room = backend->in.prepare(split.need, ReadBuffer::kNormal);
    const IoResult received = co_await backend->stream.read(room);
    if (received.status != IoStatus::kDone) {
      co_return cannot_connect("the server closed the connection unexpectedly");
    }
    backend->in.commit(received.n);
  }
  if (!backend->in.empty()) co_return cannot_connect("unexpected bytes after login");
  backend->reported = login.parameters();
  for (const auto& [name, value] : login.parameters()) backend->state.reported.emplace(name, value);
  backend->pid = login.pid();
  backend->secret = login.secret();
  co_return Result<void>{};
}

Task<bool> Connector::cancel(const ShardTarget* shard, ServerAddress address, std::int32_t pid,
                             std::string secret, Milliseconds timeout) {
  const Limit limit(*this, timeout);
  Socket socket(executor_);
  const Result<void> opened = co_await open(&socket, address.endpoint);
  if (!opened) co_return false;
  Stream stream(std::move(socket));
  stream_ = &stream;
  bool settled = false;
  const Tls tls = address.tls ? Tls::kMust : Tls::kNo;
  const Result<void> negotiated = co_await negotiate_tls(&stream, shard, &address.host, tls);
  if (negotiated) {
    std::string request;
    wire::encode_cancel_request(request, pid, secret);
    const IoResult sent = co_await stream.write_all(request);
    char answer[64];
    IoResult received = sent;
    while (received.status == IoStatus::kDone) received = co_await stream.read(answer);
    settled = sent.status == IoStatus::kDone && received.status == IoStatus::kClosed && !aborted_ &&
              !timed_out_;
  }
  stream_ = nullptr;
  co_return settled;
}

}  // namespace collegedb::net
