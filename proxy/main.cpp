// The command line; what the commands do is in commands.h and demo.h.
#include <CLI/CLI.hpp>
#include <exception>
#include <iostream>
#include <string>

#include "proxy/commands.h"
#include "proxy/demo.h"
#include "proxy/signals.h"

int main(int argc, char** argv) {
  using namespace collegedb;
  const Signals signals;  // before any thread exists

  CLI::App app("CollegeDB proxy: one DSN in front of many PostgreSQL servers");
  app.set_version_flag("--version", "collegedb " COLLEGEDB_VERSION);
  app.require_subcommand(1);

  std::string config;
  auto* serve = app.add_subcommand("serve", "Run the proxy (SIGTERM drains, SIGHUP reloads)");
  auto* check = app.add_subcommand("check", "Check the configuration and every shard");
  auto* init = app.add_subcommand("init", "Create or upgrade schema collegedb on every shard");
  for (auto* command : {serve, check, init}) {
    command->add_option("--config", config, "Configuration file (TOML)")->required();
  }

  DemoOptions options;
  auto* demo = app.add_subcommand("demo", "Throw-away local clusters, sample data and a proxy");
  demo->add_option("--shards", options.shards, "Number of clusters")
      ->check(CLI::Range(1, 16))
      ->capture_default_str();
  demo->add_option("--dir", options.directory, "Where everything is put")->capture_default_str();
  demo->add_option("--port", options.port, "Port of the proxy")->capture_default_str();
  demo->add_option("--metrics-port", options.metrics_port, "Port of /metrics")
      ->capture_default_str();
  demo->add_flag("--keep", options.keep, "Leave the directory when the demo ends");
  CLI11_PARSE(app, argc, argv);

  try {
    if (*serve) return run_serve(config, signals);
    if (*check) return run_check(config);
    if (*init) return run_init(config);
    return run_demo(options, signals);
  } catch (const std::exception& error) {
    std::cerr << "collegedb: " << error.what() << '\n';
    return 1;
  }
}
