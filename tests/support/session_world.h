// A Session with everything around it played: the client's messages, pools of modelled servers, the
// control plane. Performs what wait() names, one event at a time, and checks what must always hold:
// links end exactly once and clean, replies are well-formed, every ReadyForQuery is asked for.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "metrics/stats.h"
#include "proxy/session/server_state.h"
#include "proxy/session/session.h"
#include "proxy/session/worker_context.h"
#include "proxy/wire/frontend.h"
#include "routing/hash.h"
#include "tests/support/session_model.h"
#include "tests/unit/routing/fixture.h"

namespace collegedb::session::testing {

inline constexpr AdminFunction::Argument kLocateArguments[] = {{"key", 25, true},
                                                               {"table", 25, true}};
inline constexpr AdminFunction::Column kLocateColumns[] = {{"shard", 25}, {"generation", 20}};
inline constexpr AdminFunction::Argument kMoveArguments[] = {
    {"key", 25, true}, {"shard", 25, true}, {"dry_run", 16, false}};
inline constexpr AdminFunction::Column kMoveColumns[] = {{"op", 25}};
inline constexpr AdminFunction kFunctions[] = {
    {"collegedb_locate", kLocateArguments, kLocateColumns, false, "where a key lives"},
    {"collegedb_reassign", kMoveArguments, kMoveColumns, true, "moves a key"}};

inline std::shared_ptr<const routing::Snapshot> test_snapshot(
    const std::vector<std::string>& shards) {
  auto snapshot = routing::testing::cluster(shards);
  snapshot.version = 1;
  snapshot.generation = 5;
  snapshot.exceptions = std::make_shared<routing::ExceptionMap>();
  return std::make_shared<const routing::Snapshot>(std::move(snapshot));
}

// A key of `group` that lives on `shard`.
inline std::string key_on(const routing::Snapshot& snapshot, routing::ShardId shard,
                          std::string_view group = "public.users") {
  for (int i = 1;; ++i) {
    if (routing::locate(snapshot, group, std::to_string(i)).shard == shard) {
      return std::to_string(i);
    }
  }
}

class World {
 public:
  // What happens to a session besides the usual.
  enum class Blow {
    kNone,
    kLost,
    kFatal,
    kLeaseFails,
    kClientGone,
    kDeadline,
    kDrain,
    kControlFails
  };

  World(ModelHooks hooks, Identity identity = {"alice", "app", false, {}})
      : hooks_(std::move(hooks)), stats_(3) {
    static const auto cluster = test_snapshot({"db-east", "db-west", "db-north"});
    context.snapshot = cluster;
    context.stats = &stats_;
    context.admin_functions = kFunctions;
    context.write_hold_ms = 50;
    hooks_.committed = &committed;
    session = std::make_unique<Session>(context, std::move(identity));
  }

  // Messages the client sends, in order, as soon as the session reads.
  void say(const std::string& bytes) { input_ += bytes; }

  // One event. False: the session waits for the client, who has nothing to say, or has ended.
  bool step(Blow blow = Blow::kNone) {
    perform();
    const Wait wait = session->wait();
    if (wait.kind == Wait::Kind::kClosed) {
      hooks_.require(held_.empty(), "a link is held after the end");
      return false;
    }
    switch (blow) {
      case Blow::kClientGone:
        session->on_client_gone();
        perform();
        return true;
      case Blow::kDrain:
        session->on_drain();
        perform();
        return true;
      case Blow::kDeadline:
        session->on_deadline();
        perform();
        return true;
      default:
        break;
    }
    switch (wait.kind) {
      case Wait::Kind::kClient:
        return client_turn();
      case Wait::Kind::kServer:
        server_turn(wait.link, blow);
        break;
      case Wait::Kind::kLease:
        lease_turn(wait.shard, blow);
        break;
      case Wait::Kind::kControl:
        hooks_.require(wait.control != nullptr, "a control wait without its request");
        session->on_control(control_reply(*wait.control, blow));
        break;
      case Wait::Kind::kDelay:
        hooks_.require(wait.timeout_ms > 0, "a delay of nothing");
        session->on_deadline();
        break;
      case Wait::Kind::kClosed:
        break;
    }
    perform();
    return true;
  }

  // Steps until there is nothing to do; how many it took. A session that never rests fails.
  std::size_t run() {
    std::size_t steps = 0;
    while (step()) hooks_.require(++steps < 20000, "the session never rests");
    return steps;
  }

  // Everything the client was sent.
  [[nodiscard]] const std::string& heard() const { return heard_; }
  [[nodiscard]] std::size_t links_held() const { return held_.size(); }
  [[nodiscard]] bool closed() const { return session->wait().kind == Wait::Kind::kClosed; }

  // Stands in for whatever a broken server would send.
  void inject(const std::string& bytes) {
    if (!held_.empty()) held_.front()->in += bytes;
    trusted_ = false;
  }
  [[nodiscard]] bool trusted() const { return trusted_; }

  WorkerContext context;
  std::unique_ptr<Session> session;
  std::vector<std::string> committed;  // texts of writes that are durable

 private:
  struct Server {
    explicit Server(const ModelHooks& hooks) : model(hooks) {}
    LinkId id = 0;
    routing::ShardId shard = 0;
    ServerState state;
    ModelServer model;
    std::string in;  // not read by the session yet
  };

  Server* find(LinkId id) {
    for (const auto& server : held_) {
      if (server->id == id) return server.get();
    }
    return nullptr;
  }

  // Commands, then what is to be sent to servers and to the client, as the driver does it.
  void perform() {
    for (const Command& command : session->take_commands()) {
      Server* server = find(command.link);
      hooks_.require(server != nullptr, "a command for a link that is not held");
      if (server == nullptr || command.kind == Command::Kind::kCancel) continue;
      for (std::size_t i = 0; i < held_.size(); ++i) {
        if (held_[i].get() != server) continue;
        std::unique_ptr<Server> ended = std::move(held_[i]);
        held_.erase(held_.begin() + static_cast<std::ptrdiff_t>(i));
        if (command.kind == Command::Kind::kRelease) take_back(std::move(ended));
        break;
      }
    }
    for (const auto& server : held_) {
      std::string bytes = std::exchange(session->server_out(server->id), {});
      std::string_view rest = bytes;
      while (!rest.empty()) {
        const wire::SplitResult split = wire::split(rest, wire::Direction::kFrontend);
        hooks_.require(split.status == wire::SplitResult::Status::kFrame,
                       "a malformed message to a server");
        if (split.status != wire::SplitResult::Status::kFrame) break;
        server->in += server->model.answer(split.frame);
        rest.remove_prefix(split.frame.raw.size());
      }
    }
    if (session->may_flush_client() || closed()) {
      const std::string out = std::exchange(session->client_out(), {});
      check_replies(out);
      heard_ += out;
    }
  }

  void take_back(std::unique_ptr<Server> server) {
    if (trusted_) {
      hooks_.require(server->in.empty(), "a link is released with replies unread");
      hooks_.require(server->model.idle(), "a link is released in a transaction");
      const Settings none;
      const Settings& said = server->state.settings ? *server->state.settings : none;
      hooks_.require(said == server->model.settings(), "a link's settings are not as recorded");
    }
    server->id = 0;
    pool_.push_back(std::move(server));
  }

  void check_replies(std::string_view bytes) {
    while (!bytes.empty()) {
      const wire::SplitResult split = wire::split(bytes, wire::Direction::kBackend);
      hooks_.require(split.status == wire::SplitResult::Status::kFrame,
                     "a malformed message to the client");
      if (split.status != wire::SplitResult::Status::kFrame) return;
      ready_ += split.frame.tag == 'Z' ? 1 : 0;
      bytes.remove_prefix(split.frame.raw.size());
    }
    hooks_.require(ready_ <= asked_, "a ReadyForQuery nobody asked for");
  }

  bool client_turn() {
    const wire::SplitResult split = wire::split(input_, wire::Direction::kFrontend);
    if (split.status == wire::SplitResult::Status::kMalformed) {
      input_.clear();
      session->on_client_gone();
      perform();
      return true;
    }
    if (split.status != wire::SplitResult::Status::kFrame) return false;
    asked_ += split.frame.tag == 'S' || split.frame.tag == 'Q' || split.frame.tag == 'F' ? 1 : 0;
    const std::string message(split.frame.raw);
    input_.erase(0, message.size());
    session->on_client(wire::split(message, wire::Direction::kFrontend).frame);
    perform();
    return true;
  }

  void server_turn(LinkId id, Blow blow) {
    Server* server = find(id);
    hooks_.require(server != nullptr, "a wait for a link that is not held");
    if (server == nullptr) {
      session->on_server_lost(id, "not held");
      return;
    }
    if (blow == Blow::kLost) {
      session->on_server_lost(id, "gone");
      return;
    }
    if (blow == Blow::kFatal) {
      SqlError error = make_error("57P01", "terminating connection due to administrator command");
      error.severity = "FATAL";
      std::string bytes;
      wire::encode_error(bytes, error);
      session->on_server(id, wire::split(bytes, wire::Direction::kBackend).frame);
      return;
    }
    const wire::SplitResult split = wire::split(server->in, wire::Direction::kBackend);
    if (split.status != wire::SplitResult::Status::kFrame) {
      if (trusted_) hooks_.require(false, "waits for a server that has nothing to say");
      session->on_server_lost(id, "nothing more to say");
      return;
    }
    const std::string message(split.frame.raw);
    server->in.erase(0, message.size());
    session->on_server(id, wire::split(message, wire::Direction::kBackend).frame);
  }

  void lease_turn(routing::ShardId shard, Blow blow) {
    hooks_.require(shard < context.snapshot->shards.size(), "a lease of no shard");
    if (blow == Blow::kLeaseFails) {
      session->on_lease_failed(0, make_error("53300", "no server connection"));
      return;
    }
    std::unique_ptr<Server> server;
    for (std::size_t i = 0; i < pool_.size() && !server; ++i) {
      if (pool_[i]->shard != shard) continue;
      server = std::move(pool_[i]);
      pool_.erase(pool_.begin() + static_cast<std::ptrdiff_t>(i));
    }
    if (!server) {
      server = std::make_unique<Server>(hooks_);
      server->shard = shard;
    }
    server->id = next_link_++;
    held_.push_back(std::move(server));
    session->on_leased(held_.back()->id, held_.back()->state);
  }

  ControlReply control_reply(const ControlRequest& request, Blow blow) {
    if (blow == Blow::kControlFails) return make_error("58000", "the control plane is not well");
    if (std::holds_alternative<AdminCall>(request.what)) {
      return AdminRows{{{std::string("db-east"), std::string("5")}}};
    }
    if (std::holds_alternative<Broadcast>(request.what)) return BroadcastDone{"CREATE TABLE", {}};
    return ReloadDone{context.snapshot};
  }

  ModelHooks hooks_;
  metrics::WorkerStats stats_;
  std::string input_;
  std::string heard_;
  std::vector<std::unique_ptr<Server>> held_;
  std::vector<std::unique_ptr<Server>> pool_;
  LinkId next_link_ = 1;
  std::size_t ready_ = 0;  // ReadyForQuery sent to the client
  std::size_t asked_ = 0;  // messages that may cause one
  bool trusted_ = true;    // the servers keep to the protocol
};

}  // namespace collegedb::session::testing
