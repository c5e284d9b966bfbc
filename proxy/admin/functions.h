// The functions operators call in SQL: one row each. A function that is not here does not exist
// for clients (42883).
#pragma once

#include <span>
#include <string>
#include <vector>

#include "migration/schema.h"
#include "proxy/session/control.h"

namespace collegedb::admin {

// All of them, sorted by name. Static storage.
[[nodiscard]] std::span<const session::AdminFunction> functions();

// The same as SQL definitions for migration::install_schema.
[[nodiscard]] std::vector<migration::FunctionStub> stubs();

}  // namespace collegedb::admin
