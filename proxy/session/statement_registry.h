// Names of server-side prepared statements: one id for each distinct statement of a worker, so that
// clients that prepare the same text share it on every server connection. Pure, one thread.
#pragma once

#include <boost/unordered/unordered_flat_map.hpp>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace collegedb::session {

class StatementRegistry {
 public:
  // The id of this statement (never 0). Identity is the text, the declared parameter types and the
  // settings that decide what its names mean; all three are compared in full.
  std::uint32_t id_of(std::string_view text, std::span<const std::uint32_t> types,
                      std::string_view search_path, std::string_view role);
  // The next Parse of that statement gets a new id: servers refuse to run the old one any more.
  void forget(std::uint32_t id);
  // The name a server connection knows it by.
  [[nodiscard]] static std::string name_of(std::uint32_t id);

 private:
  boost::unordered_flat_map<std::string, std::uint32_t> ids_;
  std::uint32_t next_ = 1;
};

}  // namespace collegedb::session
