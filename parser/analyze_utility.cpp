// Statements about the session or the transaction: no table data of their own.
#include <string>

#include "parser/analyzer.h"

namespace collegedb::parser {

bool Analyzer::begin_session(const ::Node* node) {
  switch (tag_of(node)) {
    case T_TransactionStmt:
      transaction(*as<::TransactionStmt>(node));
      return true;
    case T_VariableSetStmt:
      set_variable(*as<::VariableSetStmt>(node));
      return true;
    case T_VariableShowStmt:
      set_kind(StatementKind::kShow, "SHOW");
      out_.name = to_lower(view(as<::VariableShowStmt>(node)->name));
      return true;
    case T_DiscardStmt:
      discard(*as<::DiscardStmt>(node));
      return true;
    case T_ExplainStmt:
      explain(*as<::ExplainStmt>(node));
      return true;
    case T_LockStmt:
      lock(*as<::LockStmt>(node));
      return true;
    case T_CallStmt:
      set_kind(StatementKind::kCall, "CALL");
      push(as<::CallStmt>(node)->funccall);
      return true;
    case T_DoStmt:
      set_kind(StatementKind::kDo, "DO");
      return true;
    default:
      return begin_named(node);
  }
}

bool Analyzer::begin_named(const ::Node* node) {
  switch (tag_of(node)) {
    case T_PrepareStmt: {
      const auto& stmt = *as<::PrepareStmt>(node);
      out_.explained = begin_inner(stmt.query);
      push_list(stmt.argtypes);
      set_kind(StatementKind::kPrepare, "PREPARE");
      out_.name = view(stmt.name);
      return true;
    }
    case T_ExecuteStmt:
      set_kind(StatementKind::kExecute, "EXECUTE");
      out_.name = view(as<::ExecuteStmt>(node)->name);
      push_list(as<::ExecuteStmt>(node)->params);
      return true;
    case T_DeallocateStmt:
      set_kind(StatementKind::kDeallocate, "DEALLOCATE");
      out_.name = view(as<::DeallocateStmt>(node)->name);
      return true;
    case T_DeclareCursorStmt: {
      const auto& stmt = *as<::DeclareCursorStmt>(node);
      out_.explained = begin_inner(stmt.query);
      set_kind(StatementKind::kDeclareCursor, "DECLARE CURSOR");
      out_.name = view(stmt.portalname);
      out_.cursor_hold = (stmt.options & CURSOR_OPT_HOLD) != 0;
      return true;
    }
    case T_FetchStmt:
      set_kind(StatementKind::kFetch, as<::FetchStmt>(node)->ismove ? "MOVE" : "FETCH");
      out_.name = view(as<::FetchStmt>(node)->portalname);
      return true;
    case T_ClosePortalStmt:
      set_kind(StatementKind::kCloseCursor, "CLOSE CURSOR");
      out_.name = view(as<::ClosePortalStmt>(node)->portalname);
      return true;
    case T_ListenStmt:
      set_kind(StatementKind::kListen, "LISTEN");
      out_.name = view(as<::ListenStmt>(node)->conditionname);
      return true;
    case T_UnlistenStmt:
      set_kind(StatementKind::kUnlisten, "UNLISTEN");
      out_.name = view(as<::UnlistenStmt>(node)->conditionname);
      return true;
    case T_NotifyStmt:
      set_kind(StatementKind::kNotify, "NOTIFY");
      out_.name = view(as<::NotifyStmt>(node)->conditionname);
      out_.value = view(as<::NotifyStmt>(node)->payload);
      return true;
    default:
      return false;
  }
}

void Analyzer::transaction(const ::TransactionStmt& stmt) {
  out_.and_chain = stmt.chain;
  switch (stmt.kind) {
    case TRANS_STMT_BEGIN:
      set_kind(StatementKind::kBegin, "BEGIN");
      break;
    case TRANS_STMT_START:
      set_kind(StatementKind::kBegin, "START TRANSACTION");
      break;
    case TRANS_STMT_COMMIT:
      set_kind(StatementKind::kCommit, "COMMIT");
      break;
    case TRANS_STMT_ROLLBACK:
      set_kind(StatementKind::kRollback, "ROLLBACK");
      break;
    case TRANS_STMT_SAVEPOINT:
      set_kind(StatementKind::kSavepoint, "SAVEPOINT");
      break;
    case TRANS_STMT_RELEASE:
      set_kind(StatementKind::kRelease, "RELEASE");
      break;
    case TRANS_STMT_ROLLBACK_TO:
      set_kind(StatementKind::kRollbackTo, "ROLLBACK");
      break;
    case TRANS_STMT_PREPARE:
      set_kind(StatementKind::kPrepareTransaction, "PREPARE TRANSACTION");
      break;
    case TRANS_STMT_COMMIT_PREPARED:
      set_kind(StatementKind::kCommitPrepared, "COMMIT PREPARED");
      break;
    case TRANS_STMT_ROLLBACK_PREPARED:
      set_kind(StatementKind::kRollbackPrepared, "ROLLBACK PREPARED");
      break;
  }
  out_.name = stmt.gid != nullptr ? view(stmt.gid) : view(stmt.savepoint_name);
  transaction_options(stmt.options);
}

void Analyzer::transaction_options(const ::List* options) {
  for (const ::ListCell& cell : cells(options)) {
    if (!is(cell.ptr_value, T_DefElem)) continue;
    const auto& option = *as<::DefElem>(cell.ptr_value);
    const std::string_view name = view(option.defname);
    if (name == "transaction_isolation") {
      out_.isolation = option_text(option.arg);
    } else if (name == "transaction_read_only") {
      out_.read_only = option_on(option);
    }
  }
}

void Analyzer::discard(const ::DiscardStmt& stmt) {
  switch (stmt.target) {
    case DISCARD_ALL:
      set_kind(StatementKind::kDiscard, "DISCARD ALL");
      out_.name = "all";
      break;
    case DISCARD_PLANS:
      set_kind(StatementKind::kDiscard, "DISCARD PLANS");
      out_.name = "plans";
      break;
    case DISCARD_SEQUENCES:
      set_kind(StatementKind::kDiscard, "DISCARD SEQUENCES");
      out_.name = "sequences";
      break;
    case DISCARD_TEMP:
      set_kind(StatementKind::kDiscard, "DISCARD TEMP");
      out_.name = "temp";
      break;
  }
}

void Analyzer::explain(const ::ExplainStmt& stmt) {
  out_.explained = begin_inner(stmt.query);
  set_kind(StatementKind::kExplain, "EXPLAIN");
  for (const ::ListCell& cell : cells(stmt.options)) {
    const auto& option = *as<::DefElem>(cell.ptr_value);
    if (view(option.defname) == "analyze") out_.explain_analyze = option_on(option);
  }
}

void Analyzer::lock(const ::LockStmt& stmt) {
  set_kind(StatementKind::kLockTable, "LOCK TABLE");
  for (const ::ListCell& cell : cells(stmt.relations)) {
    add_table(*as<::RangeVar>(cell.ptr_value), level_, true);
  }
}

}  // namespace collegedb::parser
