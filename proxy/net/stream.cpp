#include "proxy/net/stream.h"

#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <climits>
#include <utility>

namespace collegedb::net {
namespace {

constexpr std::size_t kMaxOneCall = 1U << 30;

IoError last_error() {
  return {errno, boost::system::system_category()};
}

IoResult closed(IoError error) {
  return {IoStatus::kClosed, 0, Socket::wait_read, error};
}

IoResult would_block(Socket::wait_type direction) {
  return {IoStatus::kWouldBlock, 0, direction, {}};
}

IoResult from_asio(IoError ec, std::size_t n) {
  if (!ec) return {IoStatus::kDone, n, Socket::wait_read, {}};
  if (ec == asio::error::operation_aborted) return {IoStatus::kAborted, 0, Socket::wait_read, ec};
  return closed(ec == asio::error::eof ? IoError{} : ec);
}

std::string openssl_reason() {
  const unsigned long code = ERR_get_error();
  const char* text = code == 0 ? nullptr : ERR_reason_error_string(code);
  return text == nullptr ? "the peer closed the connection" : text;
}

}  // namespace

Stream::Stream(Socket socket) : socket_(std::move(socket)) {
  IoError ignored;
  socket_.non_blocking(true, ignored);
}

Stream::~Stream() {
  close();
}

IoResult Stream::read_now(std::span<char> room) {
  // After abort() the descriptor's number may already be somebody else's.
  if (!socket_.is_open()) return closed(asio::error::bad_descriptor);
  if (tls_) {
    ERR_clear_error();
    std::size_t n = 0;
    const int outcome =
        SSL_read_ex(tls_.get(), room.data(), std::min(room.size(), kMaxOneCall), &n);
    return tls_result(outcome, n);
  }
  const ssize_t n = ::recv(socket_.native_handle(), room.data(), room.size(), 0);
  if (n > 0) return {IoStatus::kDone, static_cast<std::size_t>(n), Socket::wait_read, {}};
  if (n == 0) return closed({});
  if (errno == EAGAIN || errno == EINTR) return would_block(Socket::wait_read);
  return closed(last_error());
}

IoResult Stream::write_now(std::string_view bytes) {
  if (!socket_.is_open()) return closed(asio::error::bad_descriptor);
  if (tls_) {
    ERR_clear_error();
    std::size_t n = 0;
    const int outcome =
        SSL_write_ex(tls_.get(), bytes.data(), std::min(bytes.size(), kMaxOneCall), &n);
    return tls_result(outcome, n);
  }
  const ssize_t n = ::send(socket_.native_handle(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  if (n >= 0) return {IoStatus::kDone, static_cast<std::size_t>(n), Socket::wait_read, {}};
  if (errno == EAGAIN || errno == EINTR) return would_block(Socket::wait_write);
  return closed(last_error());
}

IoResult Stream::tls_result(int outcome, std::size_t n) {
  if (outcome == 1) return {IoStatus::kDone, n, Socket::wait_read, {}};
  switch (SSL_get_error(tls_.get(), outcome)) {
    case SSL_ERROR_WANT_READ:
      return would_block(Socket::wait_read);
    case SSL_ERROR_WANT_WRITE:
      return would_block(Socket::wait_write);
    case SSL_ERROR_ZERO_RETURN:
      return closed({});
    default:
      // A cut stream and a polite end are the same to us: frames carry their lengths.
      tls_broken_ = true;
      return closed(errno != 0 ? last_error() : IoError{});
  }
}

Task<IoResult> Stream::read(std::span<char> room) {
  if (!tls_) {
    const auto buffer = asio::buffer(room.data(), room.size());
    const auto [ec, n] = co_await socket_.async_read_some(buffer, tup);
    co_return from_asio(ec, n);
  }
  for (;;) {
    // Bytes may sit decrypted inside the library: no socket event would announce them.
    const IoResult result = read_now(room);
    if (result.status != IoStatus::kWouldBlock) co_return result;
    const IoResult waited = co_await wait(result.direction);
    if (waited.status != IoStatus::kDone) co_return waited;
  }
}

Task<IoResult> Stream::wait(Socket::wait_type direction) {
  const auto [ec] = co_await socket_.async_wait(direction, tup);
  co_return from_asio(ec, 0);
}

Task<IoResult> Stream::wait_any() {
  using boost::asio::experimental::awaitable_operators::operator||;
  auto readable = wait(Socket::wait_read);
  auto writable = wait(Socket::wait_write);
  const auto first = co_await (std::move(readable) || std::move(writable));
  if (first.index() == 0) co_return std::get<0>(first);
  co_return std::get<1>(first);
}

Task<IoResult> Stream::write_all(std::string_view bytes) {
  while (!bytes.empty()) {
    const IoResult result = write_now(bytes);
    if (result.status == IoStatus::kDone) {
      bytes.remove_prefix(result.n);
      continue;
    }
    if (result.status != IoStatus::kWouldBlock) co_return result;
    const IoResult waited = co_await wait(result.direction);
    if (waited.status != IoStatus::kDone) co_return waited;
  }
  co_return IoResult{};
}

Result<void> Stream::attach_tls(SSL_CTX* context) {
  tls_.reset(SSL_new(context));
  if (!tls_ || SSL_set_fd(tls_.get(), socket_.native_handle()) != 1) {
    tls_.reset();
    return make_error("08006", "cannot start TLS: " + openssl_reason());
  }
  SSL_set_mode(tls_.get(), SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                               SSL_MODE_RELEASE_BUFFERS);
  return {};
}

Task<Result<void>> Stream::handshake_server(SSL_CTX* context) {
  Result<void> attached = attach_tls(context);
  if (!attached) co_return attached;
  SSL_set_accept_state(tls_.get());
  co_return co_await handshake();
}

Task<Result<void>> Stream::handshake_client(SSL_CTX* context, std::string host, bool verify_host) {
  Result<void> attached = attach_tls(context);
  if (!attached) co_return attached;
  SSL_set_connect_state(tls_.get());
  X509_VERIFY_PARAM* parameters = SSL_get0_param(tls_.get());
  const bool is_address = X509_VERIFY_PARAM_set1_ip_asc(parameters, host.c_str()) == 1;
  if (!verify_host) X509_VERIFY_PARAM_set1_ip(parameters, nullptr, 0);
  ERR_clear_error();
  if (!is_address && !host.empty()) {
    SSL_set_tlsext_host_name(tls_.get(), host.c_str());
    if (verify_host) SSL_set1_host(tls_.get(), host.c_str());
  }
  co_return co_await handshake();
}

Task<Result<void>> Stream::handshake() {
  for (;;) {
    ERR_clear_error();
    errno = 0;
    const int outcome = SSL_do_handshake(tls_.get());
    if (outcome == 1) co_return Result<void>{};
    const int error = SSL_get_error(tls_.get(), outcome);
    if (error != SSL_ERROR_WANT_READ && error != SSL_ERROR_WANT_WRITE) {
      tls_broken_ = true;
      const long verify = SSL_get_verify_result(tls_.get());
      std::string reason =
          verify == X509_V_OK ? openssl_reason() : X509_verify_cert_error_string(verify);
      co_return make_error("08006", "TLS handshake failed: " + reason);
    }
    const auto direction = error == SSL_ERROR_WANT_READ ? Socket::wait_read : Socket::wait_write;
    const IoResult waited = co_await wait(direction);
    if (waited.status != IoStatus::kDone) {
      tls_broken_ = true;
      co_return make_error("08006", "TLS handshake was interrupted");
    }
  }
}

std::optional<std::string> Stream::peer_common_name() const {
  if (!tls_ || SSL_get_verify_result(tls_.get()) != X509_V_OK) return std::nullopt;
  const X509* certificate = SSL_get0_peer_certificate(tls_.get());
  if (certificate == nullptr) return std::nullopt;
  const X509_NAME* subject = X509_get_subject_name(certificate);
  const int at = X509_NAME_get_index_by_NID(subject, NID_commonName, -1);
  if (at < 0) return std::nullopt;
  const ASN1_STRING* name = X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, at));
  std::string text(reinterpret_cast<const char*>(ASN1_STRING_get0_data(name)),
                   static_cast<std::size_t>(ASN1_STRING_length(name)));
  if (text.find('\0') != std::string::npos) return std::nullopt;
  return text;
}

Stream::Peek Stream::peek() {
  if (!socket_.is_open()) return {.gone = true, .stray = false};
  char byte = 0;
  if (tls_) {
    ERR_clear_error();
    std::size_t n = 0;
    const IoResult result = tls_result(SSL_peek_ex(tls_.get(), &byte, 1, &n), n);
    return {.gone = result.status == IoStatus::kClosed, .stray = result.status == IoStatus::kDone};
  }
  const ssize_t n = ::recv(socket_.native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  const bool waiting = n < 0 && (errno == EAGAIN || errno == EINTR);
  return {.gone = n <= 0 && !waiting, .stray = n > 0};
}

void Stream::cancel() {
  IoError ignored;
  socket_.cancel(ignored);
}

void Stream::close() {
  if (!socket_.is_open()) return;
  if (tls_ && !tls_broken_ && SSL_is_init_finished(tls_.get()) == 1) {
    ERR_clear_error();
    SSL_shutdown(tls_.get());
  }
  // Unread bytes would turn the close into a reset, and the peer could lose our last message.
  IoError ignored;
  socket_.shutdown(Socket::shutdown_send, ignored);
  char rest[4096];
  for (int i = 0; i < 16 && ::recv(socket_.native_handle(), rest, sizeof rest, MSG_DONTWAIT) > 0;) {
    ++i;
  }
  socket_.close(ignored);
}

void Stream::abort() {
  tls_broken_ = true;
  IoError ignored;
  socket_.close(ignored);
}

}  // namespace collegedb::net
