#include "proxy/net/conninfo.h"

#include <libpq-fe.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <cstdlib>
#include <map>
#include <memory>

namespace collegedb::net {
namespace {

using Values = std::map<std::string, std::string, std::less<>>;

struct FreeOptions {
  void operator()(PQconninfoOption* options) const { PQconninfoFree(options); }
};
using Options = std::unique_ptr<PQconninfoOption, FreeOptions>;

// Set values of `options` that are not in `values` yet.
void merge(Values& values, const Options& options) {
  for (const PQconninfoOption* option = options.get(); option && option->keyword; ++option) {
    if (option->val != nullptr) values.try_emplace(option->keyword, option->val);
  }
}

std::vector<std::string> split(std::string_view text) {
  std::vector<std::string> parts;
  for (;;) {
    const std::size_t comma = text.find(',');
    parts.emplace_back(text.substr(0, comma));
    if (comma == std::string_view::npos) return parts;
    text.remove_prefix(comma + 1);
  }
}

SqlError invalid(const std::string& text) {
  return make_error("22023", "invalid connection string: " + text);
}

std::string default_host() {
  constexpr const char* kDirectory = "/var/run/postgresql";
  return ::access(kDirectory, X_OK) == 0 ? kDirectory : "localhost";
}

Result<std::uint16_t> parse_port(std::string_view text) {
  if (text.empty()) return std::uint16_t{5432};
  std::uint16_t port = 0;
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (ec != std::errc{} || end != text.data() + text.size() || port == 0) {
    return invalid("invalid port number \"" + std::string(text) + "\"");
  }
  return port;
}

Result<std::vector<Host>> parse_hosts(const Values& values) {
  const auto get = [&](std::string_view key) {
    const auto found = values.find(key);
    return found == values.end() ? std::string{} : found->second;
  };
  const auto names = split(get("host"));
  const auto addresses = split(get("hostaddr"));
  const auto ports = split(get("port"));
  const std::size_t count = std::max(names.size(), addresses.size());
  const bool counts_agree = (names.size() == count || get("host").empty()) &&
                            (addresses.size() == count || get("hostaddr").empty()) &&
                            (ports.size() == count || ports.size() == 1);
  if (!counts_agree) return invalid("the numbers of hosts, hostaddrs and ports differ");
  std::vector<Host> hosts;
  for (std::size_t i = 0; i < count; ++i) {
    Host host;
    if (i < names.size()) host.name = names[i];
    if (i < addresses.size()) host.address = addresses[i];
    if (host.name.empty() && host.address.empty()) host.name = default_host();
    const auto port = parse_port(ports.size() == 1 ? ports[0] : ports[i]);
    if (!port) return port.error();
    host.port = *port;
    hosts.push_back(std::move(host));
  }
  return hosts;
}

constexpr std::array<std::string_view, 6> kSslModes = {"disable", "allow",     "prefer",
                                                       "require", "verify-ca", "verify-full"};

Result<SslMode> parse_ssl_mode(std::string_view text) {
  for (std::size_t i = 0; i < kSslModes.size(); ++i) {
    if (kSslModes[i] == text) return static_cast<SslMode>(i);
  }
  return invalid("invalid sslmode value: \"" + std::string(text) + "\"");
}

std::string home_file(std::string_view name) {
  const char* home = std::getenv("HOME");
  return home == nullptr ? std::string{} : std::string(home).append("/").append(name);
}

// The given file, else the default one when it exists.
std::string file_or_default(const Values& values, std::string_view key, std::string_view name) {
  const auto found = values.find(key);
  if (found != values.end() && !found->second.empty()) return found->second;
  std::string path = home_file(name);
  return !path.empty() && ::access(path.c_str(), R_OK) == 0 ? path : std::string{};
}

}  // namespace

std::string Host::text() const {
  if (is_unix()) return name + "/.s.PGSQL." + std::to_string(port);
  return (name.empty() ? address : name) + ":" + std::to_string(port);
}

Result<Target> parse_target(const std::string& conninfo) {
  char* message = nullptr;
  const Options given(PQconninfoParse(conninfo.c_str(), &message));
  const std::unique_ptr<char, void (*)(void*)> owned(message, PQfreemem);
  if (!given) {
    std::string text = message == nullptr ? "out of memory" : message;
    while (!text.empty() && text.back() == '\n') text.pop_back();
    return invalid(text);
  }
  Values values;
  merge(values, given);
  merge(values, Options(PQconndefaults()));
  Target target;
  auto hosts = parse_hosts(values);
  if (!hosts) return hosts.error();
  target.hosts = std::move(*hosts);
  target.user = values["user"];
  target.database = values["dbname"].empty() ? target.user : values["dbname"];
  target.password = values["password"];
  target.options = values["options"];
  if (!values["application_name"].empty()) target.application_name = values["application_name"];
  const auto mode = parse_ssl_mode(values["sslmode"].empty() ? "prefer" : values["sslmode"]);
  if (!mode) return mode.error();
  target.ssl_mode = *mode;
  target.ssl_root_cert = file_or_default(values, "sslrootcert", ".postgresql/root.crt");
  target.ssl_cert = file_or_default(values, "sslcert", ".postgresql/postgresql.crt");
  target.ssl_key = file_or_default(values, "sslkey", ".postgresql/postgresql.key");
  // As in libpq: a root certificate turns `require` into `verify-ca`.
  if (target.ssl_mode == SslMode::kRequire && !target.ssl_root_cert.empty()) {
    target.ssl_mode = SslMode::kVerifyCa;
  }
  const int seconds = std::atoi(values["connect_timeout"].c_str());
  if (seconds > 0) target.connect_timeout = std::chrono::seconds(seconds);
  return target;
}

}  // namespace collegedb::net
