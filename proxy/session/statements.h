// Prepared statements and portals of one client, by the names the client gave them. Pure.
#pragma once

#include <boost/unordered/unordered_flat_map.hpp>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "proxy/session/plan_cache.h"
#include "routing/route.h"

namespace collegedb::session {

struct Prepared {
  std::string name;  // empty = unnamed
  std::string sql;
  std::vector<std::uint32_t> types;           // as declared in Parse
  std::shared_ptr<const routing::Plan> plan;  // null: empty text
  std::int64_t registry_version = -1;         // what `plan` and `id` were made under
  std::string search_path;
  std::uint32_t id = 0;  // StatementRegistry; 0 for the unnamed one
  // The client's ParseComplete has not been answered: the Parse itself still has to be sent.
  bool parse_due = false;
};

struct Portal {
  std::shared_ptr<Prepared> statement;
  std::shared_ptr<const routing::Plan> plan;  // of the statement when it was bound
  std::string bind;        // payload of the Bind, for portals the proxy itself executes
  bool local = false;      // executed by the proxy: session statements, admin calls, scatters
  bool suspended = false;  // and has been told so: CommandComplete is still to come
  bool done = false;       // a local portal that has run
};

template <class T>
using ByName = boost::unordered_flat_map<std::string, T>;

}  // namespace collegedb::session
