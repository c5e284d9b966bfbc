#include "proxy/local_postgres.h"

#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <stdexcept>

namespace collegedb {
namespace fs = std::filesystem;

namespace {

// The folder with initdb: on PATH, else that of Debian's newest version.
fs::path find_bin() {
  std::string path = std::getenv("PATH") ? std::getenv("PATH") : "";
  for (std::size_t start = 0; start <= path.size();) {
    const auto end = std::min(path.find(':', start), path.size());
    const fs::path folder = path.substr(start, end - start);
    std::error_code error;
    // Debian puts wrappers on PATH that lack the server; only a folder with all three counts.
    if (!folder.empty() && fs::exists(folder / "initdb", error) &&
        fs::exists(folder / "pg_ctl", error) && fs::exists(folder / "postgres", error)) {
      return folder;
    }
    start = end + 1;
  }
  std::pair<int, fs::path> newest;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator("/usr/lib/postgresql", error)) {
    const int version = std::atoi(entry.path().filename().c_str());
    if (version > newest.first && fs::exists(entry.path() / "bin/initdb", error)) {
      newest = {version, entry.path() / "bin"};
    }
  }
  if (newest.first == 0) {
    throw std::runtime_error(
        "no PostgreSQL server programs on PATH or in /usr/lib/postgresql; "
        "on Debian: apt-get install postgresql");
  }
  return newest.second;
}

std::string tail(const std::string& text) {
  constexpr std::size_t kEnough = 2000;
  return text.size() > kEnough ? text.substr(text.size() - kEnough) : text;
}

}  // namespace

PostgresPrograms::PostgresPrograms(const Signals& signals) : signals_(signals), bin_(find_bin()) {
  if (::geteuid() != 0) return;
  const passwd* user = ::getpwnam("postgres");
  if (!user) throw std::runtime_error("run as root, but there is no user postgres");
  as_other_user_ = true;
  uid_ = user->pw_uid;
  gid_ = user->pw_gid;
}

void PostgresPrograms::run(const std::string& program,
                           const std::vector<std::string>& arguments) const {
  const auto outcome = spawn((bin_ / program).string(), arguments);
  if (outcome.code != 0) {
    throw std::runtime_error(program + " failed:\n" + tail(outcome.output));
  }
}

bool PostgresPrograms::can_reach(const fs::path& path) const {
  return spawn("/bin/sh", {"-c", "test -x \"$1\" && test -r \"$1\"", "sh", path.string()}).code ==
         0;
}

void PostgresPrograms::give(const fs::path& path) const {
  if (as_other_user_ && ::chown(path.c_str(), uid_, gid_) != 0) {
    throw std::runtime_error("cannot give " + path.string() + " to user postgres");
  }
}

PostgresPrograms::Outcome PostgresPrograms::spawn(const std::string& path,
                                                  const std::vector<std::string>& arguments) const {
  // Output goes to a file, not to a pipe: a server that pg_ctl leaves behind keeps it open.
  char name[] = "/tmp/collegedb-output-XXXXXX";
  const int output = ::mkstemp(name);
  if (output < 0) throw std::runtime_error("cannot make a temporary file");
  ::unlink(name);
  ::fcntl(output, F_SETFD, FD_CLOEXEC);
  std::vector<char*> argv{const_cast<char*>(path.c_str())};
  for (const auto& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);

  const pid_t child = ::fork();
  if (child == 0) {
    signals_.restore_in_child();
    const int null = ::open("/dev/null", O_RDONLY);
    ::dup2(null, 0);
    ::dup2(output, 1);
    ::dup2(output, 2);
    // "/" can be read by everyone; the servers' user may not be allowed into our folder.
    if (::chdir("/") != 0) ::_exit(126);
    if (as_other_user_ &&
        (::setgroups(1, &gid_) != 0 || ::setgid(gid_) != 0 || ::setuid(uid_) != 0)) {
      ::_exit(126);
    }
    ::execv(path.c_str(), argv.data());
    ::_exit(127);
  }
  int status = -1;
  if (child < 0 || ::waitpid(child, &status, 0) < 0) {
    ::close(output);
    throw std::runtime_error("cannot run " + path);
  }
  Outcome outcome{.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128, .output = {}};
  ::lseek(output, 0, SEEK_SET);
  char buffer[4096];
  for (;;) {
    const auto count = ::read(output, buffer, sizeof buffer);
    if (count <= 0) break;
    outcome.output.append(buffer, static_cast<std::size_t>(count));
  }
  ::close(output);
  return outcome;
}

LocalPostgres::LocalPostgres(const PostgresPrograms& programs, fs::path directory,
                             std::uint16_t port)
    : programs_(programs), directory_(std::move(directory)), port_(port) {}

LocalPostgres::~LocalPostgres() {
  try {
    stop();
  } catch (const std::exception&) {
    // Reported by stop() where it matters; here the directory is about to be removed anyway.
  }
}

void LocalPostgres::create() {
  fs::create_directories(directory_);
  programs_.give(directory_);
  const auto data = directory_ / "data";
  programs_.run("initdb", {"-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8",
                           "--locale=C.UTF-8", "--no-sync", "--no-instructions"});
  std::ofstream(data / "postgresql.auto.conf", std::ios::app)
      << "listen_addresses = '127.0.0.1'\n"
      << "port = " << port_ << '\n'
      << "unix_socket_directories = '" << directory_.string() << "'\n"
      << "max_connections = 200\n"
      << "max_prepared_transactions = 64\n"
      << "wal_level = logical\n"
      << "fsync = off\n"  // the data does not outlive the demo
      << "shared_buffers = '32MB'\n";
  started_ = true;
  programs_.run("pg_ctl", {"-D", data, "-l", directory_ / "log", "-w", "-t", "60", "start"});
}

void LocalPostgres::stop() {
  if (!started_) return;
  started_ = false;
  programs_.run("pg_ctl", {"-D", directory_ / "data", "-m", "immediate", "-w", "stop"});
}

std::string LocalPostgres::conninfo(const std::string& database) const {
  return "host=" + directory_.string() + " port=" + std::to_string(port_) +
         " user=postgres dbname=" + database;
}

void stop_left_servers(const PostgresPrograms& programs, const fs::path& directory) {
  for (const auto& entry : fs::directory_iterator(directory)) {
    if (!fs::exists(entry.path() / "data/postmaster.pid")) continue;
    try {
      programs.run("pg_ctl", {"-D", entry.path() / "data", "-m", "immediate", "-w", "stop"});
    } catch (const std::runtime_error&) {
      // The pid file was all that was left.
    }
  }
}

}  // namespace collegedb
