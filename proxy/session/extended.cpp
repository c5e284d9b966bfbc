// Extended messages: a batch up to Sync, Flush or a full buffer, worked through message by message.
//
// Each handler either finishes its message or starts a wait; after the wait the message is handled
// again from its start, so handlers check before they act. A Parse goes to the server together with
// the Bind that decides the shard; without one in the batch, to any shard.
#include <algorithm>

#include "proxy/session/session_impl.h"

namespace collegedb::session {
namespace {

// Unanswered bytes towards a server before its replies are read: both sides must never block on
// full socket buffers.
constexpr std::size_t kChunkBytes = 32 << 10;

}  // namespace

// --- the loop -------------------------------------------------------------------------------

void SessionImpl::run_batch() {
  while (cursor_ < turn_.size()) {
    first_visit_ = cursor_ >= furthest_;
    furthest_ = std::max(furthest_, cursor_ + 1);
    if (!handle(turn_[cursor_])) {
      return;
    }
    ++cursor_;
    if (link_ && link_->out.size() > kChunkBytes && !link_->owed.empty() &&
        cursor_ < turn_.size()) {
      wire::encode_flush(link_->out);
      await_drain(&SessionImpl::batch_drained);
      return;
    }
  }
  // No Sync, Flush or Query ended the batch: its buffer was full.
  if (flush_first()) {
    return;
  }
  const bool skipping = skip_until_sync_;
  clear_turn();
  skip_until_sync_ = skipping;
  await_client();
}

void SessionImpl::step_batch() {
  ++cursor_;
  run_batch();
}

void SessionImpl::retry_batch() {
  cursor_ = attempt_.cursor_mark;
  skip_until_sync_ = false;
  sync_sent_ = false;
  run_batch();
}

bool SessionImpl::handle(const Message& message) {
  const std::string_view bytes = body(message);
  const bool empty_by_format = message.tag == 'S' || message.tag == 'H';
  if (empty_by_format && !bytes.empty() && !skip_until_sync_) {
    return fail_batch(make_error("08P01", "invalid message format"));
  }
  if (message.tag == 'S') {
    return on_sync();
  }
  if (skip_until_sync_) {
    return true;
  }
  switch (message.tag) {
    case 'P':
      return on_parse(bytes);
    case 'B':
      return on_bind(bytes);
    case 'D':
      return on_describe(bytes);
    case 'E':
      return on_execute(bytes);
    case 'C':
      return on_close(bytes);
    case 'H':
      return on_flush();
    case 'Q':
      return on_query_in_batch();
    default:
      // FunctionCall is its own synchronisation point.
      abort_and_fail(make_error("0A000", "function calls by OID are not routed",
                                "Call the function with SELECT."));
      return false;
  }
}

// Everything owed before a wait has been answered; what the guard or an empty read says comes
// first.
void SessionImpl::batch_drained() {
  if (attempt_.failure) {
    if (handle_failure(&SessionImpl::retry_batch)) {
      return;
    }
    batch_error();
    return;
  }
  if (attempt_.empty) {
    client_out_.resize(attempt_.client_mark);
    turn_error_.reset();  // found behind the read: the replay finds it again
    patience_.force_guard = true;
    const std::size_t cursor = attempt_.cursor_mark;
    attempt_ = Attempt{};
    attempt_.cursor_mark = cursor;
    retry_batch();
    return;
  }
  if (turn_error_) {
    batch_error();
    return;
  }
  if (sync_sent_) {
    finish_turn();
    return;
  }
  run_batch();
}

// A statement of the client's that changes the session has run: what follows in the batch is judged
// by what it left, and none of the guards before it is taken for granted.
void SessionImpl::utility_done() {
  if (!attempt_.failure && !turn_error_) {
    attempt_ = Attempt{};
  }
  batch_drained();
}

// True: waiting until nothing is owed; the message is handled again.
bool SessionImpl::flush_first() {
  if (!link_ || link_->owed.empty()) {
    return false;
  }
  wire::encode_flush(link_->out);
  await_drain(&SessionImpl::batch_drained);
  return true;
}

void SessionImpl::answer(std::string bytes, std::shared_ptr<Prepared> parsed) {
  if (link_ && !link_->owed.empty()) {
    link_->owe(Expect::kMade, Role::kClient, nullptr, std::move(parsed)).made = std::move(bytes);
  } else {
    client_out_ += bytes;
  }
}

// --- errors of the proxy's own making -----------------------------------------------------------

// The message at cursor_ fails. Always false.
bool SessionImpl::fail_batch(SqlError error) {
  turn_error_ = std::move(error);
  answer_before_error();
  return false;
}

// What the client is owed by the messages before comes first, the reply of a Parse that has waited
// for its Bind included.
void SessionImpl::answer_before_error() {
  if (const auto statement = parse_waiting_before_cursor()) {
    Target target;
    target.plan = statement->plan;
    target.shard = any_shard();
    target.any_shard = true;
    target.in_transaction = txn_.bound();
    const Acquired acquired = acquire(target, &SessionImpl::answer_before_error);
    if (acquired == Acquired::kWaiting) {
      return;
    }
    if (acquired == Acquired::kReady) {
      open_attempt(target);
      ensure_parsed(statement);
    }
  }
  if (link_ && !link_->owed.empty()) {
    wire::encode_flush(link_->out);
    await_drain(&SessionImpl::batch_drained);
    return;
  }
  batch_error();
}

// turn_error_ goes to the client, unless the server has reported an earlier one; what is open on
// the server is lost; the rest of the batch up to Sync is skipped.
void SessionImpl::batch_error() {
  const std::optional<SqlError> error = std::exchange(turn_error_, std::nullopt);
  attempt_.undecided = false;
  if (error && !skip_until_sync_) {
    report(*error);
    skip_until_sync_ = true;
    undo_implicit_settings();
    if (link_ && !sync_sent_ && (txn_.bound() || link_->open) && !link_->skipping) {
      poison();
    }
    if (txn_.open() && !txn_.bound()) {
      txn_.fail();
    }
  }
  if (sync_sent_) {
    finish_turn();
    return;
  }
  run_batch();  // what is left of it is skipped, except its Sync
}

// An error in the open transaction of the server, so that neither a Sync nor a COMMIT can keep it.
void SessionImpl::poison() {
  wire::Bind bind;
  bind.statement = "collegedb_abort";  // exists nowhere
  bind.encode(link_->out);
  link_->owe(Expect::kBind, Role::kAbort);
  link_->open = true;
}

// --- ends of a batch --------------------------------------------------------------------------

bool SessionImpl::on_sync() {
  if (sync_sent_) {
    return true;
  }
  if (!link_ || (!link_->open && !link_->skipping && link_->owed.empty())) {
    finish_turn();
    return false;
  }
  wire::encode_sync(link_->out);
  link_->owe(Expect::kSync, Role::kClient);
  link_->open = false;
  link_->skipping = false;
  sync_sent_ = true;
  await_drain(&SessionImpl::batch_drained);
  return false;
}

bool SessionImpl::on_flush() {
  if (flush_first()) {
    return false;
  }
  const bool skipping = skip_until_sync_;
  clear_turn();
  skip_until_sync_ = skipping;
  await_client();
  return false;
}

// PostgreSQL runs the Query in the transaction that the messages before it have opened.
bool SessionImpl::on_query_in_batch() {
  if (flush_first()) {
    return false;
  }
  if (link_ && link_->open && link_->executed && !txn_.bound()) {
    return fail_batch(make_error(
        "0A000", "a simple Query must not follow extended messages without a Sync between them",
        "Send Sync first."));
  }
  if (link_ && link_->open) {
    wire::encode_sync(link_->out);
    link_->owe(Expect::kSync, Role::kSilent);
    link_->open = false;
    await_drain(&SessionImpl::batch_drained);
    return false;
  }
  const Message query = turn_[cursor_];
  const std::string bytes(body(query));
  clear_turn();
  append_message(wire::Frame{'Q', bytes, {}});
  start_query();
  return false;
}

}  // namespace collegedb::session
