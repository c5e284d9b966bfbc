// collegedb_prune_epochs.
#include "migration/prune.h"

#include <charconv>

#include "proxy/admin/handlers.h"

namespace collegedb::admin {
namespace {

constexpr std::chrono::seconds kReload{5};

Result<int> positive(const Arguments& arguments, std::size_t index, int fallback) {
  const auto text = arguments.text(index);
  if (!text) {
    return fallback;
  }
  int value = 0;
  const auto [end, failed] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (failed != std::errc{} || end != text->data() + text->size()) {
    return make_error("22P02", "invalid input syntax for type integer: \"" + *text + "\"");
  }
  return value;
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
  const auto page_size = positive(arguments, 3, request.page_size);
  const auto concurrency = positive(arguments, 4, request.concurrency);
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
