// A small HTTP server on a thread of its own: /metrics for Prometheus, /healthz (the process
// answers), /readyz (it can serve clients).
#pragma once

#include <prometheus/collectable.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace collegedb::metrics {

class Exposer {
 public:
  // Why the process is not ready; empty = ready. Called on the exposer's thread; must not block.
  using NotReady = std::function<std::string()>;

  // Listens at once; throws std::runtime_error naming the address when it cannot.
  Exposer(const std::string& host, std::uint16_t port,
          std::shared_ptr<const prometheus::Collectable> metrics, NotReady not_ready);
  // Closes every connection and joins the thread.
  ~Exposer();
  Exposer(const Exposer&) = delete;
  Exposer& operator=(const Exposer&) = delete;

  // The port in use, also when 0 was asked for.
  [[nodiscard]] std::uint16_t port() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace collegedb::metrics
