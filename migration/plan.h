// How the rows of a group are read, written, compared and archived: made from the catalogs of both
// shards by the preflight. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "migration/move.h"
#include "routing/key.h"

namespace collegedb::migration {

struct ColumnShape {
  std::string name{};
  std::string type{};      // format_type, schema-qualified
  bool generated = false;  // computed by the server: never copied
  // Its binary form holds OIDs, which differ between shards (user-defined types and what is built
  // of them, reg*), or it has none: compared as text, and its table is copied in text format.
  bool as_text = false;
  friend bool operator==(const ColumnShape&, const ColumnShape&) = default;
};

// A foreign key with a table of the group on at least one side.
struct ForeignKey {
  std::string name{};
  std::string table{};       // "schema.table", the referencing one
  std::string referenced{};  // "schema.table"
  std::string table_sql{};   // both quoted
  std::string referenced_sql{};
  std::vector<std::string> columns{};
  std::vector<std::string> referenced_columns{};
  std::vector<std::string> operators{};  // referenced OPERATOR(...) referencing, one per column
  bool follows_key = false;  // both sides of one pair are the key columns: never crosses keys
  bool cascades = false;     // ON DELETE or ON UPDATE does something
};

// A sequence that fills a unique column (other than the key) of a table of the group.
struct SequenceShape {
  std::string table{};
  std::string column{};
  std::int64_t increment = 1;
  std::int64_t last_value = 0;  // of the sequence relation: same residue as the next value
};

struct TableShape {
  GroupTable table{};
  std::optional<routing::KeyType> key{};  // none: the key column is no key
  std::string key_type{};                 // of the column: for a cast of sql_key_literal
  std::string key_operator{};             // equality of that type: "OPERATOR(pg_catalog.=)"
  std::vector<ColumnShape> columns{};
  // Everything that must be equal on both sides, one line each, sorted.
  std::vector<std::string> fingerprint{};
  std::vector<std::string> user_triggers{};  // would fire for an ordinary session
  std::vector<std::string>
      always_triggers{};           // would fire under session_replication_role = replica
  bool deferrable_unique = false;  // checked by a trigger that replica mode would not run
};

struct Problem {
  ErrorCode code = ErrorCode::kMoveRefused;
  std::string text{};
};

// What one shard says about the group.
struct GroupCatalog {
  std::string shard{};
  int server_version = 0;
  int prepared_transactions = 0;  // max_prepared_transactions
  std::string encoding{};
  bool replica_role = false;  // this role may set session_replication_role
  std::vector<TableShape> tables{};
  std::vector<ForeignKey> foreign_keys{};
  std::vector<SequenceShape> sequences{};
  std::vector<Problem> problems{};  // of this shard alone, each naming what it is about
};

// `before column match`, e.g. "\"id\"" and "= '7'::bigint".
struct RowMatch {
  std::string column{};
  std::string match{};
  std::string before{};
};

// One table as a move treats it, in foreign-key order: referenced tables first.
struct TablePlan {
  GroupTable table{};
  std::string qualified{};             // quoted
  std::string label{};                 // "schema.table"
  std::vector<RowMatch> conditions{};  // rows of the unit: all of them
  routing::KeyType key = routing::KeyType::kText;
  // How routing reads the key of a row, and the same of the value that the conditions look for.
  std::string key_expression{};
  std::string sought_expression{};  // over `literal`, see unlike_sql
  std::vector<ColumnShape> columns{};
  bool text_copy = false;
  // Part of schema collegedb that travels with the key: neither counted nor archived.
  bool internal = false;
};

struct MovePlan {
  std::vector<TablePlan> tables{};
  std::vector<ForeignKey> foreign_keys{};
  bool replica_role = false;  // no trigger fires for the mover, on either side
};

struct Preflight {
  MovePlan plan{};
  std::vector<Problem> problems{};  // empty = the move may start
};

// Compares both sides.
[[nodiscard]] Preflight preflight(const Unit& unit, const GroupCatalog& source,
                                  const GroupCatalog& destination);
// The plan for looking at one side alone.
[[nodiscard]] MovePlan plan_of(const Unit& unit, const GroupCatalog& side);

// SQL texts over a table of the plan. Aggregates: rows, hash, hash, bytes.
[[nodiscard]] std::string digest_sql(const TablePlan& table);
// Of all tables of the plan, one row for each in that order.
[[nodiscard]] std::string digest_sql(const MovePlan& plan);
[[nodiscard]] std::string copy_out_sql(const TablePlan& table);
[[nodiscard]] std::string copy_in_sql(const TablePlan& table);
[[nodiscard]] std::string delete_sql(const TablePlan& table);
// Deletes, archives and digests all tables in one statement; one row for each, in plan order.
[[nodiscard]] std::string retire_sql(const MovePlan& plan, const std::string& op);
// The same without the archive.
[[nodiscard]] std::string drop_sql(const MovePlan& plan);
[[nodiscard]] std::string count_sql(const TablePlan& table);
// Rows of all tables that are not internal.
[[nodiscard]] std::string count_sql(const MovePlan& plan);
// Canonical keys of the unit that have rows of the table.
[[nodiscard]] std::string present_sql(const TablePlan& table);
// One row when a row of the unit references what is not there; locks what is.
[[nodiscard]] std::string dangling_sql(const TablePlan& referencing, const ForeignKey& key);
// One row when a row outside of the unit references a row of it.
[[nodiscard]] std::string referenced_sql(const TablePlan& referenced, const ForeignKey& key,
                                         const TablePlan* referencing);
[[nodiscard]] std::string lock_rows_sql(const TablePlan& table);
// One row when the conditions of a table look for another value than routing calls by that key.
[[nodiscard]] std::string unlike_sql(const MovePlan& plan, const std::vector<std::string>& keys);
// The label of a table that has rows which routing calls by one of the keys. Reads whole tables.
[[nodiscard]] std::string unseen_sql(const MovePlan& plan, const std::vector<std::string>& keys);

// SQL expression (jsonb) of a live row as the archive keeps it: every value as its own text, exact
// for every type, which to_jsonb is not.
[[nodiscard]] std::string kept_form(const TablePlan& table);
// Relation with a column `row` for FROM. `keys` as below.
[[nodiscard]] std::string archive_of(const TablePlan& table, const std::string& op,
                                     const std::vector<std::string>& keys);
// Condition of the plan's rows.
[[nodiscard]] std::string row_condition(const TablePlan& table);
// The archive of a table: rows that operation `op` took away, those of `keys` alone unless empty.
// Both digests are of the text form in which the archive keeps rows, and compare with each other
// only: "rows, hash, hash, bytes".
[[nodiscard]] std::string archive_digest_sql(const TablePlan& table, const std::string& op,
                                             const std::vector<std::string>& keys);
[[nodiscard]] std::string text_digest_sql(const TablePlan& table);
// Out of the archive, into the table: COPY of the columns as text.
[[nodiscard]] std::string archive_out_sql(const TablePlan& table, const std::string& op,
                                          const std::vector<std::string>& keys);
[[nodiscard]] std::string archive_in_sql(const TablePlan& table);
// One row when the archive has a row of the operation that is not of the plan's tables and columns.
[[nodiscard]] std::string archive_unlike_sql(const MovePlan& plan, const std::string& op);

}  // namespace collegedb::migration
