#include "migration/control_session.h"

#include <poll.h>

#include <charconv>
#include <utility>

namespace collegedb::migration {
namespace {

std::string trimmed(const char* text) {
  std::string out = text != nullptr ? text : "";
  while (!out.empty() && (out.back() == '\n' || out.back() == ' ')) {
    out.pop_back();
  }
  return out;
}

std::string field(const PGresult* result, int code) {
  const char* text = PQresultErrorField(result, code);
  return text != nullptr ? text : "";
}

std::string seconds(std::chrono::milliseconds value) {
  return std::to_string((value.count() + 999) / 1000);
}

std::string milliseconds(std::chrono::milliseconds value) {
  return std::to_string(value.count());
}

SqlFailure lost(const std::string& shard, PGconn* connection) {
  return {make_error(ErrorCode::kShardUnavailable, "shard \"" + shard + "\" cannot be reached", {},
                     trimmed(PQerrorMessage(connection))),
          shard, true};
}

// Borrowed from the parameters; nullptr is SQL NULL.
std::vector<const char*> pointers(std::span<const SqlParameter> parameters) {
  std::vector<const char*> out;
  out.reserve(parameters.size());
  for (const SqlParameter& each : parameters) out.push_back(each ? each->c_str() : nullptr);
  return out;
}

// libpq takes the last of several values of one parameter, so what stands before the conninfo is a
// default and what stands after it is forced.
PGconn* open(const ShardConfig& shard, const SessionOptions& options) {
  const std::string timeout = seconds(options.connect_timeout);
  const char* keywords[] = {"connect_timeout",  "keepalives_idle",  "keepalives_interval",
                            "keepalives_count", "tcp_user_timeout", "dbname",
                            "application_name", "client_encoding",  nullptr};
  const char* values[] = {timeout.c_str(),
                          "5",
                          "3",
                          "3",
                          "15000",
                          shard.conninfo.c_str(),
                          options.application_name.c_str(),
                          "UTF8",
                          nullptr};
  return PQconnectdbParams(keywords, values, 1);
}

}  // namespace

SqlFailure::SqlFailure(SqlError error, std::string shard, bool connection_lost)
    : std::runtime_error("shard " + shard + ": " + error.message +
                         (error.detail.empty() ? "" : " (" + error.detail + ")")),
      error_(std::move(error)),
      shard_(std::move(shard)),
      connection_lost_(connection_lost) {}

bool Rows::null(int row, int column) const {
  return PQgetisnull(result_.get(), row, column) != 0;
}

std::string_view Rows::view(int row, int column) const {
  return {PQgetvalue(result_.get(), row, column),
          static_cast<std::size_t>(PQgetlength(result_.get(), row, column))};
}

SqlParameter Rows::value(int row, int column) const {
  if (null(row, column)) {
    return std::nullopt;
  }
  return text(row, column);
}

std::int64_t Rows::int8(int row, int column) const {
  const std::string_view digits = view(row, column);
  std::int64_t out = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), out);
  return out;
}

std::int64_t Rows::affected() const {
  const std::string_view digits = PQcmdTuples(result_.get());
  std::int64_t out = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), out);
  return out;
}

std::vector<std::string> Rows::array(int row, int column) const {
  std::vector<std::string> out;
  const std::string_view text = view(row, column);
  std::string item;
  bool quoted = false;
  bool was_quoted = false;
  for (std::size_t i = 1; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\\' && i + 1 < text.size()) {
      item += text[++i];
    } else if (c == '"') {
      quoted = !quoted;
      was_quoted = true;
    } else if (!quoted && (c == ',' || c == '}')) {
      if (was_quoted || (!item.empty() && item != "NULL")) {
        out.push_back(item);
      }
      item.clear();
      was_quoted = false;
    } else {
      item += c;
    }
  }
  return out;
}

ControlSession::ControlSession(const ShardConfig& shard, const SessionOptions& options)
    : shard_(shard.name),
      conninfo_(shard.conninfo),
      silence_(options.silence),
      connection_(open(shard, options), &PQfinish) {
  if (PQstatus(connection_.get()) != CONNECTION_OK) {
    throw lost(shard_, connection_.get());
  }
  PQsetNoticeReceiver(connection_.get(), &ControlSession::receive_notice, this);
  renew(options);
}

// One statement, whose answer also proves that the session is alive.
void ControlSession::renew(const SessionOptions& options) {
  silence_ = options.silence;
  set_patience(options.statement_timeout);
  notices_.clear();
  std::string settings =
      "SELECT pg_catalog.set_config(name, value, false) FROM (VALUES ('search_path', 'pg_catalog'),"
      " ('statement_timeout', $1), ('lock_timeout', $2),"
      " ('idle_in_transaction_session_timeout', $3), ('application_name', $4),"
      " ('client_min_messages', 'notice'), ('DateStyle', 'ISO, MDY'),"
      " ('IntervalStyle', 'postgres'), ('TimeZone', 'UTC'), ('bytea_output', 'hex'),"
      " ('extra_float_digits', '1'), ('synchronous_commit', 'on'), ('xmloption', 'content'),"
      " ('lc_monetary', 'C'), ('default_transaction_read_only', 'off'),"
      " ('standard_conforming_strings', 'on'), ('plan_cache_mode', 'force_generic_plan'),"
      " ('default_transaction_isolation', 'read committed'), ('row_security', 'off')";
  if (options.dies_with_client) {
    settings +=
        ", ('tcp_keepalives_idle', '5'), ('tcp_keepalives_interval', '3'),"
        " ('tcp_keepalives_count', '3'), ('tcp_user_timeout', '15000')";
  }
  if (!options.keeps_replication_role) {
    settings += ", ('session_replication_role', 'origin')";
  }
  if (server_version() >= 140000) {
    settings += ", ('idle_session_timeout', '0'), ('client_connection_check_interval', '";
    settings += options.dies_with_client ? "1s')" : "0')";
  }
  if (server_version() >= 170000) {
    settings += ", ('transaction_timeout', '0')";
  }
  // Only some roles may set session_replication_role, even to what it is.
  run(settings +
          ") AS settings (name, value) WHERE name <> 'session_replication_role'"
          " OR pg_catalog.current_setting(name) <> value",
      {milliseconds(options.statement_timeout), milliseconds(options.lock_timeout),
       milliseconds(options.idle_in_transaction_timeout), options.application_name});
}

void ControlSession::set_patience(std::chrono::milliseconds statement_timeout) {
  patience_ =
      statement_timeout.count() > 0 ? statement_timeout + silence_ : std::chrono::milliseconds{0};
}

Rows ControlSession::run(std::string_view sql, std::span<const SqlParameter> parameters) {
  const std::vector<const char*> values = pointers(parameters);
  return finish(PQsendQueryParams(connection_.get(), std::string(sql).c_str(),
                                  static_cast<int>(values.size()), nullptr, values.data(), nullptr,
                                  nullptr, 0) != 0);
}

Rows ControlSession::run_prepared(std::string_view sql,
                                  std::initializer_list<SqlParameter> parameters) {
  const std::string text(sql);
  auto found = prepared_.find(text);
  if (found == prepared_.end()) {
    const std::string name = "collegedb_" + std::to_string(prepared_.size());
    finish(PQsendPrepare(connection_.get(), name.c_str(), text.c_str(), 0, nullptr) != 0);
    found = prepared_.emplace(text, name).first;
  }
  const std::vector<const char*> values =
      pointers(std::span<const SqlParameter>(parameters.begin(), parameters.size()));
  return finish(PQsendQueryPrepared(connection_.get(), found->second.c_str(),
                                    static_cast<int>(values.size()), values.data(), nullptr,
                                    nullptr, 0) != 0);
}

void ControlSession::set_statement_timeout(std::chrono::milliseconds timeout) {
  run("SELECT pg_catalog.set_config('statement_timeout', $1, false)", {milliseconds(timeout)});
  set_patience(timeout);
}

Rows ControlSession::run(std::string_view sql, std::initializer_list<SqlParameter> parameters) {
  return run(sql, std::span<const SqlParameter>(parameters.begin(), parameters.size()));
}

void ControlSession::script(std::string_view sql) {
  finish(PQsendQuery(connection_.get(), std::string(sql).c_str()) != 0);
}

Rows ControlSession::finish(bool sent) {
  if (!sent) {
    throw lost(shard_, connection_.get());
  }
  Rows last(nullptr);
  for (;;) {
    wait_readable();
    Rows next(PQgetResult(connection_.get()));
    if (next.get() == nullptr) {
      return check(std::move(last));
    }
    const ExecStatusType status = PQresultStatus(next.get());
    last = std::move(next);
    if (status == PGRES_COPY_IN || status == PGRES_COPY_OUT || status == PGRES_COPY_BOTH) {
      return check(std::move(last));
    }
  }
}

void ControlSession::wait_readable() {
  const auto deadline = std::chrono::steady_clock::now() + patience_;
  while (PQisBusy(connection_.get()) != 0) {
    int left = -1;
    if (patience_.count() > 0) {
      const auto span = deadline - std::chrono::steady_clock::now();
      left = static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(span).count());
      if (left <= 0) {
        // Nobody may use this session again: its answer would be taken for the next one's.
        connection_.reset();
        throw SqlFailure(
            make_error(ErrorCode::kShardUnavailable, "shard \"" + shard_ + "\" does not answer"),
            shard_, true);
      }
    }
    pollfd wait{PQsocket(connection_.get()), POLLIN, 0};
    if (::poll(&wait, 1, left) > 0 && PQconsumeInput(connection_.get()) == 0) {
      throw lost(shard_, connection_.get());
    }
  }
}

Rows ControlSession::check(Rows rows) {
  const PGresult* result = rows.get();
  const ExecStatusType status = PQresultStatus(result);
  if (status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK || status == PGRES_EMPTY_QUERY) {
    return rows;
  }
  if (status == PGRES_COPY_IN || status == PGRES_COPY_OUT || status == PGRES_COPY_BOTH) {
    connection_.reset();  // the copy cannot be ended from here
    throw SqlFailure(make_error("0A000", "COPY cannot be run by the control plane"), shard_, true);
  }
  if (result == nullptr || PQresultErrorField(result, PG_DIAG_SQLSTATE) == nullptr) {
    throw lost(shard_, connection_.get());
  }
  throw SqlFailure(error_of(result), shard_, PQstatus(connection_.get()) != CONNECTION_OK);
}

bool ControlSession::in_transaction() const {
  const PGTransactionStatusType status = PQtransactionStatus(connection_.get());
  return status == PQTRANS_INTRANS || status == PQTRANS_INERROR;
}

bool ControlSession::idle() const {
  return alive() && PQtransactionStatus(connection_.get()) == PQTRANS_IDLE;
}

void ControlSession::receive_notice(void* self, const PGresult* result) {
  static_cast<ControlSession*>(self)->notices_.push_back(error_of(result));
}

std::vector<SqlError> ControlSession::take_notices() {
  return std::exchange(notices_, {});
}

bool ControlSession::wait_notification(int wake_fd, std::chrono::milliseconds timeout) {
  const auto drain = [this] {
    bool any = false;
    while (PGnotify* notification = PQnotifies(connection_.get())) {
      PQfreemem(notification);
      any = true;
    }
    return any;
  };
  if (drain()) {
    return true;
  }
  pollfd waits[] = {{PQsocket(connection_.get()), POLLIN, 0}, {wake_fd, POLLIN, 0}};
  if (::poll(waits, 2, static_cast<int>(timeout.count())) > 0 && waits[0].revents != 0 &&
      PQconsumeInput(connection_.get()) == 0) {
    throw lost(shard_, connection_.get());
  }
  return drain();
}

Transaction::Transaction(ControlSession& session, std::string_view begin) : session_(session) {
  session_.run(begin);
}

Transaction::~Transaction() {
  if (!open_ || !session_.alive()) {
    return;
  }
  try {
    session_.run("ROLLBACK");
  } catch (const SqlFailure&) {
    // The connection is gone, and the transaction with it.
  }
}

void Transaction::commit() {
  open_ = false;
  const Rows done = session_.run("COMMIT");
  if (done.tag() != "COMMIT") {
    throw SqlFailure(make_error("25P02", "the transaction was rolled back"), session_.shard());
  }
}

void Transaction::prepare(std::string_view gid) {
  open_ = false;
  const Rows done = session_.run("PREPARE TRANSACTION " + quote_literal(gid));
  if (done.tag() != "PREPARE TRANSACTION") {
    throw SqlFailure(make_error("25P02", "the transaction was rolled back"), session_.shard());
  }
}

std::string array_text(std::span<const std::string> items) {
  std::string out = "{";
  for (const std::string& item : items) {
    if (out.size() > 1) {
      out += ',';
    }
    out += '"';
    for (const char c : item) {
      if (c == '"' || c == '\\') {
        out += '\\';
      }
      out += c;
    }
    out += '"';
  }
  return out + "}";
}

std::string quote_identifier(std::string_view name) {
  std::string out = "\"";
  for (const char c : name) {
    out.append(c == '"' ? 2 : 1, c);
  }
  return out + "\"";
}

std::string quote_literal(std::string_view text) {
  std::string out = text.find('\\') == std::string_view::npos ? "'" : "E'";
  for (const char c : text) {
    out.append(c == '\'' || c == '\\' ? 2 : 1, c);
  }
  return out + "'";
}

SqlError error_of(const PGresult* result) {
  SqlError error;
  error.sqlstate = field(result, PG_DIAG_SQLSTATE);
  error.message = field(result, PG_DIAG_MESSAGE_PRIMARY);
  error.detail = field(result, PG_DIAG_MESSAGE_DETAIL);
  error.hint = field(result, PG_DIAG_MESSAGE_HINT);
  error.severity = field(result, PG_DIAG_SEVERITY_NONLOCALIZED);
  if (error.severity.empty()) {
    error.severity = "ERROR";
  }
  const std::string position = field(result, PG_DIAG_STATEMENT_POSITION);
  std::from_chars(position.data(), position.data() + position.size(), error.position);
  return error;
}

}  // namespace collegedb::migration
