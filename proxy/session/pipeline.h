// What one server connection still owes, in order. Each message sent to a server pushes the reply
// it will cause; each reply pops it. A reply the proxy makes itself goes through the same queue, so
// that it can never overtake a real one.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>

#include "proxy/session/server_state.h"
#include "proxy/session/session.h"
#include "proxy/session/statements.h"
#include "routing/route.h"

namespace collegedb::session {

// The reply a message causes when it succeeds.
enum class Expect : std::uint8_t {
  kParse,              // '1'
  kBind,               // '2'
  kDescribeStatement,  // 't', then 'T' or 'n'
  kDescribePortal,     // 'T' or 'n'
  kExecute,            // rows or COPY, then 'C', 'I' or 's'
  kClose,              // '3'
  kQuery,              // simple Query: anything, then 'Z'
  kSync,               // 'Z'
  kMade,               // nothing: `made` goes to the client when its turn comes
};

// On whose behalf it was sent.
enum class Role : std::uint8_t {
  kClient,    // the client sees the reply
  kSilent,    // set-up the client never asked for (re-Parse): an error is the client's
  kSettings,  // the session's GUCs: nothing else is sent before they are known to be in force
  kQueue,     // guard: the fair queue
  kGate,      // guard: the gate row; raises, or answers exactly one row
  kPreamble,  // BEGIN and what the client said since, sent with the first routed statement
  kAbort,     // sent to fail, so that the open transaction is lost
  kTrial,     // a SET on a borrowed server connection: the client sees what is wrong with it
};

struct Owed {
  Expect expect;
  Role role;
  std::uint32_t rows = 0;
  // kClient Execute and Query: the statement, for its effect on the session when it succeeds.
  std::shared_ptr<const routing::Plan> plan;
  // Parse, Bind and Execute of a client's prepared statement.
  std::shared_ptr<Prepared> statement;
  std::string made;           // kMade
  std::uint32_t evicted = 0;  // kClose of ours: id of the statement that made room
};

struct Link {
  LinkId id = 0;
  routing::ShardId shard = routing::kNoShard;
  ServerState* state = nullptr;
  std::string out;
  std::deque<Owed> owed;
  char status = 'I';      // last ReadyForQuery
  bool open = false;      // extended messages have been sent that no Sync has ended yet
  bool executed = false;  // a statement of the client's ran in the present transaction
  // The insert fence may be off there: it must be switched on before a statement whose writes are
  // not known.
  bool fence_off = false;
  bool skipping = false;  // the server discards until Sync, and no Sync is on its way
  bool dirty = false;     // its settings are unknown: closed instead of given back
  bool lost = false;      // of a scatter: answers nothing any more
  // What state->settings goes back to when the open implicit transaction fails.
  std::shared_ptr<const Settings> committed;
  // What the server's unnamed statement is now; null = unknown.
  std::shared_ptr<Prepared> unnamed;

  Owed& owe(Expect expect, Role role, std::shared_ptr<const routing::Plan> plan = nullptr,
            std::shared_ptr<Prepared> statement = nullptr) {
    return owed.emplace_back(Owed{expect, role, 0, std::move(plan), std::move(statement), {}, 0});
  }
};

}  // namespace collegedb::session
