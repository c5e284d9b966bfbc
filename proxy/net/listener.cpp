#include "proxy/net/listener.h"

#include <netdb.h>
#include <netinet/in.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "proxy/net/spawn.h"

namespace collegedb::net {
namespace {

constexpr int kBacklog = 1024;
constexpr Milliseconds kBackOff{100};
constexpr std::uint16_t kDefaultPort = 6432;

[[noreturn]] void fail(const std::string& address, const std::string& what) {
  throw std::runtime_error("cannot listen on \"" + address + "\": " + what);
}

std::string errno_text() {
  return std::system_category().message(errno);
}

std::pair<std::string, std::string> split_address(const std::string& address) {
  const std::size_t colon = address.rfind(':');
  if (colon == std::string::npos) fail(address, "expected host:port");
  std::string host = address.substr(0, colon);
  if (host.size() > 1 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  return {host, address.substr(colon + 1)};
}

std::uint16_t port_of(const sockaddr_storage& name) {
  if (name.ss_family == AF_INET) {
    return ntohs(reinterpret_cast<const sockaddr_in&>(name).sin_port);
  }
  return ntohs(reinterpret_cast<const sockaddr_in6&>(name).sin6_port);
}

std::string text_of(const sockaddr_storage& name, socklen_t length) {
  std::array<char, NI_MAXHOST> host{};
  std::array<char, NI_MAXSERV> port{};
  if (::getnameinfo(reinterpret_cast<const sockaddr*>(&name), length, host.data(), host.size(),
                    port.data(), port.size(), NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return "unknown";
  }
  return std::string(host.data()) + ":" + port.data();
}

// A socket file somebody listens on is not ours to remove.
void remove_stale(const std::string& address, const sockaddr_un& name) {
  struct stat status{};
  if (::lstat(name.sun_path, &status) != 0) return;
  if (!S_ISSOCK(status.st_mode)) fail(address, std::string(name.sun_path) + " is in the way");
  const UniqueFd probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (::connect(probe.get(), reinterpret_cast<const sockaddr*>(&name), sizeof name) == 0) {
    fail(address, std::string(name.sun_path) + " is in use");
  }
  if (errno == ECONNREFUSED) ::unlink(name.sun_path);
}

struct FreeAddresses {
  void operator()(addrinfo* list) const { ::freeaddrinfo(list); }
};

}  // namespace

Listener::Listener(Executor executor, OnAccept on_accept)
    : executor_(executor), on_accept_(std::move(on_accept)) {}

Listener::~Listener() {
  stop();
}

void Listener::bind(const std::vector<std::string>& addresses) {
  for (const std::string& address : addresses) {
    if (!address.starts_with('/')) bind_tcp(address);
  }
  for (const std::string& address : addresses) {
    if (address.starts_with('/')) bind_unix(address);
  }
}

void Listener::bind_tcp(const std::string& address) {
  const auto [host, port] = split_address(address);
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const bool any = host.empty() || host == "*";
  const int error = ::getaddrinfo(any ? nullptr : host.c_str(), port.c_str(), &hints, &found);
  if (error != 0) fail(address, ::gai_strerror(error));
  const std::unique_ptr<addrinfo, FreeAddresses> owned(found);
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    UniqueFd fd(::socket(one->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!fd) {
      if (any && errno == EAFNOSUPPORT) continue;  // "*" on a machine without IPv6
      fail(address, errno_text());
    }
    const int on = 1;
    ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (one->ai_family == AF_INET6) {
      ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
    }
    if (::bind(fd.get(), one->ai_addr, one->ai_addrlen) != 0 || ::listen(fd.get(), kBacklog) != 0) {
      fail(address, errno_text());
    }
    sockaddr_storage name{};
    socklen_t length = sizeof name;
    ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&name), &length);
    ports_.push_back(port_of(name));
    add(std::move(fd), false, {});
  }
}

void Listener::bind_unix(const std::string& directory) {
  const std::uint16_t port = ports_.empty() ? kDefaultPort : ports_.front();
  const std::string path = directory + "/.s.PGSQL." + std::to_string(port);
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  if (path.size() >= sizeof name.sun_path) fail(directory, "the path is too long");
  std::memcpy(name.sun_path, path.c_str(), path.size() + 1);
  remove_stale(directory, name);
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd || ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&name), sizeof name) != 0) {
    fail(directory, errno_text());
  }
  // As PostgreSQL does: who may connect is decided at login.
  if (::chmod(path.c_str(), 0777) != 0 || ::listen(fd.get(), kBacklog) != 0) {
    fail(directory, errno_text());
  }
  add(std::move(fd), true, path);
}

void Listener::add(UniqueFd fd, bool local, std::string path) {
  Descriptor descriptor(executor_, fd.get());
  static_cast<void>(fd.release());
  sockets_.push_back(std::make_unique<Socket>(
      Socket{.descriptor = std::move(descriptor), .local = local, .path = std::move(path)}));
}

void Listener::start() {
  for (const auto& socket : sockets_) {
    spawn(executor_, "accept loop", accept_loop(this, socket.get()));
  }
}

void Listener::stop() {
  if (stopped_) return;
  stopped_ = true;
  IoError ignored;
  for (const auto& socket : sockets_) {
    socket->descriptor.close(ignored);
    if (!socket->path.empty()) ::unlink(socket->path.c_str());
  }
}

Task<void> Listener::accept_loop(Listener* listener, Socket* socket) {
  Timer pause(listener->executor_);
  while (!listener->stopped_) {
    const auto [ec] = co_await socket->descriptor.async_wait(Descriptor::wait_read, tup);
    if (ec || listener->stopped_) co_return;
    if (listener->accept_all(*socket)) continue;
    spdlog::warn("cannot accept a client: {}", errno_text());
    pause.expires_after(kBackOff);
    co_await pause.async_wait(tup);
  }
}

bool Listener::accept_all(Socket& socket) {
  for (;;) {
    sockaddr_storage name{};
    socklen_t length = sizeof name;
    UniqueFd fd(::accept4(socket.descriptor.native_handle(), reinterpret_cast<sockaddr*>(&name),
                          &length, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (fd) {
      std::string address = socket.local ? "unix" : text_of(name, length);
      on_accept_({std::move(fd), std::move(address), socket.local});
      continue;
    }
    if (errno == EAGAIN) return true;
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) return false;
    // ECONNABORTED and network errors belong to that one client.
  }
}

}  // namespace collegedb::net
