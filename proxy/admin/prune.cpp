// collegedb_prune_epochs.
#include "migration/prune.h"

#include <utility>

#include "proxy/admin/handlers.h"

namespace collegedb::admin {
namespace {

constexpr std::chrono::seconds kReload{5};

Result<int> int4(const Arguments& arguments, std::size_t index, int fallback) {
  const auto value = arguments.integer(index);
  if (value.has_error()) {
    return value.error();
  }
  if (!std::in_range<int>(value->value_or(fallback))) {
    return make_error("22003",
                      "value \"" + *arguments.text(index) + "\" is out of range for type integer");
  }
  return static_cast<int>(value->value_or(fallback));
}

std::string int_array(const std::vector<int>& items) {
  std::string out = "{";
  for (const int item : items) {
    out += (out.size() > 1 ? "," : "") + std::to_string(item);
  }
  return out + "}";
}

std::string json(const std::map<int, std::int64_t>& rows_by_epoch) {
  std::string out = "{";
  for (const auto& [epoch, rows] : rows_by_epoch) {
    out += (out.size() > 1 ? ", " : "") + json_string(std::to_string(epoch)) + ": " +
           std::to_string(rows);
  }
  return out + "}";
}

}  // namespace

Reply prune_epochs(Services& services, const Arguments& arguments, const session::SessionContext&) {
  migration::PruneRequest request;
  request.tables = arguments.text(0);
  request.key_columns = arguments.text(1);
  const auto dry_run = arguments.boolean(2, false);
  const auto page_size = int4(arguments, 3, request.page_size);
  const auto concurrency = int4(arguments, 4, request.concurrency);
  if (dry_run.has_error()) {
    return dry_run.error();
  }
  if (page_size.has_error() || concurrency.has_error()) {
    return page_size.has_error() ? page_size.error() : concurrency.error();
  }
  request.dry_run = *dry_run;
  request.page_size = *page_size;
  request.concurrency = *concurrency;
  const auto done = migration::prune_epochs(services.config, request);
  if (!request.dry_run) {
    // Also after an error: the generation may have changed.
    services.store.reload(kReload);
  }
  if (done.has_error()) {
    return done.error();
  }
  session::AdminRows rows;
  add_row(rows, int_array(done->removed), int_array(done->retained), json(done->dependents),
          done->scanned);
  return rows;
}

}  // namespace collegedb::admin
