// Which client a CancelRequest means: keys given out at login, unique in the process. Any thread.
#pragma once

#include <boost/unordered/unordered_flat_map.hpp>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

namespace collegedb::net {

class CancelKeys {
 public:
  struct Key {
    std::int32_t pid = 0;
    std::string secret;  // 4 bytes: what protocol 3.0 allows
  };

  // A new unpredictable key for a client of `worker`.
  [[nodiscard]] Key add(std::size_t worker);
  void remove(std::int32_t pid);
  // The worker of the client whose key this is; nullopt for any other pair.
  [[nodiscard]] std::optional<std::size_t> find(std::int32_t pid, std::string_view secret) const;
  [[nodiscard]] std::size_t size() const;

 private:
  struct Entry {
    std::string secret;
    std::size_t worker = 0;
  };
  mutable std::mutex mutex_;
  boost::unordered_flat_map<std::int32_t, Entry> entries_;
};

}  // namespace collegedb::net
