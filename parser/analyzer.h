// The walk from one raw statement to one Statement. Internal to parser/.
//
// No recursion: everything still to be looked at waits in a work list, so that any nesting the
// grammar accepts (left-deep operator, AND/OR, cast, join and UNION chains of any length) is
// walked in constant stack. A handler pushes its children in reading order; the driver makes the
// list pop them in that order.
//
// One handler file per node family: analyze_select, analyze_from and analyze_where for queries,
// analyze_insert, analyze_update_delete, analyze_copy and analyze_utility for the statements,
// analyze_walk for all other nodes.
#pragma once

#include <boost/container/small_vector.hpp>
#include <boost/unordered/unordered_flat_map.hpp>
#include <boost/unordered/unordered_flat_set.hpp>
#include <cstdint>
#include <deque>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "parser/nodes.h"
#include "parser/statement.h"
#include "proxy/wire/error.h"

namespace collegedb::parser {

// A WITH list; the index of long ones is hashed so that look-ups stay linear in the text.
struct CteList {
  const ::List* ctes = nullptr;
  boost::unordered_flat_map<std::string_view, std::size_t> index;
};

// What CTE names can be seen at a point: the first `visible` of `list`, then those of `outer`.
struct CteScope {
  const CteList* list = nullptr;
  std::size_t visible = 0;
  const CteScope* outer = nullptr;
};

// One item of a query level's FROM, or the target of a write. Views point into the raw tree.
struct RangeItem {
  std::string_view name;    // what a qualifier must say
  std::string_view schema;  // of a relation without alias, when the text named it
  int table = -1;           // index into Statement::tables; -1 for sub-select, function, CTE
  bool aliased = false;
  bool renamed = false;  // has column aliases: column names are not the table's own
  bool hidden = false;   // stands under a join with an alias: no qualifier reaches it
};

struct ItemRange {
  std::size_t begin = 0;
  std::size_t end = 0;
};

// One query level while its FROM and WHERE are being read.
struct LevelScope {
  int level = 0;
  boost::container::small_vector<RangeItem, 4> items;

  // A column merged by JOIN ... USING, and the item whose column it equals (none under FULL JOIN).
  struct Merged {
    std::string_view name;
    ItemRange range;
    std::optional<std::size_t> item;
  };
  boost::container::small_vector<Merged, 2> merged;

  [[nodiscard]] std::optional<std::size_t> using_item(std::string_view name,
                                                      const ItemRange& side) const;

  // Beyond this many items no condition of the level is recorded: `restricts` would grow with the
  // square of the text.
  static constexpr std::size_t kMaxItems = 64;
  [[nodiscard]] bool too_wide() const noexcept { return items.size() > kMaxItems; }
  [[nodiscard]] ItemRange all() const noexcept { return {0, items.size()}; }
};

// A condition's place: which items its column names may mean, and whose rows it restricts.
struct ConditionPlace {
  ItemRange visible;
  ItemRange restricted;
};

class Analyzer {
 public:
  // `sql` is the text the tree was made from.
  Analyzer(std::string_view sql, Statement& out) noexcept : sql_(sql), out_(out) {}
  Analyzer(const Analyzer&) = delete;
  Analyzer& operator=(const Analyzer&) = delete;

  // Fills the Statement from the raw tree of one statement. On an error it is half filled.
  [[nodiscard]] std::optional<SqlError> run(const ::Node* statement);

 private:
  struct WorkItem {
    const ::Node* node;
    const CteScope* scope;
    int level;
    bool outer;      // inside an output or ordering expression of the outermost SELECT
    bool own_level;  // a query that stands at `level` instead of opening one
  };

  // --- work list (analyze.cpp)
  void push(const void* node);
  void push_list(const ::List* list);
  // A query that opens a level of its own.
  void push_query(const void* node) { push(node); }
  // A query that is `level` itself: the explained, declared, copied one.
  void push_query_at(const void* node, int level);
  void drain();
  int open_level() { return out_.levels++; }
  void fail(std::string_view sqlstate, std::string_view message, int location = -1);

  // --- dispatch (analyze.cpp)
  void begin_statement(const ::Node* node);
  StatementKind begin_inner(const ::Node* node);
  void set_kind(StatementKind kind, std::string_view verb);

  // --- expressions and all other nodes (analyze_walk.cpp)
  void visit(const ::Node* node);
  bool visit_expression(const ::Node* node);
  bool visit_clause(const ::Node* node);
  bool visit_query(const ::Node* node);
  void add_function(const ::List* name);
  // What may call a function unseen (analyze_hidden.cpp).
  void add_operators(const ::A_Expr& expr);
  void add_operator(std::string_view name);
  void add_type(const ::TypeName& type);
  void add_attribute(const ::ColumnRef& column);
  void add_attribute(std::string_view qualifier, std::string_view name);
  void add_row_alias(std::string_view name);

  // --- data definition (analyze_definition.cpp)
  bool visit_definition(const ::Node* node);
  bool visit_table_definition(const ::Node* node);
  bool visit_object_definition(const ::Node* node);
  bool visit_program(const ::Node* node);
  [[nodiscard]] static bool is_silent(const ::Node* node);
  void add_object(::ObjectType type, const ::Node* names);

  // --- calls, parameters, sub-selects (analyze_walk.cpp)
  void visit_function(const ::FuncCall& call);
  void visit_param(const ::ParamRef& param);
  void visit_cast(const ::TypeCast& cast);
  void refuse_param(const ::ParamRef& param);
  void visit_range_function(const ::RangeFunction& function);
  void visit_sublink(const ::SubLink& link);
  void visit_table_function(const ::RangeTableFunc& function);

  // --- queries (analyze_select.cpp)
  void select(const ::SelectStmt& stmt, bool outermost);
  void select_set_operation(const ::SelectStmt& stmt, bool outermost);
  void select_leaf(const ::SelectStmt& stmt, bool outermost);
  void push_output(const ::SelectStmt& stmt, bool outermost);
  void note_shape(const ::SelectStmt& stmt);
  void note_count_star(const ::SelectStmt& stmt);
  void note_lone_call(const ::SelectStmt& stmt);
  void select_into(const ::SelectStmt& stmt);
  // Queues the bodies of a WITH clause and makes its names visible to what is pushed afterwards.
  void with(const ::WithClause* clause);
  [[nodiscard]] bool is_cte(const ::RangeVar& relation) const;

  // --- FROM (analyze_from.cpp)
  struct Join;
  void from(std::span<const ::ListCell> clause, LevelScope& scope);
  void from_item(const ::Node* node, LevelScope& scope);
  void join_conditions(const Join& join, const ItemRange& around, LevelScope& scope);
  void using_conditions(const Join& join, const ConditionPlace& place, LevelScope& scope);
  int add_table(const ::RangeVar& relation, int level, bool written);
  // add_table and its range item.
  int add_item(const ::RangeVar& relation, LevelScope& scope, bool written);

  // --- conditions (analyze_where.cpp)
  void where(const ::Node* quals, const LevelScope& scope);
  void conditions(const ::Node* quals, const LevelScope& scope, const ConditionPlace& place);
  void condition(const ::A_Expr& expr, const LevelScope& scope, const ConditionPlace& place);
  void equality(const ::Node* left, const ::Node* right, bool distinct, const LevelScope& scope,
                const ConditionPlace& place);
  void row_equality(const ::RowExpr& left, const ::RowExpr& right, bool distinct,
                    const LevelScope& scope, const ConditionPlace& place);
  void in_list(const ::A_Expr& expr, const LevelScope& scope, const ConditionPlace& place);
  void any_array(const ::A_Expr& expr, const LevelScope& scope, const ConditionPlace& place);
  void add_conjunct(Conjunct conjunct, const LevelScope& scope, const ConditionPlace& place);
  [[nodiscard]] std::optional<ColumnRef> column(const ::Node* node, const LevelScope& scope,
                                                const ConditionPlace& place) const;
  [[nodiscard]] bool may_be_null(const ColumnRef& column, const LevelScope& scope) const;

  // --- statements (analyze_insert.cpp, analyze_update_delete.cpp, analyze_copy.cpp)
  void insert(const ::InsertStmt& stmt, bool top);
  void insert_source(const ::InsertStmt& stmt);
  void update(const ::UpdateStmt& stmt, bool top);
  void remove(const ::DeleteStmt& stmt, bool top);
  void merge(const ::MergeStmt& stmt, bool top);
  void merge_inserts(const ::MergeStmt& stmt);
  void assign(const ::List* targets, std::string_view target_name, bool record,
              bool on_conflict = false);
  void on_conflict(const ::OnConflictClause& clause, std::string_view target_name, bool top);
  void copy(const ::CopyStmt& stmt);

  // --- utility statements (analyze_utility.cpp, analyze_set.cpp, analyze_ddl.cpp)
  bool begin_session(const ::Node* node);
  bool begin_named(const ::Node* node);
  void transaction(const ::TransactionStmt& stmt);
  void transaction_options(const ::List* options);
  void set_variable(const ::VariableSetStmt& stmt);
  void set_value(const ::VariableSetStmt& stmt);
  void set_interval(const ::TypeCast& cast);
  void explain(const ::ExplainStmt& stmt);
  void discard(const ::DiscardStmt& stmt);
  void fetch(const ::FetchStmt& stmt);
  void begin_ddl(const ::Node* node);
  void create_table_as(const ::CreateTableAsStmt& stmt);
  void lock(const ::LockStmt& stmt);

  std::string_view sql_;
  Statement& out_;
  boost::container::small_vector<WorkItem, 32> work_;
  // Context of the node being visited; what push() hands on.
  const CteScope* scope_ = nullptr;
  int level_ = 0;
  bool outer_ = false;
  bool own_level_ = false;
  std::vector<std::uint8_t> param_uses_;  // by $n: 0, 1, or 2 for more than once
  // What is in Statement::operators, types, attributes and row_aliases already.
  boost::unordered_flat_set<std::string_view> seen_operators_;
  boost::unordered_flat_set<std::string_view> seen_types_;
  boost::unordered_flat_set<std::pair<std::string_view, std::string_view>> seen_attributes_;
  boost::unordered_flat_set<std::string_view> seen_aliases_;
  std::deque<CteScope> scopes_;
  std::deque<CteList> cte_lists_;
  std::optional<SqlError> error_;
};

// --- values (analyze_value.cpp)

// The value of an expression the proxy can know, else kOpaque.
[[nodiscard]] Value to_value(const ::Node* node);
// Elements of ARRAY[...], with an array cast pushed down to them; nullopt for anything else.
[[nodiscard]] std::optional<std::vector<Value>> to_array(const ::Node* node);
// A type without modifiers; "int4[]" for arrays. nullopt for SETOF, %TYPE and typmods.
[[nodiscard]] std::optional<QualifiedName> to_type(const ::TypeName& type);
// [catalog.][schema.]name
[[nodiscard]] QualifiedName to_name(const ::List* names);
// True when an item of a row is `x.*`, which stands for any number of items.
[[nodiscard]] bool has_star(const ::List* row);
// True for `=` and OPERATOR(pg_catalog.=).
[[nodiscard]] bool is_equals(const ::List* operator_name);
// True for a relation of the session's own: TEMP, or in schema pg_temp.
[[nodiscard]] bool is_temporary(const ::RangeVar& relation);
// True for the name of a built-in aggregate, unqualified or in pg_catalog.
[[nodiscard]] bool is_aggregate_name(const QualifiedName& name);

// The value of an option as a word or number; empty when it is none.
[[nodiscard]] std::string option_text(const ::Node* node);
// A boolean option is on when it stands alone.
[[nodiscard]] bool option_on(const ::DefElem& option);
// ASCII only, as PostgreSQL compares names of settings.
[[nodiscard]] std::string to_lower(std::string_view text);

// --- names of commands (analyze_ddl.cpp)
[[nodiscard]] std::string_view object_words(::ObjectType type);

}  // namespace collegedb::parser
