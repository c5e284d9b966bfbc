// A fresh database on the first server of COLLEGEDB_TEST_SHARDS (conninfos separated by semicolons,
// tests/support/cluster.py), with schema collegedb, over plain libpq.
#pragma once

#include <gtest/gtest.h>
#include <libpq-fe.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "migration/sql/embedded.h"

namespace collegedb::pgtest {

struct ConnectionCloser {
  void operator()(PGconn* connection) const { PQfinish(connection); }
};
using Connection = std::unique_ptr<PGconn, ConnectionCloser>;

struct Answer {
  bool ok = false;
  std::string error;
  std::vector<std::vector<std::optional<std::string>>> rows;
};

struct Argument {
  std::optional<std::string> value;
  bool binary = false;
  Oid type = 0;
};

inline Answer take(PGresult* raw) {
  const std::unique_ptr<PGresult, decltype(&PQclear)> result(raw, &PQclear);
  Answer out;
  const ExecStatusType status = PQresultStatus(result.get());
  out.ok = status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK;
  if (!out.ok) out.error = PQresultErrorMessage(result.get());
  for (int row = 0; row < PQntuples(result.get()); ++row) {
    auto& values = out.rows.emplace_back();
    for (int column = 0; column < PQnfields(result.get()); ++column) {
      values.emplace_back();
      if (PQgetisnull(result.get(), row, column) != 0) continue;
      values.back().emplace(PQgetvalue(result.get(), row, column),
                            static_cast<std::size_t>(PQgetlength(result.get(), row, column)));
    }
  }
  return out;
}

class ServerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* shards = std::getenv("COLLEGEDB_TEST_SHARDS");
    ASSERT_NE(shards, nullptr) << "run through tests/support/cluster.py";
    const std::string all = shards;
    server_ = all.substr(0, all.find(';'));
    database_ = "routing_" + std::to_string(::getpid());
    admin_.reset(PQconnectdb(server_.c_str()));
    ASSERT_EQ(PQstatus(admin_.get()), CONNECTION_OK) << PQerrorMessage(admin_.get());
    const std::string create =
        "CREATE DATABASE " + database_ + " TEMPLATE template0 ENCODING 'UTF8'";
    ASSERT_TRUE(take(PQexec(admin_.get(), create.c_str())).ok);
    connection_.reset(PQconnectdb((server_ + " dbname=" + database_).c_str()));
    ASSERT_EQ(PQstatus(connection_.get()), CONNECTION_OK) << PQerrorMessage(connection_.get());
    PQsetNoticeProcessor(connection_.get(), [](void*, const char*) {}, nullptr);
    must("SET client_encoding = 'UTF8'");
    must(std::string(migration::sql::kShard));
  }

  void TearDown() override {
    connection_.reset();
    if (admin_) {
      take(
          PQexec(admin_.get(), ("DROP DATABASE IF EXISTS " + database_ + " WITH (FORCE)").c_str()));
    }
  }

  Answer run(const std::string& sql) { return take(PQexec(connection_.get(), sql.c_str())); }

  Answer run(const std::string& sql, const std::vector<Argument>& arguments) {
    std::vector<Oid> types;
    std::vector<const char*> values;
    std::vector<int> lengths;
    std::vector<int> formats;
    for (const Argument& argument : arguments) {
      types.push_back(argument.type);
      values.push_back(argument.value ? argument.value->data() : nullptr);
      lengths.push_back(argument.value ? static_cast<int>(argument.value->size()) : 0);
      formats.push_back(argument.binary ? 1 : 0);
    }
    return take(PQexecParams(connection_.get(), sql.c_str(), static_cast<int>(arguments.size()),
                             types.data(), values.data(), lengths.data(), formats.data(), 0));
  }

  Answer must(const std::string& sql) {
    Answer answer = run(sql);
    EXPECT_TRUE(answer.ok) << sql.substr(0, 200) << "\n" << answer.error;
    return answer;
  }

 private:
  std::string server_;
  std::string database_;
  Connection admin_;
  Connection connection_;
};

}  // namespace collegedb::pgtest
