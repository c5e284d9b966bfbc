// The demo's tables and rows.
#pragma once

#include <string>

namespace collegedb {

// Creates database app and its tables on one shard. Throws std::runtime_error.
void create_demo_tables(const std::string& maintenance_conninfo, const std::string& app_conninfo);

// Users and their orders, inserted through the proxy like any application would. Throws
// std::runtime_error.
void insert_demo_rows(const std::string& proxy_conninfo);

}  // namespace collegedb
