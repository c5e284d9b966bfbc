// pg_depend tells what rests on a function of a user, but nothing of those that came with the
// server: these are looked for by number in the stored expressions themselves.
#include "store/hidden_reader.h"

#include <string>
#include <vector>

#include "routing/functions.h"

namespace collegedb::store {
namespace {

using migration::Rows;
using routing::HiddenCode;
using routing::NameSet;
using routing::opaque_builtins;
using routing::session_builtins;
using routing::Snapshot;
using routing::TableInfo;
using routing::WordSet;

// $1: names of built-in functions that run unknown SQL; $2: that act on the server session.
// Result: kind, schema, name. o operator, t type, a attribute, r read, w written, c cast.
constexpr std::string_view kHiddenCode = R"sql(
WITH RECURSIVE
-- Functions of users in a language whose text nobody here reads, and what is built of them.
code (oid) AS (
  SELECT p.oid FROM pg_catalog.pg_proc p
  JOIN pg_catalog.pg_language l ON l.oid = p.prolang
  JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
  WHERE p.oid >= 16384 AND n.nspname <> 'collegedb' AND p.prokind <> 'a'
  AND (l.lanname NOT IN ('internal', 'c') OR l.lanname = 'internal'
    AND (p.prosrc = ANY ($1::pg_catalog.text[]) OR p.prosrc = ANY ($2::pg_catalog.text[])))
  UNION
  SELECT a.oid FROM code c JOIN pg_catalog.pg_depend d
  ON d.refclassid = 'pg_catalog.pg_proc'::pg_catalog.regclass AND d.refobjid = c.oid
  AND d.classid = 'pg_catalog.pg_proc'::pg_catalog.regclass
  JOIN pg_catalog.pg_proc a ON a.oid = d.objid AND a.prokind = 'a'),
builtin (pattern) AS (
  SELECT ':(funcid|opfuncid|aggfnoid|winfnoid) ('
  || pg_catalog.string_agg(p.oid::pg_catalog.text, '|') || ') ' FROM pg_catalog.pg_proc p
  WHERE p.oid < 16384
  AND (p.proname = ANY ($1::pg_catalog.text[]) OR p.proname = ANY ($2::pg_catalog.text[]))),
ops (oid, name) AS (
  SELECT o.oid, o.oprname FROM pg_catalog.pg_operator o JOIN code c ON c.oid = o.oprcode),
-- What calls them itself.
used (classid, objid) AS (
  SELECT d.classid, d.objid FROM pg_catalog.pg_depend d
  JOIN code c ON d.refclassid = 'pg_catalog.pg_proc'::pg_catalog.regclass AND d.refobjid = c.oid
  UNION SELECT d.classid, d.objid FROM pg_catalog.pg_depend d JOIN ops o
  ON d.refclassid = 'pg_catalog.pg_operator'::pg_catalog.regclass AND d.refobjid = o.oid
  UNION SELECT 'pg_catalog.pg_constraint'::pg_catalog.regclass, k.oid
  FROM pg_catalog.pg_constraint k, builtin b
  WHERE k.oid >= 16384 AND k.conbin::pg_catalog.text ~ b.pattern
  UNION SELECT 'pg_catalog.pg_attrdef'::pg_catalog.regclass, f.oid
  FROM pg_catalog.pg_attrdef f, builtin b WHERE f.adbin::pg_catalog.text ~ b.pattern
  UNION SELECT 'pg_catalog.pg_policy'::pg_catalog.regclass, p.oid
  FROM pg_catalog.pg_policy p, builtin b
  WHERE p.polqual::pg_catalog.text ~ b.pattern OR p.polwithcheck::pg_catalog.text ~ b.pattern
  UNION SELECT 'pg_catalog.pg_rewrite'::pg_catalog.regclass, w.oid
  FROM pg_catalog.pg_rewrite w, builtin b
  WHERE w.oid >= 16384
  AND (w.ev_action::pg_catalog.text ~ b.pattern OR w.ev_qual::pg_catalog.text ~ b.pattern)),
casts (source, target, context) AS (
  SELECT k.castsource, k.casttarget, k.castcontext FROM pg_catalog.pg_cast k
  JOIN code c ON c.oid = k.castfunc),
-- Conversion to them runs code (false), or working with their values too (true).
types (oid, compared) AS ((
  SELECT k.contypid, false FROM pg_catalog.pg_constraint k
  JOIN used u ON u.classid = 'pg_catalog.pg_constraint'::pg_catalog.regclass AND u.objid = k.oid
  WHERE k.contypid <> 0
  UNION SELECT u.objid, false FROM used u
  WHERE u.classid = 'pg_catalog.pg_type'::pg_catalog.regclass
  UNION SELECT t.oid, true FROM casts k, LATERAL (VALUES (k.source), (k.target)) t (oid)
  WHERE t.oid >= 16384
  UNION SELECT k.target, false FROM casts k WHERE k.source < 16384 AND k.target < 16384
  UNION SELECT t.oid, true FROM pg_catalog.pg_amproc p JOIN code c ON c.oid = p.amproc,
  LATERAL (VALUES (p.amproclefttype), (p.amprocrighttype)) t (oid) WHERE t.oid >= 16384
  UNION SELECT t.oid, true FROM pg_catalog.pg_amop p JOIN ops o ON o.oid = p.amopopr,
  LATERAL (VALUES (p.amoplefttype), (p.amoprighttype)) t (oid) WHERE t.oid >= 16384)
  UNION
  -- Arrays, domains and ranges of them; rows that have such a column.
  SELECT x.oid, t.compared FROM types t, LATERAL (
    SELECT d.objid FROM pg_catalog.pg_depend d
    WHERE d.refclassid = 'pg_catalog.pg_type'::pg_catalog.regclass AND d.refobjid = t.oid
    AND d.classid = 'pg_catalog.pg_type'::pg_catalog.regclass
    UNION ALL SELECT c.reltype FROM pg_catalog.pg_depend d JOIN pg_catalog.pg_class c
    ON d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass AND c.oid = d.objid
    WHERE d.refclassid = 'pg_catalog.pg_type'::pg_catalog.regclass AND d.refobjid = t.oid
    AND c.reltype <> 0) x (oid)),
-- With what names such a type, and what indexes by a class of operators that calls code.
touched (classid, objid) AS (
  SELECT u.classid, u.objid FROM used u
  UNION SELECT d.classid, d.objid FROM types t JOIN pg_catalog.pg_depend d
  ON d.refclassid = 'pg_catalog.pg_type'::pg_catalog.regclass AND d.refobjid = t.oid),
families (oid) AS (
  SELECT p.amprocfamily FROM pg_catalog.pg_amproc p JOIN code c ON c.oid = p.amproc
  UNION SELECT p.amopfamily FROM pg_catalog.pg_amop p JOIN ops o ON o.oid = p.amopopr),
indexes (oid) AS (
  SELECT u.objid FROM used u WHERE u.classid = 'pg_catalog.pg_class'::pg_catalog.regclass
  UNION SELECT i.indexrelid FROM pg_catalog.pg_opclass k JOIN families f ON f.oid = k.opcfamily
  JOIN pg_catalog.pg_index i ON k.oid = ANY (i.indclass::pg_catalog.oid[])),
-- A view or a policy counts with any function of a user, as the same call in a statement would;
-- views that an extension brings, by the rule for operators.
direct (classid, objid) AS (
  SELECT d.classid, d.objid FROM pg_catalog.pg_depend d
  JOIN pg_catalog.pg_proc p ON p.oid = d.refobjid AND p.oid >= 16384
  JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace AND n.nspname <> 'collegedb'
  WHERE d.refclassid = 'pg_catalog.pg_proc'::pg_catalog.regclass
  AND d.classid IN ('pg_catalog.pg_rewrite'::pg_catalog.regclass,
    'pg_catalog.pg_policy'::pg_catalog.regclass)
  AND NOT EXISTS (SELECT 1 FROM pg_catalog.pg_rewrite w JOIN pg_catalog.pg_depend e
    ON e.classid = 'pg_catalog.pg_class'::pg_catalog.regclass AND e.objid = w.ev_class
    AND e.deptype = 'e'
    WHERE d.classid = 'pg_catalog.pg_rewrite'::pg_catalog.regclass AND w.oid = d.objid)
  UNION SELECT t.classid, t.objid FROM touched t
  WHERE t.classid IN ('pg_catalog.pg_rewrite'::pg_catalog.regclass,
    'pg_catalog.pg_policy'::pg_catalog.regclass)),
coded (oid, kind) AS ((
  SELECT w.ev_class, CASE WHEN w.ev_type = '1' THEN 'r' ELSE 'w' END FROM direct d
  JOIN pg_catalog.pg_rewrite w
  ON d.classid = 'pg_catalog.pg_rewrite'::pg_catalog.regclass AND w.oid = d.objid
  UNION SELECT w.ev_class, 'w' FROM pg_catalog.pg_rewrite w
  WHERE w.oid >= 16384 AND w.ev_action::pg_catalog.text
  ~ (':relid ' || 'pg_catalog.pg_settings'::pg_catalog.regclass::pg_catalog.oid || ' ')
  UNION SELECT p.polrelid, k.kind FROM direct d JOIN pg_catalog.pg_policy p
  ON d.classid = 'pg_catalog.pg_policy'::pg_catalog.regclass AND p.oid = d.objid,
  (VALUES ('r'), ('w')) k (kind)
  UNION SELECT c.oid, k.kind FROM types t JOIN pg_catalog.pg_depend d
  ON d.refclassid = 'pg_catalog.pg_type'::pg_catalog.regclass AND d.refobjid = t.oid
  AND d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass
  JOIN pg_catalog.pg_class c ON c.oid = d.objid AND c.relkind <> 'c',
  (VALUES ('r'), ('w')) k (kind) WHERE t.compared OR k.kind = 'w'
  UNION SELECT i.indrelid, k.kind FROM indexes x JOIN pg_catalog.pg_index i ON i.indexrelid = x.oid,
  (VALUES ('r'), ('w')) k (kind)
  UNION SELECT f.adrelid, 'w' FROM touched u JOIN pg_catalog.pg_attrdef f
  ON u.classid = 'pg_catalog.pg_attrdef'::pg_catalog.regclass AND f.oid = u.objid
  UNION SELECT k.conrelid, 'w' FROM touched u JOIN pg_catalog.pg_constraint k
  ON u.classid = 'pg_catalog.pg_constraint'::pg_catalog.regclass AND k.oid = u.objid
  WHERE k.conrelid <> 0
  UNION SELECT g.tgrelid, 'w' FROM pg_catalog.pg_trigger g JOIN code c ON c.oid = g.tgfoid)
  UNION
  -- Parents, views, and tables whose rows take others with them.
  SELECT x.oid, c.kind FROM coded c, LATERAL (
    SELECT i.inhparent FROM pg_catalog.pg_inherits i WHERE i.inhrelid = c.oid
    UNION ALL SELECT w.ev_class FROM pg_catalog.pg_depend d
    JOIN pg_catalog.pg_rewrite w ON w.oid = d.objid AND w.ev_type = '1'
    WHERE d.classid = 'pg_catalog.pg_rewrite'::pg_catalog.regclass
    AND d.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass AND d.refobjid = c.oid
    UNION ALL SELECT k.confrelid FROM pg_catalog.pg_constraint k
    WHERE c.kind = 'w' AND k.contype = 'f' AND k.conrelid = c.oid
    AND (k.confdeltype IN ('c', 'n', 'd') OR k.confupdtype IN ('c', 'n', 'd'))) x (oid))
SELECT 'o', '', name FROM ops
UNION SELECT 'o', '', o.oprname FROM types t JOIN pg_catalog.pg_operator o
ON t.oid IN (o.oprleft, o.oprright) WHERE t.compared AND o.oid >= 16384
UNION SELECT 't', '', y.typname FROM types t JOIN pg_catalog.pg_type y ON y.oid = t.oid
UNION SELECT 'a', '', p.proname FROM code c JOIN pg_catalog.pg_proc p ON p.oid = c.oid
WHERE p.provariadic <> 0 OR (p.pronargs >= 1 AND p.pronargs - p.pronargdefaults <= 1)
UNION SELECT 'c', '', '' FROM casts k
WHERE k.source < 16384 AND k.target < 16384 AND k.context IN ('a', 'i')
UNION SELECT c.kind, n.nspname, r.relname FROM coded c
JOIN pg_catalog.pg_class r ON r.oid = c.oid AND r.oid >= 16384
JOIN pg_catalog.pg_namespace n ON n.oid = r.relnamespace AND n.nspname <> 'collegedb'
)sql";

template <class Range>
std::string array_of(const Range& names) {
  const std::vector<std::string> texts(names.begin(), names.end());
  return migration::array_text(texts);
}

void read_code(migration::ControlSession& session, HiddenCode& hidden) {
  const Rows rows = session.run(std::string(kHiddenCode),
                                {array_of(opaque_builtins()), array_of(session_builtins())});
  for (int i = 0; i < rows.size(); ++i) {
    std::string name = rows.text(i, 2);
    switch (rows.view(i, 0).front()) {
      case 'o':
        hidden.operators.insert(std::move(name));
        break;
      case 't':
        hidden.types.insert(std::move(name));
        break;
      case 'a':
        hidden.attributes.insert(std::move(name));
        break;
      case 'c':
        hidden.casts = true;
        break;
      case 'r':
        hidden.read.insert({rows.text(i, 1), std::move(name)});
        break;
      default:
        hidden.written.insert({rows.text(i, 1), std::move(name)});
        break;
    }
  }
}

void read_columns(migration::ControlSession& session, HiddenCode& hidden) {
  if (hidden.attributes.empty()) {
    return;
  }
  const Rows rows = session.run(
      "SELECT n.nspname, c.relname, a.attname FROM pg_catalog.pg_attribute a"
      " JOIN pg_catalog.pg_class c ON c.oid = a.attrelid"
      " JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace"
      " WHERE a.attname = ANY ($1::pg_catalog.text[]) AND a.attnum > 0 AND NOT a.attisdropped"
      " AND c.relkind IN ('r', 'p', 'v', 'm', 'f')",
      {array_of(hidden.attributes)});
  for (int i = 0; i < rows.size(); ++i) {
    hidden.columns.push_back({{rows.text(i, 0), rows.text(i, 1)}, rows.text(i, 2)});
  }
}

void read_homonyms(migration::ControlSession& session, Snapshot& snapshot) {
  WordSet names;
  for (const TableInfo& table : snapshot.tables) {
    names.insert(table.name.name);
  }
  for (const NameSet* relations : {&snapshot.hidden.read, &snapshot.hidden.written}) {
    for (const parser::QualifiedName& relation : *relations) {
      names.insert(relation.name);
    }
  }
  for (const parser::QualifiedName& relation : snapshot.dependent_relations) {
    names.insert(relation.name);
  }
  for (const HiddenCode::Column& column : snapshot.hidden.columns) {
    names.insert(column.relation.name);
  }
  const Rows rows = session.run(
      "SELECT n.nspname, c.relname FROM pg_catalog.pg_class c"
      " JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace"
      " WHERE c.relname = ANY ($1::pg_catalog.text[]) AND n.nspname !~ '^pg_(toast|temp)'"
      " OR n.nspname = 'pg_catalog' AND c.relkind IN ('r', 'v')",
      {array_of(names)});
  snapshot.homonyms.reserve(static_cast<std::size_t>(rows.size()));
  for (int i = 0; i < rows.size(); ++i) {
    snapshot.homonyms.insert({rows.text(i, 0), rows.text(i, 1)});
  }
}

}  // namespace

void read_hidden_code(migration::ControlSession& session, Snapshot& snapshot) {
  // The estimates for so many small sets are far too high: compiling the plan, and hash tables of
  // their size, would take many times as long as all the rest.
  session.run(
      "SELECT pg_catalog.set_config('jit', 'off', true),"
      " pg_catalog.set_config('work_mem', '512kB', true)");
  read_code(session, snapshot.hidden);
  read_columns(session, snapshot.hidden);
  read_homonyms(session, snapshot);
}

}  // namespace collegedb::store
