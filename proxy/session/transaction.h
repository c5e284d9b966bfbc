// The client's transaction as the proxy keeps it: what was promised before any server was involved
// (the preamble), which keys are guarded, and what a savepoint must give back. Pure.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "parser/statement.h"
#include "proxy/session/settings.h"
#include "routing/route.h"

namespace collegedb::session {

using SettingsPtr = std::shared_ptr<const Settings>;  // null = none

// Both layers of a session's GUCs: SET lives on, SET LOCAL ends with the transaction.
struct SettingsState {
  SettingsPtr session;
  SettingsPtr local;
};

class Transaction {
 public:
  [[nodiscard]] bool open() const noexcept { return open_; }
  [[nodiscard]] bool failed() const noexcept { return failed_; }
  // The preamble has been sent: the transaction lives on one server connection.
  [[nodiscard]] bool bound() const noexcept { return bound_; }
  [[nodiscard]] bool read_only() const noexcept { return read_only_; }
  // REPEATABLE READ or SERIALIZABLE was asked for by the transaction itself.
  [[nodiscard]] bool fixed_snapshot() const noexcept { return fixed_snapshot_; }
  // Nothing has been said since a bare BEGIN: any session outside the transaction looks like it.
  [[nodiscard]] bool plain() const noexcept {
    return !read_only_ && !fixed_snapshot_ && preamble_.size() == 1;
  }
  // 'I', 'T' or 'E', as ReadyForQuery says it.
  [[nodiscard]] char status() const noexcept { return !open_ ? 'I' : failed_ ? 'E' : 'T'; }

  void begin(const parser::Statement& statement, std::string text, const SettingsState& settings);
  // COMMIT or ROLLBACK took effect. Returns the settings that hold from now on.
  SettingsState end(bool committed, const SettingsState& settings);
  // COMMIT AND CHAIN: a new transaction of the same kind, on the same server connection if bound.
  void chain(const SettingsState& settings);
  void fail() noexcept { failed_ = open_; }
  void bind() noexcept { bound_ = true; }
  // A retry: the server's side was rolled back unseen, the client's transaction stands as it was.
  void unbind() noexcept {
    bound_ = failed_ = false;
    guarded_.clear();
    touched_.clear();
  }
  // The server says a transaction is open that the proxy did not begin (a procedure, several
  // statements in one Query).
  void adopt(const SettingsState& settings);

  // Statements to send, in order, when a server connection is chosen.
  [[nodiscard]] const std::vector<std::string>& preamble() const noexcept { return preamble_; }
  void add_to_preamble(std::string text) { preamble_.push_back(std::move(text)); }
  void set_characteristics(const parser::Statement& statement);
  // SET TRANSACTION before any server is involved; a chained transaction repeats it.
  void add_characteristics(std::string text, const parser::Statement& statement);
  // The settings outside the transaction: what ROLLBACK gives back.
  [[nodiscard]] const SettingsState& at_begin() const noexcept { return at_begin_; }

  void savepoint(const std::string& name, const SettingsState& settings);
  // False when no such savepoint exists.
  bool release(std::string_view name);
  // Forgets the guards taken since; gives back the settings of the savepoint.
  bool rollback_to(std::string_view name, SettingsState& settings);

  [[nodiscard]] bool guarded(const routing::RoutedKey& key) const;
  void add_guard(const routing::RoutedKey& key) {
    guarded_.push_back(key);
    touched_.push_back(key);
  }
  // It was, and is known to be nowhere else. A key that nobody had when it was looked for may have
  // come into being on another shard since.
  [[nodiscard]] bool settled(const routing::RoutedKey& key) const;
  // It belongs to this transaction's server, as was found out after it had been guarded.
  void settle(const routing::RoutedKey& key);
  // It was guarded on this transaction's server once, perhaps since a savepoint that is gone.
  [[nodiscard]] bool touched(const routing::RoutedKey& key) const;

 private:
  struct Savepoint {
    std::string name;
    std::size_t preamble = 0;  // entries before it
    std::size_t guarded = 0;   // guards before it
    SettingsState settings;
  };
  [[nodiscard]] std::ptrdiff_t find(std::string_view name) const;

  bool open_ = false;
  bool failed_ = false;
  bool bound_ = false;
  bool read_only_ = false;
  bool fixed_snapshot_ = false;
  std::vector<std::string> preamble_;
  std::vector<std::string> characteristics_;  // texts of SET TRANSACTION in the preamble
  std::vector<Savepoint> savepoints_;
  std::vector<routing::RoutedKey> guarded_;  // `sought`: not settled
  std::vector<routing::RoutedKey> touched_;
  SettingsState at_begin_;
};

}  // namespace collegedb::session
