// What routing must know about one SQL statement: our own small tree, free of PostgreSQL nodes.
//
// Produced by parser::analyze, consumed by routing::make_plan. Values own their text. Nothing
// here depends on the topology or on which tables are registered: the parser records facts, the
// planner judges them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace collegedb::parser {

// As PostgreSQL resolves it: identifiers already folded to lower case unless quoted.
// schema is empty when the text did not name one.
struct QualifiedName {
  std::string schema;
  std::string name;
  friend bool operator==(const QualifiedName&, const QualifiedName&) = default;
};

// A scalar the proxy can know without asking a server, or kOpaque.
struct Value {
  enum class Kind : std::uint8_t {
    kString,   // '...' : unknown-type literal, text holds the unescaped bytes
    kInteger,  // 42 or -42 : text holds the digits with sign
    kNumeric,  // 4.2, 1e3, or an integer beyond int8
    kBool,     // text "t" or "f"
    kBit,      // B'..' or X'..'
    kNull,
    kParam,    // $n : param holds n (1-based)
    kDefault,  // DEFAULT in VALUES or SET
    kOpaque,   // anything else: an expression, a function call, a sub-select
  };
  Kind kind = Kind::kOpaque;
  std::string text;
  std::uint16_t param = 0;
  // The type of an explicit cast around the value (x::int8, CAST(x AS uuid)); name empty = none.
  // Spelt keywords are pg_catalog's own names (bigint: pg_catalog.int8); arrays end in "[]".
  // Only a chain of at most one cast is recorded; a longer chain makes the value kOpaque.
  // Typmods ("varchar(3)", "char(2)") make the value kOpaque too: they change it.
  QualifiedName cast;
};

// One range-table entry: a relation named in FROM, or the target of a write.
struct TableRef {
  QualifiedName name;
  std::string alias;      // equals name.name when none was given
  int level = 0;          // index of the query level (SELECT body) it belongs to
  bool written = false;   // target of INSERT/UPDATE/DELETE/MERGE/COPY FROM/TRUNCATE/LOCK
  bool nullable = false;  // on the nullable side of an outer join
};

// A condition every row that matters must satisfy; see Conjunct::restricts.
struct ColumnRef {
  int table = -1;  // index into Statement::tables when qualified; -1 = unqualified
  int level = 0;   // query level the reference stands in
  std::string column;
};

// One AND-ed condition from WHERE, or from the ON/USING of a join.
// `column = values[0]` (kEquals), `column IN (values...)` / `= ANY(ARRAY[...])` (kIn),
// `column = ANY($n)` (kAnyArray, values[0] is the array parameter or '{...}' literal),
// `column = other_column` (kColumns). IS NOT DISTINCT FROM counts as kEquals with a non-null
// value. Row comparisons are split into one conjunct per column. An IN list with any kOpaque
// item is not recorded at all.
struct Conjunct {
  enum class Kind : std::uint8_t { kEquals, kIn, kAnyArray, kColumns };
  Kind kind = Kind::kEquals;
  ColumnRef column;
  std::vector<Value> values;
  ColumnRef other;  // kColumns only
  // Tables (indexes into Statement::tables) whose rows this condition may restrict: all tables of
  // the level for WHERE and inner joins; for an outer join's ON only those of its nullable side;
  // none for FULL. A condition says nothing about a table not listed here.
  std::vector<int> restricts;
};

enum class StatementKind : std::uint8_t {
  kSelect,  // SELECT, VALUES, TABLE
  kInsert,
  kUpdate,
  kDelete,
  kMerge,
  kCopyFrom,    // COPY t FROM STDIN
  kCopyTo,      // COPY t TO STDOUT, COPY (query) TO STDOUT
  kCopyServer,  // COPY from/to a file or program on the server
  kBegin,       // BEGIN, START TRANSACTION
  kCommit,      // COMMIT, END (and_chain set for AND CHAIN)
  kRollback,    // ROLLBACK, ABORT
  kSavepoint,
  kRelease,
  kRollbackTo,
  kPrepareTransaction,
  kCommitPrepared,
  kRollbackPrepared,
  kSet,             // SET x = ..., SET LOCAL, SET SESSION
  kSetTransaction,  // SET TRANSACTION, SET SESSION CHARACTERISTICS (name tells which)
  kReset,           // RESET x; name "all" for RESET ALL
  kShow,
  kDiscard,  // name: all, plans, sequences, temp
  kPrepare,  // SQL-level PREPARE; name
  kExecute,
  kDeallocate,     // name empty = ALL
  kDeclareCursor,  // cursor_hold set for WITH HOLD
  kFetch,          // FETCH and MOVE
  kCloseCursor,
  kListen,
  kUnlisten,
  kNotify,
  kExplain,  // the explained statement's facts are in the same Statement; explain_analyze
  kLockTable,
  kTruncate,
  kDdl,         // CREATE/ALTER/DROP/COMMENT/GRANT/... allowed in a transaction block
  kDdlNoBlock,  // VACUUM, CREATE INDEX CONCURRENTLY, CREATE DATABASE, ALTER SYSTEM, REINDEX ...
  kAnalyze,     // ANALYZE (allowed in a block)
  kCreateTemp,  // CREATE TEMP TABLE/VIEW/SEQUENCE, SELECT INTO TEMP
  kSelectInto,  // SELECT INTO, CREATE TABLE AS
  kCall,
  kDo,
  kOther,  // parsed, but of no kind above; verb names it
};

// A function named anywhere in the statement.
struct FunctionCall {
  QualifiedName name;
  int level = 0;
};

// `qualifier.name` or `(expression).name` (no qualifier): a column, or the function `name` called
// with the row or value as its only argument.
struct Attribute {
  std::string qualifier;
  std::string name;
  friend bool operator==(const Attribute&, const Attribute&) = default;
};

// `SELECT f(...)`, `SELECT * FROM f(...)`, `SELECT a, b FROM f(...)` with nothing else in it
// (no WHERE, join, ORDER BY ...): the only shapes in which an admin function may be called.
struct LoneCall {
  QualifiedName function;
  struct Argument {
    std::string name;  // name => value; empty when positional
    Value value;
  };
  std::vector<Argument> arguments;
  bool in_from = false;              // SELECT ... FROM f(...)
  std::vector<std::string> columns;  // selected plain columns; empty = all (or the bare call)
  // Output names, parallel to columns; for `SELECT f() AS x` the one name "x".
  std::vector<std::string> column_labels;
};

// Shape facts of the outermost SELECT that decide how it may be scattered.
struct SelectShape {
  bool has_order_by = false;
  bool has_limit = false;  // LIMIT, OFFSET, FETCH FIRST
  bool has_group_by = false;
  bool has_having = false;
  bool has_distinct = false;
  bool has_aggregate = false;  // a call of a built-in aggregate name anywhere in the target list
  bool has_window = false;
  bool has_set_operation = false;
  bool has_locking = false;  // FOR UPDATE/SHARE/...
  bool has_sublink = false;  // sub-select in an expression
  bool has_cte = false;
  bool has_subquery = false;   // sub-select in FROM
  bool is_count_star = false;  // exactly one target: count(*) without FILTER/DISTINCT/OVER
  std::string count_label;     // its output name ("count" unless AS)
};

struct Assignment {  // UPDATE ... SET column = value; INSERT ... ON CONFLICT DO UPDATE SET
  std::string column;
  Value value;  // kOpaque for expressions; a plain reference to the same column sets same_column
  bool same_column = false;
  bool excluded_column = false;  // ON CONFLICT DO UPDATE SET column = EXCLUDED.column
};

struct Statement {
  StatementKind kind = StatementKind::kOther;
  std::string verb;  // upper-case first words for messages: "CREATE INDEX", "MERGE"

  // Byte range of this statement in the analysed text, without the separating semicolons.
  std::uint32_t location = 0;
  std::uint32_t length = 0;

  std::vector<TableRef> tables;         // every relation anywhere, sub-selects and CTE bodies too
                                        // (references to a CTE by name are left out)
  std::vector<Conjunct> conjuncts;      // of every level
  int levels = 1;                       // number of query levels; 0 is the outermost
  std::vector<FunctionCall> functions;  // every call anywhere, built-in ones included
  bool uses_current_value = false;      // CURRENT_TIMESTAMP, CURRENT_USER ... (SQLValueFunction)

  // What may call a function without looking like a call; each once, in the order found.
  std::vector<std::string> operators;  // without schema; "=" for IN, USING and CASE x WHEN too
  std::vector<std::string> types;      // of casts, column definitions ...; without schema and "[]"
  std::vector<Attribute> attributes;
  // Names in FROM whose columns are not those of a relation in `tables`: sub-selects, functions,
  // references to a CTE, joins with an alias, relations with column aliases.
  std::vector<std::string> row_aliases;

  std::uint16_t max_param = 0;  // highest $n used
  // Each $n named more than once: the type the server gives it may come from another place than
  // the one looked at. In the order found, without repetition.
  std::vector<std::uint16_t> repeated_params;

  SelectShape select;  // kSelect (and the explained SELECT)
  std::optional<LoneCall> lone_call;

  // INSERT
  std::vector<std::string> insert_columns;      // empty = no column list
  std::vector<std::vector<Value>> insert_rows;  // VALUES rows; empty for INSERT ... SELECT
  bool insert_default_values = false;
  // INSERT ... SELECT/TABLE/WITH, and every other INSERT whose rows the text does not tell: VALUES
  // with LIMIT or `x.*`, OVERRIDING USER VALUE, MERGE with several column lists.
  bool insert_select = false;
  bool has_on_conflict = false;
  bool has_returning = false;
  std::vector<Assignment> assignments;  // UPDATE SET / ON CONFLICT DO UPDATE SET

  // A write inside a CTE (WITH x AS (INSERT ...)): its target is in `tables` with written set.
  bool has_modifying_cte = false;

  // Transaction control and session statements. Names of settings are in lower case; CLOSE ALL,
  // DEALLOCATE ALL and UNLISTEN * have an empty name. ALTER DATABASE, ROLE or SYSTEM ... SET has
  // the name of the setting; RESET there leaves it empty.
  std::string name;   // savepoint, GUC, cursor, channel, prepared statement, gid, "all"
  std::string value;  // SET: the value as set_config would take it (list items joined ", ")
  bool value_default = false;  // SET x TO DEFAULT
  bool local = false;          // SET LOCAL
  bool and_chain = false;
  bool read_only = false;  // BEGIN / SET TRANSACTION ... READ ONLY
  std::string isolation;   // "", "read committed", "repeatable read", "serializable", ...
  bool cursor_hold = false;
  bool explain_analyze = false;
  // ALTER TABLE ... DETACH PARTITION, INHERIT or NO INHERIT.
  bool changes_inheritance = false;
  // kExplain, kPrepare, kDeclareCursor, COPY (query), CREATE MATERIALIZED VIEW: the kind below it,
  // whose facts are here too.
  StatementKind explained = StatementKind::kOther;
};

}  // namespace collegedb::parser
