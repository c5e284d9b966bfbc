// What one client connection means after login. No I/O, no clock, no threads: bytes and events
// in, bytes and one Wait out. Driven by net/connection.
//
// Flow: the driver performs take_commands(), writes server_out() of every link, writes client_out()
// when may_flush_client(), then does what wait() names and reports it back; and so on until
// kClosed. The session waits for exactly one thing at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "proxy/session/control.h"
#include "proxy/wire/frame.h"
#include "routing/snapshot.h"

namespace collegedb::session {

struct WorkerContext;  // worker_context.h: what the sessions of one worker share
struct ServerState;    // server_state.h: what a session must know of one server connection
class SessionImpl;

// A server connection as this session knows it: its own small number, never reused while held.
using LinkId = std::uint32_t;

struct Wait {
  enum class Kind : std::uint8_t {
    kClient,   // read from the client, give frames to on_client until wait() changes
    kServer,   // read from `link`, give frames to on_server until wait() changes
    kLease,    // lease a server connection of `shard`; on_leased(link, state) or on_lease_failed
    kControl,  // perform `control`; on_control
    kDelay,    // sleep for `timeout_ms`; on_deadline
    kClosed,   // flush client_out, close the client; links still held are discarded by commands
  };
  Kind kind = Kind::kClient;
  LinkId link = 0;
  routing::ShardId shard = routing::kNoShard;
  // Longest wait from now; zero = none. When it passes: on_deadline(), wait() is then asked again.
  std::uint32_t timeout_ms = 0;
  const ControlRequest* control = nullptr;  // valid until on_control
};

struct Command {
  enum class Kind : std::uint8_t {
    kRelease,  // give the link back to its pool: it is idle and clean
    kDiscard,  // close the server connection: its state is unknown
    kCancel,   // send a CancelRequest for what runs on the link
  };
  Kind kind;
  LinkId link;
};

struct Identity {
  std::string user;
  std::string database;
  bool is_admin = false;
  // Start-up GUCs in order (client_encoding, application_name, options ...): reset values.
  std::vector<std::pair<std::string, std::string>> parameters;
};

// Values of ParameterStatus in the order in which a server sent them.
using ReportedParameters = std::vector<std::pair<std::string, std::string>>;

// The end of a login, which the session sends when a server has taken the start-up settings.
struct Greeting {
  ReportedParameters parameters;  // of this user's session, where no start-up setting differs
  std::int32_t pid = 0;
  std::string secret;
};

class Session {
 public:
  // `context` outlives the session. The client is authenticated and has been sent
  // AuthenticationOk; without a greeting the caller has sent all the rest, too, and vouches for the
  // start-up settings.
  Session(WorkerContext& context, Identity identity, std::optional<Greeting> greeting = {});
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  [[nodiscard]] Wait wait() const;
  // Commands since the last call, in order; kRelease/kDiscard end the link.
  [[nodiscard]] std::vector<Command> take_commands();

  void on_client(const wire::Frame& frame);  // REQUIRES wait().kind == kClient
  void on_client_gone();                     // EOF or reset; the session then ends by commands
  void on_leased(LinkId link, ServerState& state);
  void on_lease_failed(LinkId link, SqlError error);
  void on_server(LinkId link, const wire::Frame& frame);  // REQUIRES wait().kind == kServer
  void on_server_lost(LinkId link, std::string_view reason);
  void on_control(ControlReply reply);
  void on_deadline();
  // The proxy drains: the session ends with 57P01 at its next transaction boundary.
  void on_drain();

  // Bytes to write; the driver moves them out (and may keep the capacity).
  [[nodiscard]] std::string& client_out();
  [[nodiscard]] std::string& server_out(LinkId link);
  // False while the replies so far may still be taken back (a guard or an empty read undecided).
  [[nodiscard]] bool may_flush_client() const;

  // For collegedb_clients(): "idle", "active", "idle in transaction", "waiting".
  [[nodiscard]] std::string_view state_name() const;
  [[nodiscard]] bool in_transaction() const;

 private:
  std::unique_ptr<SessionImpl> impl_;
};

}  // namespace collegedb::session
