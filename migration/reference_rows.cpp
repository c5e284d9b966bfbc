#include "migration/reference_rows.h"

#include <utility>

#include "migration/copy_pump.h"

namespace collegedb::migration {
namespace {

// Columns that are not computed by the server; "" for a table without any.
std::string column_list(ControlSession& session, const TableName& table) {
  return session
      .run(
          "SELECT COALESCE(pg_catalog.string_agg(pg_catalog.quote_ident(attname), ', '"
          " ORDER BY attnum), '') FROM pg_catalog.pg_attribute"
          " WHERE attrelid = pg_catalog.to_regclass($1) AND attnum > 0 AND NOT attisdropped"
          " AND attgenerated = ''",
          {table.qualified})
      .text(0, 0);
}

void copy_table(ControlSession& source, ControlSession& destination, const TableName& table) {
  const std::string columns = column_list(source, table);
  if (columns.empty()) return;
  // A query, so that partitions and children come along.
  pump(source, "COPY (SELECT " + columns + " FROM " + table.qualified + ") TO STDOUT", destination,
       "COPY " + table.qualified + " (" + columns + ") FROM STDIN");
}

// Foreign keys and triggers of the shard itself: its rows are copies of rows that passed them.
void silence_triggers(ControlSession& session) {
  session.run("SAVEPOINT collegedb_silence");
  try {
    session.run("SET LOCAL session_replication_role = replica");
  } catch (const SqlFailure& failure) {
    if (failure.error().sqlstate != "42501") throw;
    session.run("ROLLBACK TO SAVEPOINT collegedb_silence");
  }
}

[[noreturn]] void other_rows(ControlSession& source, ControlSession& destination,
                             const RegisteredTable& table) {
  throw SqlFailure(
      make_error("55000",
                 "reference table " + table.name.qualified + " has other rows on shard \"" +
                     destination.shard() + "\" than on shard \"" + source.shard() + "\"",
                 "Empty it there: its rows are copied when the shard is added."),
      destination.shard());
}

}  // namespace

std::string table_contents(ControlSession& session, const TableName& table) {
  return session
      .run(
          "SELECT pg_catalog.count(*) || ':' ||"
          " COALESCE(pg_catalog.sum(pg_catalog.hashtextextended(t::pg_catalog.text, 0)), 0)"
          " || ':' || COALESCE(pg_catalog.sum("
          "pg_catalog.hashtextextended(t::pg_catalog.text, 1)), 0) FROM " +
          table.qualified + " t")
      .text(0, 0);
}

void refuse_other_rows(ControlSession& source, ControlSession& destination,
                       std::span<const RegisteredTable> tables) {
  for (const RegisteredTable& table : tables) {
    if (table.kind != "reference" || !find_table(destination, table.name, {})) continue;
    const std::string there = table_contents(destination, table.name);
    if (!there.starts_with("0:") && there != table_contents(source, table.name)) {
      other_rows(source, destination, table);
    }
  }
}

int copy_reference_rows(ControlSession& source, ControlSession& destination,
                        std::span<const RegisteredTable> tables, bool replace_rows) {
  int copied = 0;
  bool silent = false;
  for (const RegisteredTable& table : tables) {
    if (table.kind != "reference" || !find_table(source, table.name, {})) continue;
    const std::string lock = "LOCK TABLE " + table.name.qualified + " IN SHARE ROW EXCLUSIVE MODE";
    source.run(lock);
    destination.run(lock);
    const std::string wanted = table_contents(source, table.name);
    const std::string there = table_contents(destination, table.name);
    if (wanted == there) continue;
    if (!replace_rows && !there.starts_with("0:")) other_rows(source, destination, table);
    if (!std::exchange(silent, true)) silence_triggers(destination);
    destination.run("DELETE FROM " + table.name.qualified);
    copy_table(source, destination, table.name);
    if (table_contents(destination, table.name) != wanted) {
      throw SqlFailure(
          make_error("55000",
                     "reference table " + table.name.qualified +
                         " has not the same rows on shard \"" + destination.shard() +
                         "\" after they were copied",
                     "Something changes rows as they are stored there, or its settings differ."),
          destination.shard());
    }
    ++copied;
  }
  return copied;
}

}  // namespace collegedb::migration
