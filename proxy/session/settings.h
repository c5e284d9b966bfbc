// GUCs a client has set, as an immutable value: sessions share it, server connections remember
// which one they carry.
#pragma once

#include <map>
#include <string>

namespace collegedb::session {

// name (lower case) -> value as set_config takes it.
using Settings = std::map<std::string, std::string>;

}  // namespace collegedb::session
