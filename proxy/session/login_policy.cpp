#include <utility>

#include "proxy/session/login.h"

namespace collegedb::session {
namespace {

LoginPolicy::Secret make_secret(const User& user) {
  LoginPolicy::Secret secret;
  secret.text = user.secret;
  secret.admin = user.admin;
  secret.verifier = wire::ScramVerifier::parse(user.secret);
  if (secret.verifier) {
    secret.kind = LoginPolicy::Secret::Kind::kScram;
  } else if (user.secret.size() == 35 && user.secret.starts_with("md5")) {
    secret.kind = LoginPolicy::Secret::Kind::kMd5;
  }
  return secret;
}

}  // namespace

LoginPolicy::LoginPolicy(const LoginConfig& config, std::string secret)
    : method_(config.method), tls_mode_(config.tls_mode), secret_(std::move(secret)) {
  databases_.insert(config.databases.begin(), config.databases.end());
  admins_.insert(config.admin_users.begin(), config.admin_users.end());
  for (const User& user : config.users) users_.insert_or_assign(user.name, make_secret(user));
}

bool LoginPolicy::knows_database(std::string_view name) const {
  // Kept free for an administration database.
  if (name == "collegedb" || name == "pgbouncer") return false;
  return databases_.contains(std::string(name));
}

bool LoginPolicy::is_admin(std::string_view user) const {
  const auto found = users_.find(std::string(user));
  return (found != users_.end() && found->second.admin) || admins_.contains(std::string(user));
}

LoginPolicy::Secret* LoginPolicy::find(std::string_view user) {
  const auto found = users_.find(std::string(user));
  return found == users_.end() ? nullptr : &found->second;
}

LoginPolicy::Verifier LoginPolicy::verifier_for(std::string_view user) {
  Secret* secret = find(user);
  const bool empty =
      secret != nullptr && secret->kind == Secret::Kind::kPlain && secret->text.empty();
  if (secret == nullptr || secret->kind == Secret::Kind::kMd5 || empty) {
    return {wire::mock_verifier(user, secret_), true};
  }
  if (!secret->verifier) {
    // The mock's salt and iterations, so that a known user looks like an unknown one.
    const wire::ScramVerifier mock = wire::mock_verifier(user, secret_);
    secret->verifier = wire::ScramVerifier::from_password(secret->text, mock.salt, mock.iterations);
  }
  return {*secret->verifier, false};
}

}  // namespace collegedb::session
