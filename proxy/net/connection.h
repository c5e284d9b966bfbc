// One client: the coroutine that drives its login and its Session. Performs commands, writes both
// sides, then does the one thing Session::wait() names. One thread for life.
#pragma once

#include <boost/container/small_vector.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "proxy/net/event.h"
#include "proxy/net/info.h"
#include "proxy/net/pool.h"
#include "proxy/net/read_buffer.h"
#include "proxy/net/stream.h"
#include "proxy/net/watchdog.h"
#include "proxy/session/login.h"
#include "proxy/session/session.h"

namespace collegedb::net {

class Worker;

class Connection final : public std::enable_shared_from_this<Connection>, public Watched {
 public:
  // `worker` outlives the connection. `refused`: above max_clients.
  Connection(Worker& worker, std::uint64_t id, Socket socket, std::string address, bool local,
             bool refused);
  ~Connection();

  // Spawns run(); the connection removes itself from its worker at the end.
  void start();

  // From the worker's thread, while the coroutine is suspended:
  // A CancelRequest with this client's key came in; `settled` is held until it has been served.
  void cancel_request(const std::shared_ptr<void>& settled);
  void drain();      // end with 57P01 at the next transaction boundary
  void terminate();  // end now
  void on_control_reply(std::uint64_t ticket, session::ControlReply reply);
  void on_cancel_settled();
  void on_due(TimePoint now) override;

  [[nodiscard]] std::uint64_t id() const { return id_; }
  [[nodiscard]] std::int32_t pid() const { return key_pid_; }
  [[nodiscard]] bool refused() const { return refused_; }
  // Before login: empty.
  [[nodiscard]] std::string_view state_name() const;
  [[nodiscard]] bool in_session() const { return session_ != nullptr; }
  [[nodiscard]] ClientInfo info(TimePoint now) const;

 private:
  struct Link {
    session::LinkId id;
    Backend* backend;
    Pool* pool;
    std::uint64_t need = 0;  // size of the message its buffer begins with, 0 = unknown
    bool write_failed = false;
    std::string_view lost;  // why nothing more can be read, found while writing
  };
  // What the coroutine is suspended in, so that wake() knows what to cancel.
  enum class Suspended : std::uint8_t { kNo, kClientRead, kServerRead, kEvent, kTimer, kWrite };

  static Task<void> run(std::shared_ptr<Connection> self);
  void finish();

  // connection_login.cpp
  Task<bool> log_in();
  Task<bool> login_read();
  Task<bool> login_write(session::Login* login);
  Task<bool> login_tls(session::Login* login);
  Task<bool> login_finish(session::Login* login);
  Task<void> login_cancel(wire::CancelRequest request);
  Task<Result<session::ReportedParameters>> fetch_reported();
  void count_login(const session::Login& login);

  // connection.cpp: one turn of each kind of wait
  Task<void> serve();
  Task<void> client_turn();
  Task<void> server_turn(session::LinkId id);
  Task<void> lease_turn();
  Task<void> control_turn();
  Task<void> delay_turn();
  bool feed_client();
  bool feed_server(Link& link);
  Task<void> read_client();
  Task<void> read_server(Link* link);
  void on_client_read(const IoResult& result, std::size_t room);
  void on_server_read(Link& link, const IoResult& result, std::size_t room);
  bool try_lease(Pool& pool);
  void adopt(Backend& backend, Pool& pool);
  void lease_timed_out(const Pool& pool, std::uint32_t timeout_ms);
  void begin_wait(const session::Wait& wait);
  // Tells the session what wake() was for; true when it must be asked again.
  bool apply_interrupts();

  // connection_io.cpp: suspending, writing, commands, links
  bool flush_client_now(bool force);
  Task<void> flush_client();  // the rest of what flush_client_now could not write
  bool flush_servers_now();
  Task<void> flush_servers();
  Task<void> flush_server(Link* link);
  void read_while_writing(Link& link);
  void perform_commands();
  void drop_links();
  [[nodiscard]] Link* find_link(session::LinkId id);
  void wake();
  void arm(bool watch_client);
  void disarm();
  Task<void> await_event();
  void say_goodbye();

  Worker& worker_;
  const std::uint64_t id_;
  Stream client_;
  ReadBuffer in_;
  const std::string address_;
  const bool local_;
  const bool refused_;
  const TimePoint connected_at_;
  std::int32_t key_pid_ = 0;
  std::string user_, database_, application_name_;

  std::unique_ptr<session::Session> session_;
  boost::container::small_vector<Link, 2> links_;
  session::LinkId next_link_ = 1;
  std::string pending_;  // part of a write that the client has not taken yet
  Socket::wait_type pending_direction_ = Socket::wait_write;

  Event event_;
  std::optional<Timer> timer_;  // exists while a delay runs
  Suspended suspended_ = Suspended::kNo;
  session::LinkId reading_link_ = 0;
  std::uint64_t control_ticket_ = 0;
  std::optional<session::ControlReply> control_reply_;

  std::uint64_t client_need_ = 0;    // size of the message in_ begins with, 0 = unknown
  bool client_more_likely_ = false;  // the last read filled its room
  unsigned small_reads_ = 0;
  unsigned burst_ = 0;

  // The wait the deadline belongs to; a new wait starts a new one.
  session::Wait waiting_for_;
  TimePoint deadline_ = TimePoint::max();
  bool watches_client_ = false;

  bool deadline_hit_ = false;
  bool client_gone_ = false;  // seen by the watchdog, or a failed write
  bool gone_told_ = false;
  bool drain_ = false;
  bool drain_told_ = false;
  bool cancel_wait_ = false;  // a CancelRequest came while waiting for a lease
  bool cancel_settled_ = false;
  bool terminated_ = false;
  bool mid_write_ = false;  // part of a message went out: nothing else may follow
};

}  // namespace collegedb::net
