#include "metrics/exposer.h"

#include <prometheus/text_serializer.h>
#include <spdlog/spdlog.h>

#include <boost/asio.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <sstream>
#include <stdexcept>
#include <thread>

namespace collegedb::metrics {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::ip::tcp;
using boost::system::error_code;

constexpr auto kToken = asio::as_tuple(asio::use_awaitable);
constexpr std::chrono::seconds kRequestTimeout{10};
constexpr std::chrono::milliseconds kAcceptBackOff{100};
constexpr std::size_t kMaxHeaderBytes = 16 * 1024;

struct Answers {
  std::shared_ptr<const prometheus::Collectable> metrics;
  Exposer::NotReady not_ready;
};

http::response<http::string_body> plain(http::status status, std::string body) {
  http::response<http::string_body> response{status, 11};
  response.set(http::field::content_type, "text/plain; charset=utf-8");
  response.body() = std::move(body);
  return response;
}

http::response<http::string_body> answer(const Answers& answers, http::verb verb,
                                         std::string_view target) {
  const auto path = target.substr(0, target.find('?'));
  if (verb != http::verb::get && verb != http::verb::head) {
    auto response = plain(http::status::method_not_allowed, "only GET\n");
    response.set(http::field::allow, "GET, HEAD");
    return response;
  }
  if (path == "/metrics") {
    std::ostringstream text;
    prometheus::TextSerializer().Serialize(text, answers.metrics->Collect());
    auto response = plain(http::status::ok, std::move(text).str());
    response.set(http::field::content_type, "text/plain; version=0.0.4; charset=utf-8");
    return response;
  }
  if (path == "/healthz") return plain(http::status::ok, "ok\n");
  if (path == "/readyz") {
    const auto reason = answers.not_ready();
    if (reason.empty()) return plain(http::status::ok, "ready\n");
    return plain(http::status::service_unavailable, "not ready: " + reason + "\n");
  }
  return plain(http::status::not_found, "/metrics, /healthz or /readyz\n");
}

// One connection: requests one after the other until the peer leaves or is silent too long.
asio::awaitable<void> serve(tcp::socket socket, std::shared_ptr<const Answers> answers) {
  beast::tcp_stream stream(std::move(socket));
  beast::flat_buffer buffer;
  for (;;) {
    http::request_parser<http::empty_body> parser;
    parser.header_limit(kMaxHeaderBytes);
    stream.expires_after(kRequestTimeout);
    auto [read_error, read] = co_await http::async_read(stream, buffer, parser, kToken);
    if (read_error) break;
    const auto& request = parser.get();
    const auto target = request.target();
    auto response = answer(*answers, request.method(), {target.data(), target.size()});
    const bool head = request.method() == http::verb::head;
    response.keep_alive(request.keep_alive());
    response.prepare_payload();
    if (head) response.body().clear();
    stream.expires_after(kRequestTimeout);
    auto [write_error, written] = co_await http::async_write(stream, response, kToken);
    if (write_error || !response.keep_alive()) break;
  }
  error_code ignored;
  stream.socket().shutdown(tcp::socket::shutdown_both, ignored);
}

void log_lost(const std::exception_ptr& error) {
  if (!error) return;
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& lost) {
    spdlog::error("metrics server: {}", lost.what());
  }
}

// `acceptor` outlives the run of its context.
asio::awaitable<void> accept_all(tcp::acceptor* acceptor, std::shared_ptr<const Answers> answers) {
  const auto executor = co_await asio::this_coro::executor;
  for (;;) {
    auto [error, socket] = co_await acceptor->async_accept(kToken);
    if (error == asio::error::operation_aborted) co_return;
    if (error) {
      spdlog::warn("metrics server: accept: {}", error.message());
      asio::steady_timer timer(executor, kAcceptBackOff);
      auto [waited] = co_await timer.async_wait(kToken);
      if (waited) co_return;
      continue;
    }
    asio::co_spawn(executor, serve(std::move(socket), answers), log_lost);
  }
}

}  // namespace

struct Exposer::Impl {
  explicit Impl(Answers given)
      : answers(std::make_shared<const Answers>(std::move(given))), acceptor(context) {}

  // Declared before the context: suspended coroutines die with it and refer to these.
  std::shared_ptr<const Answers> answers;
  asio::io_context context{1};
  tcp::acceptor acceptor;
  std::thread thread;
};

Exposer::Exposer(const std::string& host, std::uint16_t port,
                 std::shared_ptr<const prometheus::Collectable> metrics, NotReady not_ready)
    : impl_(std::make_unique<Impl>(
          Answers{.metrics = std::move(metrics), .not_ready = std::move(not_ready)})) {
  try {
    tcp::resolver resolver(impl_->context);
    const auto found = resolver.resolve(host, std::to_string(port), tcp::resolver::passive);
    const tcp::endpoint endpoint = *found.begin();
    impl_->acceptor.open(endpoint.protocol());
    impl_->acceptor.set_option(tcp::acceptor::reuse_address(true));
    impl_->acceptor.bind(endpoint);
    impl_->acceptor.listen();
  } catch (const boost::system::system_error& error) {
    throw std::runtime_error("metrics.listen " + host + ":" + std::to_string(port) + ": " +
                             error.code().message());
  }
  asio::co_spawn(impl_->context, accept_all(&impl_->acceptor, impl_->answers), log_lost);
  impl_->thread = std::thread([impl = impl_.get()] { impl->context.run(); });
}

Exposer::~Exposer() {
  impl_->context.stop();
  impl_->thread.join();
}

std::uint16_t Exposer::port() const {
  return impl_->acceptor.local_endpoint().port();
}

}  // namespace collegedb::metrics
