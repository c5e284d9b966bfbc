// Statements the session itself answers: transaction control, SET and RESET, DEALLOCATE, DISCARD.
// A transaction begins here and reaches a server only with its first routed statement.
#include <algorithm>

#include "proxy/session/lower.h"
#include "proxy/session/search_path.h"
#include "proxy/session/session_impl.h"
#include "proxy/session/settings_policy.h"

namespace collegedb::session {
namespace {

using parser::Statement;
using parser::StatementKind;

std::string complete(std::string_view tag) {
  std::string out;
  wire::CommandComplete{tag}.encode(out);
  return out;
}

std::string complete_with_warning(std::string_view tag, std::string_view sqlstate,
                                  std::string_view text) {
  SqlError warning = make_error(sqlstate, text);
  warning.severity = "WARNING";
  std::string out;
  wire::encode_notice(out, warning);
  return out + complete(tag);
}

std::string text_of(const Statement& statement, std::string_view text) {
  return statement.length > 0 ? std::string(text.substr(statement.location, statement.length))
                              : std::string(text);
}

std::string_view begin_tag(const Statement& statement) {
  return statement.verb.starts_with("START") ? "START TRANSACTION" : "BEGIN";
}

constexpr std::string_view kNoTransaction = "there is no transaction in progress";

}  // namespace

SessionImpl::Utility SessionImpl::to_server(const std::shared_ptr<const routing::Plan>& plan) {
  Utility result;
  Target target;
  target.plan = plan;
  target.shard = any_shard();
  target.any_shard = true;
  target.in_transaction = true;
  result.target = std::move(target);
  return result;
}

SessionImpl::Utility SessionImpl::utility(const std::shared_ptr<const routing::Plan>& plan,
                                          std::string_view text) {
  const Statement& statement = plan->statement;
  switch (statement.kind) {
    case StatementKind::kBegin:
    case StatementKind::kCommit:
    case StatementKind::kRollback:
    case StatementKind::kSetTransaction:
      return transaction_control(plan, text);
    case StatementKind::kSavepoint:
    case StatementKind::kRelease:
    case StatementKind::kRollbackTo:
      return savepoint_control(plan, text);
    case StatementKind::kSet:
    case StatementKind::kReset:
      return set_variable(plan, text);
    case StatementKind::kDeallocate:
      return deallocate(statement);
    case StatementKind::kDiscard:
      return discard(statement);
    case StatementKind::kCloseCursor: {  // CLOSE ALL where no server holds a cursor
      Utility done;
      done.reply = complete("CLOSE CURSOR ALL");
      return done;
    }
    default: {
      Utility refused;
      refused.error = make_error("0A000", statement.verb + " is not supported through the proxy",
                                 "Connect to a shard directly for it.");
      return refused;
    }
  }
}

SessionImpl::Utility SessionImpl::transaction_control(
    const std::shared_ptr<const routing::Plan>& plan, std::string_view text) {
  const Statement& statement = plan->statement;
  if (statement.kind == StatementKind::kCommit || statement.kind == StatementKind::kRollback) {
    return end_transaction(plan);
  }
  // On a server already: in its transaction, or in the implicit one of this batch.
  if ((txn_.open() && txn_.bound()) || (!txn_.open() && link_ && link_->executed)) {
    return to_server(plan);
  }
  Utility result;
  if (statement.kind == StatementKind::kBegin) {
    if (txn_.open()) {
      result.reply = complete_with_warning(begin_tag(statement), "25001",
                                           "there is already a transaction in progress");
      return result;
    }
    txn_.begin(statement, text_of(statement, text), settings_);
    implicit_settings_.reset();
    result.reply = complete(begin_tag(statement));
    return result;
  }
  if (statement.name.ends_with("characteristics")) {
    result.error =
        make_error("0A000", "SET SESSION CHARACTERISTICS is not supported through the proxy",
                   "Use SET default_transaction_isolation, default_transaction_read_only or "
                   "default_transaction_deferrable.");
    return result;
  }
  if (!txn_.open()) {
    result.reply = complete_with_warning("SET", "25P01",
                                         "SET TRANSACTION can only be used in transaction blocks");
    return result;
  }
  txn_.add_characteristics(text_of(statement, text), statement);
  result.reply = complete("SET");
  return result;
}

SessionImpl::Utility SessionImpl::end_transaction(
    const std::shared_ptr<const routing::Plan>& plan) {
  const Statement& statement = plan->statement;
  Utility result;
  const bool commit = statement.kind == StatementKind::kCommit;
  if (txn_.open() && txn_.bound()) {
    return to_server(plan);
  }
  if (!txn_.open()) {
    if (link_ && link_->executed) {
      return to_server(plan);  // ends the implicit transaction of this batch
    }
    if (statement.and_chain) {
      result.error = make_error("25P01", std::string(commit ? "COMMIT" : "ROLLBACK") +
                                             " AND CHAIN can only be used in transaction blocks");
      return result;
    }
    result.reply = complete_with_warning(commit ? "COMMIT" : "ROLLBACK", "25P01", kNoTransaction);
    return result;
  }
  const bool committed = commit && !txn_.failed();
  const Transaction before = txn_;
  settings_ = txn_.end(committed, settings_);
  if (statement.and_chain) {
    txn_ = before;
    txn_.chain(settings_);
  }
  settings_changed();
  portals_.clear();
  result.reply = complete(committed ? "COMMIT" : "ROLLBACK");
  return result;
}

SessionImpl::Utility SessionImpl::savepoint_control(
    const std::shared_ptr<const routing::Plan>& plan, std::string_view text) {
  const Statement& statement = plan->statement;
  if (txn_.open() && txn_.bound()) {
    return to_server(plan);
  }
  Utility result;
  const bool savepoint = statement.kind == StatementKind::kSavepoint;
  const bool release = statement.kind == StatementKind::kRelease;
  if (!txn_.open()) {
    result.error = make_error("25P01", std::string(savepoint ? "SAVEPOINT"
                                                   : release ? "RELEASE SAVEPOINT"
                                                             : "ROLLBACK TO SAVEPOINT") +
                                           " can only be used in transaction blocks");
    return result;
  }
  if (savepoint) {
    txn_.savepoint(statement.name, settings_);
    txn_.add_to_preamble(text_of(statement, text));
    result.reply = complete("SAVEPOINT");
    return result;
  }
  const bool found =
      release ? txn_.release(statement.name) : txn_.rollback_to(statement.name, settings_);
  if (!found) {
    result.error = make_error("3B001", "savepoint \"" + statement.name + "\" does not exist");
    return result;
  }
  if (release) {
    txn_.add_to_preamble(text_of(statement, text));
  } else {
    settings_changed();
  }
  result.reply = complete(release ? "RELEASE" : "ROLLBACK");
  return result;
}

// --- SET --------------------------------------------------------------------------------------

SessionImpl::Utility SessionImpl::set_variable(const std::shared_ptr<const routing::Plan>& plan,
                                               std::string_view text) {
  const Statement& statement = plan->statement;
  Utility result;
  const bool reset = statement.kind == StatementKind::kReset || statement.value_default;
  const std::string_view tag = statement.kind == StatementKind::kReset ? "RESET" : "SET";
  if (auto refused = refused_setting(lower(statement.name), statement.value)) {
    result.error = std::move(refused);
    return result;
  }
  if (reset && txn_.open() && base_ &&
      (statement.name == "all" || base_->contains(statement.name))) {
    // A server connection's own default is not the value this client started with.
    result.error = make_error("0A000",
                              std::string(tag) + " " + statement.name +
                                  " cannot restore a start-up option inside a transaction block",
                              "Set the value itself, or reset it outside the transaction.");
    return result;
  }
  if (reset && !txn_.open() && link_ && link_->open) {
    // Between statements that have run already and those to come on the same server connection.
    if (base_ && (statement.name == "all" || base_->contains(statement.name))) {
      result.error = make_error("0A000",
                                std::string(tag) + " " + statement.name +
                                    " cannot restore a start-up option between other statements",
                                "Send Sync first.");
      return result;
    }
    return to_server(plan);
  }
  // What no server has to hear of yet: the client's transaction has reached none, or there is none
  // and nothing has run before in this batch, whose next statement may belong to any shard.
  const bool in_block = txn_.open() && !txn_.bound();
  if (in_block || (extended_ && !txn_.open() && !statement.local && !reset && !link_)) {
    const std::string name = lower(statement.name);
    const std::string* known = context_.accepted.find(name, statement.value);
    // A setting of an extension or of the application's own: any value will do.
    const bool custom = name.find('.') != std::string::npos;
    if (!reset && !(custom && in_block) && (known == nullptr || name == "datestyle")) {
      result.trial = true;
      return result;
    }
    if (in_block) {
      txn_.add_to_preamble(text_of(statement, text));
    } else {
      keep_implicit_settings();
    }
    apply_set(statement, reset || known == nullptr ? std::nullopt : std::optional(*known));
    result.reply = complete(tag);
    return result;
  }
  if (!txn_.open() && statement.local) {
    result.reply =
        complete_with_warning("SET", "25P01", "SET LOCAL can only be used in transaction blocks");
    return result;
  }
  if (reset && !(txn_.open() && txn_.bound())) {
    keep_implicit_settings();
    apply_set(statement);  // back to the start-up value: nothing a server could refuse
    result.reply = complete(tag);
    return result;
  }
  return to_server(plan);
}

// Outside a transaction block: an error in the same segment takes a SET or RESET back.
void SessionImpl::keep_implicit_settings() {
  if (!txn_.open() && !implicit_settings_) {
    implicit_settings_ = settings_;
  }
}

// Remembers what a SET or RESET that succeeded means for the server connections to come.
// `reported`: the value in the form servers report it.
void SessionImpl::apply_set(const Statement& statement,
                            const std::optional<std::string>& reported) {
  const std::string name = lower(statement.name);
  if (statement.kind == StatementKind::kReset && name == "all") {
    // role and session_authorization are not part of RESET ALL.
    auto kept = base_ ? std::make_shared<Settings>(*base_) : std::make_shared<Settings>();
    if (settings_.session && settings_.session->contains("role")) {
      (*kept)["role"] = settings_.session->at("role");
    }
    settings_.session = kept->empty() ? nullptr : SettingsPtr(kept);
    settings_changed();
    return;
  }
  SettingsPtr& layer = statement.local ? settings_.local : settings_.session;
  auto next = layer ? std::make_shared<Settings>(*layer) : std::make_shared<Settings>();
  const bool to_default = statement.kind == StatementKind::kReset || statement.value_default;
  if (!to_default) {
    (*next)[name] = reported.value_or(statement.value);
  } else if (base_ && base_->contains(name)) {
    (*next)[name] = base_->at(name);
  } else if (statement.local) {
    (*next)[name] = name == "search_path" ? kDefaultSearchPath : "";  // hides the session's value
  } else {
    next->erase(name);
  }
  layer = next->empty() ? nullptr : SettingsPtr(next);
  if (!statement.local && settings_.local && settings_.local->contains(name)) {
    auto local = std::make_shared<Settings>(*settings_.local);
    local->erase(name);
    settings_.local = std::move(local);
  }
  settings_changed();
}

// --- DEALLOCATE and DISCARD -------------------------------------------------------------------

SessionImpl::Utility SessionImpl::deallocate(const Statement& statement) {
  Utility result;
  if (statement.name.empty()) {
    boost::unordered::erase_if(statements_, [](const auto& entry) { return !entry.first.empty(); });
    result.reply = complete("DEALLOCATE ALL");
    return result;
  }
  if (statements_.erase(statement.name) == 0) {
    result.error =
        make_error("26000", "prepared statement \"" + statement.name + "\" does not exist");
    return result;
  }
  result.reply = complete("DEALLOCATE");
  return result;
}

SessionImpl::Utility SessionImpl::discard(const Statement& statement) {
  Utility result;
  if (statement.name == "all") {
    if (txn_.open() || (link_ && link_->open)) {
      result.error =
          make_error("25001", txn_.open() ? "DISCARD ALL cannot run inside a transaction block"
                                          : "DISCARD ALL cannot be executed within a pipeline");
      return result;
    }
    statements_.clear();
    portals_.clear();
    settings_ = SettingsState{base_, nullptr};
    settings_changed();
  }
  std::string tag = "DISCARD " + statement.name;
  std::transform(tag.begin(), tag.end(), tag.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  result.reply = complete(tag);
  return result;
}

}  // namespace collegedb::session
