// The phase before a session: start-up packets, TLS and GSS negotiation, protocol version,
// authentication, the database check. Pure: bytes in, bytes and one step out; randomness is given.
//
// Flow: the driver feeds what it read to on_bytes(), writes out(), then does what the step says:
// kNeedMore read again, kStartTls handshake then on_tls_started(), kAuthenticated fetch the values
// servers report and give the session its greeting(), or fail(), kCancel look the key up and close,
// kClose close.
#pragma once

#include <boost/unordered/unordered_flat_map.hpp>
#include <boost/unordered/unordered_flat_set.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "proxy/login_config.h"
#include "proxy/session/session.h"
#include "proxy/wire/scram.h"
#include "proxy/wire/startup.h"

namespace collegedb::session {

// Who may log in and how. One per worker: stored passwords become SCRAM verifiers on first use.
class LoginPolicy {
 public:
  // `secret`: random, the same in every worker of the process, so that mock exchanges and salts
  // do not tell known users from unknown ones.
  LoginPolicy(const LoginConfig& config, std::string secret);

  struct Secret {
    enum class Kind : std::uint8_t { kPlain, kMd5, kScram };
    Kind kind = Kind::kPlain;
    std::string text;
    bool admin = false;
    std::optional<wire::ScramVerifier> verifier;  // of kScram, or derived from kPlain
  };

  [[nodiscard]] AuthMethod method() const { return method_; }
  [[nodiscard]] TlsMode tls_mode() const { return tls_mode_; }
  [[nodiscard]] bool knows_database(std::string_view name) const;
  [[nodiscard]] bool is_admin(std::string_view user) const;
  // nullptr: no such user.
  [[nodiscard]] Secret* find(std::string_view user);
  // The verifier to run SCRAM with; a mock one for whom it cannot succeed.
  struct Verifier {
    wire::ScramVerifier value;
    bool mock = false;
  };
  [[nodiscard]] Verifier verifier_for(std::string_view user);

 private:
  AuthMethod method_;
  TlsMode tls_mode_;
  std::string secret_;
  boost::unordered_flat_set<std::string> databases_;
  boost::unordered_flat_set<std::string> admins_;
  boost::unordered_flat_map<std::string, Secret> users_;
};

// What one login needs besides the policy.
struct LoginChannel {
  bool tls_available = false;  // a certificate is configured and this is not a unix socket
  bool local = false;          // unix socket: TLS is never required
  bool refused = false;        // above max_clients: told so after its start-up packet
  std::string nonce;           // base64 of at least 18 random bytes
  std::string salt;            // 4 random bytes for md5
};

enum class LoginStep : std::uint8_t { kNeedMore, kStartTls, kAuthenticated, kCancel, kClose };

class Login {
 public:
  // `policy` outlives the login.
  Login(LoginPolicy& policy, LoginChannel channel);

  // Consumes whole packets until a step other than kNeedMore is due or more bytes are needed.
  struct Progress {
    LoginStep step = LoginStep::kNeedMore;
    std::size_t consumed = 0;
  };
  [[nodiscard]] Progress on_bytes(std::string_view bytes);
  // After kStartTls. `plaintext_left`: bytes came after SSLRequest before the handshake; the
  // answer is an error inside TLS. `common_name`: of a verified client certificate.
  LoginStep on_tls_started(bool plaintext_left, std::optional<std::string> common_name);
  // After kAuthenticated: AuthenticationOk, and what the session has to greet the client with,
  // `reported` being what servers say of their own sessions.
  [[nodiscard]] Greeting greeting(ReportedParameters reported, std::int32_t pid,
                                  std::string_view secret);
  // Ends the login with a FATAL error at any point.
  void fail(SqlError error);

  [[nodiscard]] std::string& out() { return out_; }
  [[nodiscard]] const Identity& identity() const { return identity_; }
  [[nodiscard]] const wire::CancelRequest& cancel() const { return cancel_; }
  // For logs and counters: why the login ended; empty when nobody has to know (U2).
  [[nodiscard]] const std::optional<SqlError>& error() const { return error_; }
  // True when `error` is about who the client is (counted apart).
  [[nodiscard]] bool authentication_failed() const { return authentication_failed_; }
  [[nodiscard]] bool over_tls() const { return over_tls_; }

 private:
  enum class Phase : std::uint8_t {
    kStartup,
    kTlsHandshake,
    kPassword,
    kMd5,
    kScramFirst,
    kScramFinal,
    kDone
  };

  Progress on_startup(std::string_view bytes);
  Progress on_password_message(std::string_view bytes);
  LoginStep on_ssl_request(bool more_bytes);
  LoginStep on_gss_request(bool more_bytes);
  LoginStep on_startup_message(wire::StartupMessage message);
  LoginStep request_authentication();
  LoginStep check_certificate();
  LoginStep start_scram();
  LoginStep on_cleartext(std::string_view payload);
  LoginStep on_md5(std::string_view payload);
  LoginStep on_scram_first(std::string_view payload);
  LoginStep on_scram_final(std::string_view payload);
  LoginStep check_database();
  void accept();  // AuthenticationOk
  LoginStep refuse(std::string_view sqlstate, std::string text);
  LoginStep refuse_password();

  LoginPolicy& policy_;
  LoginChannel channel_;
  Phase phase_ = Phase::kStartup;
  bool ssl_done_ = false;
  bool gss_done_ = false;
  bool over_tls_ = false;
  bool authentication_failed_ = false;
  std::optional<std::string> common_name_;
  std::optional<wire::ScramServer> scram_;
  wire::CancelRequest cancel_;
  Identity identity_;
  std::optional<SqlError> error_;
  std::string out_;
};

}  // namespace collegedb::session
