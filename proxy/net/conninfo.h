// A libpq connection string as the values a server connection needs. libpq parses it and gives its
// own defaults (environment included); everything else is ours.
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
  std::string passfile;
  std::string application_name = "collegedb";
  std::string options;
  SslMode ssl_mode = SslMode::kPrefer;
  std::string ssl_root_cert, ssl_cert, ssl_key;
  Milliseconds connect_timeout{5000};  // for each host

  // `password`, else the entry of the password file for this host.
  [[nodiscard]] std::string password_for(const Host& host) const;
};

[[nodiscard]] Result<Target> parse_conninfo(const std::string& conninfo);

// The password of the first matching line of a file in libpq's .pgpass format; empty = none.
[[nodiscard]] std::string find_password(std::string_view file, std::string_view host,
                                        std::string_view port, std::string_view database,
                                        std::string_view user);

}  // namespace collegedb::net
