// What the nodes of data definition name: relations, expressions and queries inside them.
#include "parser/analyzer.h"

namespace collegedb::parser {
namespace {

bool is_relation_kind(::ObjectType type) {
  return type == OBJECT_TABLE || type == OBJECT_VIEW || type == OBJECT_MATVIEW ||
         type == OBJECT_SEQUENCE || type == OBJECT_FOREIGN_TABLE;
}

// Objects named as [schema.]relation.object.
bool is_part_kind(::ObjectType type) {
  return type == OBJECT_COLUMN || type == OBJECT_TABCONSTRAINT || type == OBJECT_TRIGGER ||
         type == OBJECT_POLICY || type == OBJECT_RULE;
}

// A RangeVar field that may hold something else than a table: an index, a composite type.
bool holds_table(::ObjectType type) {
  return type != OBJECT_INDEX && type != OBJECT_TYPE && type != OBJECT_ATTRIBUTE;
}

}  // namespace

// `names` is the list of name parts of an object; adds the relation it is or belongs to.
void Analyzer::add_object(::ObjectType type, const ::Node* names) {
  if (!is(names, T_List)) return;
  const auto* list = as<::List>(names);
  const std::size_t part = is_part_kind(type) ? 1 : 0;
  const std::size_t size = size_of(list);
  if ((part == 0 && !is_relation_kind(type)) || size <= part) return;
  TableRef table;
  table.name.name = string_of(at(list, size - part - 1));
  if (size > part + 1) table.name.schema = string_of(at(list, size - part - 2));
  table.alias = table.name.name;
  table.level = level_;
  out_.tables.push_back(std::move(table));
}

bool Analyzer::visit_definition(const ::Node* node) {
  return visit_table_definition(node) || visit_object_definition(node) || visit_program(node) ||
         is_silent(node);
}

bool Analyzer::visit_table_definition(const ::Node* node) {
  switch (tag_of(node)) {
    case T_CreateStmt:
    case T_CreateForeignTableStmt: {
      const auto& stmt = *as<::CreateStmt>(node);
      push(stmt.relation);
      push_list(stmt.tableElts);
      push_list(stmt.inhRelations);
      push(stmt.partbound);
      push(stmt.partspec);
      push_list(stmt.constraints);
      push_list(stmt.options);
      return true;
    }
    case T_ColumnDef:
      push(as<::ColumnDef>(node)->typeName);
      push(as<::ColumnDef>(node)->raw_default);
      push_list(as<::ColumnDef>(node)->constraints);
      return true;
    case T_Constraint:
      push(as<::Constraint>(node)->raw_expr);
      push_list(as<::Constraint>(node)->exclusions);
      push_list(as<::Constraint>(node)->options);
      push(as<::Constraint>(node)->where_clause);
      push(as<::Constraint>(node)->pktable);
      return true;
    case T_TableLikeClause:
      push(as<::TableLikeClause>(node)->relation);
      return true;
    case T_PartitionSpec:
      push_list(as<::PartitionSpec>(node)->partParams);
      return true;
    case T_PartitionElem:
      push(as<::PartitionElem>(node)->expr);
      return true;
    case T_PartitionBoundSpec:
      push_list(as<::PartitionBoundSpec>(node)->listdatums);
      push_list(as<::PartitionBoundSpec>(node)->lowerdatums);
      push_list(as<::PartitionBoundSpec>(node)->upperdatums);
      return true;
    case T_PartitionRangeDatum:
      push(as<::PartitionRangeDatum>(node)->value);
      return true;
    case T_PartitionCmd:
      push(as<::PartitionCmd>(node)->name);
      push(as<::PartitionCmd>(node)->bound);
      return true;
    case T_AlterTableStmt:
      if (holds_table(as<::AlterTableStmt>(node)->objtype)) {
        push(as<::AlterTableStmt>(node)->relation);
      }
      push_list(as<::AlterTableStmt>(node)->cmds);
      return true;
    case T_AlterTableCmd:
      push(as<::AlterTableCmd>(node)->def);
      return true;
    case T_IndexStmt:
      push(as<::IndexStmt>(node)->relation);
      push_list(as<::IndexStmt>(node)->indexParams);
      push_list(as<::IndexStmt>(node)->indexIncludingParams);
      push_list(as<::IndexStmt>(node)->options);
      push(as<::IndexStmt>(node)->whereClause);
      return true;
    case T_CreateStatsStmt:
      push_list(as<::CreateStatsStmt>(node)->exprs);
      push_list(as<::CreateStatsStmt>(node)->relations);
      return true;
    case T_StatsElem:
      push(as<::StatsElem>(node)->expr);
      return true;
    case T_TruncateStmt:
      for (const ::ListCell& cell : cells(as<::TruncateStmt>(node)->relations)) {
        add_table(*as<::RangeVar>(cell.ptr_value), level_, true);
      }
      return true;
    case T_VacuumStmt:
      push_list(as<::VacuumStmt>(node)->rels);
      return true;
    case T_VacuumRelation:
      push(as<::VacuumRelation>(node)->relation);
      return true;
    case T_ClusterStmt:
      push(as<::ClusterStmt>(node)->relation);
      return true;
    case T_ReindexStmt:
      if (as<::ReindexStmt>(node)->kind == REINDEX_OBJECT_TABLE) {
        push(as<::ReindexStmt>(node)->relation);
      }
      return true;
    case T_RefreshMatViewStmt:
      push(as<::RefreshMatViewStmt>(node)->relation);
      return true;
    default:
      return false;
  }
}

bool Analyzer::visit_object_definition(const ::Node* node) {
  switch (tag_of(node)) {
    case T_CreateSchemaStmt:
      push_list(as<::CreateSchemaStmt>(node)->schemaElts);
      return true;
    case T_AlterDomainStmt:
      push(as<::AlterDomainStmt>(node)->def);
      return true;
    case T_CreateDomainStmt:
      push(as<::CreateDomainStmt>(node)->typeName);
      push_list(as<::CreateDomainStmt>(node)->constraints);
      return true;
    case T_CompositeTypeStmt:
      push_list(as<::CompositeTypeStmt>(node)->coldeflist);
      return true;
    case T_GrantStmt: {
      const auto& stmt = *as<::GrantStmt>(node);
      if (stmt.targtype == ACL_TARGET_OBJECT && is_relation_kind(stmt.objtype)) {
        push_list(stmt.objects);
      }
      return true;
    }
    case T_CreateSeqStmt:
      push(as<::CreateSeqStmt>(node)->sequence);
      return true;
    case T_AlterSeqStmt:
      push(as<::AlterSeqStmt>(node)->sequence);
      return true;
    case T_DropStmt:
      for (const ::ListCell& cell : cells(as<::DropStmt>(node)->objects)) {
        add_object(as<::DropStmt>(node)->removeType, as<::Node>(cell.ptr_value));
      }
      return true;
    case T_CommentStmt:
      add_object(as<::CommentStmt>(node)->objtype, as<::CommentStmt>(node)->object);
      return true;
    case T_SecLabelStmt:
      add_object(as<::SecLabelStmt>(node)->objtype, as<::SecLabelStmt>(node)->object);
      return true;
    case T_RenameStmt:
      if (holds_table(as<::RenameStmt>(node)->renameType) &&
          holds_table(as<::RenameStmt>(node)->relationType)) {
        push(as<::RenameStmt>(node)->relation);
      }
      return true;
    case T_AlterObjectDependsStmt:
      if (holds_table(as<::AlterObjectDependsStmt>(node)->objectType)) {
        push(as<::AlterObjectDependsStmt>(node)->relation);
      }
      return true;
    case T_AlterObjectSchemaStmt:
      if (holds_table(as<::AlterObjectSchemaStmt>(node)->objectType)) {
        push(as<::AlterObjectSchemaStmt>(node)->relation);
      }
      return true;
    case T_AlterOwnerStmt:
      if (holds_table(as<::AlterOwnerStmt>(node)->objectType)) {
        push(as<::AlterOwnerStmt>(node)->relation);
      }
      return true;
    case T_CreatePublicationStmt:
      push_list(as<::CreatePublicationStmt>(node)->pubobjects);
      return true;
    case T_AlterPublicationStmt:
      push_list(as<::AlterPublicationStmt>(node)->pubobjects);
      return true;
    case T_PublicationObjSpec:
      push(as<::PublicationObjSpec>(node)->pubtable);
      return true;
    case T_PublicationTable:
      push(as<::PublicationTable>(node)->relation);
      push(as<::PublicationTable>(node)->whereClause);
      return true;
    default:
      return false;
  }
}

// Definitions that hold queries or code.
bool Analyzer::visit_program(const ::Node* node) {
  switch (tag_of(node)) {
    case T_ViewStmt:
      push(as<::ViewStmt>(node)->view);
      push(as<::ViewStmt>(node)->query);
      return true;
    case T_RuleStmt:
      push(as<::RuleStmt>(node)->relation);
      push(as<::RuleStmt>(node)->whereClause);
      push_list(as<::RuleStmt>(node)->actions);
      return true;
    case T_CreatePolicyStmt:
      push(as<::CreatePolicyStmt>(node)->table);
      push(as<::CreatePolicyStmt>(node)->qual);
      push(as<::CreatePolicyStmt>(node)->with_check);
      return true;
    case T_AlterPolicyStmt:
      push(as<::AlterPolicyStmt>(node)->table);
      push(as<::AlterPolicyStmt>(node)->qual);
      push(as<::AlterPolicyStmt>(node)->with_check);
      return true;
    case T_CreateTrigStmt:
      push(as<::CreateTrigStmt>(node)->relation);
      push(as<::CreateTrigStmt>(node)->whenClause);
      push(as<::CreateTrigStmt>(node)->constrrel);
      return true;
    case T_CreateFunctionStmt:
      push_list(as<::CreateFunctionStmt>(node)->parameters);
      push(as<::CreateFunctionStmt>(node)->sql_body);
      return true;
    case T_FunctionParameter:
      push(as<::FunctionParameter>(node)->defexpr);
      return true;
    case T_ReturnStmt:
      push(as<::ReturnStmt>(node)->returnval);
      return true;
    default:
      return false;
  }
}

// Nodes that name no relation and hold no expression.
bool Analyzer::is_silent(const ::Node* node) {
  switch (tag_of(node)) {
    case T_AlterDefaultPrivilegesStmt:
    case T_CreateTableSpaceStmt:
    case T_DropTableSpaceStmt:
    case T_AlterTableSpaceOptionsStmt:
    case T_AlterTableMoveAllStmt:
    case T_CreateExtensionStmt:
    case T_AlterExtensionStmt:
    case T_AlterExtensionContentsStmt:
    case T_CreateFdwStmt:
    case T_AlterFdwStmt:
    case T_CreateForeignServerStmt:
    case T_AlterForeignServerStmt:
    case T_CreateUserMappingStmt:
    case T_AlterUserMappingStmt:
    case T_DropUserMappingStmt:
    case T_ImportForeignSchemaStmt:
    case T_CreateAmStmt:
    case T_CreateEventTrigStmt:
    case T_AlterEventTrigStmt:
    case T_CreatePLangStmt:
    case T_CreateRoleStmt:
    case T_AlterRoleStmt:
    case T_AlterRoleSetStmt:
    case T_DropRoleStmt:
    case T_GrantRoleStmt:
    case T_DefineStmt:
    case T_CreateOpClassStmt:
    case T_CreateOpFamilyStmt:
    case T_AlterOpFamilyStmt:
    case T_AlterStatsStmt:
    case T_AlterOperatorStmt:
    case T_AlterTypeStmt:
    case T_AlterEnumStmt:
    case T_AlterCollationStmt:
    case T_CreateEnumStmt:
    case T_CreateRangeStmt:
    case T_AlterFunctionStmt:
    case T_LoadStmt:
    case T_CreatedbStmt:
    case T_DropdbStmt:
    case T_AlterDatabaseStmt:
    case T_AlterDatabaseSetStmt:
    case T_AlterDatabaseRefreshCollStmt:
    case T_AlterSystemStmt:
    case T_CheckPointStmt:
    case T_ConstraintsSetStmt:
    case T_CreateConversionStmt:
    case T_CreateCastStmt:
    case T_CreateTransformStmt:
    case T_DropOwnedStmt:
    case T_ReassignOwnedStmt:
    case T_AlterTSDictionaryStmt:
    case T_AlterTSConfigurationStmt:
    case T_CreateSubscriptionStmt:
    case T_AlterSubscriptionStmt:
    case T_DropSubscriptionStmt:
    case T_ReplicaIdentityStmt:
    case T_RoleSpec:
    case T_NotifyStmt:  // an action of CREATE RULE
      return true;
    default:
      return false;
  }
}

}  // namespace collegedb::parser
