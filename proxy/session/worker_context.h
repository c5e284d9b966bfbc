// What the sessions of one worker share. Owned by net/worker, outlives its sessions, touched by
// the worker's thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "metrics/stats.h"
#include "proxy/session/accepted_settings.h"
#include "proxy/session/control.h"
#include "proxy/session/hot_keys.h"
#include "proxy/session/learned.h"
#include "proxy/session/plan_cache.h"
#include "proxy/session/statement_registry.h"
#include "routing/snapshot.h"

namespace collegedb::session {

struct WorkerContext {
  std::shared_ptr<const routing::Snapshot> snapshot;  // never null; the worker swaps it
  PlanCache plans;
  StatementRegistry statements;
  LearnedOwners learned;
  HotKeys hot_keys;
  AcceptedSettings accepted;
  metrics::WorkerStats* stats = nullptr;  // never null
  std::span<const AdminFunction> admin_functions;
  std::uint32_t write_hold_ms = 5000;
  std::uint32_t query_timeout_ms = 0;
  std::uint32_t idle_transaction_timeout_ms = 0;
  bool fanout_unroutable = true;                   // routing.on_unroutable
  std::uint64_t mapping_life_ns = 30'000'000'000;  // routing.mapping_cache_ttl
};

}  // namespace collegedb::session
