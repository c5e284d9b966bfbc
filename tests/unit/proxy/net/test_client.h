// A blocking client for tests: TCP, unix socket or TLS; every read gives up after five seconds.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "proxy/wire/backend.h"
#include "proxy/wire/frame.h"
#include "proxy/wire/frontend.h"
#include "proxy/wire/startup.h"

namespace collegedb::net::testing {

struct Message {
  char tag = 0;
  std::string payload;
};

class TestClient {
 public:
  explicit TestClient(std::uint16_t port) {
    sockaddr_in name{};
    name.sin_family = AF_INET;
    name.sin_port = htons(port);
    name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    open(AF_INET, reinterpret_cast<sockaddr*>(&name), sizeof name);
  }
  explicit TestClient(const std::string& path) {
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    std::copy(path.begin(), path.end(), name.sun_path);
    open(AF_UNIX, reinterpret_cast<sockaddr*>(&name), sizeof name);
  }
  ~TestClient() { close(); }
  TestClient(const TestClient&) = delete;
  TestClient& operator=(const TestClient&) = delete;

  [[nodiscard]] bool connected() const { return connected_; }
  void close() {
    tls_.reset();
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }
  // Vanishes without a goodbye: the peer sees a reset.
  void reset() {
    const linger now{.l_onoff = 1, .l_linger = 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    close();
  }
  void half_close() { ::shutdown(fd_, SHUT_WR); }

  void send(std::string_view bytes) {
    if (tls_)
      SSL_write(tls_.get(), bytes.data(), static_cast<int>(bytes.size()));
    else
      ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  // One byte, or 0 at the end of the stream.
  char read_byte() {
    if (in_.empty() && !read_more()) return 0;
    const char byte = in_.front();
    in_.erase(0, 1);
    return byte;
  }
  // The next message; tag 0 at the end of the stream.
  Message read() {
    for (;;) {
      const auto split = wire::split(in_, wire::Direction::kBackend);
      if (split.status == wire::SplitResult::Status::kFrame) {
        Message message{split.frame.tag, std::string(split.frame.payload)};
        in_.erase(0, split.frame.raw.size());
        return message;
      }
      if (split.status == wire::SplitResult::Status::kMalformed || !read_more()) return {};
    }
  }
  // Tags up to and including ReadyForQuery ("RSSKZ"), or up to the end ("E.").
  std::string read_tags() {
    std::string tags;
    for (;;) {
      last_ = read();
      if (last_.tag == 'E') error_ = *wire::decode_error(last_.payload);
      if (last_.tag == 'K') key_ = last_.payload;
      if (last_.tag == 'D') rows_.push_back(last_.payload);
      tags.push_back(last_.tag == 0 ? '.' : last_.tag);
      if (last_.tag == 0 || last_.tag == 'Z') return tags;
    }
  }
  bool start_tls(SSL_CTX* context) {
    std::string request;
    wire::encode_ssl_request(request);
    send(request);
    if (read_byte() != 'S') return false;
    tls_.reset(SSL_new(context));
    SSL_set_fd(tls_.get(), fd_);
    return SSL_connect(tls_.get()) == 1;
  }
  std::string log_in(const std::string& user = "ann", const std::string& database = "app") {
    std::string bytes;
    wire::encode_startup(bytes, {{"user", user}, {"database", database}});
    send(bytes);
    return read_tags();
  }
  std::string query(std::string_view text) {
    std::string bytes;
    wire::Query{text}.encode(bytes);
    send(bytes);
    return read_tags();
  }
  [[nodiscard]] bool at_end() { return read_byte() == 0; }
  [[nodiscard]] const SqlError& error() const { return error_; }
  [[nodiscard]] const std::vector<std::string>& rows() const { return rows_; }
  [[nodiscard]] std::string cancel_request() const {
    const auto key = wire::BackendKeyData::decode(key_);
    std::string bytes;
    wire::encode_cancel_request(bytes, key->pid, key->secret);
    return bytes;
  }

 private:
  void open(int family, const sockaddr* name, socklen_t length) {
    fd_ = ::socket(family, SOCK_STREAM, 0);
    const timeval limit{.tv_sec = 5, .tv_usec = 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    connected_ = ::connect(fd_, name, length) == 0;
  }
  bool read_more() {
    char bytes[16384];
    const ssize_t n =
        tls_ ? SSL_read(tls_.get(), bytes, sizeof bytes) : ::recv(fd_, bytes, sizeof bytes, 0);
    if (n <= 0) return false;
    in_.append(bytes, static_cast<std::size_t>(n));
    return true;
  }

  struct FreeTls {
    void operator()(SSL* tls) const { SSL_free(tls); }
  };
  int fd_ = -1;
  bool connected_ = false;
  std::unique_ptr<SSL, FreeTls> tls_;
  std::string in_;
  Message last_;
  std::string key_;
  SqlError error_;
  std::vector<std::string> rows_;
};

}  // namespace collegedb::net::testing
