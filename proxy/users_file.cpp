#include "proxy/users_file.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "proxy/config_reader.h"

namespace collegedb {
namespace {

Config::User read_user(ConfigSection& section) {
  Config::User user;
  std::string password;
  std::string verifier;
  section.required_text("name", user.name);
  section.text("password", password);
  section.text("verifier", verifier);
  section.flag("admin", user.admin);
  section.finish();
  if (!password.empty() && !verifier.empty()) {
    section.fault("verifier", "give either a password or a verifier");
  }
  if (!verifier.empty() && !verifier.starts_with("SCRAM-SHA-256$") &&
      !verifier.starts_with("md5")) {
    section.fault("verifier", "must start with SCRAM-SHA-256$ or md5, as in pg_authid");
  }
  user.secret = verifier.empty() ? std::move(password) : std::move(verifier);
  return user;
}

std::vector<Config::User> read_users(const std::string& text,
                                     const std::vector<std::string>& admin_users,
                                     std::vector<ConfigFault>& faults) {
  std::vector<Config::User> users;
  const toml::table table = toml::parse(text);
  ConfigSection top(&table, "", 0, faults);
  std::set<std::string> names;
  for (auto& section : top.sections("users")) {
    auto user = read_user(section);
    if (!user.name.empty() && !names.insert(user.name).second) {
      section.fault("name", "two users are named \"" + user.name + "\"");
    }
    user.admin = user.admin ||
                 std::find(admin_users.begin(), admin_users.end(), user.name) != admin_users.end();
    users.push_back(std::move(user));
  }
  top.finish();
  return users;
}

}  // namespace

LoadedUsers load_users(const std::string& path, const std::vector<std::string>& admin_users) {
  LoadedUsers loaded;
  std::ifstream file(path);
  std::ostringstream text;
  if (file) text << file.rdbuf();
  if (!file) {
    loaded.faults.push_back("cannot read " + path);
    return loaded;
  }
  std::vector<ConfigFault> faults;
  try {
    loaded.users = read_users(text.str(), admin_users, faults);
  } catch (const toml::parse_error& error) {
    faults.push_back(
        {static_cast<int>(error.source().begin.line), std::string(error.description())});
  }
  const auto name = std::filesystem::path(path).filename().string();
  for (const auto& fault : faults) {
    loaded.faults.push_back(name + " line " + std::to_string(fault.line) + ": " + fault.text);
  }
  return loaded;
}

}  // namespace collegedb
