// Session tests as a conversation: what the client says, what each shard is sent and answers, what
// the client hears. Messages are written as letters with what matters in parentheses:
//   to a shard   Q(text) P(name) B(statement) D E C(name) S H
//   to a client  T D C(tag) I 1 2 3 t n s E(sqlstate) N(sqlstate) S(name) Z(status) G H d c
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "metrics/stats.h"
#include "proxy/session/server_state.h"
#include "proxy/session/session.h"
#include "proxy/session/worker_context.h"
#include "proxy/wire/backend.h"
#include "proxy/wire/bytes.h"
#include "proxy/wire/frontend.h"
#include "tests/support/session_world.h"
#include "tests/unit/routing/fixture.h"

namespace collegedb::session::testing {

// --- letters ------------------------------------------------------------------------------------

inline std::string letter(const wire::Frame& frame, wire::Direction direction) {
  const std::string tag(1, frame.tag);
  const auto with = [&](std::string_view text) { return tag + "(" + std::string(text) + ")"; };
  if (direction == wire::Direction::kFrontend) {
    switch (frame.tag) {
      case 'Q':
        return with(wire::Query::decode(frame.payload)->query);
      case 'P':
        return with(wire::Parse::decode(frame.payload)->statement);
      case 'B':
        return with(wire::Bind::decode(frame.payload)->statement);
      case 'C':
        return with(wire::CloseMessage::decode(frame.payload)->name);
      default:
        return tag;
    }
  }
  switch (frame.tag) {
    case 'C':
      return with(wire::CommandComplete::decode(frame.payload)->tag);
    case 'E':
    case 'N':
      return with(wire::decode_error(frame.payload)->sqlstate);
    case 'S':
      return with(wire::ParameterStatus::decode(frame.payload)->name);
    case 'Z':
      return with(frame.payload);
    default:
      return tag;
  }
}

inline std::vector<wire::Frame> frames(std::string_view bytes, wire::Direction direction) {
  std::vector<wire::Frame> out;
  while (!bytes.empty()) {
    const wire::SplitResult split = wire::split(bytes, direction);
    EXPECT_EQ(split.status, wire::SplitResult::Status::kFrame);
    if (split.status != wire::SplitResult::Status::kFrame) break;
    out.push_back(split.frame);
    bytes.remove_prefix(split.frame.raw.size());
  }
  return out;
}

inline std::string letters(std::string_view bytes, wire::Direction direction) {
  std::string out;
  for (const wire::Frame& frame : frames(bytes, direction)) {
    out += (out.empty() ? "" : " ") + letter(frame, direction);
  }
  return out;
}

// --- messages -----------------------------------------------------------------------------------

// Any message, well-formed or not.
inline std::string message(char tag, std::string_view body) {
  std::string out;
  wire::Writer writer(out);
  writer.begin(tag);
  writer.bytes(body);
  writer.finish();
  return out;
}
inline std::string query(std::string_view sql) {
  std::string out;
  wire::Query{sql}.encode(out);
  return out;
}
inline std::string parse(std::string_view name, std::string_view sql,
                         std::vector<std::uint32_t> types = {}) {
  std::string out;
  wire::Parse{name, sql, std::move(types)}.encode(out);
  return out;
}
inline std::string bind(std::string_view statement, std::vector<std::string> values = {},
                        std::string_view portal = "", std::vector<std::int16_t> formats = {}) {
  wire::Bind message;
  message.portal = portal;
  message.statement = statement;
  for (const std::string& value : values) message.parameters.emplace_back(value);
  message.result_formats = std::move(formats);
  std::string out;
  message.encode(out);
  return out;
}
inline std::string describe(wire::Target target, std::string_view name = "") {
  std::string out;
  wire::Describe{target, name}.encode(out);
  return out;
}
inline std::string execute(std::string_view portal = "", std::int32_t rows = 0) {
  std::string out;
  wire::Execute{portal, rows}.encode(out);
  return out;
}
inline std::string close_statement(std::string_view name) {
  std::string out;
  wire::CloseMessage{wire::Target::kStatement, name}.encode(out);
  return out;
}
inline std::string sync() {
  std::string out;
  wire::encode_sync(out);
  return out;
}
inline std::string flush() {
  std::string out;
  wire::encode_flush(out);
  return out;
}

inline std::string error(std::string_view sqlstate, std::string_view detail = "",
                         std::string_view severity = "ERROR") {
  SqlError value = make_error(sqlstate, "said the shard", "", detail);
  value.severity = severity;
  std::string out;
  wire::encode_error(out, value);
  return out;
}
inline std::string complete(std::string_view tag) {
  std::string out;
  wire::CommandComplete{tag}.encode(out);
  return out;
}
inline std::string ready(char status = 'I') {
  std::string out;
  wire::ReadyForQuery{static_cast<wire::TransactionStatus>(status)}.encode(out);
  return out;
}
inline std::string row(std::string_view value = "1") {
  wire::DataRow message;
  message.values.emplace_back(value);
  std::string out;
  message.encode(out);
  return out;
}
inline std::string columns(std::string_view name = "column", std::uint32_t type = 25) {
  wire::RowDescription message;
  wire::FieldDescription field;
  field.name = name;
  field.type_oid = type;
  message.fields.push_back(field);
  std::string out;
  message.encode(out);
  return out;
}
inline std::string parsed() {
  std::string out;
  wire::encode_parse_complete(out);
  return out;
}
inline std::string bound() {
  std::string out;
  wire::encode_bind_complete(out);
  return out;
}
inline std::string closed() {
  std::string out;
  wire::encode_close_complete(out);
  return out;
}
inline std::string close_portal(std::string_view name) {
  std::string out;
  wire::CloseMessage{wire::Target::kPortal, name}.encode(out);
  return out;
}
inline std::string copy_data(std::string_view data) {
  std::string out;
  wire::encode_copy_data(out, data);
  return out;
}
inline std::string copy_done() {
  std::string out;
  wire::encode_copy_done(out);
  return out;
}
inline std::string copy_fail(std::string_view message) {
  std::string out;
  wire::CopyFail{message}.encode(out);
  return out;
}
inline std::string terminate() {
  std::string out;
  wire::encode_terminate(out);
  return out;
}
inline std::string function_call() {
  return std::string("F\0\0\0\x0e\0\0\0\x01\0\0\0\0\0\0", 15);
}
inline std::string copy_in() {
  std::string out;
  wire::CopyResponse{'G', false, {0}}.encode(out);
  return out;
}
inline std::string copy_out() {
  std::string out;
  wire::CopyResponse{'H', false, {0}}.encode(out);
  return out;
}
inline std::string no_data() {
  std::string out;
  wire::encode_no_data(out);
  return out;
}
inline std::string parameters(std::vector<std::uint32_t> types = {}) {
  std::string out;
  wire::ParameterDescription{std::move(types)}.encode(out);
  return out;
}
inline std::string status(std::string_view name, std::string_view value) {
  std::string out;
  wire::ParameterStatus{name, value}.encode(out);
  return out;
}
// What a statement of a transaction's preamble answers.
inline std::string ran(std::string_view tag) {
  return parsed() + bound() + complete(tag);
}
inline std::string begun() {
  return ran("BEGIN");
}
// What the guard answers when the key is here: queue, then gate row. `fresh`: the server connection
// has never seen the guard's statements.
inline std::string guard_parsed() {
  return parsed() + parsed() + parsed() + parsed();
}
inline std::string guard_queue() {
  return bound() + row() + complete("SELECT 1");
}
inline std::string guard_passed(bool fresh = true) {
  return (fresh ? guard_parsed() : "") + guard_queue() + guard_queue();
}
inline std::string guard_moved(std::string_view shard, std::string_view key,
                               std::string_view op = "op-1", bool fresh = true) {
  return (fresh ? guard_parsed() : "") + guard_queue() + bound() +
         error("CDB02", std::string(shard) + "\n" + std::string(op) + "\n" + std::string(key));
}

inline constexpr std::string_view kGuardStatements =
    "P(collegedb_queue) P(collegedb_gate) P(collegedb_gate_ro) P(collegedb_fence_on) ";
inline constexpr std::string_view kGuard = "B(collegedb_queue) E B(collegedb_gate) E H ";

// --- the conversation ---------------------------------------------------------------------------

// One client of a worker whose cluster is routing::testing::cluster(): db-east, db-west, db-north.
class Conversation {
 public:
  explicit Conversation(std::vector<std::string> shards = {"db-east", "db-west", "db-north"},
                        Identity identity = {"alice", "app", false, {}},
                        std::optional<Greeting> greeting = {})
      : stats_(shards.size()) {
    context.snapshot = test_snapshot(shards);
    context.stats = &stats_;
    context.admin_functions = kFunctions;
    session = std::make_unique<Session>(context, std::move(identity), std::move(greeting));
  }

  // A key of `table`'s group that lives on `shard`.
  std::string key_on(routing::ShardId shard, std::string_view group = "public.users") const {
    return testing::key_on(*context.snapshot, shard, group);
  }

  Conversation& client(const std::string& bytes) {
    for (const wire::Frame& frame : frames(bytes, wire::Direction::kFrontend)) {
      EXPECT_EQ(session->wait().kind, Wait::Kind::kClient) << "the session is not listening";
      session->on_client(frame);
      settle();
    }
    return *this;
  }

  // Leases what the session asks for; `state` of an earlier connection of the pool may be reused.
  Conversation& lease(routing::ShardId shard) {
    EXPECT_EQ(session->wait().kind, Wait::Kind::kLease);
    if (session->wait().kind != Wait::Kind::kLease) return *this;
    EXPECT_EQ(session->wait().shard, shard);
    const LinkId id = next_link_++;
    held_[id] = session->wait().shard;
    session->on_leased(id, states_[session->wait().shard]);
    settle();
    return *this;
  }
  // Any shard will do: takes the one asked for and returns it.
  routing::ShardId lease_any() {
    const routing::ShardId shard = session->wait().shard;
    lease(shard);
    return shard;
  }

  // Everything sent to the shard the session waits for, since the last look.
  Conversation& sent(std::string_view expected) {
    EXPECT_EQ(letters(std::exchange(outbox_[session->wait().link], {}), wire::Direction::kFrontend),
              expected);
    return *this;
  }
  // The same for the shard of a scatter that is not waited for.
  Conversation& sent_to(routing::ShardId shard, std::string_view expected) {
    for (const auto& [id, held] : held_) {
      if (held != shard) continue;
      EXPECT_EQ(letters(std::exchange(outbox_[id], {}), wire::Direction::kFrontend), expected);
      return *this;
    }
    ADD_FAILURE() << "no link to shard " << shard;
    return *this;
  }
  Conversation& sent_nothing() { return sent(""); }
  // Replies of the servers, each read by the session when it waits for that link.
  Conversation& shard(const std::string& bytes) {
    for (const wire::Frame& frame : frames(bytes, wire::Direction::kBackend)) {
      EXPECT_EQ(session->wait().kind, Wait::Kind::kServer) << "nothing is read from shards now";
      if (session->wait().kind != Wait::Kind::kServer) break;
      session->on_server(session->wait().link, frame);
      settle();
    }
    return *this;
  }
  Conversation& lost(std::string_view reason = "gone") {
    session->on_server_lost(session->wait().link, reason);
    settle();
    return *this;
  }
  Conversation& gone() {
    session->on_client_gone();
    settle();
    return *this;
  }
  Conversation& control(ControlReply reply) {
    EXPECT_EQ(session->wait().kind, Wait::Kind::kControl);
    session->on_control(std::move(reply));
    settle();
    return *this;
  }
  Conversation& deadline() {
    session->on_deadline();
    settle();
    return *this;
  }

  // Everything the client has received since the last look.
  Conversation& hears(std::string_view expected) {
    EXPECT_EQ(letters(heard(), wire::Direction::kBackend), expected);
    return *this;
  }
  std::string heard() {
    EXPECT_TRUE(session->may_flush_client() || session->client_out().empty())
        << "replies are held back";
    return std::exchange(session->client_out(), {});
  }
  Conversation& hears_nothing() {
    if (session->may_flush_client()) {
      EXPECT_EQ(letters(session->client_out(), wire::Direction::kBackend), "");
    }
    return *this;
  }

  Conversation& released() { return ended("released"); }
  Conversation& discarded() { return ended("discarded"); }
  Conversation& cancelled() { return ended("cancelled"); }
  Conversation& holds(std::size_t links) {
    EXPECT_EQ(held_.size(), links);
    return *this;
  }
  Conversation& closed() {
    EXPECT_EQ(session->wait().kind, Wait::Kind::kClosed);
    return holds(0);
  }
  Conversation& lease_failed(std::string_view sqlstate = "53300") {
    EXPECT_EQ(session->wait().kind, Wait::Kind::kLease);
    session->on_lease_failed(0, make_error(sqlstate, "no server connection"));
    settle();
    return *this;
  }
  Conversation& idle() {
    EXPECT_EQ(session->wait().kind, Wait::Kind::kClient);
    return holds(0);
  }

  WorkerContext context;
  std::unique_ptr<Session> session;

 private:
  // What the driver does between events: commands, then what is to be sent.
  void settle() {
    for (const auto& [id, shard] : held_) {
      outbox_[id] += std::exchange(session->server_out(id), {});
    }
    for (const Command& command : session->take_commands()) {
      EXPECT_TRUE(held_.contains(command.link)) << "a link that is not held";
      switch (command.kind) {
        case Command::Kind::kRelease:
          ends_.emplace_back("released");
          held_.erase(command.link);
          break;
        case Command::Kind::kDiscard:
          ends_.emplace_back("discarded");
          states_[held_[command.link]] = ServerState{};
          held_.erase(command.link);
          break;
        case Command::Kind::kCancel:
          ends_.emplace_back("cancelled");
          break;
      }
    }
  }
  Conversation& ended(std::string_view how) {
    EXPECT_FALSE(ends_.empty()) << "no link was " << how;
    if (!ends_.empty()) {
      EXPECT_EQ(ends_.front(), how);
      ends_.erase(ends_.begin());
    }
    return *this;
  }

  metrics::WorkerStats stats_;
  std::map<routing::ShardId, ServerState> states_;
  std::map<LinkId, routing::ShardId> held_;
  std::map<LinkId, std::string> outbox_;
  std::vector<std::string> ends_;
  LinkId next_link_ = 1;
};

}  // namespace collegedb::session::testing
