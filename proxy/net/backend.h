// One server connection, and how it comes to be. Owned by its pool for life; lent to one client at
// a time; touched by its worker's thread only.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "proxy/net/conninfo.h"
#include "proxy/net/node.h"
#include "proxy/net/read_buffer.h"
#include "proxy/net/stream.h"
#include "proxy/net/tls.h"
#include "proxy/session/login.h"
#include "proxy/session/server_state.h"

namespace collegedb::net {

// How to reach a shard. Immutable; shared by all workers.
struct ShardTarget {
  std::string name;
  Target target;
  TlsContext tls;  // null = never
};

// Where a server connection went: what a CancelRequest needs to go the same way.
struct ServerAddress {
  Endpoint endpoint;
  Host host;
  bool tls = false;
};

struct Backend {
  explicit Backend(Socket socket) : stream(std::move(socket)) {}

  Stream stream;
  ReadBuffer in;
  session::ServerState state;
  session::ReportedParameters reported;  // as it logged in
  ServerAddress address;
  std::int32_t pid = 0;
  std::string secret;
  std::uint64_t id = 0;  // unique in its pool
  TimePoint connected_at;
  TimePoint idle_since;

  NodeState node = NodeState::kConnecting;  // changed by Pool::change alone
  bool cancel_on_its_way = false;
  bool tainted = false;      // must not be used again (a cancel may still arrive, broken bytes)
  bool busy = false;         // bytes went out and no ReadyForQuery came back since
  bool more_likely = false;  // the last read filled its room
  std::string user;          // of the client that leases it
};

// Why a connect failed: the server's own error when it sent one.
using ConnectResult = Result<std::unique_ptr<Backend>>;

// Opens a socket to one address, in time. Used for server connections and for cancel requests.
class Connector {
 public:
  explicit Connector(Executor executor) : executor_(executor) {}
  Connector(const Connector&) = delete;
  Connector& operator=(const Connector&) = delete;

  // Tries the hosts in order; logs in on the first that answers. `shard` outlives the call.
  Task<ConnectResult> connect(const ShardTarget* shard);
  // Sends CancelRequest to where `address` points and waits for the end of the connection.
  // True when the server has closed it: the signal has been delivered by then.
  Task<bool> cancel(const ShardTarget* shard, ServerAddress address, std::int32_t pid,
                    std::string secret, Milliseconds timeout);
  // Ends connect() or cancel() soon, with an error.
  void abort();

 private:
  // Coroutines take pointers, never null: what they point to lives in the caller's frame.
  class Limit;
  enum class Tls : std::uint8_t { kNo, kIfOffered, kMust };

  Task<Result<std::vector<Endpoint>>> resolve(const Host* host);
  Task<ConnectResult> connect_host(const ShardTarget* shard, const Host* host);
  Task<ConnectResult> attempt(const ShardTarget* shard, const Host* host, Endpoint endpoint,
                              Tls tls);
  Task<Result<void>> open(Socket* socket, Endpoint endpoint);
  Task<Result<void>> negotiate_tls(Stream* stream, const ShardTarget* shard, const Host* host,
                                   Tls tls);
  Task<Result<void>> log_in(Backend* backend, const ShardTarget* shard);
  [[nodiscard]] SqlError interrupted() const;

  Executor executor_;
  Socket* socket_ = nullptr;  // what abort() closes
  Stream* stream_ = nullptr;
  asio::ip::basic_resolver<asio::ip::tcp, Executor>* resolver_ = nullptr;
  bool aborted_ = false;
  bool timed_out_ = false;
};

}  // namespace collegedb::net
