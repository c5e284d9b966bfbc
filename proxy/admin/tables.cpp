// collegedb_shard_table, collegedb_reference_table, collegedb_local_table: the registry.
#include "migration/registry.h"
#include "proxy/admin/handlers.h"

namespace collegedb::admin {
namespace {

constexpr std::chrono::seconds kReload{5};

// The caller's next statement must be routed by what has just been registered.
Reply answer(Services& services, const Result<migration::RegisteredTable>& done) {
  if (done.has_error()) {
    return done.error();
  }
  services.store.reload(kReload);
  session::AdminRows rows;
  add_row(rows, done->name.qualified, done->kind, non_empty(done->group),
          non_empty(done->key_column), non_empty(done->key_type));
  return rows;
}

Result<migration::TableRequest> request(const Arguments& arguments,
                                        const session::SessionContext& context) {
  auto table = arguments.required(0);
  if (table.has_error()) {
    return table.error();
  }
  migration::TableRequest out;
  out.table = std::move(*table);
  out.search_path = context.search_path;
  return out;
}

}  // namespace

Reply shard_table(Services& services, const Arguments& arguments,
                  const session::SessionContext& context) {
  auto wanted = request(arguments, context);
  if (wanted.has_error()) {
    return wanted.error();
  }
  wanted->key = arguments.text(1).value_or("id");
  wanted->colocate_with = arguments.text(2).value_or("");
  return answer(services, migration::shard_table(services.config, *wanted));
}

Reply reference_table(Services& services, const Arguments& arguments,
                      const session::SessionContext& context) {
  const auto wanted = request(arguments, context);
  if (wanted.has_error()) {
    return wanted.error();
  }
  return answer(services, migration::reference_table(services.config, *wanted));
}

Reply local_table(Services& services, const Arguments& arguments,
                  const session::SessionContext& context) {
  const auto wanted = request(arguments, context);
  if (wanted.has_error()) {
    return wanted.error();
  }
  return answer(services, migration::local_table(services.config, *wanted));
}

}  // namespace collegedb::admin
