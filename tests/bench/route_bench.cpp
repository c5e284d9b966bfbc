// Plan and route: what a statement costs when its plan is cached (route alone), and when it is not.
#include <benchmark/benchmark.h>

#include <stdexcept>

#include "parser/analyze.h"
#include "routing/route.h"

namespace {

using namespace collegedb;
using namespace collegedb::routing;

TableInfo table(std::string name, std::string key, KeyType type) {
  TableInfo info;
  info.name = {"public", std::move(name)};
  info.kind = TableKind::kSharded;
  info.group = "public." + info.name.name;
  info.key_column = std::move(key);
  info.key_type = type;
  ColumnInfo column;
  column.name = info.key_column;
  info.columns = {column};
  return info;
}

Snapshot cluster(std::size_t exceptions) {
  Snapshot snapshot;
  snapshot.shards = {{"db-east"}, {"db-west"}, {"db-north"}};
  Epoch epoch;
  epoch.shards = {0, 1, 2};
  snapshot.epochs = {epoch};
  snapshot.tables = {table("pgbench_accounts", "aid", KeyType::kInt4),
                     table("users", "id", KeyType::kUuid)};
  auto map = std::make_shared<ExceptionMap>();
  for (std::size_t i = 0; i < exceptions; ++i) {
    map->emplace(GroupKey{"public.pgbench_accounts", std::to_string(i * 7)}, ShardId{1});
  }
  snapshot.exceptions = map;
  return snapshot;
}

parser::Statement analyzed(std::string_view sql) {
  auto statements = parser::analyze(sql);
  if (!statements || statements->size() != 1) throw std::runtime_error("bad benchmark statement");
  return std::move(statements->front());
}

constexpr std::string_view kSelect = "SELECT abalance FROM pgbench_accounts WHERE aid = $1";
constexpr std::string_view kLiteral = "SELECT abalance FROM pgbench_accounts WHERE aid = 123456";
constexpr std::string_view kUuid = "SELECT name FROM users WHERE id = $1";

void route_once(benchmark::State& state, std::string_view sql, const Parameter& parameter,
                std::size_t exceptions) {
  const Snapshot snapshot = cluster(exceptions);
  const auto plan = make_plan(analyzed(sql), snapshot, {"public"});
  const Parameter parameters[] = {parameter};
  for (auto _ : state) {
    Route routed = route(*plan, parameters, snapshot);
    benchmark::DoNotOptimize(routed);
  }
}

void BM_RouteTextParameter(benchmark::State& state) {
  route_once(state, kSelect, {"123456", false, 0}, 0);
}
BENCHMARK(BM_RouteTextParameter);

void BM_RouteBinaryParameter(benchmark::State& state) {
  constexpr std::string_view kBinary("\x00\x01\xe2\x40", 4);
  route_once(state, kSelect, {kBinary, true, 23}, 0);
}
BENCHMARK(BM_RouteBinaryParameter);

void BM_RouteLiteral(benchmark::State& state) {
  route_once(state, kLiteral, {}, 0);
}
BENCHMARK(BM_RouteLiteral);

void BM_RouteUuid(benchmark::State& state) {
  route_once(state, kUuid, {"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", false, 2950}, 0);
}
BENCHMARK(BM_RouteUuid);

void BM_RouteWithMillionExceptions(benchmark::State& state) {
  route_once(state, kSelect, {"123456", false, 0}, 1000000);
}
BENCHMARK(BM_RouteWithMillionExceptions);

void BM_PlanOnly(benchmark::State& state) {
  const Snapshot snapshot = cluster(0);
  const std::vector<std::string> path = {"public"};
  const parser::Statement statement = analyzed(kLiteral);
  for (auto _ : state) benchmark::DoNotOptimize(make_plan(statement, snapshot, path));
}
BENCHMARK(BM_PlanOnly);

void BM_AnalyzeAndPlan(benchmark::State& state) {
  const Snapshot snapshot = cluster(0);
  const std::vector<std::string> path = {"public"};
  for (auto _ : state) {
    benchmark::DoNotOptimize(make_plan(analyzed(kLiteral), snapshot, path));
  }
}
BENCHMARK(BM_AnalyzeAndPlan);

}  // namespace
