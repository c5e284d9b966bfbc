// The commands that need a configuration file. Each returns the exit code.
#pragma once

#include <string>

#include "proxy/signals.h"

namespace collegedb {

// Until SIGTERM or SIGINT. Throws when the proxy cannot start.
[[nodiscard]] int run_serve(const std::string& config_path, const Signals& signals);
// One line per finding on standard output; 1 when there is an error among them.
[[nodiscard]] int run_check(const std::string& config_path);
[[nodiscard]] int run_init(const std::string& config_path);

}  // namespace collegedb
