// A libpq connection string as the values a server connection needs. libpq parses it and gives its
// own defaults (environment included); passwords of password files are in it already (config).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "proxy/net/asio.h"
#include "proxy/wire/error.h"

namespace collegedb::net {

enum class SslMode : std::uint8_t { kDisable, kAllow, kPrefer, kRequire, kVerifyCa, kVerifyFull };

struct Host {
  std::string name;     // host name, or the directory of a unix socket
  std::string address;  // hostaddr; connect here when set
  std::uint16_t port = 5432;
  [[nodiscard]] bool is_unix() const { return !name.empty() && (name[0] == '/' || name[0] == '@'); }
  // "db1:5432" or "/run/postgresql/.s.PGSQL.5432", for messages.
  [[nodiscard]] std::string text() const;
};

struct Target {
  std::vector<Host> hosts;  // tried in order; never empty
  std::string database;
  std::string user;
  std::string password;
  std::string application_name = "collegedb";
  std::string options;
  // With collegedb.keys: the fence lets statements write only keys that were guarded.
  bool checks_keys = false;
  SslMode ssl_mode = SslMode::kPrefer;
  std::string ssl_root_cert, ssl_cert, ssl_key;
  Milliseconds connect_timeout{5000};  // for each host
};

[[nodiscard]] Result<Target> parse_target(const std::string& conninfo);

}  // namespace collegedb::net
