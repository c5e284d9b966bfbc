// Rows of reference tables on a shard that joins the cluster. Background threads only.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "migration/control_session.h"
#include "migration/table_catalog.h"

namespace collegedb::migration {

// All rows of a table as one comparable value, independent of their order.
[[nodiscard]] std::string table_contents(ControlSession& session, const TableName& table);

// 55000 when a reference table has rows on `destination` that are not those on `source`. Throws
// SqlFailure.
void refuse_other_rows(ControlSession& source, ControlSession& destination,
                       std::span<const RegisteredTable> tables);

// Makes every reference table of `tables` on `destination` equal to that on `source`: those that
// differ are emptied and copied whole. Keeps writers away from both meanwhile. Returns how many
// were copied. Tables that do not exist yet are passed over.
// `replace_rows`: false refuses as above to replace rows that are there and differ.
// REQUIRES: a transaction at READ COMMITTED on each, which the caller ends, `destination` first.
// Throws SqlFailure.
int copy_reference_rows(ControlSession& source, ControlSession& destination,
                        std::span<const RegisteredTable> tables, bool replace_rows);

}  // namespace collegedb::migration
