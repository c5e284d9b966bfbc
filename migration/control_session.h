// A server session for control-plane SQL: libpq, blocking, with every field of a server error kept.
// Background threads only. Not thread-safe; one thread uses it at a time.
#pragma once

#include <libpq-fe.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "proxy/config.h"
#include "proxy/wire/error.h"

namespace collegedb::migration {

// What a failed statement or connection throws. `connection_lost`: whether the statement took
// effect is unknown.
class SqlFailure : public std::runtime_error {
 public:
  SqlFailure(SqlError error, std::string shard, bool connection_lost = false);

  [[nodiscard]] const SqlError& error() const noexcept { return error_; }
  [[nodiscard]] const std::string& shard() const noexcept { return shard_; }
  [[nodiscard]] bool connection_lost() const noexcept { return connection_lost_; }

 private:
  SqlError error_;
  std::string shard_;
  bool connection_lost_;
};

// nullopt is SQL NULL. Text format; the statement casts ($1::pg_catalog.int8).
using SqlParameter = std::optional<std::string>;

// The result of one statement; owns it.
class Rows {
 public:
  explicit Rows(PGresult* result) : result_(result, &PQclear) {}

  [[nodiscard]] int size() const { return PQntuples(result_.get()); }
  [[nodiscard]] bool empty() const { return size() == 0; }
  [[nodiscard]] bool null(int row, int column) const;
  // Borrowed until this object dies; empty for NULL.
  [[nodiscard]] std::string_view view(int row, int column) const;
  [[nodiscard]] std::string text(int row, int column) const {
    return std::string(view(row, column));
  }
  [[nodiscard]] SqlParameter value(int row, int column) const;
  [[nodiscard]] std::int64_t int8(int row, int column) const;  // 0 for NULL
  [[nodiscard]] bool boolean(int row, int column) const { return view(row, column) == "t"; }
  // Elements of a one-dimensional text[]; NULL elements are left out.
  [[nodiscard]] std::vector<std::string> array(int row, int column) const;
  [[nodiscard]] std::string tag() const { return PQcmdStatus(result_.get()); }
  [[nodiscard]] std::int64_t affected() const;
  [[nodiscard]] PGresult* get() const noexcept { return result_.get(); }

 private:
  std::unique_ptr<PGresult, decltype(&PQclear)> result_;
};

struct SessionOptions {
  std::string application_name = "collegedb control";
  std::chrono::milliseconds connect_timeout{5000};  // unless the conninfo names one
  std::chrono::milliseconds statement_timeout{60000};
  std::chrono::milliseconds lock_timeout{10000};
  std::chrono::milliseconds idle_in_transaction_timeout{60000};
  // The server ends this session within 15 s of this host's death, and notices within a second that
  // this process has died even while it waits for a lock: for sessions whose locks others wait for.
  bool dies_with_client = false;
  // renew() leaves session_replication_role as it is, instead of setting it back to origin. Every
  // change of it makes the server plan all its statements anew.
  bool keeps_replication_role = false;
  // How long beyond statement_timeout a silent server (stopped, cut off) is waited for; with a
  // statement_timeout of 0 for ever.
  std::chrono::milliseconds silence{5000};
};

class ControlSession {
 public:
  // Connects and sets search_path = pg_catalog, the timeouts, UTC, ISO and synchronous_commit.
  // Throws SqlFailure (SHARD_UNAVAILABLE).
  explicit ControlSession(const ShardConfig& shard, const SessionOptions& options = {});
  ControlSession(const ControlSession&) = delete;
  ControlSession& operator=(const ControlSession&) = delete;

  // Sets everything again as the constructor did, with other options. REQUIRES: idle(). Throws
  // SqlFailure.
  void renew(const SessionOptions& options);

  // Exactly one statement, extended protocol. Throws SqlFailure.
  Rows run(std::string_view sql, std::span<const SqlParameter> parameters = {});
  Rows run(std::string_view sql, std::initializer_list<SqlParameter> parameters);
  // The same for a text that this session will see again: the server keeps its plan.
  Rows run_prepared(std::string_view sql, std::initializer_list<SqlParameter> parameters = {});
  // Several statements without parameters, in one implicit transaction unless inside another.
  void script(std::string_view sql);

  [[nodiscard]] const std::string& shard() const noexcept { return shard_; }
  [[nodiscard]] const std::string& conninfo() const noexcept { return conninfo_; }
  [[nodiscard]] int server_version() const { return PQserverVersion(connection_.get()); }
  [[nodiscard]] bool in_transaction() const;
  // Connected, outside a transaction, with no statement or COPY under way.
  [[nodiscard]] bool idle() const;
  // For COPY, which moves run over the session by themselves. Owned by this object.
  [[nodiscard]] PGconn* native() const noexcept { return connection_.get(); }
  // Bounds the following statements instead of SessionOptions::statement_timeout; 0 = no bound.
  void set_statement_timeout(std::chrono::milliseconds timeout);
  [[nodiscard]] bool alive() const { return PQstatus(connection_.get()) == CONNECTION_OK; }

  // NOTICEs and WARNINGs since the last call.
  [[nodiscard]] std::vector<SqlError> take_notices();

  // Waits for a notification, for `wake_fd` to become readable, or for the timeout, whichever comes
  // first; drains notifications. True when one arrived. Throws SqlFailure when the connection
  // broke.
  bool wait_notification(int wake_fd, std::chrono::milliseconds timeout);

 private:
  Rows finish(bool sent);
  Rows check(Rows rows);
  void wait_readable();
  void set_patience(std::chrono::milliseconds statement_timeout);
  static void receive_notice(void* self, const PGresult* result);

  std::string shard_;
  std::string conninfo_;
  std::chrono::milliseconds silence_;
  std::chrono::milliseconds patience_{0};  // 0 = no bound
  std::unique_ptr<PGconn, decltype(&PQfinish)> connection_;
  std::vector<SqlError> notices_;
  std::unordered_map<std::string, std::string> prepared_;  // text -> name of the statement
};

// BEGIN now; ROLLBACK on destruction unless commit() returned. REQUIRES: session outlives it.
class Transaction {
 public:
  explicit Transaction(ControlSession& session, std::string_view begin = "BEGIN");
  ~Transaction();
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;

  void commit();
  // PREPARE TRANSACTION: it outlives the session from here on.
  void prepare(std::string_view gid);

 private:
  ControlSession& session_;
  bool open_ = true;
};

// '{"a","b"}': the text form of a text[].
[[nodiscard]] std::string array_text(std::span<const std::string> items);
// "a", with quotes inside doubled.
[[nodiscard]] std::string quote_identifier(std::string_view name);
// 'a' in a form that does not depend on standard_conforming_strings.
[[nodiscard]] std::string quote_literal(std::string_view text);
// The fields of an ErrorResponse or NoticeResponse.
[[nodiscard]] SqlError error_of(const PGresult* result);

}  // namespace collegedb::migration
