// What the login of clients needs of the configuration. Pure: the session reads it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace collegedb {

enum class AuthMethod : std::uint8_t { kTrust, kPassword, kMd5, kScram, kCert };
enum class TlsMode : std::uint8_t { kDisable, kPrefer, kRequire, kVerifyFull };

// One of [[users]] in the users file.
struct User {
  std::string name;
  std::string secret;  // plain password, "SCRAM-SHA-256$..." or "md5..."
  bool admin = false;
};

struct LoginConfig {
  AuthMethod method = AuthMethod::kScram;
  TlsMode tls_mode = TlsMode::kPrefer;
  std::vector<std::string> databases;  // names clients may connect to
  std::vector<std::string> admin_users;
  std::vector<User> users;
};

}  // namespace collegedb
