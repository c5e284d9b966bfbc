#include "migration/hazards.h"

#include <algorithm>

namespace collegedb::migration {
namespace {

// $1 table, $2 key column. An exclusion constraint is kept by an index that is not unique.
constexpr std::string_view kIndexes =
    "SELECT pg_catalog.quote_ident(c.relname), i.indisexclusion FROM pg_catalog.pg_index i"
    " JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid"
    " WHERE i.indrelid = $1::pg_catalog.regclass AND (i.indisunique OR i.indisexclusion)"
    " AND NOT EXISTS (SELECT 1 FROM pg_catalog.generate_series(0, i.indnkeyatts - 1) n"
    "  JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[n]"
    "  WHERE a.attname = $2)"
    " ORDER BY 1";

constexpr std::string_view kTriggers =
    "WITH RECURSIVE tree (oid) AS (SELECT $1::pg_catalog.regclass::pg_catalog.oid"
    " UNION SELECT h.inhrelid FROM tree t JOIN pg_catalog.pg_inherits h ON h.inhparent = t.oid)"
    " SELECT 'trigger ' || pg_catalog.quote_ident(g.tgname) FROM tree t"
    " JOIN pg_catalog.pg_trigger g ON g.tgrelid = t.oid AND NOT g.tgisinternal"
    " WHERE g.tgname NOT IN ('collegedb_fence_insert', 'collegedb_fence_update')"
    " UNION SELECT 'rule ' || pg_catalog.quote_ident(w.rulename) FROM tree t"
    " JOIN pg_catalog.pg_rewrite w ON w.ev_class = t.oid ORDER BY 1";

// Both directions; the columns of both sides, pair by pair.
constexpr std::string_view kForeignKeys =
    "SELECT pg_catalog.quote_ident(k.conname), n.nspname, c.relname,"
    " pg_catalog.format('%I.%I', n.nspname, c.relname),"
    " k.conrelid = $1::pg_catalog.regclass,"
    " ARRAY(SELECT a.attname::pg_catalog.text FROM pg_catalog.unnest(k.conkey)"
    "  WITH ORDINALITY u (n, i) JOIN pg_catalog.pg_attribute a ON a.attrelid = k.conrelid"
    "  AND a.attnum = u.n ORDER BY u.i),"
    " ARRAY(SELECT a.attname::pg_catalog.text FROM pg_catalog.unnest(k.confkey)"
    "  WITH ORDINALITY u (n, i) JOIN pg_catalog.pg_attribute a ON a.attrelid = k.confrelid"
    "  AND a.attnum = u.n ORDER BY u.i)"
    " FROM pg_catalog.pg_constraint k JOIN pg_catalog.pg_class c ON c.oid ="
    "  CASE WHEN k.conrelid = $1::pg_catalog.regclass THEN k.confrelid ELSE k.conrelid END"
    " JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace"
    " WHERE k.contype = 'f' AND k.conparentid = 0"
    " AND (k.conrelid = $1::pg_catalog.regclass OR k.confrelid = $1::pg_catalog.regclass)"
    " ORDER BY 1, 2, 3";

struct ForeignKeyRow {
  std::string name;
  std::string schema;
  std::string table;      // the other one
  std::string qualified;  // its name as SQL wants it
  bool outgoing = false;
  std::vector<std::string> columns;
  std::vector<std::string> referenced;
};

// Rows that reference each other are on one shard: reference tables are on all, and rows of one key
// of one group stay together.
bool stays_together(const ForeignKeyRow& key, const RegisteredTable& table,
                    const std::vector<RegisteredTable>& registry, bool unregistered_too) {
  const auto other =
      std::find_if(registry.begin(), registry.end(), [&](const RegisteredTable& each) {
        return each.name.schema == key.schema && each.name.name == key.table;
      });
  if (other == registry.end()) {
    return !key.outgoing && !unregistered_too;
  }
  if (other->kind == "reference") {
    return key.outgoing;
  }
  if (other->kind != "sharded" || other->group != table.group) {
    return false;
  }
  const std::string& from = key.outgoing ? table.key_column : other->key_column;
  const std::string& to = key.outgoing ? other->key_column : table.key_column;
  for (std::size_t i = 0; i < key.columns.size() && i < key.referenced.size(); ++i) {
    if (key.columns[i] == from && key.referenced[i] == to) {
      return true;
    }
  }
  return false;
}

std::string sentence(const ForeignKeyRow& key, const RegisteredTable& table) {
  return "foreign key " + key.name + (key.outgoing ? " of" : " to") + " table " +
         table.name.qualified + (key.outgoing ? " references " : " of ") + key.qualified +
         (key.outgoing ? ", whose rows" : ": its rows") +
         " may be on another shard; it is checked on one shard alone";
}

}  // namespace

std::vector<std::string> hazards(ControlSession& session, const RegisteredTable& table,
                                 const std::vector<RegisteredTable>& registry,
                                 bool unregistered_too) {
  std::vector<std::string> out;
  const std::string of = " of table " + table.name.qualified;
  const Rows indexes = session.run(kIndexes, {table.name.qualified, table.key_column});
  for (int i = 0; i < indexes.size(); ++i) {
    out.push_back((indexes.boolean(i, 1) ? "exclusion constraint " : "unique index ") +
                  indexes.text(i, 0) + of + " does not contain the key column " +
                  quote_identifier(table.key_column) +
                  ": each shard enforces it for its own rows alone");
  }
  const Rows triggers = session.run(kTriggers, {table.name.qualified});
  for (int i = 0; i < triggers.size(); ++i) {
    out.push_back(triggers.text(i, 0) + of +
                  " runs on the shard of the row: what it writes to other tables stays there, "
                  "whoever owns it");
  }
  const Rows keys = session.run(kForeignKeys, {table.name.qualified});
  for (int i = 0; i < keys.size(); ++i) {
    const ForeignKeyRow key{keys.text(i, 0),    keys.text(i, 1),  keys.text(i, 2), keys.text(i, 3),
                            keys.boolean(i, 4), keys.array(i, 5), keys.array(i, 6)};
    if (!stays_together(key, table, registry, unregistered_too)) {
      out.push_back(sentence(key, table));
    }
  }
  return out;
}

}  // namespace collegedb::migration
