// Options every stream socket gets, listening side and server side alike.
#pragma once

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "proxy/net/asio.h"

namespace collegedb::net {

// TCP only: no delay for small messages, dead peers noticed within minutes. No-op on unix sockets.
inline void set_stream_options(Socket& socket) {
  const int family = socket.local_endpoint().data()->sa_family;
  if (family != AF_INET && family != AF_INET6) return;
  const auto set = [fd = socket.native_handle()](int level, int name, int value) {
    ::setsockopt(fd, level, name, &value, sizeof value);
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 60);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 10);
  set(IPPROTO_TCP, TCP_KEEPCNT, 6);
}

}  // namespace collegedb::net
