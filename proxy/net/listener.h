// Listening sockets and the accept loop, on their own thread's io_context: limits, back-off when
// descriptors run out, and dealing of the accepted sockets.
#pragma once

#include <boost/asio/posix/basic_stream_descriptor.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "proxy/net/asio.h"
#include "proxy/net/unique_fd.h"

namespace collegedb::net {

struct Accepted {
  UniqueFd fd;
  std::string address;  // "127.0.0.1:53122", or "unix"
  bool local = false;   // unix socket
};

class Listener {
 public:
  using OnAccept = std::function<void(Accepted)>;

  // `on_accept` runs on the executor's thread. The listener outlives the executor's run.
  Listener(Executor executor, OnAccept on_accept);
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  // "host:port", "[v6]:port", "*:port" or "/directory" (socket .s.PGSQL.<port of the first TCP
  // address, else 6432>). Throws std::runtime_error naming the address that cannot be bound.
  void bind(const std::vector<std::string>& addresses);
  // Starts accepting; from the executor's thread or before it runs.
  void start();
  // Closes the sockets and removes socket files; from the executor's thread.
  void stop();

  // Of the TCP sockets in order; what port 0 became.
  [[nodiscard]] const std::vector<std::uint16_t>& ports() const { return ports_; }

 private:
  using Descriptor = asio::posix::basic_stream_descriptor<Executor>;
  struct Socket {
    Descriptor descriptor;
    bool local = false;
    std::string path;  // of a unix socket file
  };

  void bind_tcp(const std::string& address);
  void bind_unix(const std::string& directory);
  void add(UniqueFd fd, bool local, std::string path);
  static Task<void> accept_loop(Listener* listener, Socket* socket);
  // False: out of descriptors or memory.
  bool accept_all(Socket& socket);

  Executor executor_;
  OnAccept on_accept_;
  std::vector<std::unique_ptr<Socket>> sockets_;
  std::vector<std::uint16_t> ports_;
  bool stopped_ = false;
};

}  // namespace collegedb::net
