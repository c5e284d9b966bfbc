// The pool against a scripted server: order, cap, deadlines of others, dead connections, cancels.
#include "proxy/net/pool.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "fake_server.h"

namespace collegedb::net {
namespace {

using namespace std::chrono_literals;
using testing::FakeServer;

class PoolTest : public ::testing::Test {
 protected:
  PoolTest() { open({.size = 2}); }
  ~PoolTest() override { close(); }

  void open(PoolLimits limits) {
    close();
    auto parsed = parse_target(server_.conninfo());
    shard_ = {"db-east", *parsed, nullptr};
    shard_.target.connect_timeout = 500ms;
    pool_ = std::make_unique<Pool>(io_.get_executor(), shard_, limits, stats_, health_, nullptr);
  }
  void close() {
    if (!pool_) return;
    for (Backend* backend : leased_) pool_->release(*backend);
    leased_.clear();
    pool_->close();
    io_.restart();
    io_.run_for(2s);
    EXPECT_TRUE(io_.stopped()) << "something still runs in the pool";
    pool_.reset();
  }

  // A place in the queue with its own event.
  struct Client {
    explicit Client(Executor executor) : event(executor), waiter(event) {}
    Event event;
    Waiter waiter;
  };
  std::unique_ptr<Client> wait() {
    auto client = std::make_unique<Client>(io_.get_executor());
    pool_->wait(client->waiter);
    return client;
  }
  bool run_until(const std::function<bool()>& condition) {
    io_.restart();
    for (int i = 0; i < 500 && !condition(); ++i) {
      io_.restart();
      io_.run_for(10ms);
    }
    return condition();
  }
  // A leased connection, made when there is none.
  Backend* lease() {
    Backend* backend = pool_->try_lease();
    if (backend == nullptr) {
      const auto client = wait();
      EXPECT_TRUE(run_until([&] { return client->waiter.done(); }));
      backend = client->waiter.backend;
    }
    if (backend != nullptr) leased_.push_back(backend);
    return backend;
  }
  void give_back(Backend* backend) {
    std::erase(leased_, backend);
    pool_->release(*backend);
  }

  FakeServer server_;
  ShardTarget shard_;
  metrics::ShardStats stats_;
  metrics::ShardHealth health_;
  asio::io_context io_{1};
  std::vector<Backend*> leased_;
  std::unique_ptr<Pool> pool_;
};

TEST_F(PoolTest, LeasesTheSameConnectionAgain) {
  Backend* first = lease();
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(first->state.reported.at("server_version"), "15.18");
  EXPECT_EQ(pool_->reported().front().first, "server_version");
  EXPECT_TRUE(pool_->up());
  EXPECT_EQ(health_.up.value(), 1);
  give_back(first);
  EXPECT_EQ(lease(), first);
  EXPECT_EQ(server_.logins(), 1);
}

TEST_F(PoolTest, MostRecentlyUsedFirst) {
  Backend* a = lease();
  Backend* b = lease();
  give_back(a);
  give_back(b);
  EXPECT_EQ(lease(), b);
  EXPECT_EQ(lease(), a);
}

TEST_F(PoolTest, NeverAboveItsSizeAndInOrderOfArrival) {
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 6; ++i) clients.push_back(wait());
  EXPECT_EQ(stats_.pool_waiting.value(), 6);
  std::vector<int> order;
  std::vector<bool> served(6, false);
  ASSERT_TRUE(run_until([&] {
    for (int i = 0; i < 6; ++i) {
      if (served[static_cast<std::size_t>(i)] || clients[i]->waiter.backend == nullptr) continue;
      served[static_cast<std::size_t>(i)] = true;
      order.push_back(i);
      pool_->release(*std::exchange(clients[i]->waiter.backend, nullptr));
    }
    return order.size() == 6;
  }));
  EXPECT_TRUE(std::ranges::is_sorted(order));
  EXPECT_LE(server_.most_open(), 2);
  EXPECT_EQ(stats_.pool_waiting.value(), 0);
  EXPECT_EQ(pool_->counts().idle, pool_->backends().size());
}

TEST_F(PoolTest, NobodyOvertakesAWaiter) {
  open({.size = 1});
  Backend* only = lease();
  const auto first = wait();
  EXPECT_EQ(pool_->try_lease(), nullptr);
  give_back(only);
  EXPECT_EQ(first->waiter.backend, only);
  EXPECT_EQ(pool_->try_lease(), nullptr);
  leased_.push_back(only);
}

TEST_F(PoolTest, AForgottenWaiterPassesItsGrantOn) {
  open({.size = 1});
  Backend* only = lease();
  const auto first = wait();
  const auto second = wait();
  give_back(only);
  ASSERT_EQ(first->waiter.backend, only);
  pool_->forget(first->waiter);
  EXPECT_EQ(second->waiter.backend, only);
  const auto third = wait();
  pool_->forget(third->waiter);
  EXPECT_EQ(stats_.pool_waiting.value(), 0);
  leased_.push_back(only);
}

TEST_F(PoolTest, DeadIdleConnectionsAreReplacedSilently) {
  give_back(lease());
  server_.drop_connections();
  ASSERT_TRUE(testing::eventually([&] { return server_.open_now() == 0; }));
  EXPECT_EQ(pool_->try_lease(), nullptr);
  EXPECT_NE(lease(), nullptr);
  EXPECT_EQ(server_.logins(), 2);
}

TEST_F(PoolTest, StrayBytesMakeAnIdleConnectionUnusable) {
  give_back(lease());
  std::string fatal;
  wire::encode_error(fatal, make_error("57P01", "terminating connection"));
  server_.send_to_all(fatal);
  std::this_thread::sleep_for(50ms);
  EXPECT_EQ(pool_->try_lease(), nullptr);
  EXPECT_NE(lease(), nullptr);
  EXPECT_EQ(server_.logins(), 2);
}

TEST_F(PoolTest, UncleanConnectionsAreClosedOnRelease) {
  Backend* busy = lease();
  busy->busy = true;
  give_back(busy);
  EXPECT_TRUE(pool_->backends().empty());
  Backend* tainted = lease();
  tainted->tainted = true;
  give_back(tainted);
  EXPECT_TRUE(pool_->backends().empty());
  Backend* unread = lease();
  const auto room = unread->in.prepare(0, 16);
  room[0] = 'x';
  unread->in.commit(1);
  give_back(unread);
  EXPECT_TRUE(pool_->backends().empty());
}

TEST_F(PoolTest, DiscardMakesRoomForAWaiter) {
  open({.size = 1});
  Backend* only = lease();
  const auto next = wait();
  std::erase(leased_, only);
  pool_->discard(*only);
  ASSERT_TRUE(run_until([&] { return next->waiter.done(); }));
  ASSERT_NE(next->waiter.backend, nullptr);
  leased_.push_back(next->waiter.backend);
  EXPECT_EQ(server_.logins(), 2);
}

TEST_F(PoolTest, EveryWaiterLearnsTheServersOwnError) {
  SqlError error = make_error("57P03", "the database system is starting up");
  error.severity = "FATAL";
  server_.refuse_with(error);
  const auto a = wait();
  const auto b = wait();
  const auto c = wait();
  ASSERT_TRUE(run_until([&] { return a->waiter.done() && b->waiter.done() && c->waiter.done(); }));
  for (const auto* client : {a.get(), b.get(), c.get()}) {
    ASSERT_TRUE(client->waiter.error);
    EXPECT_EQ(client->waiter.error->sqlstate, "08006");
    EXPECT_TRUE(client->waiter.error->message.starts_with("SHARD_UNAVAILABLE: "));
    EXPECT_NE(client->waiter.error->detail.find("57P03"), std::string::npos);
    EXPECT_NE(client->waiter.error->detail.find("starting up"), std::string::npos);
  }
  EXPECT_FALSE(pool_->up());
  // No ban: the next one tries again.
  server_.refuse_with(std::nullopt);
  EXPECT_NE(lease(), nullptr);
  EXPECT_TRUE(pool_->up());
}

TEST_F(PoolTest, WhileOthersLiveAFailedConnectOnlyWaits) {
  Backend* live = lease();
  server_.refuse_with(make_error("53300", "sorry, too many clients already"));
  const auto next = wait();
  ASSERT_TRUE(run_until([&] { return pool_->last_error().has_value(); }));
  EXPECT_FALSE(next->waiter.done());
  EXPECT_TRUE(pool_->up());
  give_back(live);
  EXPECT_EQ(next->waiter.backend, live);
  leased_.push_back(live);
}

TEST_F(PoolTest, ConnectTimeout) {
  // A listening socket nobody accepts on: the login never gets an answer.
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in name{};
  name.sin_family = AF_INET;
  name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof name;
  ASSERT_EQ(::bind(fd, reinterpret_cast<sockaddr*>(&name), sizeof name), 0);
  ASSERT_EQ(::listen(fd, 8), 0);
  ::getsockname(fd, reinterpret_cast<sockaddr*>(&name), &length);
  shard_.target.hosts[0].port = ntohs(name.sin_port);
  shard_.target.connect_timeout = 100ms;
  const auto client = wait();
  ASSERT_TRUE(run_until([&] { return client->waiter.done(); }));
  ASSERT_TRUE(client->waiter.error);
  EXPECT_NE(client->waiter.error->detail.find("timeout expired"), std::string::npos);
  ::close(fd);
}

TEST_F(PoolTest, TheSecondHostIsTriedWhenTheFirstRefuses) {
  Host closed = shard_.target.hosts[0];
  closed.port = 1;
  shard_.target.hosts.insert(shard_.target.hosts.begin(), closed);
  EXPECT_NE(lease(), nullptr);
}

TEST_F(PoolTest, IdleAndOldConnectionsEnd) {
  open({.size = 3, .min_size = 1, .idle_timeout = 1000ms, .lifetime = 5000ms});
  Backend* a = lease();
  Backend* b = lease();
  give_back(a);
  give_back(b);
  pool_->maintain(Clock::now());
  EXPECT_EQ(pool_->backends().size(), 2U);
  pool_->maintain(Clock::now() + 2s);
  EXPECT_EQ(pool_->backends().size(), 1U);  // min_size is kept
  pool_->maintain(Clock::now() + 6s);
  EXPECT_TRUE(pool_->backends().empty());
  // And made again.
  EXPECT_TRUE(run_until([&] { return pool_->backends().size() == 1; }));
}

TEST_F(PoolTest, AConnectionWithACancelOnItsWayIsNobodys) {
  open({.size = 1});
  server_.hold_cancels(true);
  Backend* only = lease();
  pool_->cancel(*only);
  pool_->cancel(*only);
  ASSERT_TRUE(run_until([&] { return server_.cancels() == 1; }));
  const auto next = wait();
  give_back(only);
  EXPECT_EQ(only->node, NodeState::kReserved);
  EXPECT_EQ(pool_->counts().reserved, 1U);
  EXPECT_FALSE(run_until([&] { return next->waiter.done(); }));
  server_.hold_cancels(false);
  ASSERT_TRUE(run_until([&] { return next->waiter.done(); }));
  EXPECT_EQ(next->waiter.backend, only);
  EXPECT_EQ(server_.cancels(), 1);
  leased_.push_back(only);
}

TEST_F(PoolTest, ACancelThatNeverSettlesCostsTheConnection) {
  open({.size = 1, .cancel_timeout = 100ms});
  server_.hold_cancels(true);
  Backend* only = lease();
  pool_->cancel(*only);
  ASSERT_TRUE(run_until([&] { return server_.cancels() == 1; }));
  give_back(only);
  const auto next = wait();
  ASSERT_TRUE(run_until([&] { return next->waiter.done(); }));
  ASSERT_NE(next->waiter.backend, nullptr);
  EXPECT_EQ(server_.logins(), 2);
  leased_.push_back(next->waiter.backend);
  server_.hold_cancels(false);
}

TEST_F(PoolTest, CancelsAreServedWhenThePoolIsFullAndAreBounded) {
  open({.size = 4, .max_cancels = 1});
  server_.hold_cancels(true);
  std::vector<Backend*> all;
  for (int i = 0; i < 4; ++i) all.push_back(lease());
  auto settled = std::make_shared<int>(0);
  const std::weak_ptr<int> watch = settled;
  for (Backend* backend : all) pool_->cancel(*backend, settled);
  settled.reset();
  ASSERT_TRUE(run_until([&] { return server_.cancels() == 1; }));
  EXPECT_FALSE(run_until([&] { return server_.cancels() > 1; }));
  EXPECT_FALSE(watch.expired());
  server_.hold_cancels(false);
  EXPECT_TRUE(run_until([&] { return server_.cancels() == 4; }));
  EXPECT_TRUE(run_until([&] { return watch.expired(); }));
}

TEST_F(PoolTest, ABusyConnectionIsCancelledWhenItIsDiscarded) {
  Backend* busy = lease();
  busy->busy = true;
  std::erase(leased_, busy);
  pool_->discard(*busy);
  EXPECT_TRUE(run_until([&] { return server_.cancels() == 1; }));
}

TEST_F(PoolTest, CloseEndsWaitersAndAttempts) {
  open({.size = 1});
  Backend* only = lease();
  const auto next = wait();
  pool_->close();
  ASSERT_TRUE(next->waiter.error);
  EXPECT_EQ(next->waiter.error->sqlstate, "57P01");
  give_back(only);
  EXPECT_TRUE(pool_->backends().empty());
  const auto late = wait();
  ASSERT_TRUE(late->waiter.error);
}

TEST_F(PoolTest, GaugesBalance) {
  Backend* a = lease();
  Backend* b = lease();
  const auto gauge = [&](metrics::PoolState state) {
    return stats_.pool_connections[state].value();
  };
  EXPECT_EQ(gauge(metrics::PoolState::kLeased), 2);
  give_back(a);
  EXPECT_EQ(gauge(metrics::PoolState::kIdle), 1);
  std::erase(leased_, b);
  pool_->discard(*b);
  EXPECT_EQ(gauge(metrics::PoolState::kLeased), 0);
  EXPECT_EQ(gauge(metrics::PoolState::kConnecting), 0);
}

}  // namespace
}  // namespace collegedb::net
