// A PostgreSQL server as far as a Session can tell: transactions, savepoints, skip-until-Sync,
// prepared statements, portals, settings, COPY and the guard, but no data. What it is sent wrongly
// breaks `require`. Used by the tests that break conversations at every step, and by the fuzzer.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "proxy/session/guard.h"
#include "proxy/wire/backend.h"
#include "proxy/wire/frontend.h"

namespace collegedb::session::testing {

// What a test decides and checks.
struct ModelHooks {
  // One of `options` outcomes; 0 is the usual one.
  std::function<unsigned(unsigned options)> choose = [](unsigned) { return 0U; };
  std::function<void(bool holds, const char* what)> require;
  std::vector<std::string>* committed = nullptr;  // texts of writes, once they are durable
  std::string other_shard;                        // where a moved key has gone
  // True for a text that was spoilt on its way: a syntax error to the server.
  std::function<bool(std::string_view sql)> spoilt = [](std::string_view) { return false; };
};

class ModelServer {
 public:
  explicit ModelServer(const ModelHooks& hooks) : hooks_(hooks) {}

  // The replies one frontend message causes.
  std::string answer(const wire::Frame& frame) {
    out_.clear();
    if (copying_) {
      in_copy(frame);
    } else if (skipping_ && frame.tag != 'S') {
      // discarded
    } else {
      dispatch(frame);
    }
    return std::exchange(out_, {});
  }

  [[nodiscard]] bool idle() const {
    return status_ == 'I' && stack_.empty() && !skipping_ && !copying_;
  }
  [[nodiscard]] const std::map<std::string, std::string>& settings() const { return settings_; }

 private:
  using Gates = std::set<std::pair<std::string, std::string>>;
  struct Level {
    std::string name;
    std::map<std::string, std::string> settings;
    Gates gates;
    std::size_t writes = 0;
  };
  struct PortalModel {
    std::string sql;
    std::vector<std::string> values;
    bool done = false;
  };

  void error(std::string_view sqlstate, std::string_view message = "said the model",
             std::string_view detail = "") {
    wire::encode_error(out_, make_error(sqlstate, message, "", detail));
  }
  void complete(std::string_view tag) { wire::CommandComplete{tag}.encode(out_); }
  void row(std::string_view value) {
    wire::DataRow message;
    message.values.emplace_back(value);
    message.encode(out_);
  }
  void columns() {
    wire::RowDescription message;
    wire::FieldDescription field;
    field.name = "c";
    field.type_oid = 20;
    message.fields.push_back(field);
    message.encode(out_);
  }
  void ready() { wire::ReadyForQuery{static_cast<wire::TransactionStatus>(status_)}.encode(out_); }

  // --- transactions ---

  void begin_if_none() {
    if (stack_.empty()) stack_.push_back(Level{"", settings_, {}, 0});
  }
  void finish(bool commit) {
    if (!stack_.empty() && !commit) settings_ = stack_.front().settings;
    if (commit && hooks_.committed != nullptr) {
      hooks_.committed->insert(hooks_.committed->end(), writes_.begin(), writes_.end());
    }
    writes_.clear();
    gates_.clear();
    stack_.clear();
    portals_.clear();
    status_ = 'I';
  }
  void fail() {
    if (status_ == 'I') {
      finish(false);
    } else {
      status_ = 'E';
    }
  }
  void roll_back_to(std::size_t level) {
    settings_ = stack_[level].settings;
    gates_ = stack_[level].gates;
    writes_.resize(stack_[level].writes);
    stack_.resize(level + 1);
    status_ = 'T';
  }

  // --- SQL ---

  static bool starts(std::string_view sql, std::string_view word) { return sql.starts_with(word); }
  static std::string_view trimmed(std::string_view sql) {
    while (!sql.empty() && (sql.front() == ' ' || sql.front() == '\n')) sql.remove_prefix(1);
    while (!sql.empty() && (sql.back() == ' ' || sql.back() == '\n')) sql.remove_suffix(1);
    return sql;
  }
  static std::string_view last_word(std::string_view sql) {
    return sql.substr(sql.find_last_of(' ') + 1);
  }
  static bool allowed_when_failed(std::string_view sql) {
    return starts(sql, "COMMIT") || starts(sql, "ROLLBACK");
  }

  // The key a statement on `users` names: what follows "id = " or "VALUES (".
  // The key of a statement on users; empty for other tables, also for a name that fuzzing spoilt.
  static std::string key_of(std::string_view sql, const std::vector<std::string>& values) {
    if (sql.find(" users ") == std::string_view::npos) return {};
    for (const std::string_view mark : {"id = ", "VALUES ("}) {
      const std::size_t at = sql.find(mark);
      if (at == std::string_view::npos) continue;
      const std::string_view rest = sql.substr(at + mark.size());
      if (rest.starts_with("$1")) return values.empty() ? "" : values[0];
      return std::string(rest.substr(0, rest.find_first_not_of("0123456789")));
    }
    return {};
  }

  void set_configs(std::string_view sql) {
    for (std::size_t at = sql.find("set_config("); at != std::string_view::npos;
         at = sql.find("set_config(", at + 1)) {
      const std::size_t name = sql.find('\'', at) + 1;
      const std::size_t name_end = sql.find('\'', name);
      const std::size_t value = sql.find('\'', name_end + 1) + 1;
      const std::size_t value_end = sql.find('\'', value);
      settings_[std::string(sql.substr(name, name_end - name))] =
          std::string(sql.substr(value, value_end - value));
    }
  }
  void set(std::string_view sql) {  // SET name = 'value'
    const std::size_t equals = sql.find(" = ");
    const std::size_t quote = sql.find('\'');
    if (equals == std::string_view::npos || quote == std::string_view::npos) return;
    settings_[std::string(sql.substr(4, equals - 4))] =
        std::string(sql.substr(quote + 1, sql.rfind('\'') - quote - 1));
  }
  void reset(std::string_view sql) {
    std::string name(last_word(sql));
    std::erase(name, '"');
    if (name == "ALL") {
      settings_.clear();
    } else {
      settings_.erase(name);
    }
  }

  bool savepoint_control(std::string_view sql) {
    const std::string name(last_word(sql));
    if (status_ == 'I') {
      error("25P01");
      return false;
    }
    if (starts(sql, "SAVEPOINT")) {
      stack_.push_back(Level{name, settings_, gates_, writes_.size()});
      complete("SAVEPOINT");
      return true;
    }
    for (std::size_t level = stack_.size(); level-- > 1;) {
      if (stack_[level].name != name) continue;
      if (starts(sql, "RELEASE")) {
        stack_.resize(level);
        complete("RELEASE");
      } else {
        roll_back_to(level);
        complete("ROLLBACK");
      }
      return true;
    }
    error("3B001");
    return false;
  }

  bool keyed(std::string_view sql, const std::vector<std::string>& values) {
    const std::string key = key_of(sql, values);
    const bool write = !starts(sql, "SELECT");
    if (!key.empty() && (write || status_ == 'T')) {
      hooks_.require(gates_.contains({"public.users", key}), "a keyed statement without its guard");
    }
    if (!write) return select(sql);
    switch (hooks_.choose(4)) {
      case 1:
        error("23505");
        return false;
      case 2:
        error("40P01");
        return false;
      default:
        writes_.emplace_back(std::string(sql) + (values.size() > 1 ? values[1] : ""));
        complete(starts(sql, "INSERT")   ? "INSERT 0 1"
                 : starts(sql, "UPDATE") ? "UPDATE 1"
                                         : "DELETE 1");
        return true;
    }
  }

  bool select(std::string_view sql) {
    if (sql.find("min_generation FROM collegedb.topology") != std::string_view::npos) {
      row(hooks_.choose(3) == 1 ? "9" : "5");
      complete("SELECT 1");
      return true;
    }
    const bool count = sql.find("count(*)") != std::string_view::npos;
    const unsigned rows = hooks_.choose(4);
    if (rows == 3) {
      error("22012");
      return false;
    }
    const unsigned given = count || rows == 0 ? 1 : rows - 1;
    for (unsigned i = 0; i < given; ++i) row("7");
    complete("SELECT " + std::to_string(given));
    return true;
  }

  // One statement. False: it failed, and the error has been written.
  bool run(std::string_view sql, const std::vector<std::string>& values) {
    if (hooks_.spoilt(sql)) {
      error("42601");
      return false;
    }
    if (status_ == 'E' && !allowed_when_failed(sql)) {
      error("25P02");
      return false;
    }
    begin_if_none();
    if (starts(sql, "BEGIN")) {
      status_ = 'T';
      complete("BEGIN");
    } else if (starts(sql, "SAVEPOINT") || starts(sql, "RELEASE") || starts(sql, "ROLLBACK TO")) {
      return savepoint_control(sql);
    } else if (starts(sql, "COMMIT") || starts(sql, "ROLLBACK")) {
      const bool commit = starts(sql, "COMMIT") && status_ != 'E';
      if (commit && hooks_.choose(3) == 1) {
        finish(false);
        error("23503");
        return false;
      }
      const bool chain = status_ != 'I' && sql.ends_with("AND CHAIN");
      finish(commit);
      if (chain) {
        begin_if_none();
        status_ = 'T';
      }
      complete(commit ? "COMMIT" : "ROLLBACK");
    } else if (starts(sql, "SET LOCAL") || starts(sql, "SET TRANSACTION")) {
      complete("SET");
    } else if (starts(sql, "SET ")) {
      if (hooks_.choose(4) == 1) {
        error("22023");
        return false;
      }
      set(sql);
      complete("SET");
    } else if (starts(sql, "RESET ")) {
      reset(sql);
      complete("RESET");
    } else if (sql.find("set_config('collegedb.guarded'") != std::string_view::npos) {
      row("off");
      complete("SELECT 1");
    } else if (sql.find("set_config(") != std::string_view::npos) {
      if (hooks_.choose(4) == 1) {
        error("22023");
        return false;
      }
      set_configs(sql);
      row("");
      complete("SELECT 1");
    } else if (starts(sql, "LOCK")) {
      if (hooks_.choose(4) == 1) {
        error("55P03");
        return false;
      }
      complete("LOCK TABLE");
    } else if (sql.starts_with("COPY")) {
      return copy(sql);
    } else if (key_of(sql, values).empty()) {
      return select(sql);
    } else {
      return keyed(sql, values);
    }
    return true;
  }

  bool copy(std::string_view sql) {
    if (sql.find("FROM STDIN") != std::string_view::npos) {
      wire::CopyResponse{'G', false, {0}}.encode(out_);
      copying_ = true;
      return true;
    }
    wire::CopyResponse{'H', false, {0}}.encode(out_);
    wire::encode_copy_data(out_, "7\n");
    wire::encode_copy_done(out_);
    complete("COPY 1");
    return true;
  }

  // The guard's two statements. False: refused.
  bool guard(std::string_view name, const std::vector<std::string>& values) {
    if (status_ == 'E') {
      error("25P02");
      return false;
    }
    begin_if_none();
    const bool gate = name != guard::kQueueName;
    std::string key = gate && values.size() > 4 ? values[4] : "";
    std::erase_if(key, [](char c) { return c == '{' || c == '}' || c == '"'; });
    switch (hooks_.choose(gate ? 8 : 6)) {
      case 1:
        error(gate ? guard::kMoved : "40P01", "moved",
              hooks_.other_shard + "\nop\n" + key.substr(0, key.find(',')));
        return false;
      case 2:
        error(gate ? guard::kStale : "40001", "stale", "9");
        return false;
      case 3:
        if (gate) {
          error(guard::kIncoming);
          return false;
        }
        break;
      default:
        break;
    }
    if (gate && values.size() > 4) {
      for (std::size_t at = 0; at <= key.size();) {
        const std::size_t end = std::min(key.find(',', at), key.size());
        gates_.insert({values[3], key.substr(at, end - at)});
        at = end + 1;
      }
    }
    row("");
    complete("SELECT 1");
    return true;
  }

  // --- messages ---

  void dispatch(const wire::Frame& frame) {
    switch (frame.tag) {
      case 'Q':
        query(frame);
        return;
      case 'P':
        extended(parse(*wire::Parse::decode(frame.payload)));
        return;
      case 'B':
        extended(bind(*wire::Bind::decode(frame.payload)));
        return;
      case 'D':
        extended(describe(*wire::Describe::decode(frame.payload)));
        return;
      case 'E':
        extended(execute(*wire::Execute::decode(frame.payload)));
        return;
      case 'C':
        close(*wire::CloseMessage::decode(frame.payload));
        return;
      case 'S':
        sync();
        return;
      default:
        return;
    }
  }

  void extended(bool went_well) {
    if (!went_well) {
      fail();
      skipping_ = true;
    }
  }

  void sync() {
    skipping_ = false;
    if (status_ == 'I') finish(true);
    ready();
  }

  void query(const wire::Frame& frame) {
    rest_ = std::string(wire::Query::decode(frame.payload)->query);
    statements_.erase("");
    portals_.erase("");
    go_on();
  }
  void go_on() {
    while (!rest_.empty()) {
      const std::size_t end = rest_.find(';');
      const std::string sql(trimmed(std::string_view(rest_).substr(0, end)));
      rest_ = end == std::string::npos ? "" : rest_.substr(end + 1);
      if (sql.empty()) continue;
      const bool rows = starts(sql, "SELECT");
      if (rows) columns();
      if (!run(sql, {})) {
        fail();
        rest_.clear();
        break;
      }
      if (copying_) {
        simple_copy_ = true;
        return;
      }
    }
    if (status_ == 'I') finish(true);
    ready();
  }

  bool parse(const wire::Parse& message) {
    const std::string name(message.statement);
    const std::string_view sql = trimmed(message.query);
    if (hooks_.spoilt(sql)) {
      error("42601");
      return false;
    }
    if (status_ == 'E' && !allowed_when_failed(sql)) {
      error("25P02");
      return false;
    }
    if (!name.empty() && statements_.contains(name)) {
      hooks_.require(false, "a Parse of a name the server connection has already");
      error("42P05");
      return false;
    }
    begin_if_none();
    if (name.empty()) statements_.erase(name);
    if (!name.starts_with("collegedb_") || name.find_first_of("0123456789") != name.npos) {
      if (hooks_.choose(6) == 1) {
        error("42P01");
        return false;
      }
    }
    statements_[name] = std::string(sql);
    wire::encode_parse_complete(out_);
    return true;
  }

  bool bind(const wire::Bind& message) {
    const auto found = statements_.find(std::string(message.statement));
    if (found == statements_.end()) {
      hooks_.require(message.statement == "collegedb_abort",
                     "a Bind of a statement the server connection does not have");
      error("26000");
      return false;
    }
    if (status_ == 'E' && !allowed_when_failed(found->second)) {
      error("25P02");
      return false;
    }
    begin_if_none();
    const std::string portal(message.portal);
    if (!portal.empty() && portals_.contains(portal)) {
      error("42P03");
      return false;
    }
    PortalModel model{found->second, {}, false};
    if (message.statement == guard::kQueueName || message.statement == guard::kGateName ||
        message.statement == guard::kGateReadOnlyName) {
      model.sql = "guard " + std::string(message.statement);
    }
    for (const auto& value : message.parameters) model.values.emplace_back(value.value_or(""));
    portals_[portal] = std::move(model);
    wire::encode_bind_complete(out_);
    return true;
  }

  bool describe(const wire::Describe& message) {
    std::string sql;
    const bool statement = message.target == wire::Target::kStatement;
    if (statement) {
      const auto found = statements_.find(std::string(message.name));
      if (found == statements_.end()) {
        error("26000");
        return false;
      }
      sql = found->second;
      wire::ParameterDescription{{20}}.encode(out_);
    } else {
      const auto found = portals_.find(std::string(message.name));
      if (found == portals_.end()) {
        error("34000");
        return false;
      }
      sql = found->second.sql;
    }
    if (starts(sql, "SELECT")) {
      columns();
    } else {
      wire::encode_no_data(out_);
    }
    return true;
  }

  bool execute(const wire::Execute& message) {
    const auto found = portals_.find(std::string(message.portal));
    if (found == portals_.end()) {
      error("34000");
      return false;
    }
    PortalModel portal = found->second;
    if (portal.done) {
      error("55000");
      return false;
    }
    found->second.done = true;
    if (portal.sql.starts_with("guard ")) return guard(portal.sql.substr(6), portal.values);
    return run(portal.sql, portal.values);
  }

  void close(const wire::CloseMessage& message) {
    if (message.target == wire::Target::kStatement) {
      statements_.erase(std::string(message.name));
    } else {
      portals_.erase(std::string(message.name));
    }
    wire::encode_close_complete(out_);
  }

  void in_copy(const wire::Frame& frame) {
    switch (frame.tag) {
      case 'd':
      case 'S':
      case 'H':
        return;
      case 'c':
        copying_ = false;
        writes_.emplace_back("COPY");
        complete("COPY 1");
        break;
      case 'f':
        copying_ = false;
        error("57014");
        fail();
        rest_.clear();
        skipping_ = !simple_copy_;
        break;
      default:
        hooks_.require(false, "a message in the middle of a COPY");
        return;
    }
    if (std::exchange(simple_copy_, false)) go_on();
  }

  const ModelHooks& hooks_;
  std::string out_;
  char status_ = 'I';
  bool skipping_ = false;
  bool copying_ = false;
  bool simple_copy_ = false;
  std::string rest_;  // of the present Query
  std::vector<Level> stack_;
  Gates gates_;
  std::vector<std::string> writes_;
  std::map<std::string, std::string> settings_;
  std::map<std::string, std::string> statements_;
  std::map<std::string, PortalModel> portals_;
};

}  // namespace collegedb::session::testing
