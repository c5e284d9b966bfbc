#include "proxy/session/accepted_settings.h"

#include <algorithm>
#include <utility>

namespace collegedb::session {
namespace {

// Clients choose the values: what is kept is bounded.
constexpr std::size_t kMaxKnown = 1000;
constexpr std::size_t kMaxLength = 200;

// Every server takes these as they stand: they are as many as there are clients.
bool is_plain_application_name(std::string_view name, std::string_view value) {
  return name == "application_name" &&
         std::all_of(value.begin(), value.end(), [](char c) { return c >= 32 && c <= 126; });
}

std::string key_of(std::string_view name, std::string_view value) {
  std::string key(name);
  key += '\0';
  return key += value;
}

}  // namespace

const std::string* AcceptedSettings::find(std::string_view name, const std::string& value) {
  if (is_plain_application_name(name, value)) {
    return &value;
  }
  const auto found = known_.find(key_of(name, value));
  return found == known_.end() ? nullptr : &found->second;
}

void AcceptedSettings::learn(std::string_view name, const std::string& value,
                             std::string reported) {
  if (value.size() > kMaxLength || is_plain_application_name(name, value)) {
    return;
  }
  if (known_.size() >= kMaxKnown) {
    known_.clear();
  }
  known_.insert_or_assign(key_of(name, value), std::move(reported));
}

}  // namespace collegedb::session
