// A scripted PostgreSQL on a loopback socket: trusts everybody, answers each message in the
// simplest legal way. Blocking, one thread for each connection; for tests only.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "proxy/wire/backend.h"
#include "proxy/wire/frame.h"
#include "proxy/wire/frontend.h"
#include "proxy/wire/startup.h"

namespace collegedb::net::testing {

using namespace std::chrono_literals;

// Polls until `condition` holds; false after five seconds.
inline bool eventually(const std::function<bool()>& condition) {
  for (int i = 0; i < 1000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(5ms);
  }
  return condition();
}

class FakeServer {
 public:
  FakeServer() {
    listen_fd_ = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in name{};
    name.sin_family = AF_INET;
    name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ::bind(listen_fd_, reinterpret_cast<sockaddr*>(&name), sizeof name);
    ::listen(listen_fd_, 64);
    socklen_t length = sizeof name;
    ::getsockname(listen_fd_, reinterpret_cast<sockaddr*>(&name), &length);
    port_ = ntohs(name.sin_port);
    acceptor_ = std::thread([this] { accept_loop(); });
  }
  ~FakeServer() {
    stopping_ = true;
    ::shutdown(listen_fd_, SHUT_RDWR);
    hold_cancels(false);
    drop_connections();
    acceptor_.join();
    for (std::thread& thread : threads_) thread.join();
    ::close(listen_fd_);
  }

  [[nodiscard]] std::uint16_t port() const { return port_; }
  [[nodiscard]] std::string conninfo() const {
    return "host=127.0.0.1 user=app dbname=app sslmode=disable port=" + std::to_string(port_);
  }
  // Refuses logins with this error from now on; nullopt = accepts.
  void refuse_with(std::optional<SqlError> error) {
    const std::lock_guard lock(mutex_);
    refusal_ = std::move(error);
  }
  // Cancel connections stay open until this is taken back.
  void hold_cancels(bool hold) {
    const std::lock_guard lock(mutex_);
    hold_cancels_ = hold;
    changed_.notify_all();
  }
  // Queries whose text contains "sleep" are answered only after a cancel (57014).
  void drop_connections() {
    const std::lock_guard lock(mutex_);
    for (const int fd : open_) ::shutdown(fd, SHUT_RDWR);
    ++cancelled_;
    changed_.notify_all();
  }
  void send_to_all(const std::string& bytes) {
    const std::lock_guard lock(mutex_);
    for (const int fd : open_) ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  [[nodiscard]] int logins() const { return logins_; }
  [[nodiscard]] int cancels() const { return cancels_; }
  // Statements that run now and that a cancel would end.
  [[nodiscard]] int sleeping() const { return sleeping_; }
  [[nodiscard]] int open_now() const { return live_; }
  [[nodiscard]] int most_open() const { return most_; }

 private:
  void accept_loop() {
    while (!stopping_) {
      const int fd = ::accept(listen_fd_, nullptr, nullptr);
      if (fd < 0) break;
      const std::lock_guard lock(mutex_);
      threads_.emplace_back([this, fd] { serve(fd); });
    }
  }

  static bool read_more(int fd, std::string& in) {
    char bytes[4096];
    const ssize_t n = ::recv(fd, bytes, sizeof bytes, 0);
    if (n <= 0) return false;
    in.append(bytes, static_cast<std::size_t>(n));
    return true;
  }
  static void write(int fd, const std::string& bytes) {
    ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }

  void serve(int fd) {
    std::string in;
    wire::StartupDecode packet = wire::decode_startup(in);
    while (std::holds_alternative<wire::NeedMore>(packet.packet)) {
      if (!read_more(fd, in)) break;
      packet = wire::decode_startup(in);
    }
    in.erase(0, packet.consumed);
    if (std::holds_alternative<wire::CancelRequest>(packet.packet)) {
      on_cancel();
    } else if (std::holds_alternative<wire::StartupMessage>(packet.packet)) {
      session(fd, std::move(in));
    }
    ::close(fd);
  }

  void on_cancel() {
    std::unique_lock lock(mutex_);
    ++cancels_;
    ++cancelled_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return !hold_cancels_; });
  }

  void session(int fd, std::string in) {
    std::string out;
    {
      const std::lock_guard lock(mutex_);
      if (refusal_) {
        wire::encode_error(out, *refusal_);
        write(fd, out);
        return;
      }
      open_.push_back(fd);
    }
    ++logins_;
    most_ = std::max<int>(most_, ++live_);
    wire::Authentication{.kind = wire::AuthenticationKind::kOk, .data = {}, .mechanisms = {}}
        .encode(out);
    for (const auto& [name, value] :
         {std::pair{"server_version", "15.18"}, std::pair{"client_encoding", "UTF8"},
          std::pair{"application_name", "collegedb"}, std::pair{"DateStyle", "ISO, MDY"},
          std::pair{"session_authorization", "app"}, std::pair{"is_superuser", "off"}}) {
      wire::ParameterStatus{.name = name, .value = value}.encode(out);
    }
    wire::BackendKeyData{.pid = 1000 + logins_, .secret = "abcd"}.encode(out);
    wire::ReadyForQuery{}.encode(out);
    write(fd, out);
    answer(fd, std::move(in));
    --live_;
    const std::lock_guard lock(mutex_);
    std::erase(open_, fd);
  }

  void answer(int fd, std::string in) {
    for (;;) {
      const auto split = wire::split(in, wire::Direction::kFrontend);
      if (split.status == wire::SplitResult::Status::kMalformed) return;
      if (split.status == wire::SplitResult::Status::kNeedMore) {
        if (!read_more(fd, in)) return;
        continue;
      }
      if (split.frame.tag == 'X') return;
      const std::string reply = reply_to(split.frame);
      in.erase(0, split.frame.raw.size());
      if (!reply.empty()) write(fd, reply);
    }
  }

  std::string reply_to(const wire::Frame& frame) {
    std::string out;
    switch (frame.tag) {
      case 'Q':
        return on_query(std::string(wire::Query::decode(frame.payload)->query));
      case 'P':
        text_ = std::string(wire::Parse::decode(frame.payload)->query);
        wire::encode_parse_complete(out);
        break;
      case 'B':
        wire::encode_bind_complete(out);
        break;
      case 'D':
        wire::encode_no_data(out);
        break;
      case 'E':
        wire::CommandComplete{"SELECT 0"}.encode(out);
        break;
      case 'C':
        wire::encode_close_complete(out);
        break;
      case 'S':
        wire::ReadyForQuery{}.encode(out);
        break;
      default:
        break;
    }
    return out;
  }

  // One row with the query's own text; "big <n>" n rows of a kilobyte.
  std::string on_query(const std::string& text) {
    std::string out;
    if (text.find("sleep") != std::string::npos) {
      std::unique_lock lock(mutex_);
      const int seen = cancelled_;
      ++sleeping_;
      changed_.wait(lock, [&] { return cancelled_ != seen || stopping_; });
      --sleeping_;
      wire::encode_error(out, make_error("57014", "canceling statement due to user request"));
      wire::ReadyForQuery{}.encode(out);
      return out;
    }
    wire::RowDescription description;
    description.fields.push_back({.name = "text", .type_oid = 25});
    description.encode(out);
    const std::size_t big = text.find("big ");
    const int rows = big == std::string::npos ? 1 : std::atoi(text.c_str() + big + 4);
    const std::string value = big == std::string::npos ? text : std::string(1000, 'r');
    for (int i = 0; i < rows; ++i) wire::DataRow{.values = {value}}.encode(out);
    const std::string tag = "SELECT " + std::to_string(rows);
    wire::CommandComplete{tag}.encode(out);
    wire::ReadyForQuery{}.encode(out);
    return out;
  }

  int listen_fd_ = -1;
  std::uint16_t port_ = 0;
  std::atomic<bool> stopping_ = false;
  std::atomic<int> logins_ = 0, cancels_ = 0, sleeping_ = 0, live_ = 0, most_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  int cancelled_ = 0;
  bool hold_cancels_ = false;
  std::optional<SqlError> refusal_;
  std::vector<int> open_;
  std::string text_;
  std::thread acceptor_;
  std::vector<std::thread> threads_;
};

}  // namespace collegedb::net::testing
