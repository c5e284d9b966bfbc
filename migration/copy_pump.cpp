#include "migration/copy_pump.h"

#include <libpq-fe.h>

#include <memory>

namespace collegedb::migration {
namespace {

using Result = std::unique_ptr<PGresult, decltype(&PQclear)>;

[[noreturn]] void fail(ControlSession& session, const PGresult* result) {
  const bool broken = PQstatus(session.native()) != CONNECTION_OK;
  if (broken || result == nullptr) {
    throw SqlFailure(make_error(ErrorCode::kShardUnavailable,
                                "shard \"" + session.shard() + "\" cannot be reached", {},
                                PQerrorMessage(session.native())),
                     session.shard(), true);
  }
  throw SqlFailure(error_of(result), session.shard());
}

void expect(ControlSession& session, ExecStatusType status, const Result& result) {
  if (PQresultStatus(result.get()) != status) fail(session, result.get());
}

// The result after the data; takes everything behind it.
Result finish(ControlSession& session) {
  Result done(PQgetResult(session.native()), &PQclear);
  Result rest(PQgetResult(session.native()), &PQclear);
  while (rest) rest.reset(PQgetResult(session.native()));
  return done;
}

}  // namespace

void pump(ControlSession& source, const std::string& out, ControlSession& destination,
          const std::string& in) {
  const Result reading(PQexec(source.native(), out.c_str()), &PQclear);
  expect(source, PGRES_COPY_OUT, reading);
  const Result writing(PQexec(destination.native(), in.c_str()), &PQclear);
  expect(destination, PGRES_COPY_IN, writing);
  char* bytes = nullptr;
  int length = 0;
  while ((length = PQgetCopyData(source.native(), &bytes, 0)) > 0) {
    const std::unique_ptr<char, decltype(&PQfreemem)> owned(bytes, &PQfreemem);
    if (PQputCopyData(destination.native(), bytes, length) != 1) fail(destination, nullptr);
  }
  const char* broken = length == -2 ? "the source failed" : nullptr;
  if (PQputCopyEnd(destination.native(), broken) != 1) fail(destination, nullptr);
  const Result read = finish(source);
  const Result written = finish(destination);
  expect(source, PGRES_COMMAND_OK, read);
  expect(destination, PGRES_COMMAND_OK, written);
}

}  // namespace collegedb::migration
