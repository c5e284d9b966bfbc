// The parts of a Session. One file per phase of a statement's life:
//   session.cpp     events in, the one wait out; turns begin and end
//   start_up.cpp    start-up settings, the end of a login, ParameterStatus
//   query.cpp       a simple Query
//   extended.cpp    a batch of extended messages: the loop, its errors, its end
//   prepared.cpp    Parse and Bind
//   portal.cpp      Describe, Execute, Close
//   execute.cpp     one statement on one server connection: lease, settings, preamble, guard
//   retry.cpp       what follows when the guard says no
//   replies.cpp     what servers answer
//   utility.cpp     statements the session itself answers: BEGIN, SET, SAVEPOINT, DEALLOCATE ...
//   trial.cpp       SET in a transaction that no server has heard of yet
//   admin.cpp       collegedb_* functions
//   scatter.cpp     one SELECT on every shard
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "proxy/session/pipeline.h"
#include "proxy/session/scatter.h"
#include "proxy/session/session.h"
#include "proxy/session/statements.h"
#include "proxy/session/transaction.h"
#include "proxy/session/worker_context.h"
#include "proxy/wire/backend.h"
#include "proxy/wire/frontend.h"

namespace collegedb::session {

// The ParameterStatus of a setting (name in lower case); nullptr: servers report none.
[[nodiscard]] const std::string* reported_value(const ServerState& server, std::string_view name);
// COMMIT, ROLLBACK and the like: what PostgreSQL accepts in an aborted transaction.
[[nodiscard]] bool allowed_in_failed_transaction(const parser::Statement& statement);
[[nodiscard]] const SqlError& transaction_aborted();  // 25P02

// What a server gets to answer a cancel request in.
inline constexpr std::uint32_t kCancelGraceMs = 5000;

class SessionImpl {
 public:
  SessionImpl(WorkerContext& context, Identity identity, std::optional<Greeting> greeting);
  ~SessionImpl();

  // The events of Session.
  void on_client(const wire::Frame& frame);
  void on_client_gone();
  void on_leased(LinkId id, ServerState& state);
  void on_lease_failed(SqlError error);
  void on_server(LinkId id, const wire::Frame& frame);
  void on_server_lost(LinkId id, std::string_view reason);
  void on_control(ControlReply reply);
  void on_deadline();
  void on_drain();

  Wait wait_;
  std::vector<Command> commands_;
  std::string client_out_;
  std::string scratch_;  // server_out of a link that is gone

  [[nodiscard]] bool may_flush() const { return !attempt_.undecided; }
  [[nodiscard]] std::string& server_out(LinkId id);
  [[nodiscard]] std::string_view state_name() const;
  [[nodiscard]] bool in_transaction() const { return txn_.open(); }

 private:
  using Step = void (SessionImpl::*)();

  // A frontend message of the present turn; its bytes are in turn_bytes_.
  struct Message {
    char tag = 0;
    std::uint32_t offset = 0;
    std::uint32_t size = 0;
  };

  // Where one statement goes and under what guard.
  struct Target {
    routing::ShardId shard = routing::kNoShard;
    bool any_shard = false;      // another shard would do as well
    bool in_transaction = true;  // sends the preamble when the client's transaction is open
    std::shared_ptr<const routing::Plan> plan;
    boost::container::small_vector<routing::RoutedKey, 1> keys;
    bool settled = true;  // false: some of the keys have to be found first
  };

  // One try to run something on a server; what a retry needs to start over.
  struct Attempt {
    bool active = false;
    Target target;                         // of the statement last added
    std::vector<routing::RoutedKey> keys;  // guarded (or watched) by this attempt
    std::size_t client_mark = 0;           // client_out_ is cut back to here
    std::size_t cursor_mark = 0;           // extended: message to start over from
    bool undecided = false;                // replies after client_mark may still be taken back
    std::uint32_t gates = 0;               // gate rows not answered yet
    bool retryable = false;                // nothing but the guard would be lost
    bool watch_empty = false;      // an unguarded read: an empty result is checked under the guard
    bool hold = false;             // autocommit write: a deadlock found in it may be retried
    bool preamble_failed = false;  // what the transaction began with: `failure` is the client's
    bool empty = false;            // watch_empty, and it was
    std::optional<SqlError> failure;  // a guard's error, or a deadlock that may be retried
    std::uint64_t started_ns = 0;
  };

  // What was said of a key that the snapshot cannot place.
  struct FoundKey {
    routing::RoutedKey key;
    FindDone::Place place;
  };

  // What all tries of one statement share.
  struct Patience {
    int tries = 0;
    int reloads = 0;
    int restarts = 0;
    bool force_guard = false;
    bool timed_out = false;  // the guard was cancelled after write_hold
    std::uint32_t waited_ms = 0;
    std::vector<std::string> visited;  // "shard\nop" of tombstones followed
    std::size_t lease_failures = 0;
    std::vector<FoundKey> found;
    std::optional<SqlError> not_found;  // why a key could not be found
  };

  enum class Acquired : std::uint8_t { kReady, kWaiting, kRefused };

  // session.cpp
  void await_client();
  void await_drain(Step then);  // until the link owes nothing
  void await_delay(std::uint32_t milliseconds, Step then);
  void server_deadline();
  void finish_turn();  // ReadyForQuery, and back to the client
  void end_session(SqlError error);
  void clear_turn();
  void append_message(const wire::Frame& frame);
  [[nodiscard]] bool fails_at_once();
  [[nodiscard]] bool is_named(wire::Target target, std::string_view name) const;
  void fail_turn(const SqlError& error);  // simple protocol: error, then ReadyForQuery
  void report(const SqlError& error, bool from_shard = false);
  [[nodiscard]] std::string_view body(const Message& message) const;
  [[nodiscard]] std::shared_ptr<const TextPlan> plan_of(std::string_view sql);
  void settings_changed();
  [[nodiscard]] SessionContext session_context() const;
  // nullptr: the client has not set it. Empty in a SET LOCAL ... TO DEFAULT.
  [[nodiscard]] const std::string* find_setting(std::string_view name) const;
  [[nodiscard]] std::string_view setting(std::string_view name) const;
  void copy_message(const wire::Frame& frame);

  // start_up.cpp
  void start_up();
  void try_start_up_settings();
  void greet();
  void adopt_reported_form(Link& link);
  void tell_reports();

  // query.cpp
  void start_query();
  void run_statement();
  void run_several();
  [[nodiscard]] bool may_run_one_by_one() const;
  bool continue_several();
  void send_query();
  void run_or_resend();
  void query_done();
  void abort_and_fail(SqlError error);
  void report_and_finish();

  // extended.cpp
  void run_batch();   // from cursor_ until something must be waited for
  void step_batch();  // the message at cursor_ is done
  void retry_batch();
  // Each handles the message at cursor_. False: waiting (or the turn has ended); the message is
  // handled again from its start when the wait is over.
  bool handle(const Message& message);
  bool on_parse(std::string_view body);
  bool on_bind(std::string_view body);
  bool on_describe(std::string_view body);
  bool on_execute(std::string_view body);
  bool on_close(std::string_view body);
  bool on_sync();
  bool on_flush();
  bool on_query_in_batch();
  void batch_drained();
  void utility_done();
  bool fail_batch(SqlError error);
  void answer_before_error();
  void batch_error();
  // A made reply, in its turn; `parsed`: it is that statement's ParseComplete.
  void answer(std::string bytes, std::shared_ptr<Prepared> parsed = nullptr);
  void poison();  // the server's open transaction must not commit
  bool describe_statement(const std::shared_ptr<Prepared>& statement);
  bool describe_local(Portal& portal);
  bool execute_local(Portal& portal, const wire::Execute& message);
  bool execute_utility(Portal& portal);
  bool flush_first();  // true: waiting until nothing is owed
  bool open_for(const Target& target);
  void open_attempt(const Target& target);
  void ensure_parsed(const std::shared_ptr<Prepared>& statement);
  void refresh_plan(Prepared& statement);
  [[nodiscard]] std::optional<std::size_t> find_bind(std::string_view statement) const;
  Result<Target> target_of_bind(const wire::Bind& bind, const Prepared& statement);
  [[nodiscard]] bool bound_next(std::string_view statement) const;
  [[nodiscard]] std::shared_ptr<Prepared> parse_waiting_before_cursor() const;
  [[nodiscard]] bool lone_read_batch() const;
  [[nodiscard]] bool is_local(const routing::Plan* plan) const;

  // execute.cpp
  Result<Target> target_for(const std::shared_ptr<const routing::Plan>& plan,
                            std::span<const routing::Parameter> parameters);
  [[nodiscard]] routing::ShardId any_shard();
  [[nodiscard]] std::optional<SqlError> refuse_encoding(
      const routing::Plan& plan, std::span<const routing::RoutedKey> keys) const;
  [[nodiscard]] LearnedOwners::Context known_of(routing::ShardId directory) const;
  void learn(const routing::RoutedKey& key, routing::ShardId shard);
  void remember_found(const routing::RoutedKey& key, const FindDone::Place& place);
  [[nodiscard]] std::optional<FindDone::Place> place_of(const routing::RoutedKey& key,
                                                        routing::ShardId directory, bool for_write);
  std::optional<SqlError> settle_owners(Target& target, bool for_write);
  // True: the keys are being looked for, and `then` runs again afterwards.
  bool find_first(const Target& target, Step then);
  void found();
  void find_again();  // with a newer snapshot
  // `then` runs when the wait is over. kRefused leaves turn_error_.
  Acquired acquire(Target& target, Step then);
  [[nodiscard]] SqlError other_shard(const Target& target) const;
  void begin_attempt(const Target& target, bool may_watch_empty);
  [[nodiscard]] const SettingsPtr& settings_wanted() const;
  bool emit_settings(Link& link);  // true: something was sent
  void emit_preamble();
  void emit_guard(const Target& target);
  void emit_fence(const Target& target);
  void emit_guard_statements();
  [[nodiscard]] bool read_only_now() const;
  [[nodiscard]] bool fixed_snapshot_now() const;
  [[nodiscard]] bool covered(const Target& target) const;
  void release_link();
  void discard_link();

  // retry.cpp
  // The link owes nothing. True: a retry is under way; false: turn_error_ says why not.
  bool handle_failure(Step restart);
  bool plan_retry(const SqlError& failure);
  [[nodiscard]] SqlError damaged_gate() const;
  [[nodiscard]] SqlError stale_topology() const;
  [[nodiscard]] SqlError in_our_words(const SqlError& fence) const;
  [[nodiscard]] SqlError held_too_long() const;
  void start_over();
  void reloaded();
  void adopt_reloaded();  // the snapshot a Reload has brought
  void rolled_back();
  [[nodiscard]] bool chain_exceeded(std::string_view detail) const;
  bool follow_tombstone(const SqlError& error);
  void guard_passed();

  // replies.cpp
  void server_error(Link& link, const wire::Frame& frame);
  void extended_reply(Link& link, const wire::Frame& frame);
  void result_reply(Link& link, const wire::Frame& frame);
  void command_complete(Link& link, const wire::Frame& frame);
  void ready_for_query(Link& link, const wire::Frame& frame);
  void parameter_status(Link& link, const wire::Frame& frame);
  void pop_owed(Link& link);
  void violation(std::string_view what);
  void statement_completed(const routing::Plan& plan, std::string_view tag);
  void transaction_status(Role role, char status);
  void link_lost(SqlError reason);
  void drop_to_sync(Link& link, bool will_retry);
  void parse_dropped(Link& link, Owed& owed, bool will_retry);
  void forget_statement(const std::shared_ptr<Prepared>& statement);
  void undo_implicit_settings();
  [[nodiscard]] bool copy_is_followed(const Link& link) const;
  void count_statement(const routing::Plan& plan);

  // utility.cpp
  // A session statement: answered here (reply made, or error), or sent to `target`.
  struct Utility {
    std::string reply;  // made messages without ReadyForQuery
    std::optional<SqlError> error;
    std::optional<Target> target;
    bool trial = false;  // or tried on a server first
  };
  Utility utility(const std::shared_ptr<const routing::Plan>& plan, std::string_view text);
  Utility transaction_control(const std::shared_ptr<const routing::Plan>& plan,
                              std::string_view text);
  Utility end_transaction(const std::shared_ptr<const routing::Plan>& plan);
  Utility savepoint_control(const std::shared_ptr<const routing::Plan>& plan,
                            std::string_view text);
  Utility set_variable(const std::shared_ptr<const routing::Plan>& plan, std::string_view text);
  Utility deallocate(const parser::Statement& statement);
  Utility discard(const parser::Statement& statement);
  void apply_set(const parser::Statement& statement,
                 const std::optional<std::string>& reported = {});
  void keep_implicit_settings();
  [[nodiscard]] Utility to_server(const std::shared_ptr<const routing::Plan>& plan);

  // trial.cpp
  // Tries `statement`, a SET whose text is `text`.
  void start_trial(const parser::Statement& statement, std::string text, Step then);
  void run_trial();
  bool trial_passed(const routing::Plan& plan);
  void simple_trial_done();
  void extended_trial_done();

  // admin.cpp
  // The request a control-plane plan makes (admin call or broadcast).
  Result<ControlRequest> control_request(const routing::Plan& plan, std::string_view text,
                                         std::span<const routing::Parameter> parameters);
  void start_control(ControlRequest request, Step then);
  // Appends the reply of the control plane: rows or a tag. False: turn_error_ is set.
  bool render_control(const routing::Plan& plan, std::span<const std::int16_t> formats,
                      bool with_description);
  // After the last row of a result of the proxy's own: CommandComplete, or PortalSuspended when the
  // row limit was just reached.
  void end_rows(std::size_t rows);
  void simple_control_done();
  void extended_control_done();
  // ParameterDescription (of a statement) and RowDescription or NoData of what the proxy answers.
  std::optional<SqlError> describe_made(const routing::Plan* plan,
                                        std::span<const std::int16_t> formats, bool statement,
                                        std::string& out) const;

  // scatter.cpp
  void start_scatter(std::shared_ptr<const routing::Plan> plan, std::string sql,
                     const Portal* portal, Step then);
  void scatter_lease();
  void scatter_lock();
  void scatter_locked();
  void scatter_lock_again();
  void scatter_reloaded();
  void scatter_run();
  void scatter_drain(Step then);
  void scatter_roll_back(Step then);
  void scatter_finish();
  void scatter_give_up();
  void scatter_reply(Link& link, const wire::Frame& frame);
  void scatter_lock_reply(Link& link, const wire::Frame& frame);
  void scatter_result(Link& link, const wire::Frame& frame);
  void scatter_error(Link& link, SqlError error);
  void simple_scatter_done();
  void extended_scatter_done();

  WorkerContext& context_;
  Identity identity_;
  SettingsPtr base_;  // start-up GUCs: reset values
  SettingsState settings_;
  std::vector<std::string> search_path_;
  bool speaks_utf8_ = true;  // client_encoding
  std::string search_path_text_;
  std::string path_identity_;         // schemas of search_path_, each ended by a zero byte
  std::optional<Greeting> greeting_;  // until it is sent
  struct Report {
    std::string standard;  // of a session without settings of its own
    std::string told;      // the last value the client was sent
    bool mine = false;     // the client has set it at some time
  };
  boost::unordered_flat_map<std::string, Report> reports_;  // by name of ParameterStatus
  bool reports_due_ = false;    // settings have changed since the client was told
  bool set_by_server_ = false;  // a SET of the client's ran there: its form follows before Z
  // Settings before the first SET of an implicit transaction of several statements: an error undoes
  // them with it.
  std::optional<SettingsState> implicit_settings_;

  ByName<std::shared_ptr<Prepared>> statements_;
  ByName<Portal> portals_;
  Transaction txn_;
  // What was known of the cluster when the open transaction reached its first server.
  std::shared_ptr<const routing::Snapshot> txn_snapshot_;

  // The present turn: one Query, or extended messages up to Sync, Flush or Query.
  std::string turn_bytes_;
  std::vector<Message> turn_;
  std::size_t cursor_ = 0;
  std::size_t furthest_ = 0;  // messages below were handled once already (a retry replays them)
  bool first_visit_ = true;
  bool extended_ = false;
  bool sync_sent_ = false;  // the client's Sync is on its way: the turn ends with its answer
  bool skip_until_sync_ = false;
  bool writes_in_flight_ = false;  // a lost server leaves their outcome unknown
  bool copy_in_ = false;           // the server reads CopyData
  std::optional<SqlError> turn_error_;
  // Statements of one Query that run one after the other: all of them, and the next.
  std::shared_ptr<const TextPlan> several_;
  std::string several_text_;
  std::size_t several_next_ = 0;
  bool turn_failed_ = false;  // the client has been told of an error in this turn
  std::string query_;         // text of the present simple Query
  std::shared_ptr<const TextPlan> text_plan_;
  std::shared_ptr<const routing::Plan>
      plan_;  // its statement when it is one; also of a control call
  // The portal the proxy is running itself, and the row limit of its Execute; 0 = none.
  std::string running_portal_;
  std::uint32_t row_limit_ = 0;
  std::vector<std::int16_t> control_formats_;  // result formats of an extended control call

  struct Trial {
    std::string name;  // of the setting
    std::string text;  // of the statement
    Step then = nullptr;
    bool passed = false;
    std::optional<std::string> reported;  // what the server says the value is
  };
  std::optional<Trial> trial_;

  std::unique_ptr<Link> link_;
  LinkId next_link_ = 1;
  Attempt attempt_;
  Patience patience_;
  Step step_ = nullptr;        // what follows the present wait
  Step retry_step_ = nullptr;  // what starts the attempt over
  Step after_find_ = nullptr;
  std::vector<routing::RoutedKey> sought_;  // by the Find under way
  ScatterSlot scatter_;
  std::optional<ControlRequest> control_;
  std::optional<ControlReply> control_reply_;
  std::uint32_t next_any_ = 0;
  bool cancelling_ = false;  // a deadline has passed and what runs on the servers is cancelled
  bool draining_ = false;
  bool client_gone_ = false;
};

}  // namespace collegedb::session
