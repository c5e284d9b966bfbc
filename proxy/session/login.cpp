#include "proxy/session/login.h"

#include <algorithm>
#include <utility>

#include "proxy/wire/backend.h"
#include "proxy/wire/bytes.h"
#include "proxy/wire/frontend.h"

namespace collegedb::session {
namespace {

// PG_MAX_AUTH_TOKEN_LENGTH and PG_MAX_SASL_MESSAGE_LENGTH of the server.
constexpr std::size_t kMaxPasswordMessage = 65535;
constexpr std::size_t kMaxSaslMessage = 1024;
constexpr std::size_t kHeader = 5;
constexpr std::string_view kMechanism = "SCRAM-SHA-256";

bool same_name(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
  return std::ranges::equal(a, b, {}, lower, lower);
}

}  // namespace

Login::Login(LoginPolicy& policy, LoginChannel channel)
    : policy_(policy), channel_(std::move(channel)) {}

Login::Progress Login::on_bytes(std::string_view bytes) {
  Progress total;
  while (total.step == LoginStep::kNeedMore) {
    const std::string_view rest = bytes.substr(total.consumed);
    const Progress one = phase_ == Phase::kStartup ? on_startup(rest) : on_password_message(rest);
    total.step = one.step;
    total.consumed += one.consumed;
    if (one.consumed == 0) break;
  }
  return total;
}

Login::Progress Login::on_startup(std::string_view bytes) {
  wire::StartupDecode decoded = wire::decode_startup(bytes);
  Progress progress{LoginStep::kNeedMore, decoded.consumed};
  const bool more_bytes = decoded.consumed < bytes.size();
  if (std::holds_alternative<wire::NeedMore>(decoded.packet)) return {};
  if (std::holds_alternative<wire::SslRequest>(decoded.packet)) {
    progress.step = on_ssl_request(more_bytes);
  } else if (std::holds_alternative<wire::GssEncRequest>(decoded.packet)) {
    progress.step = on_gss_request(more_bytes);
  } else if (auto* cancel = std::get_if<wire::CancelRequest>(&decoded.packet)) {
    cancel_ = std::move(*cancel);
    progress.step = LoginStep::kCancel;
  } else if (auto* message = std::get_if<wire::StartupMessage>(&decoded.packet)) {
    progress.step = on_startup_message(std::move(*message));
  } else {
    auto& bad = std::get<wire::BadPacket>(decoded.packet);
    if (!bad.silent && bad.old_style) {
      // Protocol 2.0: no length word, no fields.
      out_.push_back('E');
      out_.append("FATAL:  ").append(bad.error.message).append("\n").push_back('\0');
    } else if (!bad.silent) {
      fail(std::move(bad.error));
    }
    phase_ = Phase::kDone;
    progress.step = LoginStep::kClose;
  }
  return progress;
}

LoginStep Login::on_ssl_request(bool more_bytes) {
  if (ssl_done_) {
    return refuse("0A000", wire::unsupported_protocol(wire::kSslRequestCode).message);
  }
  ssl_done_ = true;
  if (channel_.tls_available) {
    out_.push_back('S');
    phase_ = Phase::kTlsHandshake;
    return LoginStep::kStartTls;
  }
  out_.push_back('N');
  if (more_bytes) return refuse("08P01", "received unencrypted data after SSL request");
  return LoginStep::kNeedMore;
}

LoginStep Login::on_gss_request(bool more_bytes) {
  if (gss_done_ || over_tls_) {
    return refuse("0A000", wire::unsupported_protocol(wire::kGssEncRequestCode).message);
  }
  gss_done_ = true;
  out_.push_back('N');
  if (more_bytes)
    return refuse("08P01", "received unencrypted data after GSSAPI encryption request");
  return LoginStep::kNeedMore;
}

LoginStep Login::on_tls_started(bool plaintext_left, std::optional<std::string> common_name) {
  over_tls_ = true;
  phase_ = Phase::kStartup;
  common_name_ = std::move(common_name);
  if (plaintext_left) return refuse("08P01", "received unencrypted data after SSL request");
  return LoginStep::kNeedMore;
}

LoginStep Login::on_startup_message(wire::StartupMessage message) {
  if (wire::needs_negotiation(message)) wire::encode_negotiate_protocol_version(out_, message);
  identity_.user = std::move(message.user);
  identity_.database = std::move(message.database);
  for (auto& [name, value] : message.parameters) {
    if (same_name(name, "replication")) {
      return refuse("0A000", "replication connections are not supported through the proxy");
    }
    identity_.parameters.emplace_back(std::move(name), std::move(value));
  }
  if (channel_.refused) return refuse("53300", "sorry, too many clients already");
  const TlsMode tls = policy_.tls_mode();
  const bool required = tls == TlsMode::kRequire || tls == TlsMode::kVerifyFull;
  if (required && !over_tls_ && !channel_.local) {
    return refuse("28000", "connection requires TLS: set sslmode=require or higher");
  }
  identity_.is_admin = policy_.is_admin(identity_.user);
  return request_authentication();
}

LoginStep Login::request_authentication() {
  LoginPolicy::Secret* secret = policy_.find(identity_.user);
  switch (policy_.method()) {
    case AuthMethod::kTrust:
      return check_database();
    case AuthMethod::kCert:
      return check_certificate();
    case AuthMethod::kPassword:
      wire::Authentication{
          .kind = wire::AuthenticationKind::kCleartextPassword, .data = {}, .mechanisms = {}}
          .encode(out_);
      phase_ = Phase::kPassword;
      return LoginStep::kNeedMore;
    case AuthMethod::kMd5:
      // A stored SCRAM verifier cannot answer md5; PostgreSQL's md5 method uses SCRAM then.
      if (secret != nullptr && secret->kind == LoginPolicy::Secret::Kind::kScram) {
        return start_scram();
      }
      wire::Authentication{
          .kind = wire::AuthenticationKind::kMd5Password, .data = channel_.salt, .mechanisms = {}}
          .encode(out_);
      phase_ = Phase::kMd5;
      return LoginStep::kNeedMore;
    case AuthMethod::kScram:
      return start_scram();
  }
  return refuse_password();
}

LoginStep Login::check_certificate() {
  if (common_name_ && *common_name_ == identity_.user) return check_database();
  authentication_failed_ = true;
  return refuse("28000", "certificate authentication failed for user \"" + identity_.user + "\"");
}

LoginStep Login::start_scram() {
  LoginPolicy::Verifier verifier = policy_.verifier_for(identity_.user);
  scram_.emplace(std::move(verifier.value), channel_.nonce, verifier.mock);
  wire::Authentication{
      .kind = wire::AuthenticationKind::kSasl, .data = {}, .mechanisms = {kMechanism}}
      .encode(out_);
  phase_ = Phase::kScramFirst;
  return LoginStep::kNeedMore;
}

Login::Progress Login::on_password_message(std::string_view bytes) {
  if (phase_ == Phase::kDone || bytes.empty()) return {};
  const bool sasl = phase_ == Phase::kScramFirst || phase_ == Phase::kScramFinal;
  if (bytes[0] != 'p') {
    const auto type = static_cast<unsigned char>(bytes[0]);
    return {refuse("08P01", std::string("expected ") + (sasl ? "SASL" : "password") +
                                " response, got message type " + std::to_string(type)),
            0};
  }
  if (bytes.size() < kHeader) return {};
  wire::Reader header(bytes.substr(1));
  const std::int64_t length = header.i32();
  const auto limit = static_cast<std::int64_t>(sasl ? kMaxSaslMessage : kMaxPasswordMessage);
  if (length < 4) return {refuse("08P01", "invalid message length"), 0};
  if (length - 4 > limit) return {refuse_password(), 0};
  const auto size = static_cast<std::size_t>(length) + 1;
  if (bytes.size() < size) return {};
  const std::string_view payload = bytes.substr(kHeader, size - kHeader);
  LoginStep step = LoginStep::kClose;
  if (phase_ == Phase::kPassword) step = on_cleartext(payload);
  if (phase_ == Phase::kMd5) step = on_md5(payload);
  if (phase_ == Phase::kScramFinal)
    step = on_scram_final(payload);
  else if (phase_ == Phase::kScramFirst)
    step = on_scram_first(payload);
  return {step, size};
}

LoginStep Login::on_cleartext(std::string_view payload) {
  const auto message = wire::PasswordMessage::decode(payload);
  if (!message) return refuse("08P01", "invalid password packet size");
  const std::string_view password = message->password;
  if (password.empty()) return refuse("28P01", "empty password returned by client");
  // A user without an entry costs the same derivation as one with a verifier.
  const LoginPolicy::Verifier expected = policy_.verifier_for(identity_.user);
  const LoginPolicy::Secret* secret = policy_.find(identity_.user);
  if (secret != nullptr && secret->kind == LoginPolicy::Secret::Kind::kMd5) {
    const std::string hash = wire::md5_password_hash(password, identity_.user);
    return wire::equal_constant_time(hash, secret->text) ? check_database() : refuse_password();
  }
  const auto given =
      wire::ScramVerifier::from_password(password, expected.value.salt, expected.value.iterations);
  const bool equal = wire::equal_constant_time(given.stored_key, expected.value.stored_key);
  return equal && !expected.mock ? check_database() : refuse_password();
}

LoginStep Login::on_md5(std::string_view payload) {
  const auto message = wire::PasswordMessage::decode(payload);
  if (!message) return refuse("08P01", "invalid password packet size");
  if (message->password.empty()) return refuse("28P01", "empty password returned by client");
  const LoginPolicy::Secret* secret = policy_.find(identity_.user);
  std::string stored;
  if (secret != nullptr && secret->kind == LoginPolicy::Secret::Kind::kMd5) stored = secret->text;
  if (secret != nullptr && secret->kind == LoginPolicy::Secret::Kind::kPlain) {
    stored = wire::md5_password_hash(secret->text, identity_.user);
  }
  const bool known = !stored.empty();
  if (!known) stored = wire::md5_password_hash(channel_.nonce, identity_.user);
  const std::string expected = wire::md5_response(stored, channel_.salt);
  const bool equal = wire::equal_constant_time(expected, message->password);
  return equal && known ? check_database() : refuse_password();
}

LoginStep Login::on_scram_first(std::string_view payload) {
  const auto message = wire::SaslInitialResponse::decode(payload);
  if (!message || !scram_) {
    return refuse("08P01", message ? "no SASL exchange" : message.error().message);
  }
  auto answer = scram_->first(message->mechanism, message->data.value_or(std::string_view{}));
  if (!answer) {
    fail(answer.error());
    return LoginStep::kClose;
  }
  wire::Authentication{
      .kind = wire::AuthenticationKind::kSaslContinue, .data = *answer, .mechanisms = {}}
      .encode(out_);
  phase_ = Phase::kScramFinal;
  return LoginStep::kNeedMore;
}

LoginStep Login::on_scram_final(std::string_view payload) {
  if (!scram_) return refuse("08P01", "no SASL exchange");
  auto answer = scram_->final(payload);
  if (!answer) {
    if (answer.error().sqlstate == "28P01") return refuse_password();
    fail(answer.error());
    return LoginStep::kClose;
  }
  wire::Authentication{
      .kind = wire::AuthenticationKind::kSaslFinal, .data = *answer, .mechanisms = {}}
      .encode(out_);
  return check_database();
}

LoginStep Login::check_database() {
  if (!policy_.knows_database(identity_.database)) {
    accept();
    return refuse("3D000", "database \"" + identity_.database + "\" does not exist");
  }
  phase_ = Phase::kDone;
  return LoginStep::kAuthenticated;
}

LoginStep Login::refuse(std::string_view sqlstate, std::string text) {
  fail(make_error(sqlstate, text));
  return LoginStep::kClose;
}

LoginStep Login::refuse_password() {
  authentication_failed_ = true;
  return refuse("28P01", "password authentication failed for user \"" + identity_.user + "\"");
}

void Login::fail(SqlError error) {
  error.severity = "FATAL";
  wire::encode_error(out_, error);
  error_ = std::move(error);
  phase_ = Phase::kDone;
}

void Login::accept() {
  wire::Authentication{.kind = wire::AuthenticationKind::kOk, .data = {}, .mechanisms = {}}.encode(
      out_);
}

Greeting Login::greeting(ReportedParameters reported, std::int32_t pid, std::string_view secret) {
  accept();
  for (auto& [name, value] : reported) {
    if (name == "session_authorization") value = identity_.user;
    if (name == "is_superuser") value = identity_.is_admin ? "on" : "off";
    if (name == "application_name") value.clear();
  }
  return {std::move(reported), pid, std::string(secret)};
}

}  // namespace collegedb::session
