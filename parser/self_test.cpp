// Start-up check that the node layouts compiled in are the library's. Each fixed statement is read
// twice, by our walk over the raw tree and by libpg_query's own JSON writer, and must give the same
// facts. A shifted node tag, struct field or enum shows as a difference (or as an error).
#include <algorithm>
#include <array>
#include <charconv>

#include "parser/analyze.h"
#include "parser/pg_query.h"

namespace collegedb::parser {
namespace {

struct Probe {
  std::string_view sql;
  std::string_view node;  // name of the top node in the JSON
  StatementKind kind;
};

constexpr std::array kProbes{
    Probe{"SELECT a.x, lower(b.y) FROM s.a LEFT JOIN b ON a.id = b.id AND b.k = $2 "
          "WHERE a.k = 'v' AND a.n IN (1, 2) AND a.m = ANY ($1::int8[]) AND a.z IS NULL "
          "GROUP BY 1, 2 HAVING count(*) > 1 ORDER BY 1 LIMIT 3 FOR UPDATE",
          "SelectStmt", StatementKind::kSelect},
    Probe{"WITH w AS (SELECT coalesce(f(1), $1) FROM c), v AS (DELETE FROM d RETURNING *) "
          "SELECT * FROM w, LATERAL (SELECT 1 FROM e WHERE EXISTS (SELECT 1 FROM g)) q "
          "UNION ALL SELECT CASE WHEN true THEN current_date END FROM h",
          "SelectStmt", StatementKind::kSelect},
    Probe{"INSERT INTO t (a, b) VALUES (1, $1), (DEFAULT, now()) "
          "ON CONFLICT (a) DO UPDATE SET b = excluded.b RETURNING a",
          "InsertStmt", StatementKind::kInsert},
    Probe{"UPDATE t SET (a, b) = (1, 2), c = c FROM u WHERE t.id = u.id", "UpdateStmt",
          StatementKind::kUpdate},
    Probe{"DELETE FROM t USING u WHERE t.id = $1", "DeleteStmt", StatementKind::kDelete},
    Probe{"MERGE INTO t USING u ON t.id = u.id WHEN NOT MATCHED THEN INSERT VALUES (1)",
          "MergeStmt", StatementKind::kMerge},
    Probe{"COPY t (a) FROM STDIN WITH (FORMAT csv)", "CopyStmt", StatementKind::kCopyFrom},
    Probe{"BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY", "TransactionStmt", StatementKind::kBegin},
    Probe{"COMMIT AND CHAIN", "TransactionStmt", StatementKind::kCommit},
    Probe{"ROLLBACK TO sp", "TransactionStmt", StatementKind::kRollbackTo},
    Probe{"SET LOCAL search_path = a, b", "VariableSetStmt", StatementKind::kSet},
    Probe{"RESET ALL", "VariableSetStmt", StatementKind::kReset},
    Probe{"SHOW timezone", "VariableShowStmt", StatementKind::kShow},
    Probe{"DISCARD TEMP", "DiscardStmt", StatementKind::kDiscard},
    Probe{"PREPARE p (int4) AS SELECT $1 FROM t", "PrepareStmt", StatementKind::kPrepare},
    Probe{"EXECUTE p (f(1))", "ExecuteStmt", StatementKind::kExecute},
    Probe{"DEALLOCATE p", "DeallocateStmt", StatementKind::kDeallocate},
    Probe{"DECLARE c CURSOR WITH HOLD FOR SELECT 1 FROM t", "DeclareCursorStmt",
          StatementKind::kDeclareCursor},
    Probe{"FETCH 10 FROM c", "FetchStmt", StatementKind::kFetch},
    Probe{"CLOSE c", "ClosePortalStmt", StatementKind::kCloseCursor},
    Probe{"LISTEN ch", "ListenStmt", StatementKind::kListen},
    Probe{"UNLISTEN ch", "UnlistenStmt", StatementKind::kUnlisten},
    Probe{"NOTIFY ch, 'x'", "NotifyStmt", StatementKind::kNotify},
    Probe{"EXPLAIN (ANALYZE) SELECT 1 FROM t", "ExplainStmt", StatementKind::kExplain},
    Probe{"LOCK TABLE t, u", "LockStmt", StatementKind::kLockTable},
    Probe{"TRUNCATE t, u", "TruncateStmt", StatementKind::kTruncate},
    Probe{"CALL p(f(1))", "CallStmt", StatementKind::kCall},
    Probe{"DO 'BEGIN END'", "DoStmt", StatementKind::kDo},
    Probe{"CREATE TABLE t (a int DEFAULT f(1) CHECK (g(a)), FOREIGN KEY (a) REFERENCES u)",
          "CreateStmt", StatementKind::kDdl},
    Probe{"ALTER TABLE t ADD COLUMN b int DEFAULT f(2)", "AlterTableStmt", StatementKind::kDdl},
    Probe{"CREATE INDEX CONCURRENTLY i ON t (lower(a))", "IndexStmt", StatementKind::kDdlNoBlock},
    Probe{"CREATE TEMP TABLE t (a int)", "CreateStmt", StatementKind::kCreateTemp},
    Probe{"CREATE TABLE t AS SELECT f(1) FROM u", "CreateTableAsStmt", StatementKind::kSelectInto},
    Probe{"VACUUM t", "VacuumStmt", StatementKind::kDdlNoBlock},
    Probe{"ALTER SYSTEM SET a = 1", "AlterSystemStmt", StatementKind::kDdlNoBlock},
    Probe{"CREATE VIEW v AS SELECT f(1) FROM t", "ViewStmt", StatementKind::kDdl},
    Probe{"CREATE SUBSCRIPTION s CONNECTION '' PUBLICATION p", "CreateSubscriptionStmt",
          StatementKind::kDdlNoBlock},
};

using Words = std::vector<std::string>;

// Every text between `before` and the next `after`, sorted.
Words find_all(std::string_view json, std::string_view before, std::string_view after) {
  Words found;
  for (std::size_t at = json.find(before); at != std::string_view::npos;
       at = json.find(before, at)) {
    at += before.size();
    const std::size_t end = json.find(after, at);
    if (end == std::string_view::npos) break;
    found.emplace_back(json.substr(at, end - at));
  }
  std::ranges::sort(found);
  return found;
}

Words without_ctes(Words relations, const Words& ctes) {
  std::erase_if(relations, [&](const std::string& name) {
    return std::ranges::find(ctes, name) != ctes.end();
  });
  return relations;
}

std::string compare(const Probe& probe) {
  const auto differs = [&](std::string_view what) {
    return std::string(what) + " of \"" + std::string(probe.sql) + "\"";
  };
  const std::string json = parse_to_json(std::string(probe.sql));
  const std::string top = "[{\"stmt\":{\"" + std::string(probe.node) + "\":";
  if (json.find(top) == std::string::npos) return differs("top node");
  const Result<std::vector<Statement>> parsed = analyze(probe.sql);
  if (parsed.has_error() || parsed->size() != 1) return differs("statement");
  const Statement& statement = parsed->front();
  if (statement.kind != probe.kind) return differs("kind");

  Words tables;
  for (const TableRef& table : statement.tables) tables.push_back(table.name.name);
  std::ranges::sort(tables);
  const Words ctes = find_all(json, "\"ctename\":\"", "\"");
  if (tables != without_ctes(find_all(json, "\"relname\":\"", "\""), ctes)) {
    return differs("relations");
  }

  Words functions;
  for (const FunctionCall& call : statement.functions) functions.push_back(call.name.name);
  std::ranges::sort(functions);
  if (functions != find_all(json, "\"funcname\":[{\"String\":{\"sval\":\"", "\"")) {
    return differs("functions");
  }

  std::uint16_t max_param = 0;
  for (const std::string& text : find_all(json, "\"ParamRef\":{\"number\":", ",")) {
    std::uint16_t number = 0;
    std::from_chars(text.data(), text.data() + text.size(), number);
    max_param = std::max(max_param, number);
  }
  if (statement.max_param != max_param) return differs("parameters");
  return {};
}

// Facts that stand in fields and enums of the nodes, read back against what the text says.
std::string check_fields() {
  const auto one = [](std::string_view sql) {
    const Result<std::vector<Statement>> parsed = analyze(sql);
    return parsed.has_value() && parsed->size() == 1 ? parsed->front() : Statement();
  };
  const Statement select = one(kProbes[0].sql);
  const SelectShape& shape = select.select;
  if (!shape.has_order_by || !shape.has_limit || !shape.has_group_by || !shape.has_having ||
      !shape.has_locking || shape.has_distinct || shape.has_set_operation) {
    return "fields of SelectStmt";
  }
  if (select.conjuncts.size() != 5) return "conditions of SelectStmt";
  if (select.tables.size() != 2 || select.tables[0].nullable || !select.tables[1].nullable) {
    return "join types";
  }
  const Statement insert = one(kProbes[2].sql);
  if (insert.insert_rows.size() != 2 || !insert.has_on_conflict || !insert.has_returning) {
    return "fields of InsertStmt";
  }
  const Statement begin = one(kProbes[7].sql);
  if (begin.isolation != "serializable" || !begin.read_only) return "fields of TransactionStmt";
  const Statement set = one(kProbes[10].sql);
  if (!set.local || set.name != "search_path" || set.value != "a, b") {
    return "fields of VariableSetStmt";
  }
  if (!one("DECLARE c CURSOR WITH HOLD FOR SELECT 1").cursor_hold) return "cursor options";
  if (!one("COMMIT AND CHAIN").and_chain) return "chain of TransactionStmt";
  return {};
}

}  // namespace

std::string self_test() {
  for (const Probe& probe : kProbes) {
    if (std::string difference = compare(probe); !difference.empty()) return difference;
  }
  return check_fields();
}

}  // namespace collegedb::parser
