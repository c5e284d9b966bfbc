// The first thing a session does: a server takes the client's start-up settings, or the client is
// told why not; then what a client is sent at the end of a login. And whenever settings change: the
// ParameterStatus that the client has to be sent.
#include "proxy/session/lower.h"
#include "proxy/session/session_impl.h"
#include "proxy/session/settings_policy.h"

namespace collegedb::session {
namespace {

// Until a server has answered, where no query timeout is shorter.
constexpr std::uint32_t kStartUpMs = 10'000;

// Values of `layer` in the form in which the server reports them.
SettingsPtr in_reported_form(const SettingsPtr& layer, const ServerState& server,
                             const SettingsPtr& above) {
  std::shared_ptr<Settings> changed;
  for (const auto& [name, value] : layer ? *layer : Settings{}) {
    const std::string* reported = reported_value(server, name);
    if (reported != nullptr && *reported != value && !(above && above->contains(name))) {
      if (!changed) {
        changed = std::make_shared<Settings>(*layer);
      }
      (*changed)[name] = *reported;
    }
  }
  return changed ? changed : layer;
}

}  // namespace

const std::string* reported_value(const ServerState& server, std::string_view name) {
  for (const auto& [reported, value] : server.reported) {
    if (lower(reported) == name) {
      return &value;
    }
  }
  return nullptr;
}

void SessionImpl::start_up() {
  for (const auto& [name, value] : base_ ? *base_ : Settings{}) {
    if (auto refused = refused_setting(name, value)) {
      end_session(std::move(*refused));
      return;
    }
  }
  if (!greeting_) {
    await_client();
    return;
  }
  Settings accepted;
  for (const auto& [name, value] : base_ ? *base_ : Settings{}) {
    const std::string* reported = context_.accepted.find(name, value);
    if (reported == nullptr) {
      try_start_up_settings();
      return;
    }
    accepted[name] = *reported;
  }
  if (base_ && accepted != *base_) {
    base_ = std::make_shared<const Settings>(std::move(accepted));
    settings_.session = base_;
  }
  greet();
}

void SessionImpl::try_start_up_settings() {
  Target target;
  target.shard = any_shard();
  target.any_shard = true;
  switch (acquire(target, &SessionImpl::try_start_up_settings)) {
    case Acquired::kWaiting:
      if (wait_.kind == Wait::Kind::kServer && wait_.timeout_ms == 0) {
        wait_.timeout_ms = kStartUpMs;
      }
      return;
    case Acquired::kRefused:
      end_session(std::move(*turn_error_));
      return;
    case Acquired::kReady:
      break;
  }
  const SettingsPtr reported = in_reported_form(base_, *link_->state, nullptr);
  for (const auto& [name, value] : *base_) {
    context_.accepted.learn(name, value, reported->at(name));
  }
  base_ = settings_.session = link_->state->settings = reported;
  settings_changed();
  release_link();
  greet();
}

void SessionImpl::greet() {
  for (auto& [name, standard] : greeting_->parameters) {
    const auto own = base_ ? base_->find(lower(name)) : Settings::const_iterator{};
    const bool mine = base_ && own != base_->end();
    Report report{standard, mine ? own->second : standard, mine};
    wire::ParameterStatus{name, report.told}.encode(client_out_);
    reports_.emplace(std::move(name), std::move(report));
  }
  wire::BackendKeyData{greeting_->pid, greeting_->secret}.encode(client_out_);
  greeting_.reset();
  reports_due_ = false;
  finish_turn();
}

// What the client has SET on `link` becomes what a server says it is.
void SessionImpl::adopt_reported_form(Link& link) {
  const SettingsPtr session = settings_.session;
  settings_.session = in_reported_form(session, *link.state, settings_.local);
  settings_.local = in_reported_form(settings_.local, *link.state, nullptr);
  if (link.state->settings == session) {
    link.state->settings = settings_.session;
  }
  reports_due_ = true;
}

// Before ReadyForQuery: what the client was told of its settings and is no longer so, be it that
// the proxy itself has answered a SET or RESET, or that their transaction is undone.
void SessionImpl::tell_reports() {
  if (!std::exchange(reports_due_, false)) {
    return;
  }
  for (auto& [name, report] : reports_) {
    const std::string key = lower(name);
    const std::string* own = find_setting(key);
    report.mine = report.mine || own != nullptr;
    const std::string& now = own != nullptr && !own->empty() ? *own : report.standard;
    if (report.mine && now != report.told) {
      report.told = now;
      wire::ParameterStatus{name, now}.encode(client_out_);
    }
  }
}

}  // namespace collegedb::session
