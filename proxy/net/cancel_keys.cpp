#include "proxy/net/cancel_keys.h"

#include "proxy/net/random.h"
#include "proxy/wire/scram.h"

namespace collegedb::net {

CancelKeys::Key CancelKeys::add(std::size_t worker) {
  Key key;
  key.secret = random_bytes(4);
  const std::lock_guard lock(mutex_);
  for (;;) {
    key.pid = static_cast<std::int32_t>(random_u32() & 0x7fffffffU);
    if (key.pid == 0) continue;
    if (entries_.try_emplace(key.pid, Entry{key.secret, worker}).second) return key;
  }
}

void CancelKeys::remove(std::int32_t pid) {
  const std::lock_guard lock(mutex_);
  entries_.erase(pid);
}

std::optional<std::size_t> CancelKeys::find(std::int32_t pid, std::string_view secret) const {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(pid);
  if (found == entries_.end()) return std::nullopt;
  if (!wire::equal_constant_time(found->second.secret, secret)) return std::nullopt;
  return found->second.worker;
}

std::size_t CancelKeys::size() const {
  const std::lock_guard lock(mutex_);
  return entries_.size();
}

}  // namespace collegedb::net
