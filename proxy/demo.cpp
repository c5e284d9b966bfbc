#include "proxy/demo.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <vector>

#include "proxy/app.h"
#include "proxy/demo_data.h"
#include "proxy/local_postgres.h"
#include "proxy/logging.h"

namespace collegedb {
namespace fs = std::filesystem;

namespace {

constexpr const char* kMarker =
    ".collegedb-demo";  // holds the pid of the demo that owns the folder
constexpr std::size_t kLongestSocketDirectory = 90;  // sun_path has 108 bytes

class Interrupted : public std::exception {};

// Port 0 asks for any free one. Throws when the port is taken.
std::uint16_t probe_port(std::uint16_t port, const char* option) {
  const int probe = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  ::setsockopt(probe, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  const bool free = ::bind(probe, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 &&
                    ::getsockname(probe, reinterpret_cast<sockaddr*>(&address), &size) == 0;
  ::close(probe);
  if (!free) {
    throw std::runtime_error("port " + std::to_string(port) + " is taken; choose another with " +
                             option);
  }
  return ntohs(address.sin_port);
}

std::string shard_name(unsigned index) {
  constexpr const char* kNames[] = {"db-east", "db-west", "db-north", "db-south"};
  return index < std::size(kNames) ? kNames[index] : "db-" + std::to_string(index + 1);
}

// The folder of one demo: refuses foreign ones, clears stale ones, is removed at the end.
class DemoDirectory {
 public:
  DemoDirectory(const DemoOptions& options, const PostgresPrograms& programs)
      : path_(fs::absolute(options.directory).lexically_normal()), keep_(options.keep) {
    if (path_.filename().empty()) path_ = path_.parent_path();
    clear_stale(programs);
    fs::create_directories(path_);
    std::ofstream(path_ / kMarker) << ::getpid() << '\n';
    servers_ = path_;
    const bool short_enough = path_.string().size() < kLongestSocketDirectory;
    if (!short_enough || !programs.can_reach(path_)) {
      char name[] = "/tmp/collegedb-demo-XXXXXX";
      if (!::mkdtemp(name)) throw std::runtime_error("cannot make a folder in /tmp");
      servers_ = name;
      fs::permissions(servers_, fs::perms(0755));
      std::ofstream(path_ / "servers") << name << '\n';
    }
  }
  ~DemoDirectory() {
    if (keep_) return;
    std::error_code ignored;
    fs::remove_all(servers_, ignored);
    fs::remove_all(path_, ignored);
  }
  DemoDirectory(const DemoDirectory&) = delete;
  DemoDirectory& operator=(const DemoDirectory&) = delete;

  [[nodiscard]] const fs::path& path() const { return path_; }
  // Where the clusters are: the folder itself unless the servers' user cannot reach it.
  [[nodiscard]] const fs::path& servers() const { return servers_; }

 private:
  void clear_stale(const PostgresPrograms& programs) const {
    if (!fs::exists(path_) || fs::is_empty(path_)) return;
    if (!fs::exists(path_ / kMarker)) {
      throw std::runtime_error(path_.string() + " exists and is not the folder of a demo");
    }
    long owner = 0;
    std::ifstream(path_ / kMarker) >> owner;
    std::error_code error;
    const auto program = fs::read_symlink("/proc/" + std::to_string(owner) + "/exe", error);
    if (!error && owner != ::getpid() && program == fs::read_symlink("/proc/self/exe")) {
      throw std::runtime_error("a demo runs in " + path_.string() + " already (process " +
                               std::to_string(owner) + ")");
    }
    std::string elsewhere;
    std::ifstream(path_ / "servers") >> elsewhere;
    for (const auto& folder : {fs::path(elsewhere), path_}) {
      if (folder.empty() || !fs::exists(folder)) continue;
      stop_left_servers(programs, folder);
      fs::remove_all(folder);
    }
  }

  fs::path path_;
  fs::path servers_;
  bool keep_;
};

// Started clusters with the sample tables in database app.
std::vector<std::unique_ptr<LocalPostgres>> start_clusters(const DemoOptions& options,
                                                           const DemoDirectory& directory,
                                                           const PostgresPrograms& programs,
                                                           const Signals& signals) {
  std::vector<std::unique_ptr<LocalPostgres>> clusters;
  for (unsigned i = 0; i < options.shards; ++i) {
    if (signals.wait(std::chrono::milliseconds(0))) throw Interrupted();
    const auto name = shard_name(i);
    std::cerr << "starting " << name << " ..." << std::endl;
    clusters.push_back(
        std::make_unique<LocalPostgres>(programs, directory.servers() / name, probe_port(0, "")));
    clusters.back()->create();
    create_demo_tables(clusters.back()->conninfo("postgres"), clusters.back()->conninfo("app"));
  }
  return clusters;
}

// The configuration file of the demo, as somebody would write it.
fs::path write_config(const DemoOptions& options, const DemoDirectory& directory,
                      const std::vector<std::unique_ptr<LocalPostgres>>& clusters) {
  const auto path = directory.path() / "collegedb.toml";
  std::ofstream out(path);
  out << "[proxy]\nlisten = [\"127.0.0.1:" << options.port << "\"]\ndatabase = \"app\"\n"
      << "drain_timeout = \"2s\"\n"
      << "[auth]\nmethod = \"trust\"\nadmin_users = [\"postgres\"]\n"
      << "[journal]\nshard = \"" << shard_name(0) << "\"\n"
      << "[metrics]\nlisten = \"127.0.0.1:" << options.metrics_port << "\"\n";
  for (unsigned i = 0; i < clusters.size(); ++i) {
    out << "[[shards]]\nname = \"" << shard_name(i) << "\"\nconninfo = \""
        << clusters[i]->conninfo("app") << "\"\n";
  }
  out << "[[tables]]\nname = \"users\"\nkey = \"id\"\n"
      << "[[tables]]\nname = \"orders\"\nkey = \"user_id\"\ncolocate_with = \"users\"\n"
      << "[[reference_tables]]\nname = \"countries\"\n";
  return path;
}

void print_ready(const DemoOptions& options, const DemoDirectory& directory, std::size_t shards) {
  const auto dsn = "postgresql://postgres@127.0.0.1:" + std::to_string(options.port) + "/app";
  std::cout << "ready\n"
            << dsn << "\n\n"
            << "try:      psql " << dsn << '\n'
            << "metrics:  http://127.0.0.1:" << options.metrics_port << "/metrics\n"
            << "log:      " << (directory.path() / "proxy.log").string() << '\n';
  if (shards > 1) {
    std::cout << "where:    SELECT * FROM collegedb_locate('user-123', 'users');\n"
              << "move:     SELECT * FROM collegedb_reassign('user-123', '" << shard_name(1)
              << "', 'users');\n";
  }
  std::cout << "stop:     Ctrl-C" << std::endl;
}

int run(const DemoOptions& options, const Signals& signals) {
  probe_port(options.port, "--port");
  probe_port(options.metrics_port, "--metrics-port");
  const PostgresPrograms programs(signals);
  const DemoDirectory directory(options, programs);
  const auto clusters = start_clusters(options, directory, programs, signals);
  const auto path = write_config(options, directory, clusters);
  const auto loaded = load_config(path);
  if (!loaded.faults.empty()) {
    throw std::logic_error("demo configuration: " + loaded.faults.front().text);
  }
  set_up_logging_to_file(loaded.config.proxy, directory.path() / "proxy.log");
  App app(loaded.config, path);
  if (!app.start(signals) || signals.wait(std::chrono::milliseconds(0))) throw Interrupted();
  insert_demo_rows("host=127.0.0.1 port=" + std::to_string(options.port) +
                   " user=postgres dbname=app");
  print_ready(options, directory, clusters.size());
  app.run(signals);
  std::cerr << "stopping ..." << std::endl;
  return 0;
}

}  // namespace

int run_demo(const DemoOptions& options, const Signals& signals) {
  try {
    return run(options, signals);
  } catch (const Interrupted&) {
    return 0;
  }
}

}  // namespace collegedb
