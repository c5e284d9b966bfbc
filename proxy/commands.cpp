#include "proxy/commands.h"

#include <spdlog/spdlog.h>

#include <iostream>
#include <stdexcept>

#include "migration/schema.h"
#include "parser/analyze.h"
#include "proxy/admin/functions.h"
#include "proxy/app.h"
#include "proxy/config.h"
#include "proxy/logging.h"

namespace collegedb {
namespace {

// Prints every fault as "file:line: text"; false when there is one.
bool print_faults(const std::string& path, const LoadedConfig& loaded, std::ostream& out) {
  for (const auto& fault : loaded.faults) {
    out << path << ':';
    if (fault.line > 0) out << fault.line << ':';
    out << ' ' << fault.text << '\n';
  }
  return loaded.faults.empty();
}

const char* name_of(migration::Finding::Severity severity) {
  switch (severity) {
    case migration::Finding::Severity::kNote:
      return "note";
    case migration::Finding::Severity::kWarning:
      return "warning";
    case migration::Finding::Severity::kError:
      return "error";
  }
  return "error";
}

}  // namespace

int run_serve(const std::string& config_path, const Signals& signals) {
  auto loaded = load_config(config_path);
  if (!print_faults(config_path, loaded, std::cerr)) return 1;
  if (const auto fault = parser::self_test(); !fault.empty()) {
    throw std::runtime_error("the SQL parser does not agree with its library: " + fault);
  }
  set_up_logging(loaded.config.proxy);
  spdlog::info("collegedb {} with {} shards", COLLEGEDB_VERSION, loaded.config.shards.size());
  for (const auto& notice : loaded.notices) spdlog::info("{}: {}", config_path, notice);
  App app(std::move(loaded.config), config_path);
  if (app.start(signals)) app.run(signals);
  return 0;
}

int run_check(const std::string& config_path) {
  const auto loaded = load_config(config_path);
  if (!print_faults(config_path, loaded, std::cout)) return 1;
  for (const auto& notice : loaded.notices) {
    std::cout << "note: " << config_path << ": " << notice << '\n';
  }
  spdlog::set_level(spdlog::level::off);  // findings say it all
  bool good = true;
  for (const auto& finding : migration::preflight(loaded.config)) {
    std::cout << name_of(finding.severity) << ": ";
    if (!finding.shard.empty()) std::cout << finding.shard << ": ";
    std::cout << finding.text;
    if (!finding.hint.empty()) std::cout << " (" << finding.hint << ')';
    std::cout << '\n';
    good = good && finding.severity != migration::Finding::Severity::kError;
  }
  if (good) std::cout << "ok\n";
  return good ? 0 : 1;
}

int run_init(const std::string& config_path) {
  const auto loaded = load_config(config_path);
  if (!print_faults(config_path, loaded, std::cerr)) return 1;
  set_up_logging(loaded.config.proxy);
  try {
    migration::install_schema(loaded.config, admin::stubs());
  } catch (const migration::SqlFailure& failure) {
    const std::string& hint = failure.error().hint;
    throw std::runtime_error(failure.what() + (hint.empty() ? "" : " HINT: " + hint));
  }
  std::cout << "schema collegedb is up to date on " << loaded.config.shards.size()
            << (loaded.config.shards.size() == 1 ? " shard\n" : " shards\n");
  return 0;
}

}  // namespace collegedb
