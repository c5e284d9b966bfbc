// Cost of a plan-cache miss: parse and analyse one text. The one-table SELECT is the yardstick
// (aim: 2.5 us).
#include <benchmark/benchmark.h>

#include <string>

#include "parser/analyze.h"

namespace {

using collegedb::parser::analyze;

void run(benchmark::State& state, const std::string& sql) {
  for (auto _ : state) {
    auto statements = analyze(sql);
    benchmark::DoNotOptimize(statements);
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(sql.size()));
}

std::string hundred_rows() {
  std::string sql = "INSERT INTO orders (user_id, item, price) VALUES ";
  for (int i = 0; i < 100; ++i) {
    if (i > 0) sql += ", ";
    sql += "(" + std::to_string(i) + ", 'thing', 4.20)";
  }
  return sql;
}

BENCHMARK_CAPTURE(run, begin, std::string("BEGIN"));
BENCHMARK_CAPTURE(run, select_60_bytes,
                  std::string("SELECT id, name, email FROM users WHERE id = 'user-123' AND a"));
BENCHMARK_CAPTURE(run, select_parameter,
                  std::string("SELECT abalance FROM pgbench_accounts WHERE aid = $1"));
BENCHMARK_CAPTURE(
    run, update,
    std::string("UPDATE pgbench_accounts SET abalance = abalance + $1 WHERE aid = $2"));
BENCHMARK_CAPTURE(
    run, join_three,
    std::string("SELECT u.name, o.total, i.sku FROM users u JOIN orders o ON o.user_id = u.id "
                "LEFT JOIN items i ON i.order_id = o.id AND i.user_id = o.user_id "
                "WHERE u.id = $1 AND o.state IN ('open', 'paid') ORDER BY o.id LIMIT 10"));
BENCHMARK_CAPTURE(run, insert_100_rows, hundred_rows());
BENCHMARK_CAPTURE(run, syntax_error, std::string("SELEC id FROM users WHERE id = 'user-123'"));

}  // namespace
