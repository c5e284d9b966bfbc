// `collegedb demo`: throw-away PostgreSQL clusters with sample data and a proxy in front.
#pragma once

#include <cstdint>
#include <string>

#include "proxy/signals.h"

namespace collegedb {

struct DemoOptions {
  unsigned shards = 3;
  std::string directory = ".demo";
  std::uint16_t port = 6432;
  std::uint16_t metrics_port = 9187;
  bool keep = false;  // leave directory and data when the demo ends
};

// Prints "ready" and the DSN on standard output and runs until SIGINT or SIGTERM; then stops and
// removes everything. Throws std::runtime_error when it cannot start; nothing is left then.
[[nodiscard]] int run_demo(const DemoOptions& options, const Signals& signals);

}  // namespace collegedb
