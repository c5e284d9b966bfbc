#include "proxy/admin/control_plane.h"

#include <gtest/gtest.h>

#include <future>

#include "proxy/admin/functions.h"

namespace collegedb::admin {
namespace {

using namespace std::chrono_literals;
using session::ControlReply;

// No shard answers: what is tested here never gets that far.
class ControlPlaneTest : public ::testing::Test {
 protected:
  ControlPlaneTest() { config_.shards = {{"a", "host=127.0.0.1 port=1 connect_timeout=1", {}, 0}}; }

  session::ControlRequest request(std::string_view name, bool is_admin) {
    session::AdminCall call;
    for (const auto& function : functions()) {
      if (function.name == name) {
        call.function = &function;
      }
    }
    call.arguments.resize(call.function->arguments.size());
    for (auto& argument : call.arguments) {
      argument = std::optional<std::string>{"x"};
    }
    call.is_admin = is_admin;
    return {std::move(call), {}};
  }
  std::future<ControlReply> call(ControlPlane& control, session::ControlRequest what) {
    auto promise = std::make_shared<std::promise<ControlReply>>();
    auto future = promise->get_future();
    control.call(std::move(what), [promise](ControlReply reply) { promise->set_value(reply); });
    return future;
  }
  static std::string state(const ControlReply& reply) {
    const auto* error = std::get_if<SqlError>(&reply);
    return error != nullptr ? error->sqlstate : "ok";
  }

  Config config_;
  store::Store store_{config_};
};

TEST_F(ControlPlaneTest, OtherUsersMayNotCallWhatChangesSomething) {
  ControlPlane control(config_, store_, nullptr);
  const ControlReply reply = call(control, request("collegedb_reassign", false)).get();
  ASSERT_TRUE(std::holds_alternative<SqlError>(reply));
  EXPECT_EQ(std::get<SqlError>(reply).sqlstate, "42501");
  EXPECT_EQ(std::get<SqlError>(reply).message, "permission denied for function collegedb_reassign");
}

TEST_F(ControlPlaneTest, MovesNeedAJournal) {
  ControlPlane control(config_, store_, nullptr);
  for (const char* name : {"collegedb_reassign", "collegedb_recover", "collegedb_cancel_move",
                           "collegedb_migration_status"}) {
    const ControlReply reply = call(control, request(name, true)).get();
    ASSERT_TRUE(std::holds_alternative<SqlError>(reply)) << name;
    EXPECT_TRUE(std::get<SqlError>(reply).message.starts_with("JOURNAL_NOT_CONFIGURED: ")) << name;
  }
}

TEST_F(ControlPlaneTest, AShardOutOfReachIsAnError) {
  ControlPlane control(config_, store_, nullptr);
  EXPECT_EQ(state(call(control, request("collegedb_shard_table", true)).get()), "08006");
}

TEST_F(ControlPlaneTest, ShowsWhatTheDataPathTells) {
  ControlPlane control(config_, store_, nullptr);
  net::ClientInfo client;
  client.pid = 42;
  client.user = "alice";
  client.tls = true;
  client.shards = {"a", "b"};
  control.set_probes({[&] { return std::vector{client}; },
                      [] { return std::vector<net::PoolInfo>{}; },
                      [] { return std::vector<net::ServerInfo>{}; },
                      [](std::size_t) { return std::vector<session::HotKey>{}; }});
  const ControlReply reply = call(control, request("collegedb_clients", false)).get();
  ASSERT_TRUE(std::holds_alternative<session::AdminRows>(reply));
  const auto& rows = std::get<session::AdminRows>(reply).rows;
  ASSERT_EQ(rows.size(), 1U);
  ASSERT_EQ(rows[0].size(), 10U);
  EXPECT_EQ(rows[0][0], "42");
  EXPECT_EQ(rows[0][2], "alice");
  EXPECT_EQ(rows[0][7], "t");
  EXPECT_EQ(rows[0][9], "{\"a\",\"b\"}");
}

TEST_F(ControlPlaneTest, TheQueueIsBoundedAndShutdownAnswersWhatWaits) {
  std::promise<void> entered;
  std::promise<void> release;
  auto released = release.get_future().share();
  ControlPlane control(config_, store_, nullptr, {.threads = 1, .reload_threads = 1, .queue = 2});
  control.set_probes({[&] {
                        entered.set_value();
                        released.wait();
                        return std::vector<net::ClientInfo>{};
                      },
                      [] { return std::vector<net::PoolInfo>{}; },
                      [] { return std::vector<net::ServerInfo>{}; },
                      [](std::size_t) { return std::vector<session::HotKey>{}; }});
  auto running = call(control, request("collegedb_clients", false));
  entered.get_future().wait();
  auto waiting = call(control, request("collegedb_pools", false));
  auto waiting_too = call(control, request("collegedb_pools", false));
  EXPECT_EQ(state(call(control, request("collegedb_pools", false)).get()), "53300");

  auto stopper = std::async(std::launch::async, [&] { control.shutdown(); });
  EXPECT_EQ(state(waiting.get()), "57P01");
  EXPECT_EQ(state(waiting_too.get()), "57P01");
  EXPECT_EQ(stopper.wait_for(50ms), std::future_status::timeout) << "one is still running";
  release.set_value();
  EXPECT_EQ(state(running.get()), "ok");
  stopper.get();
  EXPECT_EQ(state(call(control, request("collegedb_pools", false)).get()), "57P01");
}

}  // namespace
}  // namespace collegedb::admin
