#include "proxy/net/backend_login.h"

#include <algorithm>

#include "proxy/wire/frontend.h"
#include "proxy/wire/startup.h"

namespace collegedb::net {
namespace {

// More than any server reports; an endless stream of them is not a login.
constexpr std::size_t kMaxParameters = 200;

}  // namespace

BackendLogin::BackendLogin(const Target& target, std::string password, std::string nonce)
    : user_(target.user), password_(std::move(password)), nonce_(std::move(nonce)) {
  std::vector<std::pair<std::string, std::string>> startup = {
      {"user", target.user},
      {"database", target.database},
      {"application_name", target.application_name},
      {"client_encoding", "UTF8"},
  };
  if (target.checks_keys) startup.emplace_back("collegedb.keys", "{}");
  if (!target.options.empty()) startup.emplace_back("options", target.options);
  wire::encode_startup(out_, startup);
}

BackendLogin::Step BackendLogin::fail(SqlError error) {
  error_ = std::move(error);
  return Step::kFailed;
}

BackendLogin::Step BackendLogin::fail(std::string text) {
  return fail(make_error("08P01", text));
}

BackendLogin::Step BackendLogin::on_frame(const wire::Frame& frame) {
  switch (frame.tag) {
    case 'R':
      if (authenticated_) return fail("the server asks for authentication twice");
      return on_authentication(frame.payload);
    case 'E': {
      auto error = wire::decode_error(frame.payload);
      return error ? fail(std::move(*error)) : fail("malformed ErrorResponse");
    }
    case 'S': {
      const auto status = wire::ParameterStatus::decode(frame.payload);
      if (!status || parameters_.size() >= kMaxParameters) return fail("malformed ParameterStatus");
      const std::string name(status->name);
      const auto known =
          std::ranges::find(parameters_, name, &std::pair<std::string, std::string>::first);
      if (known != parameters_.end())
        known->second = std::string(status->value);
      else
        parameters_.emplace_back(name, std::string(status->value));
      return Step::kContinue;
    }
    case 'K': {
      const auto key = wire::BackendKeyData::decode(frame.payload);
      if (!key) return fail("malformed BackendKeyData");
      pid_ = key->pid;
      secret_ = std::string(key->secret);
      return Step::kContinue;
    }
    case 'N':
    case 'v':
      return Step::kContinue;
    case 'Z': {
      const auto ready = wire::ReadyForQuery::decode(frame.payload);
      if (!authenticated_ || !ready || ready->status != wire::TransactionStatus::kIdle) {
        return fail("unexpected ReadyForQuery");
      }
      return Step::kReady;
    }
    default:
      return fail(std::string("unexpected message type ") +
                  std::to_string(static_cast<unsigned char>(frame.tag)) + " during login");
  }
}

BackendLogin::Step BackendLogin::on_authentication(std::string_view payload) {
  const auto message = wire::Authentication::decode(payload);
  if (!message) return fail("malformed authentication request");
  switch (message->kind) {
    case wire::AuthenticationKind::kOk:
      if (scram_ && !scram_verified_)
        return fail("the server did not prove that it knows the password");
      authenticated_ = true;
      return Step::kContinue;
    case wire::AuthenticationKind::kCleartextPassword:
      if (password_.empty()) return need_password();
      wire::PasswordMessage{password_}.encode(out_);
      return Step::kContinue;
    case wire::AuthenticationKind::kMd5Password: {
      if (password_.empty()) return need_password();
      if (message->data.size() != 4) return fail("malformed authentication request");
      const std::string response =
          wire::md5_response(wire::md5_password_hash(password_, user_), message->data);
      wire::PasswordMessage{response}.encode(out_);
      return Step::kContinue;
    }
    case wire::AuthenticationKind::kSasl:
    case wire::AuthenticationKind::kSaslContinue:
    case wire::AuthenticationKind::kSaslFinal:
      return on_sasl(*message);
    default:
      return fail("authentication method " + std::to_string(static_cast<int>(message->kind)) +
                  " is not supported");
  }
}

BackendLogin::Step BackendLogin::on_sasl(const wire::Authentication& message) {
  constexpr std::string_view kMechanism = "SCRAM-SHA-256";
  if (message.kind == wire::AuthenticationKind::kSasl) {
    if (scram_) return fail("the server asks for authentication twice");
    if (std::ranges::find(message.mechanisms, kMechanism) == message.mechanisms.end()) {
      return fail("none of the server's SASL mechanisms is supported");
    }
    if (password_.empty()) return need_password();
    scram_.emplace(password_, nonce_);
    const std::string first = scram_->first();
    wire::SaslInitialResponse{.mechanism = kMechanism, .data = first}.encode(out_);
    return Step::kContinue;
  }
  if (!scram_) return fail("SASL message without a SASL exchange");
  if (message.kind == wire::AuthenticationKind::kSaslContinue) {
    const auto answer = scram_->final(message.data);
    if (!answer) return fail(answer.error());
    wire::SaslResponse{*answer}.encode(out_);
    return Step::kContinue;
  }
  const auto verified = scram_->verify(message.data);
  if (!verified) return fail(verified.error());
  if (!*verified) return fail("the server did not prove that it knows the password");
  scram_verified_ = true;
  return Step::kContinue;
}

BackendLogin::Step BackendLogin::need_password() {
  return fail(make_error(
      "28P01", "the server asks for a password and none is configured for user \"" + user_ + "\""));
}

}  // namespace collegedb::net
