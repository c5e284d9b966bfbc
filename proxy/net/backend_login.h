// Our login on a server, from StartupMessage to the first ReadyForQuery. Pure: frames in, bytes
// out. The server is not trusted: what does not fit ends the login.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "proxy/net/conninfo.h"
#include "proxy/wire/backend.h"
#include "proxy/wire/frame.h"
#include "proxy/wire/scram.h"

namespace collegedb::net {

class BackendLogin {
 public:
  // `password` for this host; `nonce` base64 of random bytes.
  BackendLogin(const Target& target, std::string password, std::string nonce);

  enum class Step : std::uint8_t { kContinue, kReady, kFailed };
  Step on_frame(const wire::Frame& frame);

  // Bytes to send; holds the StartupMessage from the start.
  [[nodiscard]] std::string& out() { return out_; }
  // After kFailed: the server's own error, or what was wrong with its messages.
  [[nodiscard]] const SqlError& error() const { return error_; }

  // After kReady, in the order the server reported them.
  [[nodiscard]] const std::vector<std::pair<std::string, std::string>>& parameters() const {
    return parameters_;
  }
  [[nodiscard]] std::int32_t pid() const { return pid_; }
  [[nodiscard]] const std::string& secret() const { return secret_; }

 private:
  Step on_authentication(std::string_view payload);
  Step on_sasl(const wire::Authentication& message);
  Step fail(std::string text);
  Step fail(SqlError error);
  Step need_password();

  std::string user_;
  std::string password_;
  std::string nonce_;
  std::optional<wire::ScramClient> scram_;
  bool scram_verified_ = false;
  bool authenticated_ = false;
  std::vector<std::pair<std::string, std::string>> parameters_;
  std::int32_t pid_ = 0;
  std::string secret_;
  SqlError error_;
  std::string out_;
};

}  // namespace collegedb::net
