// What a session must know of one server connection. Lives as long as the connection (owned by
// net/backend), lent to the session that leases it; touched by its worker thread only.
#pragma once

#include <boost/unordered/unordered_flat_map.hpp>
#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "proxy/session/settings.h"

namespace collegedb::session {

struct ServerState {
  // Server-side prepared statements that exist there: id of worker_context.h's StatementRegistry
  // -> turn of last use. Evicted oldest first above kMaxServerStatements.
  boost::unordered_flat_map<std::uint32_t, std::uint64_t> prepared;
  std::uint64_t turn = 0;
  bool guard_ready = false;  // the guard's statements have been parsed there
  // Code the proxy does not know has run there (routing::Plan::opaque) and may have left settings,
  // locks or temporary tables behind: cleaned up before the next statement or transaction.
  bool touched = false;
  // GUCs that differ from the connection's own start-up values; null = none.
  std::shared_ptr<const Settings> settings;
  // Last ParameterStatus values the server reported; net/backend fills it during login.
  boost::unordered_flat_map<std::string, std::string> reported;
};
inline constexpr std::size_t kMaxServerStatements = 200;

}  // namespace collegedb::session
