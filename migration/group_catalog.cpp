#include "migration/group_catalog.h"

#include <algorithm>
#include <array>

namespace collegedb::migration {
namespace {

// The tables of the unit as relation t(ord, schema, name, key, oid); $1 to $3 are their names.
constexpr std::string_view kTables =
    "WITH t AS (SELECT (s.ord - 1)::int AS ord, s.schema, s.name, s.key, c.oid, c.relkind,"
    " c.relpersistence FROM unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY"
    " AS s (schema, name, key, ord) LEFT JOIN (pg_class c JOIN pg_namespace n"
    " ON n.oid = c.relnamespace) ON n.nspname = s.schema AND c.relname = s.name) ";

constexpr std::string_view kRelations =
    "SELECT t.ord, t.oid IS NOT NULL, t.relkind::text, coalesce(t.relpersistence, 'p')::text,"
    " coalesce(row_security_active(t.oid), false),"
    " EXISTS (SELECT 1 FROM pg_rewrite w WHERE w.ev_class = t.oid),"
    " t.relkind = 'r' AND EXISTS (SELECT 1 FROM pg_inherits i WHERE i.inhparent = t.oid),"
    " coalesce(has_table_privilege(t.oid, 'SELECT') AND has_table_privilege(t.oid, 'INSERT')"
    " AND has_table_privilege(t.oid, 'DELETE') AND has_table_privilege(t.oid, 'UPDATE'), false),"
    " coalesce(format_type(a.atttypid, -1), ''),"
    " coalesce((SELECT 'OPERATOR(' || quote_ident(n.nspname) || '.=)' FROM pg_operator o"
    " JOIN pg_namespace n ON n.oid = o.oprnamespace WHERE o.oprname = '='"
    " AND o.oprleft = b.base AND o.oprright = b.base LIMIT 1), 'OPERATOR(pg_catalog.=)'),"
    " coalesce(b.base, 0), coalesce(b.typname, ''), coalesce(b.typmod, -1)"
    " FROM t LEFT JOIN pg_attribute a ON a.attrelid = t.oid AND a.attname = t.key"
    " AND NOT a.attisdropped LEFT JOIN LATERAL (WITH RECURSIVE d (oid, typmod) AS ("
    "  SELECT a.atttypid, a.atttypmod UNION ALL SELECT y.typbasetype, y.typtypmod FROM d"
    "  JOIN pg_type y ON y.oid = d.oid AND y.typtype = 'd')"
    " SELECT y.oid AS base, y.typname::text, d.typmod FROM d JOIN pg_type y ON y.oid = d.oid"
    "  AND y.typtype <> 'd') b ON true"
    " ORDER BY t.ord";

// `e` is the element type of an array, else the type itself: what a fingerprint looks into.
constexpr std::string_view kColumns =
    "SELECT t.ord, a.attname::text, format_type(a.atttypid, a.atttypmod), a.attgenerated <> '',"
    " y.oid >= 16384 OR y.typsend = 0 OR y.typname LIKE 'reg%'"
    " OR (y.typcategory = 'A' AND (e.oid >= 16384 OR e.typname LIKE 'reg%')),"
    " format('column %I %s%s%s%s%s', a.attname, format_type(a.atttypid, a.atttypmod),"
    "  CASE WHEN a.attnotnull THEN ' NOT NULL' ELSE '' END,"
    "  coalesce((SELECT ' COLLATE ' || quote_ident(c.collname) FROM pg_collation c"
    "   WHERE c.oid = a.attcollation AND c.oid <> y.typcollation), ''),"
    "  CASE WHEN a.attgenerated <> '' THEN ' GENERATED AS ' || pg_get_expr(d.adbin, d.adrelid)"
    "   ELSE '' END,"
    "  CASE WHEN a.attidentity <> '' THEN ' IDENTITY' ELSE '' END) ||"
    " coalesce(CASE e.typtype"
    "  WHEN 'e' THEN (SELECT ' ENUM ' || string_agg(quote_literal(l.enumlabel), ','"
    "   ORDER BY l.enumsortorder) FROM pg_enum l WHERE l.enumtypid = e.oid)"
    "  WHEN 'd' THEN ' DOMAIN ' || format_type(e.typbasetype, e.typtypmod) || coalesce("
    "   (SELECT string_agg(' ' || pg_get_constraintdef(k.oid), '' ORDER BY k.conname)"
    "    FROM pg_constraint k WHERE k.contypid = e.oid), '')"
    "  WHEN 'c' THEN (SELECT ' (' || string_agg(m.attname || ' ' ||"
    "   format_type(m.atttypid, m.atttypmod), ',' ORDER BY m.attnum) || ')' FROM pg_attribute m"
    "   WHERE m.attrelid = e.typrelid AND m.attnum > 0 AND NOT m.attisdropped)"
    "  WHEN 'r' THEN (SELECT ' RANGE ' || format_type(r.rngsubtype, -1) FROM pg_range r"
    "   WHERE r.rngtypid = e.oid) END, '')"
    " FROM t JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnum > 0 AND NOT a.attisdropped"
    " JOIN pg_type y ON y.oid = a.atttypid"
    " JOIN pg_type e ON e.oid = CASE WHEN y.typcategory = 'A' AND y.typelem <> 0 THEN y.typelem"
    "  ELSE y.oid END"
    " LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum"
    " ORDER BY t.ord, a.attnum";

constexpr std::string_view kConstraints =
    "SELECT t.ord, 'constraint ' || pg_get_constraintdef(k.oid),"
    " k.condeferrable AND k.contype IN ('p', 'u', 'x') FROM t JOIN pg_constraint k"
    " ON k.conrelid = t.oid WHERE k.contype IN ('c', 'f', 'p', 'u', 'x') UNION ALL"
    " SELECT t.ord, 'unique index ' || regexp_replace(pg_get_indexdef(i.indexrelid),"
    " '^.*? USING ', ''), false FROM t JOIN pg_index i ON i.indrelid = t.oid AND i.indisunique"
    " AND NOT EXISTS (SELECT 1 FROM pg_constraint k WHERE k.conindid = i.indexrelid"
    " AND k.conrelid = t.oid)";

constexpr std::string_view kForeignKeys =
    "SELECT k.conname::text, n1.nspname || '.' || c1.relname, n2.nspname || '.' || c2.relname,"
    " (SELECT array_agg(a.attname::text ORDER BY u.i) FROM unnest(k.conkey) WITH ORDINALITY"
    "  AS u (n, i) JOIN pg_attribute a ON a.attrelid = k.conrelid AND a.attnum = u.n),"
    " (SELECT array_agg(a.attname::text ORDER BY u.i) FROM unnest(k.confkey) WITH ORDINALITY"
    "  AS u (n, i) JOIN pg_attribute a ON a.attrelid = k.confrelid AND a.attnum = u.n),"
    " (SELECT array_agg('OPERATOR(' || quote_ident(n.nspname) || '.' || o.oprname || ')'"
    "  ORDER BY u.i) FROM unnest(k.conpfeqop) WITH ORDINALITY AS u (n, i) JOIN pg_operator o"
    "  ON o.oid = u.n JOIN pg_namespace n ON n.oid = o.oprnamespace),"
    " k.confdeltype NOT IN ('a', 'r') OR k.confupdtype NOT IN ('a', 'r'),"
    " (SELECT t.key FROM t WHERE t.oid = k.conrelid LIMIT 1),"
    " (SELECT t.key FROM t WHERE t.oid = k.confrelid LIMIT 1),"
    " format('%I.%I', n1.nspname, c1.relname), format('%I.%I', n2.nspname, c2.relname)"
    " FROM pg_constraint k JOIN pg_class c1 ON c1.oid = k.conrelid"
    " JOIN pg_namespace n1 ON n1.oid = c1.relnamespace JOIN pg_class c2 ON c2.oid = k.confrelid"
    " JOIN pg_namespace n2 ON n2.oid = c2.relnamespace WHERE k.contype = 'f'"
    " AND k.conparentid = 0 AND (k.conrelid IN (SELECT oid FROM t)"
    " OR k.confrelid IN (SELECT oid FROM t)) ORDER BY 2, 1";

constexpr std::string_view kTriggers =
    "SELECT DISTINCT t.ord, g.tgname::text, g.tgenabled::text FROM t JOIN pg_trigger g"
    " ON g.tgrelid = t.oid OR g.tgrelid IN (SELECT relid FROM pg_partition_tree(t.oid))"
    " WHERE NOT g.tgisinternal AND g.tgenabled <> 'D'"
    " AND g.tgname NOT IN ('collegedb_fence_insert', 'collegedb_fence_update') ORDER BY 1, 2";

// Sequences behind columns of unique indexes that do not have the key among their columns.
constexpr std::string_view kSequences =
    "SELECT DISTINCT t.schema || '.' || t.name, a.attname::text, q.seqincrement,"
    " (SELECT format('%I.%I', n.nspname, c.relname) FROM pg_class c JOIN pg_namespace n"
    "  ON n.oid = c.relnamespace WHERE c.oid = q.seqrelid) FROM t"
    " JOIN pg_index i ON i.indrelid = t.oid AND i.indisunique"
    " JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnum = ANY (i.indkey)"
    " AND a.attname <> t.key"
    " JOIN pg_sequence q ON EXISTS (SELECT 1 FROM pg_depend d"
    "  WHERE d.classid = 'pg_class'::regclass AND d.objid = q.seqrelid"
    "  AND d.refclassid = 'pg_class'::regclass AND d.refobjid = t.oid"
    "  AND d.refobjsubid = a.attnum AND d.deptype = 'i')"
    " OR EXISTS (SELECT 1 FROM pg_attrdef f JOIN pg_depend d"
    "  ON d.classid = 'pg_attrdef'::regclass AND d.objid = f.oid"
    "  AND d.refclassid = 'pg_class'::regclass AND d.refobjid = q.seqrelid"
    "  WHERE f.adrelid = t.oid AND f.adnum = a.attnum)"
    " WHERE NOT EXISTS (SELECT 1 FROM pg_attribute b WHERE b.attrelid = t.oid"
    "  AND b.attnum = ANY (i.indkey) AND b.attname = t.key)";

constexpr std::string_view kServer =
    "SELECT current_setting('max_prepared_transactions')::int, current_setting('server_encoding'),"
    " coalesce(has_schema_privilege('collegedb', 'USAGE')"
    " AND has_table_privilege('collegedb.gate', 'UPDATE')"
    " AND has_table_privilege('collegedb.retired', 'INSERT')"
    " AND has_table_privilege('collegedb.retired', 'DELETE')"
    " AND has_table_privilege('collegedb.archive', 'INSERT')"
    " AND has_table_privilege('collegedb.incoming', 'INSERT')"
    " AND has_table_privilege('collegedb.incoming', 'DELETE')"
    " AND has_table_privilege('collegedb.move_token', 'INSERT')"
    " AND has_table_privilege('collegedb.operations', 'DELETE')"
    " AND has_sequence_privilege('collegedb.cutover_counter', 'USAGE'), false)";

class Reader {
 public:
  Reader(ControlSession& session, const Unit& unit) : session_(session) {
    std::vector<std::string> schemas;
    std::vector<std::string> names;
    std::vector<std::string> keys;
    for (const GroupTable& table : unit.tables) {
      schemas.push_back(table.schema);
      names.push_back(table.name);
      keys.push_back(table.key_column);
      out_.tables.push_back({.table = table});
    }
    names_ = {array_text(schemas), array_text(names), array_text(keys)};
    out_.shard = session.shard();
    out_.server_version = session.server_version();
  }

  GroupCatalog read() {
    if (out_.server_version < 130000) return std::move(out_);
    server();
    relations();
    columns();
    constraints();
    foreign_keys();
    triggers();
    sequences();
    replica_role();
    for (TableShape& shape : out_.tables) {
      std::sort(shape.fingerprint.begin(), shape.fingerprint.end());
    }
    return std::move(out_);
  }

 private:
  Rows ask(std::string_view sql) {
    return session_.run_prepared(std::string(kTables).append(sql),
                                 {names_[0], names_[1], names_[2]});
  }

  TableShape& table(const Rows& rows, int row) {
    return out_.tables.at(static_cast<std::size_t>(rows.int8(row, 0)));
  }

  void problem(const TableShape& shape, std::string_view what,
               ErrorCode code = ErrorCode::kMoveRefused) {
    out_.problems.push_back({code, "table " + shape.table.schema + "." + shape.table.name +
                                       " on shard \"" + out_.shard + "\" " + std::string(what)});
  }

  void server() {
    const Rows rows = session_.run_prepared(kServer);
    out_.prepared_transactions = static_cast<int>(rows.int8(0, 0));
    out_.encoding = rows.text(0, 1);
    if (!rows.boolean(0, 2)) {
      out_.problems.push_back({ErrorCode::kMigrationNoBatch,
                               "the mover's role lacks privileges on schema collegedb of shard \"" +
                                   out_.shard + "\""});
    }
  }

  void relations() {
    const Rows rows = ask(kRelations);
    for (int i = 0; i < rows.size(); ++i) {
      TableShape& shape = table(rows, i);
      if (!rows.boolean(i, 1)) {
        problem(shape, "does not exist");
        continue;
      }
      const std::string_view kind = rows.view(i, 2);
      if (kind != "r" && kind != "p") problem(shape, "is not a table");
      if (rows.view(i, 3) == "t") problem(shape, "is temporary");
      if (rows.boolean(i, 4)) {
        problem(shape, "hides rows from the mover's role (row level security)",
                ErrorCode::kMigrationNoBatch);
      }
      if (rows.boolean(i, 5)) problem(shape, "has rewrite rules");
      if (rows.boolean(i, 6)) problem(shape, "has tables that inherit from it");
      if (!rows.boolean(i, 7)) {
        problem(shape, "lacks SELECT, INSERT, UPDATE or DELETE for the mover's role",
                ErrorCode::kMigrationNoBatch);
      }
      shape.key_type = rows.text(i, 8);
      shape.key_operator = rows.text(i, 9);
      shape.key =
          routing::key_type_of(static_cast<std::uint32_t>(rows.int8(i, 10)), rows.view(i, 11),
                               static_cast<std::int32_t>(rows.int8(i, 12)));
      if (shape.key_type.empty()) {
        problem(shape, "has no column " + shape.table.key_column);
      } else if (!shape.key) {
        problem(shape, "has column " + shape.table.key_column + " of type " + shape.key_type +
                           ", which is no key type");
      }
    }
  }

  void columns() {
    const Rows rows = ask(kColumns);
    for (int i = 0; i < rows.size(); ++i) {
      TableShape& shape = table(rows, i);
      shape.columns.push_back({.name = rows.text(i, 1),
                               .type = rows.text(i, 2),
                               .generated = rows.boolean(i, 3),
                               .as_text = rows.boolean(i, 4)});
      shape.fingerprint.push_back(rows.text(i, 5));
    }
  }

  void constraints() {
    const Rows rows = ask(kConstraints);
    for (int i = 0; i < rows.size(); ++i) {
      TableShape& shape = table(rows, i);
      shape.fingerprint.push_back(rows.text(i, 1));
      shape.deferrable_unique = shape.deferrable_unique || rows.boolean(i, 2);
    }
  }

  void foreign_keys() {
    const Rows rows = ask(kForeignKeys);
    for (int i = 0; i < rows.size(); ++i) {
      ForeignKey key{.name = rows.text(i, 0),
                     .table = rows.text(i, 1),
                     .referenced = rows.text(i, 2),
                     .table_sql = rows.text(i, 9),
                     .referenced_sql = rows.text(i, 10),
                     .columns = rows.array(i, 3),
                     .referenced_columns = rows.array(i, 4),
                     .operators = rows.array(i, 5),
                     .cascades = rows.boolean(i, 6)};
      for (std::size_t c = 0; c < key.columns.size(); ++c) {
        key.follows_key = key.follows_key || (key.columns[c] == rows.view(i, 7) &&
                                              key.referenced_columns[c] == rows.view(i, 8));
      }
      out_.foreign_keys.push_back(std::move(key));
    }
  }

  void triggers() {
    const Rows rows = ask(kTriggers);
    for (int i = 0; i < rows.size(); ++i) {
      TableShape& shape = table(rows, i);
      const std::string_view enabled = rows.view(i, 2);
      if (enabled != "R") shape.user_triggers.push_back(rows.text(i, 1));
      if (enabled != "O") shape.always_triggers.push_back(rows.text(i, 1));
    }
  }

  void sequences() {
    const Rows rows = ask(kSequences);
    for (int i = 0; i < rows.size(); ++i) {
      const Rows last = session_.run("SELECT last_value FROM " + rows.text(i, 3));
      out_.sequences.push_back({.table = rows.text(i, 0),
                                .column = rows.text(i, 1),
                                .increment = rows.int8(i, 2),
                                .last_value = last.int8(0, 0)});
    }
  }

  // Asked, not tried: to set it makes the server forget all its plans.
  void replica_role() {
    const Rows rows = session_.run_prepared(
        session_.server_version() >= 150000
            ? "SELECT has_parameter_privilege('session_replication_role', 'SET')"
            : "SELECT rolsuper FROM pg_roles WHERE rolname = current_user");
    out_.replica_role = rows.boolean(0, 0);
  }

  ControlSession& session_;
  std::array<std::string, 3> names_;
  GroupCatalog out_;
};

}  // namespace

GroupCatalog read_catalog(ControlSession& session, const Unit& unit) {
  return Reader(session, unit).read();
}

}  // namespace collegedb::migration
