// Code of users that a statement runs without a visible call of it: operators, conversions,
// attribute notation, and what hangs on the relations it names.
#include <algorithm>

#include "routing/functions.h"
#include "routing/planner.h"

namespace collegedb::routing {
namespace {

void note(Planner& planner, std::string_view what, std::string_view name) {
  if (!planner.opaque.empty()) return;
  planner.opaque = what;
  planner.opaque += ' ';
  planner.opaque += name;
}

bool has_column(const Planner& planner, std::size_t table, std::string_view column) {
  const TableInfo* info = planner.tables[table];
  if (info != nullptr &&
      std::ranges::find(info->columns, column, &ColumnInfo::name) != info->columns.end()) {
    return true;
  }
  const parser::QualifiedName relation =
      planner.snapshot.resolve(planner.statement().tables[table].name, planner.search_path);
  return std::ranges::any_of(planner.snapshot.hidden.columns, [&](const auto& known) {
    return known.name == column && known.relation == relation;
  });
}

// True when the qualifier can only mean relations that have such a column.
bool is_column(const Planner& planner, const parser::Attribute& attribute) {
  const parser::Statement& statement = planner.statement();
  if (std::ranges::find(statement.row_aliases, attribute.qualifier) !=
      statement.row_aliases.end()) {
    return false;
  }
  // In ON CONFLICT the new row, of the columns of the target.
  const bool excluded = statement.has_on_conflict && attribute.qualifier == "excluded";
  bool found = false;
  for (std::size_t i = 0; i < statement.tables.size(); ++i) {
    const parser::TableRef& ref = statement.tables[i];
    if (ref.alias != attribute.qualifier && !(excluded && ref.written)) continue;
    if (!has_column(planner, i, attribute.name)) return false;
    found = true;
  }
  return found;
}

// A function of the server itself that would have been refused or sent elsewhere as a call. Names
// of the others may be columns of anything.
bool matters_as_builtin(const Planner& planner, std::string_view name) {
  if (!is_builtin(planner.snapshot, {"", std::string(name)})) return false;
  const FunctionClass kind = classify_builtin(name);
  return kind == FunctionClass::kOpaque || kind == FunctionClass::kSessionState ||
         kind == FunctionClass::kJournal;
}

void judge_attributes(Planner& planner) {
  for (const parser::Attribute& attribute : planner.statement().attributes) {
    const bool code = planner.snapshot.hidden.attributes.contains(attribute.name) ||
                      matters_as_builtin(planner, attribute.name);
    const bool aggregate = is_builtin_aggregate(attribute.name);
    if ((!code && !aggregate) || is_column(planner, attribute)) continue;
    if (code) note(planner, "attribute", quoted(attribute.name));
    if (aggregate && planner.aggregate == nullptr) planner.aggregate = &attribute;
  }
}

// Makes a row of the type of its argument: a relation's own, where no type is named.
bool populates_record(const parser::Statement& statement) {
  return std::ranges::any_of(statement.functions, [](const parser::FunctionCall& call) {
    return call.name.name.starts_with("json_populate_record") ||
           call.name.name.starts_with("jsonb_populate_record");
  });
}

void judge_relations(Planner& planner) {
  const HiddenCode& hidden = planner.snapshot.hidden;
  if (hidden.read.empty() && hidden.written.empty() && hidden.types.empty()) return;
  const bool populates = populates_record(planner.statement());
  for (const parser::TableRef& ref : planner.statement().tables) {
    const parser::QualifiedName name = planner.snapshot.resolve(ref.name, planner.search_path);
    if (hidden.read.contains(name) || (ref.written && hidden.written.contains(name)) ||
        (populates && hidden.types.contains(name.name))) {
      note(planner, "code of relation", quoted(name.name));
    }
  }
}

}  // namespace

void judge_hidden_code(Planner& planner) {
  const HiddenCode& hidden = planner.snapshot.hidden;
  const parser::Statement& statement = planner.statement();
  for (const std::string& name : statement.operators) {
    if (hidden.operators.contains(name)) note(planner, "operator", name);
  }
  for (const std::string& name : statement.types) {
    if (hidden.types.contains(name)) note(planner, "type", quoted(name));
  }
  if (hidden.casts) note(planner, "a user-defined cast", "between built-in types");
  judge_attributes(planner);
  judge_relations(planner);
}

}  // namespace collegedb::routing
