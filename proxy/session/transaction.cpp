#include "proxy/session/transaction.h"

#include <algorithm>
#include <utility>

namespace collegedb::session {

void Transaction::begin(const parser::Statement& statement, std::string text,
                        const SettingsState& settings) {
  *this = Transaction{};
  open_ = true;
  at_begin_ = settings;
  preamble_.push_back(std::move(text));
  set_characteristics(statement);
}

void Transaction::set_characteristics(const parser::Statement& statement) {
  read_only_ = read_only_ || statement.read_only;
  if (!statement.isolation.empty()) {
    fixed_snapshot_ =
        statement.isolation == "repeatable read" || statement.isolation == "serializable";
  }
}

void Transaction::add_characteristics(std::string text, const parser::Statement& statement) {
  characteristics_.push_back(text);
  preamble_.push_back(std::move(text));
  set_characteristics(statement);
}

void Transaction::adopt(const SettingsState& settings) {
  *this = Transaction{};
  open_ = true;
  bound_ = true;
  at_begin_ = settings;
}

SettingsState Transaction::end(bool committed, const SettingsState& settings) {
  SettingsState now = committed ? settings : at_begin_;
  now.local = nullptr;
  *this = Transaction{};
  return now;
}

void Transaction::chain(const SettingsState& settings) {
  Transaction next;
  next.open_ = true;
  next.bound_ = bound_;
  next.read_only_ = read_only_;
  next.fixed_snapshot_ = fixed_snapshot_;
  next.at_begin_ = settings;
  if (!preamble_.empty()) {
    next.preamble_.push_back(preamble_.front());
    next.preamble_.insert(next.preamble_.end(), characteristics_.begin(), characteristics_.end());
  }
  next.characteristics_ = std::move(characteristics_);
  *this = std::move(next);
}

void Transaction::savepoint(const std::string& name, const SettingsState& settings) {
  savepoints_.push_back(Savepoint{name, preamble_.size(), guarded_.size(), settings});
}

std::ptrdiff_t Transaction::find(std::string_view name) const {
  for (auto i = static_cast<std::ptrdiff_t>(savepoints_.size()) - 1; i >= 0; --i) {
    if (savepoints_[static_cast<std::size_t>(i)].name == name) {
      return i;
    }
  }
  return -1;
}

bool Transaction::release(std::string_view name) {
  const std::ptrdiff_t at = find(name);
  if (at < 0) {
    return false;
  }
  savepoints_.resize(static_cast<std::size_t>(at));
  return true;
}

bool Transaction::rollback_to(std::string_view name, SettingsState& settings) {
  const std::ptrdiff_t at = find(name);
  if (at < 0) {
    return false;
  }
  savepoints_.resize(static_cast<std::size_t>(at) + 1);
  const Savepoint& point = savepoints_.back();
  guarded_.resize(point.guarded);
  settings = point.settings;
  if (!bound_) {
    // The entry of SAVEPOINT itself stays: it still exists after ROLLBACK TO.
    preamble_.resize(point.preamble + 1);
  }
  failed_ = false;
  return true;
}

namespace {

bool same(const routing::RoutedKey& a, const routing::RoutedKey& b) {
  return a.bucket == b.bucket && a.key == b.key && a.group == b.group;
}

bool holds(const std::vector<routing::RoutedKey>& keys, const routing::RoutedKey& key) {
  return std::any_of(keys.begin(), keys.end(),
                     [&](const routing::RoutedKey& held) { return same(held, key); });
}

}  // namespace

bool Transaction::guarded(const routing::RoutedKey& key) const {
  return holds(guarded_, key);
}

bool Transaction::settled(const routing::RoutedKey& key) const {
  return std::any_of(guarded_.begin(), guarded_.end(), [&](const routing::RoutedKey& held) {
    return !held.sought && same(held, key);
  });
}

void Transaction::settle(const routing::RoutedKey& key) {
  for (routing::RoutedKey& held : guarded_) {
    held.sought = held.sought && !same(held, key);
  }
}

bool Transaction::touched(const routing::RoutedKey& key) const {
  return holds(touched_, key);
}

}  // namespace collegedb::session
