// Rows from one session into another over two COPYs, in memory that does not depend on their
// number.
#pragma once

#include <string>

#include "migration/control_session.h"

namespace collegedb::migration {

// `out` is a COPY ... TO STDOUT of the source, `in` a COPY ... FROM STDIN of the destination, in
// one format. Throws SqlFailure; the destination has then stored none of it.
void pump(ControlSession& source, const std::string& out, ControlSession& destination,
          const std::string& in);

}  // namespace collegedb::migration
