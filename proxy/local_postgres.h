// PostgreSQL servers on this machine, started and stopped by their own programs (initdb, pg_ctl).
// As root everything runs as user postgres, because the servers refuse to run as root.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "proxy/signals.h"

namespace collegedb {

// Programs and the user they run as. Throws std::runtime_error when there is no PostgreSQL here.
class PostgresPrograms {
 public:
  explicit PostgresPrograms(const Signals& signals);

  // Runs a program of PostgreSQL's bin folder to its end; throws with the end of its output when it
  // fails.
  void run(const std::string& program, const std::vector<std::string>& arguments) const;
  // True when a file or folder can be reached by the user the servers run as.
  [[nodiscard]] bool can_reach(const std::filesystem::path& path) const;
  // Gives a folder to that user.
  void give(const std::filesystem::path& path) const;

 private:
  struct Outcome {
    int code;
    std::string output;
  };
  [[nodiscard]] Outcome spawn(const std::string& path,
                              const std::vector<std::string>& arguments) const;

  const Signals& signals_;
  std::filesystem::path bin_;
  bool as_other_user_ = false;
  unsigned uid_ = 0;
  unsigned gid_ = 0;
};

// One server with data, log and unix socket in `directory`; superuser postgres, trust login.
// Stopped by stop() or the destructor.
class LocalPostgres {
 public:
  LocalPostgres(const PostgresPrograms& programs, std::filesystem::path directory,
                std::uint16_t port);
  ~LocalPostgres();
  LocalPostgres(const LocalPostgres&) = delete;
  LocalPostgres& operator=(const LocalPostgres&) = delete;

  // initdb, settings, start; returns when the server accepts connections.
  void create();
  void stop();
  [[nodiscard]] std::string conninfo(const std::string& database) const;

 private:
  const PostgresPrograms& programs_;
  std::filesystem::path directory_;
  std::uint16_t port_;
  bool started_ = false;
};

// Ends the servers an earlier process has left in the sub-folders of `directory`.
void stop_left_servers(const PostgresPrograms& programs, const std::filesystem::path& directory);

}  // namespace collegedb
