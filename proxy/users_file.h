// The users file of the configuration: [[users]] with name, password or verifier, admin.
#pragma once

#include <string>
#include <vector>

#include "proxy/config.h"

namespace collegedb {

struct LoadedUsers {
  std::vector<Config::User> users;
  std::vector<std::string> faults;  // "users.toml line 3: ..."; empty = usable
};

// Users named in `admin_users` are admins too. Never throws.
[[nodiscard]] LoadedUsers load_users(const std::string& path,
                                     const std::vector<std::string>& admin_users);

}  // namespace collegedb
