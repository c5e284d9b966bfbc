// Data definition: which command it is, and whether PostgreSQL lets it run in a transaction block.
#include <algorithm>
#include <array>

#include "parser/analyzer.h"

namespace collegedb::parser {
namespace {

struct Command {
  ::NodeTag node;
  StatementKind kind;
  std::string_view verb;
};

constexpr auto kDdl = StatementKind::kDdl;
constexpr auto kDdlNoBlock = StatementKind::kDdlNoBlock;

// Commands whose words and kind depend on the node alone; the others are below.
constexpr std::array kCommands{
    Command{T_CreateSchemaStmt, kDdl, "CREATE SCHEMA"},
    Command{T_AlterDomainStmt, kDdl, "ALTER DOMAIN"},
    Command{T_AlterDefaultPrivilegesStmt, kDdl, "ALTER DEFAULT PRIVILEGES"},
    Command{T_CreateStmt, kDdl, "CREATE TABLE"},
    Command{T_CreateForeignTableStmt, kDdl, "CREATE FOREIGN TABLE"},
    Command{T_CreateTableSpaceStmt, kDdlNoBlock, "CREATE TABLESPACE"},
    Command{T_DropTableSpaceStmt, kDdlNoBlock, "DROP TABLESPACE"},
    Command{T_AlterTableSpaceOptionsStmt, kDdl, "ALTER TABLESPACE"},
    Command{T_AlterTableMoveAllStmt, kDdl, "ALTER TABLE"},
    Command{T_CreateExtensionStmt, kDdl, "CREATE EXTENSION"},
    Command{T_AlterExtensionStmt, kDdl, "ALTER EXTENSION"},
    Command{T_AlterExtensionContentsStmt, kDdl, "ALTER EXTENSION"},
    Command{T_CreateFdwStmt, kDdl, "CREATE FOREIGN DATA WRAPPER"},
    Command{T_AlterFdwStmt, kDdl, "ALTER FOREIGN DATA WRAPPER"},
    Command{T_CreateForeignServerStmt, kDdl, "CREATE SERVER"},
    Command{T_AlterForeignServerStmt, kDdl, "ALTER SERVER"},
    Command{T_CreateUserMappingStmt, kDdl, "CREATE USER MAPPING"},
    Command{T_AlterUserMappingStmt, kDdl, "ALTER USER MAPPING"},
    Command{T_DropUserMappingStmt, kDdl, "DROP USER MAPPING"},
    Command{T_ImportForeignSchemaStmt, kDdl, "IMPORT FOREIGN SCHEMA"},
    Command{T_CreatePolicyStmt, kDdl, "CREATE POLICY"},
    Command{T_AlterPolicyStmt, kDdl, "ALTER POLICY"},
    Command{T_CreateAmStmt, kDdl, "CREATE ACCESS METHOD"},
    Command{T_CreateTrigStmt, kDdl, "CREATE TRIGGER"},
    Command{T_CreateEventTrigStmt, kDdl, "CREATE EVENT TRIGGER"},
    Command{T_AlterEventTrigStmt, kDdl, "ALTER EVENT TRIGGER"},
    Command{T_CreatePLangStmt, kDdl, "CREATE LANGUAGE"},
    Command{T_CreateRoleStmt, kDdl, "CREATE ROLE"},
    Command{T_AlterRoleStmt, kDdl, "ALTER ROLE"},
    Command{T_AlterRoleSetStmt, kDdl, "ALTER ROLE"},
    Command{T_DropRoleStmt, kDdl, "DROP ROLE"},
    Command{T_CreateSeqStmt, kDdl, "CREATE SEQUENCE"},
    Command{T_AlterSeqStmt, kDdl, "ALTER SEQUENCE"},
    Command{T_DefineStmt, kDdl, "CREATE"},
    Command{T_CreateDomainStmt, kDdl, "CREATE DOMAIN"},
    Command{T_CreateOpClassStmt, kDdl, "CREATE OPERATOR CLASS"},
    Command{T_CreateOpFamilyStmt, kDdl, "CREATE OPERATOR FAMILY"},
    Command{T_AlterOpFamilyStmt, kDdl, "ALTER OPERATOR FAMILY"},
    Command{T_CommentStmt, kDdl, "COMMENT"},
    Command{T_SecLabelStmt, kDdl, "SECURITY LABEL"},
    Command{T_IndexStmt, kDdl, "CREATE INDEX"},
    Command{T_CreateStatsStmt, kDdl, "CREATE STATISTICS"},
    Command{T_AlterStatsStmt, kDdl, "ALTER STATISTICS"},
    Command{T_AlterOperatorStmt, kDdl, "ALTER OPERATOR"},
    Command{T_AlterTypeStmt, kDdl, "ALTER TYPE"},
    Command{T_AlterEnumStmt, kDdl, "ALTER TYPE"},
    Command{T_AlterCollationStmt, kDdl, "ALTER COLLATION"},
    Command{T_RuleStmt, kDdl, "CREATE RULE"},
    Command{T_CompositeTypeStmt, kDdl, "CREATE TYPE"},
    Command{T_CreateEnumStmt, kDdl, "CREATE TYPE"},
    Command{T_CreateRangeStmt, kDdl, "CREATE TYPE"},
    Command{T_ViewStmt, kDdl, "CREATE VIEW"},
    Command{T_LoadStmt, StatementKind::kOther, "LOAD"},
    Command{T_CreatedbStmt, kDdlNoBlock, "CREATE DATABASE"},
    Command{T_DropdbStmt, kDdlNoBlock, "DROP DATABASE"},
    Command{T_AlterDatabaseStmt, kDdl, "ALTER DATABASE"},
    Command{T_AlterDatabaseSetStmt, kDdl, "ALTER DATABASE"},
    Command{T_AlterDatabaseRefreshCollStmt, kDdl, "ALTER DATABASE"},
    Command{T_AlterSystemStmt, kDdlNoBlock, "ALTER SYSTEM"},
    Command{T_ClusterStmt, kDdl, "CLUSTER"},
    Command{T_VacuumStmt, kDdlNoBlock, "VACUUM"},
    Command{T_RefreshMatViewStmt, kDdl, "REFRESH MATERIALIZED VIEW"},
    Command{T_CheckPointStmt, kDdl, "CHECKPOINT"},
    Command{T_TruncateStmt, StatementKind::kTruncate, "TRUNCATE TABLE"},
    Command{T_ConstraintsSetStmt, StatementKind::kOther, "SET CONSTRAINTS"},
    Command{T_ReindexStmt, kDdl, "REINDEX"},
    Command{T_CreateConversionStmt, kDdl, "CREATE CONVERSION"},
    Command{T_CreateCastStmt, kDdl, "CREATE CAST"},
    Command{T_CreateTransformStmt, kDdl, "CREATE TRANSFORM"},
    Command{T_DropOwnedStmt, kDdl, "DROP OWNED"},
    Command{T_ReassignOwnedStmt, kDdl, "REASSIGN OWNED"},
    Command{T_AlterTSDictionaryStmt, kDdl, "ALTER TEXT SEARCH DICTIONARY"},
    Command{T_AlterTSConfigurationStmt, kDdl, "ALTER TEXT SEARCH CONFIGURATION"},
    Command{T_CreatePublicationStmt, kDdl, "CREATE PUBLICATION"},
    Command{T_AlterPublicationStmt, kDdl, "ALTER PUBLICATION"},
    Command{T_CreateSubscriptionStmt, kDdlNoBlock, "CREATE SUBSCRIPTION"},
    Command{T_AlterSubscriptionStmt, kDdl, "ALTER SUBSCRIPTION"},
    // Whether a slot is dropped with it stands in the catalog only.
    Command{T_DropSubscriptionStmt, kDdlNoBlock, "DROP SUBSCRIPTION"},
};

// An option that is there and not off.
bool has_option(const ::List* options, std::string_view name, bool when_missing = false) {
  bool on = when_missing;
  for (const ::ListCell& cell : cells(options)) {
    const auto& option = *as<::DefElem>(cell.ptr_value);
    if (view(option.defname) == name) on = option_on(option);
  }
  return on;
}

bool names_option(const ::List* options, std::string_view name) {
  return std::ranges::any_of(cells(options), [&](const ::ListCell& cell) {
    return view(as<::DefElem>(cell.ptr_value)->defname) == name;
  });
}

bool detaches_concurrently(const ::AlterTableStmt& stmt) {
  return std::ranges::any_of(cells(stmt.cmds), [](const ::ListCell& cell) {
    const auto& command = *as<::AlterTableCmd>(cell.ptr_value);
    return command.subtype == AT_DetachPartition && is(command.def, T_PartitionCmd) &&
           as<::PartitionCmd>(command.def)->concurrent;
  });
}

bool changes_inheritance(const ::AlterTableStmt& stmt) {
  return std::ranges::any_of(cells(stmt.cmds), [](const ::ListCell& cell) {
    const auto type = as<::AlterTableCmd>(cell.ptr_value)->subtype;
    return type == AT_DetachPartition || type == AT_DetachPartitionFinalize ||
           type == AT_AddInherit || type == AT_DropInherit;
  });
}

// The SET clause of ALTER DATABASE, ROLE or SYSTEM; null for other commands and for RESET.
const ::VariableSetStmt* stored_setting(const ::Node* node) {
  const ::VariableSetStmt* setting = nullptr;
  if (is(node, T_AlterRoleSetStmt)) setting = as<::AlterRoleSetStmt>(node)->setstmt;
  if (is(node, T_AlterDatabaseSetStmt)) setting = as<::AlterDatabaseSetStmt>(node)->setstmt;
  if (is(node, T_AlterSystemStmt)) setting = as<::AlterSystemStmt>(node)->setstmt;
  const bool sets =
      setting != nullptr && (setting->kind == VAR_SET_VALUE || setting->kind == VAR_SET_CURRENT);
  return sets ? setting : nullptr;
}

bool alters_subscription_slots(const ::AlterSubscriptionStmt& stmt) {
  switch (stmt.kind) {
    case ALTER_SUBSCRIPTION_REFRESH:
      return true;
    case ALTER_SUBSCRIPTION_SET_PUBLICATION:
    case ALTER_SUBSCRIPTION_ADD_PUBLICATION:
    case ALTER_SUBSCRIPTION_DROP_PUBLICATION:
      return has_option(stmt.options, "refresh", true);
    default:
      return false;
  }
}

// PreventInTransactionBlock of PostgreSQL, as far as the text decides it. REINDEX and CLUSTER of a
// partitioned table are refused by the server itself.
bool refuses_block(const ::Node* node) {
  switch (tag_of(node)) {
    case T_IndexStmt:
      return as<::IndexStmt>(node)->concurrent;
    case T_DropStmt:
      return as<::DropStmt>(node)->concurrent;
    case T_ReindexStmt: {
      const auto& stmt = *as<::ReindexStmt>(node);
      return stmt.kind == REINDEX_OBJECT_SCHEMA || stmt.kind == REINDEX_OBJECT_SYSTEM ||
             stmt.kind == REINDEX_OBJECT_DATABASE || has_option(stmt.params, "concurrently");
    }
    case T_ClusterStmt:
      return as<::ClusterStmt>(node)->relation == nullptr;
    case T_AlterDatabaseStmt:
      return names_option(as<::AlterDatabaseStmt>(node)->options, "tablespace");
    case T_AlterTableStmt:
      return detaches_concurrently(*as<::AlterTableStmt>(node));
    case T_AlterSubscriptionStmt:
      return alters_subscription_slots(*as<::AlterSubscriptionStmt>(node));
    default:
      return false;
  }
}

bool creates_slot(const ::CreateSubscriptionStmt& stmt) {
  const bool connects = has_option(stmt.options, "connect", true);
  return has_option(stmt.options, "create_slot", connects);
}

// An object of the session's own temporary schema.
bool creates_temporary(const ::Node* node) {
  const auto in_temporary = [](const ::List* names) { return to_name(names).schema == "pg_temp"; };
  switch (tag_of(node)) {
    case T_CreateStmt:
      return is_temporary(*as<::CreateStmt>(node)->relation);
    case T_ViewStmt:
      return is_temporary(*as<::ViewStmt>(node)->view);
    case T_CreateSeqStmt:
      return is_temporary(*as<::CreateSeqStmt>(node)->sequence);
    case T_CompositeTypeStmt:
      return is_temporary(*as<::CompositeTypeStmt>(node)->typevar);
    case T_CreateFunctionStmt:
      return in_temporary(as<::CreateFunctionStmt>(node)->funcname);
    case T_CreateDomainStmt:
      return in_temporary(as<::CreateDomainStmt>(node)->domainname);
    case T_CreateEnumStmt:
      return in_temporary(as<::CreateEnumStmt>(node)->typeName);
    case T_CreateRangeStmt:
      return in_temporary(as<::CreateRangeStmt>(node)->typeName);
    case T_DefineStmt:
      return in_temporary(as<::DefineStmt>(node)->defnames);
    default:
      return false;
  }
}

}  // namespace

std::string_view object_words(::ObjectType type) {
  switch (type) {
    case OBJECT_ACCESS_METHOD:
      return "ACCESS METHOD";
    case OBJECT_AGGREGATE:
      return "AGGREGATE";
    case OBJECT_CAST:
      return "CAST";
    case OBJECT_COLLATION:
      return "COLLATION";
    case OBJECT_CONVERSION:
      return "CONVERSION";
    case OBJECT_DATABASE:
      return "DATABASE";
    case OBJECT_DOMAIN:
    case OBJECT_DOMCONSTRAINT:
      return "DOMAIN";
    case OBJECT_EVENT_TRIGGER:
      return "EVENT TRIGGER";
    case OBJECT_EXTENSION:
      return "EXTENSION";
    case OBJECT_FDW:
      return "FOREIGN DATA WRAPPER";
    case OBJECT_FOREIGN_SERVER:
      return "SERVER";
    case OBJECT_FOREIGN_TABLE:
      return "FOREIGN TABLE";
    case OBJECT_FUNCTION:
      return "FUNCTION";
    case OBJECT_INDEX:
      return "INDEX";
    case OBJECT_LANGUAGE:
      return "LANGUAGE";
    case OBJECT_LARGEOBJECT:
      return "LARGE OBJECT";
    case OBJECT_MATVIEW:
      return "MATERIALIZED VIEW";
    case OBJECT_OPCLASS:
      return "OPERATOR CLASS";
    case OBJECT_OPERATOR:
      return "OPERATOR";
    case OBJECT_OPFAMILY:
      return "OPERATOR FAMILY";
    case OBJECT_POLICY:
      return "POLICY";
    case OBJECT_PROCEDURE:
      return "PROCEDURE";
    case OBJECT_PUBLICATION:
      return "PUBLICATION";
    case OBJECT_ROLE:
      return "ROLE";
    case OBJECT_ROUTINE:
      return "ROUTINE";
    case OBJECT_RULE:
      return "RULE";
    case OBJECT_SCHEMA:
      return "SCHEMA";
    case OBJECT_SEQUENCE:
      return "SEQUENCE";
    case OBJECT_STATISTIC_EXT:
      return "STATISTICS";
    case OBJECT_SUBSCRIPTION:
      return "SUBSCRIPTION";
    case OBJECT_TABLESPACE:
      return "TABLESPACE";
    case OBJECT_TRANSFORM:
      return "TRANSFORM";
    case OBJECT_TRIGGER:
      return "TRIGGER";
    case OBJECT_TSCONFIGURATION:
      return "TEXT SEARCH CONFIGURATION";
    case OBJECT_TSDICTIONARY:
      return "TEXT SEARCH DICTIONARY";
    case OBJECT_TSPARSER:
      return "TEXT SEARCH PARSER";
    case OBJECT_TSTEMPLATE:
      return "TEXT SEARCH TEMPLATE";
    case OBJECT_ATTRIBUTE:
    case OBJECT_TYPE:
      return "TYPE";
    case OBJECT_USER_MAPPING:
      return "USER MAPPING";
    case OBJECT_VIEW:
      return "VIEW";
    default:
      return "TABLE";  // also columns and constraints of one
  }
}

void Analyzer::begin_ddl(const ::Node* node) {
  const auto named = [&](std::string_view verb, ::ObjectType type) {
    set_kind(kDdl, verb);
    out_.verb += ' ';
    out_.verb += object_words(type);
  };
  switch (tag_of(node)) {
    case T_AlterTableStmt:
      named("ALTER", as<::AlterTableStmt>(node)->objtype);
      break;
    case T_RenameStmt:
      named("ALTER", as<::RenameStmt>(node)->renameType == OBJECT_COLUMN
                         ? as<::RenameStmt>(node)->relationType
                         : as<::RenameStmt>(node)->renameType);
      break;
    case T_AlterObjectDependsStmt:
      named("ALTER", as<::AlterObjectDependsStmt>(node)->objectType);
      break;
    case T_AlterObjectSchemaStmt:
      named("ALTER", as<::AlterObjectSchemaStmt>(node)->objectType);
      break;
    case T_AlterOwnerStmt:
      named("ALTER", as<::AlterOwnerStmt>(node)->objectType);
      break;
    case T_AlterFunctionStmt:
      named("ALTER", as<::AlterFunctionStmt>(node)->objtype);
      break;
    case T_DropStmt:
      named("DROP", as<::DropStmt>(node)->removeType);
      break;
    case T_DefineStmt:
      named("CREATE", as<::DefineStmt>(node)->kind);
      break;
    case T_GrantStmt:
      set_kind(kDdl, as<::GrantStmt>(node)->is_grant ? "GRANT" : "REVOKE");
      break;
    case T_GrantRoleStmt:
      set_kind(kDdl, as<::GrantRoleStmt>(node)->is_grant ? "GRANT ROLE" : "REVOKE ROLE");
      break;
    case T_CreateFunctionStmt:
      set_kind(kDdl, as<::CreateFunctionStmt>(node)->is_procedure ? "CREATE PROCEDURE"
                                                                  : "CREATE FUNCTION");
      break;
    case T_CreateTableAsStmt:
      return create_table_as(*as<::CreateTableAsStmt>(node));
    default: {
      const auto command = std::ranges::find(kCommands, tag_of(node), &Command::node);
      if (command == kCommands.end()) break;
      set_kind(command->kind, command->verb);
    }
  }
  if (is(node, T_AlterTableStmt)) {
    out_.changes_inheritance = changes_inheritance(*as<::AlterTableStmt>(node));
  }
  if (const ::VariableSetStmt* setting = stored_setting(node)) {
    out_.name = to_lower(view(setting->name));
  }
  if (refuses_block(node)) out_.kind = kDdlNoBlock;
  if (creates_temporary(node)) out_.kind = StatementKind::kCreateTemp;
  if (is(node, T_CreateSubscriptionStmt) && !creates_slot(*as<::CreateSubscriptionStmt>(node))) {
    out_.kind = kDdl;
  }
  if (is(node, T_VacuumStmt) && !as<::VacuumStmt>(node)->is_vacuumcmd) {
    set_kind(StatementKind::kAnalyze, "ANALYZE");
  }
  visit(node);
}

void Analyzer::create_table_as(const ::CreateTableAsStmt& stmt) {
  const ::RangeVar& target = *stmt.into->rel;
  add_table(target, level_, true);
  begin_inner(stmt.query);
  if (stmt.objtype == OBJECT_MATVIEW) {
    out_.explained = StatementKind::kSelect;
    return set_kind(kDdl, "CREATE MATERIALIZED VIEW");
  }
  set_kind(is_temporary(target) ? StatementKind::kCreateTemp : StatementKind::kSelectInto,
           "CREATE TABLE AS");
}

}  // namespace collegedb::parser
