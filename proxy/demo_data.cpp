#include "proxy/demo_data.h"

#include <libpq-fe.h>

#include <array>
#include <initializer_list>
#include <memory>
#include <stdexcept>
#include <vector>

namespace collegedb {
namespace {

constexpr int kUsers = 300;
constexpr int kOrdersPerUser = 2;
constexpr std::array<const char*, 10> kFirstNames = {"Ada",    "Grace",    "Edsger",  "Barbara",
                                                     "Alan",   "Margaret", "Niklaus", "Frances",
                                                     "Donald", "Radia"};
constexpr std::array<const char*, 5> kCountries = {"DE", "FR", "JP", "BR", "KE"};

constexpr const char* kTables = R"(
CREATE TABLE countries (code text PRIMARY KEY, name text NOT NULL);
INSERT INTO countries VALUES ('DE', 'Germany'), ('FR', 'France'), ('JP', 'Japan'),
                             ('BR', 'Brazil'), ('KE', 'Kenya');
CREATE TABLE users (
  id text PRIMARY KEY,
  name text NOT NULL,
  country text NOT NULL REFERENCES countries,
  credit bigint NOT NULL DEFAULT 0,
  created_at timestamptz NOT NULL DEFAULT now());
CREATE TABLE orders (
  id bigint NOT NULL,
  user_id text NOT NULL REFERENCES users,
  item text NOT NULL,
  cents bigint NOT NULL,
  PRIMARY KEY (user_id, id));
)";

class Client {
 public:
  explicit Client(const std::string& conninfo)
      : connection_(PQconnectdb(conninfo.c_str()), PQfinish) {
    if (PQstatus(connection_.get()) != CONNECTION_OK) fail("connect");
  }

  void script(const char* sql) { check(PQexec(connection_.get(), sql), sql); }

  void prepare(const char* name, const char* sql) {
    check(PQprepare(connection_.get(), name, sql, 0, nullptr), sql);
  }

  void execute(const char* name, std::initializer_list<std::string> values) {
    std::vector<const char*> pointers;
    for (const auto& value : values) pointers.push_back(value.c_str());
    check(PQexecPrepared(connection_.get(), name, static_cast<int>(pointers.size()),
                         pointers.data(), nullptr, nullptr, 0),
          name);
  }

 private:
  void check(PGresult* raw, const char* what) {
    const std::unique_ptr<PGresult, decltype(&PQclear)> result(raw, PQclear);
    const auto status = PQresultStatus(result.get());
    if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK) fail(what);
  }
  [[noreturn]] void fail(const std::string& what) {
    throw std::runtime_error("sample data: " + what + ": " + PQerrorMessage(connection_.get()));
  }

  std::unique_ptr<PGconn, decltype(&PQfinish)> connection_;
};

}  // namespace

void create_demo_tables(const std::string& maintenance_conninfo, const std::string& app_conninfo) {
  Client(maintenance_conninfo).script("CREATE DATABASE app");
  Client(app_conninfo).script(kTables);
}

void insert_demo_rows(const std::string& proxy_conninfo) {
  Client proxy(proxy_conninfo);
  proxy.prepare("insert_user",
                "INSERT INTO users (id, name, country, credit) VALUES ($1, $2, $3, $4)");
  proxy.prepare("insert_order",
                "INSERT INTO orders (id, user_id, item, cents) VALUES ($1, $2, $3, $4)");
  for (int i = 1; i <= kUsers; ++i) {
    const auto n = static_cast<std::size_t>(i);
    const auto user = "user-" + std::to_string(i);
    proxy.execute("insert_user", {user, kFirstNames[n % kFirstNames.size()],
                                  kCountries[n % kCountries.size()], std::to_string(i * 10)});
    for (int order = 1; order <= kOrdersPerUser; ++order) {
      proxy.execute("insert_order",
                    {std::to_string(order), user, order == 1 ? "notebook" : "pencil",
                     std::to_string(order == 1 ? 1250 : 90)});
    }
  }
}

}  // namespace collegedb
