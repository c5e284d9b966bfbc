// Where log lines go and what they look like.
#pragma once

#include <string>

#include "proxy/config.h"

namespace collegedb {

// The default spdlog logger: standard error, text or one JSON object a line. May be called again
// on reload.
void set_up_logging(const Config::Proxy& config);
void set_up_logging_to_file(const Config::Proxy& config, const std::string& path);
void set_log_level(const std::string& level);

}  // namespace collegedb
