#include "migration/schema_copy.h"

#include <fcntl.h>
#include <libpq-fe.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "migration/schema.h"

extern char** environ;  // NOLINT(readability-redundant-declaration)

namespace collegedb::migration {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

constexpr auto kPatience = 300s;

[[noreturn]] void fail(const ShardConfig& shard, std::string text, std::string detail = {},
                       std::string hint = {}) {
  throw SqlFailure(make_error("58030", std::move(text), std::move(hint), std::move(detail)),
                   shard.name);
}

bool runs(const fs::path& file) {
  return ::access(file.c_str(), X_OK) == 0;
}

std::optional<std::string> find_pg_dump() {
  const char* variable = std::getenv("PATH");
  const std::string path = variable != nullptr ? variable : "";
  for (std::size_t start = 0; start <= path.size();) {
    const auto end = std::min(path.find(':', start), path.size());
    const fs::path file = fs::path(path.substr(start, end - start)) / "pg_dump";
    if (end > start && runs(file)) return file.string();
    start = end + 1;
  }
  std::pair<int, fs::path> newest;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator("/usr/lib/postgresql", error)) {
    const int version = std::atoi(entry.path().filename().c_str());
    const fs::path file = entry.path() / "bin/pg_dump";
    if (version > newest.first && runs(file)) newest = {version, file};
  }
  if (newest.first == 0) return std::nullopt;
  return newest.second.string();
}

struct Target {
  std::string conninfo;  // without the password
  std::string password;
};

// Command lines can be read by everybody on the host.
Target split_password(const ShardConfig& shard) {
  char* text = nullptr;
  const std::unique_ptr<PQconninfoOption, decltype(&PQconninfoFree)> options(
      PQconninfoParse(shard.conninfo.c_str(), &text), &PQconninfoFree);
  const std::unique_ptr<char, decltype(&PQfreemem)> error(text, &PQfreemem);
  if (!options) fail(shard, "its conninfo cannot be read", text != nullptr ? text : "");
  Target out;
  bool timeout = false;
  for (const PQconninfoOption* each = options.get(); each->keyword != nullptr; ++each) {
    if (each->val == nullptr) continue;
    if (std::strcmp(each->keyword, "password") == 0) {
      out.password = each->val;
      continue;
    }
    timeout = timeout || std::strcmp(each->keyword, "connect_timeout") == 0;
    out.conninfo += std::string(each->keyword) + "='";
    for (const char* c = each->val; *c != '\0'; ++c) {
      if (*c == '\'' || *c == '\\') out.conninfo += '\\';
      out.conninfo += *c;
    }
    out.conninfo += "' ";
  }
  if (!timeout) out.conninfo += "connect_timeout=5";
  return out;
}

// A file in memory that a child writes to and we read when it has ended.
class Sink {
 public:
  Sink() : fd_(::memfd_create("collegedb", MFD_CLOEXEC)) {}
  ~Sink() {
    if (fd_ >= 0) ::close(fd_);
  }
  Sink(const Sink&) = delete;
  Sink& operator=(const Sink&) = delete;

  [[nodiscard]] int fd() const { return fd_; }
  [[nodiscard]] std::string text() const {
    std::string out;
    char buffer[65536];
    off_t at = 0;
    for (ssize_t got = 0; (got = ::pread(fd_, buffer, sizeof buffer, at)) > 0; at += got) {
      out.append(buffer, static_cast<std::size_t>(got));
    }
    return out;
  }

 private:
  int fd_;
};

// Environment of the child: ours, and the password.
std::vector<std::string> environment(const Target& target) {
  std::vector<std::string> out;
  for (char** each = environ; *each != nullptr; ++each) {
    if (target.password.empty() || std::strncmp(*each, "PGPASSWORD=", 11) != 0) {
      out.emplace_back(*each);
    }
  }
  if (!target.password.empty()) out.push_back("PGPASSWORD=" + target.password);
  return out;
}

std::vector<char*> pointers(std::vector<std::string>& items) {
  std::vector<char*> out;
  for (std::string& item : items) out.push_back(item.data());
  out.push_back(nullptr);
  return out;
}

pid_t start(const std::string& program, std::vector<std::string> arguments,
            std::vector<std::string> variables, const Sink& output, const Sink& errors) {
  arguments.insert(arguments.begin(), program);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, output.fd(), STDOUT_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, errors.fd(), STDERR_FILENO);
  // Signals as a new program expects them, whatever this process blocks or ignores.
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  sigset_t none;
  sigset_t all;
  ::sigemptyset(&none);
  ::sigfillset(&all);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setsigdefault(&attributes, &all);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  pid_t child = -1;
  const auto argv = pointers(arguments);
  const auto envp = pointers(variables);
  errno = ::posix_spawn(&child, program.c_str(), &actions, &attributes, argv.data(), envp.data());
  ::posix_spawnattr_destroy(&attributes);
  ::posix_spawn_file_actions_destroy(&actions);
  return errno == 0 ? child : -1;
}

// Exit status; nullopt when it had to be killed.
std::optional<int> wait_for(pid_t child) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  int status = 0;
  while (::waitpid(child, &status, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() > deadline) {
      ::kill(child, SIGKILL);
      ::waitpid(child, &status, 0);
      return std::nullopt;
    }
    std::this_thread::sleep_for(10ms);
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// Newer versions of pg_dump bracket their output with these two commands of psql.
std::string without_commands(const std::string& dump) {
  std::string out;
  out.reserve(dump.size());
  std::string token;
  for (std::size_t at = 0; at < dump.size();) {
    const std::size_t end = std::min(dump.find('\n', at), dump.size() - 1) + 1;
    const std::string_view line(dump.data() + at, end - at);
    at = end;
    if (token.empty() && line.starts_with("\\restrict ")) {
      token = line.substr(10);
    } else if (token.empty() || line != "\\unrestrict " + token) {
      out += line;
    }
  }
  return out;
}

}  // namespace

bool is_empty_database(ControlSession& session) {
  return session
      .run(
          "WITH spaces AS (SELECT oid, nspname FROM pg_catalog.pg_namespace"
          " WHERE nspname NOT IN ('pg_catalog', 'information_schema', 'collegedb')"
          " AND nspname !~ '^pg_(toast|temp)'),"
          " objects (class, oid) AS ("
          " SELECT 'pg_catalog.pg_namespace'::pg_catalog.regclass, oid FROM spaces"
          "  WHERE nspname <> 'public' UNION ALL"
          " SELECT 'pg_catalog.pg_class'::pg_catalog.regclass, c.oid"
          "  FROM pg_catalog.pg_class c JOIN spaces s ON s.oid = c.relnamespace UNION ALL"
          " SELECT 'pg_catalog.pg_type'::pg_catalog.regclass, t.oid"
          "  FROM pg_catalog.pg_type t JOIN spaces s ON s.oid = t.typnamespace"
          "  WHERE t.typtype IN ('d', 'e', 'r') UNION ALL"
          " SELECT 'pg_catalog.pg_proc'::pg_catalog.regclass, p.oid"
          "  FROM pg_catalog.pg_proc p JOIN spaces s ON s.oid = p.pronamespace"
          "  WHERE NOT (p.proname LIKE 'collegedb\\_%' AND p.prosrc LIKE '%' || $1))"
          " SELECT 1 FROM objects o WHERE NOT EXISTS (SELECT 1 FROM pg_catalog.pg_depend d"
          "  WHERE d.classid = o.class AND d.objid = o.oid AND d.deptype = 'e') LIMIT 1",
          {std::string(kStubMarker)})
      .empty();
}

std::string dump_schema(const ShardConfig& shard) {
  const auto program = find_pg_dump();
  if (!program) {
    fail(shard, "pg_dump is neither on PATH nor in /usr/lib/postgresql", {},
         "Install the PostgreSQL client programs, or create the schema on the new shard yourself.");
  }
  const Target target = split_password(shard);
  const Sink output;
  const Sink errors;
  const pid_t child =
      start(*program,
            {"--dbname=" + target.conninfo, "--schema-only", "--exclude-schema=collegedb",
             "--no-publications", "--no-subscriptions", "--no-tablespaces", "--no-password",
             "--encoding=UTF8", "--lock-wait-timeout=10000"},
            environment(target), output, errors);
  if (child < 0) fail(shard, *program + " cannot be started", std::strerror(errno));
  const auto status = wait_for(child);
  if (status != 0) {
    fail(shard, "pg_dump could not read the schema of shard \"" + shard.name + "\"",
         status ? errors.text() : "It did not end in time.");
  }
  return without_commands(output.text());
}

void restore_schema(ControlSession& session, std::string_view dump) {
  drop_stubs(session);
  session.script(dump);
  session.run("DELETE FROM collegedb.schema_version WHERE component = 'functions'");
}

}  // namespace collegedb::migration
