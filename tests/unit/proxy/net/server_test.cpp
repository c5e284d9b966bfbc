// The whole data path on loopback sockets: real workers, real sessions, a scripted shard.
#include "proxy/net/server.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "fake_server.h"
#include "proxy/net/tls.h"
#include "test_client.h"

namespace collegedb::net {
namespace {

using namespace std::chrono_literals;
using testing::eventually;
using testing::FakeServer;
using testing::TestClient;

// Answers every request at once with an error; what it was asked is not this test's business.
class NoControl : public session::ControlPlane {
 public:
  void call(session::ControlRequest, std::function<void(session::ControlReply)> done) override {
    done(make_error("0A000", "no control plane here"));
  }
};

std::shared_ptr<const routing::Snapshot> snapshot_of(std::uint64_t version) {
  auto snapshot = std::make_shared<routing::Snapshot>();
  snapshot->version = version;
  snapshot->shards = {{.name = "db-east"}};
  snapshot->epochs.push_back({.id = 1, .shards = {0}, .weights = {}});
  snapshot->exceptions = std::make_shared<routing::ExceptionMap>();
  return snapshot;
}

class ServerTest : public ::testing::Test {
 protected:
  ServerTest() {
    config_.proxy.listen = {"127.0.0.1:0"};
    config_.proxy.workers = 2;
    config_.proxy.drain_timeout = 300ms;
    config_.auth.method = Config::AuthMethod::kTrust;
    config_.pool.size = 2;
    config_.pool.wait_timeout = 300ms;
    config_.shards.push_back(
        {.name = "db-east", .conninfo = shard_.conninfo(), .region = {}, .max_size = 0});
    config_.journal.shard = "db-east";
  }
  ~ServerTest() override {
    if (server_) server_->stop();
  }

  void start() {
    registry_ = std::make_unique<metrics::Registry>(std::vector<std::string>{"db-east"},
                                                    Server::worker_count(config_));
    server_ = std::make_unique<Server>(config_, control_, std::span<const session::AdminFunction>{},
                                       *registry_);
    server_->start(snapshot_of(1));
    port_ = server_->bound_ports().at(0);
  }
  // One worker and one server connection: everybody meets at the same pool.
  void start_narrow() {
    config_.proxy.workers = 1;
    config_.pool.size = 1;
    start();
  }
  std::size_t leased() {
    std::size_t count = 0;
    for (const PoolInfo& pool : server_->pools()) count += pool.leased;
    return count;
  }

  FakeServer shard_;
  Config config_;
  NoControl control_;
  std::unique_ptr<metrics::Registry> registry_;
  std::unique_ptr<Server> server_;
  std::uint16_t port_ = 0;
};

TEST_F(ServerTest, LogsInAndAnswers) {
  start();
  TestClient client(port_);
  const std::string tags = client.log_in();
  EXPECT_EQ(tags.substr(0, 2), "RS");
  EXPECT_EQ(tags.substr(tags.size() - 2), "KZ");
  EXPECT_EQ(client.query("select 'hello'"), "TDCZ");
  ASSERT_EQ(client.rows().size(), 1U);
  EXPECT_NE(client.rows()[0].find("hello"), std::string::npos);
  std::string goodbye;
  wire::encode_terminate(goodbye);
  client.send(goodbye);
  EXPECT_TRUE(client.at_end());
  EXPECT_TRUE(eventually([&] { return server_->open_clients() == 0; }));
}

TEST_F(ServerTest, MessagesOneByteAtATimeAndManyAtOnce) {
  start();
  TestClient client(port_);
  client.log_in();
  std::string one;
  wire::Query{"select 'a'"}.encode(one);
  for (const char byte : one) client.send(std::string_view(&byte, 1));
  EXPECT_EQ(client.read_tags(), "TDCZ");
  std::string many;
  for (int i = 0; i < 50; ++i) many += one;
  client.send(many);
  for (int i = 0; i < 50; ++i) ASSERT_EQ(client.read_tags(), "TDCZ") << i;
}

TEST_F(ServerTest, QueryAndTerminateInOneSegmentIsAnswered) {
  start();
  TestClient client(port_);
  client.log_in();
  std::string bytes;
  wire::Query{"select 'a'"}.encode(bytes);
  wire::encode_terminate(bytes);
  client.send(bytes);
  EXPECT_EQ(client.read_tags(), "TDCZ");
  EXPECT_TRUE(client.at_end());
}

TEST_F(ServerTest, HalfCloseAfterAQueryStillGetsTheReply) {
  start();
  TestClient client(port_);
  client.log_in();
  std::string bytes;
  wire::Query{"select 'a'"}.encode(bytes);
  client.send(bytes);
  client.half_close();
  EXPECT_EQ(client.read_tags(), "TDCZ");
  EXPECT_TRUE(client.at_end());
}

TEST_F(ServerTest, LargeRepliesAndLargeQueries) {
  start();
  TestClient client(port_);
  client.log_in();
  EXPECT_EQ(client.query("select 'big 20000'").size(), 20003U);
  const std::string literal(3'000'000, 'q');
  EXPECT_EQ(client.query("select '" + literal + "'"), "TDCZ");
  EXPECT_GT(client.rows().back().size(), literal.size());
}

TEST_F(ServerTest, ASlowReaderHoldsTheServerBackNotTheMemory) {
  start();
  TestClient client(port_);
  client.log_in();
  std::string bytes;
  wire::Query{"select 'big 60000'"}.encode(bytes);
  client.send(bytes);
  std::this_thread::sleep_for(300ms);
  const auto from_shards = [&] {
    std::uint64_t sum = 0;
    for (const auto& worker : registry_->workers()) {
      sum += worker->bytes[metrics::Direction::kFromShards].value();
    }
    return sum;
  };
  // Sixty megabytes are on offer; only what socket buffers take may have been read.
  EXPECT_LT(from_shards(), 20'000'000U);
  EXPECT_EQ(client.read_tags().size(), 60003U);
}

TEST_F(ServerTest, UnixSocketWithoutTls) {
  std::string pattern = (std::filesystem::temp_directory_path() / "cdbXXXXXX").string();
  const std::string directory = ::mkdtemp(pattern.data());
  config_.proxy.listen.push_back(directory);
  start();
  TestClient client(directory + "/.s.PGSQL." + std::to_string(port_));
  client.log_in();
  EXPECT_EQ(client.query("select 'local'"), "TDCZ");
  const auto clients = server_->clients();
  ASSERT_EQ(clients.size(), 1U);
  EXPECT_EQ(clients[0].address, "unix");
  server_->stop();
  std::filesystem::remove_all(directory);
}

TEST_F(ServerTest, FramingFaultsAreFatal) {
  start();
  TestClient client(port_);
  client.log_in();
  client.send(std::string("y\0\0\0\4", 5));
  EXPECT_EQ(client.read_tags(), "E.");
  EXPECT_EQ(client.error().severity, "FATAL");
  EXPECT_EQ(client.error().sqlstate, "08P01");
  // F1: a wrong length ends the connection without a word.
  for (const std::string& bytes :
       {std::string("Q\0\0\0\3", 5), std::string("Q\xff\xff\xff\xff", 5)}) {
    TestClient silent(port_);
    silent.log_in();
    silent.send(bytes);
    EXPECT_EQ(silent.read_tags(), ".");
  }
}

TEST_F(ServerTest, TooManyClientsAreToldAndMayStillCancel) {
  config_.proxy.max_clients = 1;
  start();
  TestClient first(port_);
  first.log_in();
  TestClient second(port_);
  EXPECT_EQ(second.log_in(), "E.");
  EXPECT_EQ(second.error().sqlstate, "53300");
  std::string bytes;
  wire::Query{"select 'sleep'"}.encode(bytes);
  first.send(bytes);
  ASSERT_TRUE(eventually([&] { return shard_.sleeping() == 1; }));
  TestClient canceller(port_);
  canceller.send(first.cancel_request());
  EXPECT_TRUE(canceller.at_end());
  EXPECT_EQ(first.read_tags(), "EZ");
  EXPECT_EQ(first.error().sqlstate, "57014");
}

TEST_F(ServerTest, CancelWithAWrongKeyDoesNothing) {
  start();
  TestClient client(port_);
  client.log_in();
  std::string bytes = client.cancel_request();
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  TestClient canceller(port_);
  canceller.send(bytes);
  EXPECT_TRUE(canceller.at_end());
  TestClient idle(port_);  // right key, nothing runs
  idle.send(client.cancel_request());
  EXPECT_TRUE(idle.at_end());
  EXPECT_EQ(client.query("select 'a'"), "TDCZ");
  EXPECT_EQ(shard_.cancels(), 0);
}

TEST_F(ServerTest, CancelWhileWaitingForAServerConnection) {
  start_narrow();
  config_.pool.wait_timeout = 10s;
  TestClient holder(port_), waiter(port_);
  holder.log_in();
  waiter.log_in();
  std::string bytes;
  wire::Query{"select 'sleep'"}.encode(bytes);
  holder.send(bytes);
  ASSERT_TRUE(eventually([&] { return shard_.sleeping() == 1; }));
  wire::Query{"select 'b'"}.encode(bytes = {});
  waiter.send(bytes);
  ASSERT_TRUE(eventually([&] { return server_->pools().at(0).waiting == 1; }));
  TestClient canceller(port_);
  canceller.send(waiter.cancel_request());
  EXPECT_EQ(waiter.read_tags(), "EZ");
  EXPECT_EQ(waiter.error().sqlstate, "57014");
  EXPECT_EQ(shard_.cancels(), 0) << "the holder's statement is not the waiter's";
  TestClient second(port_);
  second.send(holder.cancel_request());
  EXPECT_EQ(holder.read_tags(), "EZ");
}

TEST_F(ServerTest, PoolTimeoutNamesShardAndTimeAndKeepsTheSession) {
  start_narrow();
  TestClient holder(port_), waiter(port_);
  holder.log_in();
  waiter.log_in();
  std::string bytes;
  wire::Query{"select 'sleep'"}.encode(bytes);
  holder.send(bytes);
  ASSERT_TRUE(eventually([&] { return shard_.sleeping() == 1; }));
  EXPECT_EQ(waiter.query("select 'b'"), "EZ");
  EXPECT_EQ(waiter.error().sqlstate, "53300");
  EXPECT_NE(waiter.error().message.find("\"db-east\" within 300 ms"), std::string::npos)
      << waiter.error().message;
  TestClient canceller(port_);
  canceller.send(holder.cancel_request());
  EXPECT_EQ(holder.read_tags(), "EZ");
  EXPECT_EQ(waiter.query("select 'b'"), "TDCZ");
}

TEST_F(ServerTest, AVanishedClientFreesItsServerConnection) {
  start_narrow();
  auto client = std::make_unique<TestClient>(port_);
  client->log_in();
  std::string bytes;
  wire::Query{"select 'sleep'"}.encode(bytes);
  client->send(bytes);
  ASSERT_TRUE(eventually([&] { return shard_.sleeping() == 1; }));
  client->reset();
  EXPECT_TRUE(eventually([&] { return leased() == 0 && server_->open_clients() == 0; }));
  EXPECT_TRUE(eventually([&] { return shard_.cancels() == 1; }));
  TestClient next(port_);
  next.log_in();
  EXPECT_EQ(next.query("select 'a'"), "TDCZ");
}

TEST_F(ServerTest, TheServersConnectionIsLostInMidQuery) {
  start();
  TestClient client(port_);
  client.log_in();
  std::string bytes;
  wire::Query{"select 'sleep'"}.encode(bytes);
  client.send(bytes);
  ASSERT_TRUE(eventually([&] { return shard_.sleeping() == 1; }));
  shard_.drop_connections();
  const std::string tags = client.read_tags();
  EXPECT_EQ(tags.front(), 'E') << tags;
  EXPECT_TRUE(eventually([&] { return leased() == 0; }));
  TestClient next(port_);
  next.log_in();
  EXPECT_EQ(next.query("select 'a'"), "TDCZ");
}

TEST_F(ServerTest, NoShardAtLogin) {
  SqlError error = make_error("57P03", "the database system is starting up");
  error.severity = "FATAL";
  shard_.refuse_with(error);
  start();
  TestClient client(port_);
  EXPECT_EQ(client.log_in(), "E.");
  EXPECT_EQ(client.error().severity, "FATAL");
  EXPECT_EQ(client.error().sqlstate, "08006");
  EXPECT_NE(client.error().detail.find("57P03"), std::string::npos);
  shard_.refuse_with(std::nullopt);
  TestClient second(port_);
  EXPECT_EQ(second.log_in().back(), 'Z');
}

TEST_F(ServerTest, SilentClientsAreClosedAtTheLoginTimeout) {
  config_.pool.client_login_timeout = 200ms;
  start();
  TestClient silent(port_), half(port_);
  half.send(std::string("\0\0\0", 3));
  EXPECT_TRUE(silent.at_end());
  EXPECT_TRUE(half.at_end());
  TestClient ready(port_);
  ready.log_in();
  std::this_thread::sleep_for(400ms);
  EXPECT_EQ(ready.query("select 'a'"), "TDCZ") << "the deadline ends with the login";
}

TEST_F(ServerTest, NeverMoreServerConnectionsThanSize) {
  config_.pool.size = 3;
  config_.pool.wait_timeout = 20s;
  start();
  std::vector<std::future<int>> results;
  for (int i = 0; i < 16; ++i) {
    results.push_back(std::async(std::launch::async, [this] {
      TestClient client(port_);
      client.log_in();
      int good = 0;
      for (int n = 0; n < 30; ++n) good += client.query("select 'x'") == "TDCZ" ? 1 : 0;
      return good;
    }));
  }
  for (auto& result : results) EXPECT_EQ(result.get(), 30);
  EXPECT_LE(shard_.most_open(), 3);
}

TEST_F(ServerTest, DrainEndsIdleSessionsAtOnceAndBusyOnesAfterTheirStatement) {
  config_.proxy.drain_timeout = 10s;
  start();
  TestClient idle(port_), busy(port_);
  idle.log_in();
  busy.log_in();
  std::string bytes;
  wire::Query{"select 'sleep'"}.encode(bytes);
  busy.send(bytes);
  ASSERT_TRUE(eventually([&] { return shard_.sleeping() == 1; }));
  auto drained = std::async(std::launch::async, [this] { server_->drain(); });
  EXPECT_EQ(idle.read_tags(), "E.");
  EXPECT_EQ(idle.error().sqlstate, "57P01");
  EXPECT_FALSE(TestClient(port_).connected());
  shard_.drop_connections();  // wakes the sleeping statement as well
  busy.read_tags();
  drained.get();
  EXPECT_EQ(server_->open_clients(), 0U);
}

TEST_F(ServerTest, DrainTimeoutEndsTheRest) {
  start();
  TestClient busy(port_);
  busy.log_in();
  std::string bytes;
  wire::Query{"select 'sleep'"}.encode(bytes);
  busy.send(bytes);
  ASSERT_TRUE(eventually([&] { return shard_.sleeping() == 1; }));
  server_->drain();
  EXPECT_EQ(busy.read_tags(), "E.");
  EXPECT_EQ(busy.error().sqlstate, "57P01");
  EXPECT_EQ(server_->open_clients(), 0U);
}

TEST_F(ServerTest, StopWithClientsInEveryState) {
  start_narrow();
  TestClient silent(port_), idle(port_), busy(port_), waiting(port_);
  idle.log_in();
  busy.log_in();
  waiting.log_in();
  std::string bytes;
  wire::Query{"select 'sleep'"}.encode(bytes);
  busy.send(bytes);
  ASSERT_TRUE(eventually([&] { return shard_.sleeping() == 1; }));
  waiting.send(bytes);
  server_->stop();
  EXPECT_EQ(server_->open_clients(), 0U);
  EXPECT_TRUE(server_->clients().empty());
}

TEST_F(ServerTest, SnapshotsReachEveryWorker) {
  start();
  EXPECT_TRUE(server_->wait_acknowledged(1, 0ms));
  EXPECT_FALSE(server_->wait_acknowledged(2, 10ms));
  server_->publish(snapshot_of(2));
  EXPECT_TRUE(server_->wait_acknowledged(2, 5s));
}

TEST_F(ServerTest, InfoForTheAdminFunctions) {
  start();
  TestClient client(port_);
  client.log_in("root");
  client.query("select 'a'");
  const auto clients = server_->clients();
  ASSERT_EQ(clients.size(), 1U);
  EXPECT_EQ(clients[0].user, "root");
  EXPECT_EQ(clients[0].database, "app");
  EXPECT_EQ(clients[0].state, "idle");
  EXPECT_GT(clients[0].pid, 0);
  EXPECT_TRUE(clients[0].address.starts_with("127.0.0.1:"));
  EXPECT_EQ(server_->pools().size(), 2U);
  const auto servers = server_->servers();
  ASSERT_FALSE(servers.empty());
  EXPECT_EQ(servers[0].state, "idle");
  EXPECT_EQ(servers[0].shard, "db-east");
}

// --- TLS --------------------------------------------------------------------------------------

class TlsTest : public ServerTest {
 protected:
  TlsTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "cdbXXXXXX").string();
    directory_ = ::mkdtemp(pattern.data());
    run("req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 "
        "-subj /CN=localhost -keyout server.key -out server.crt");
    run("req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 "
        "-subj /CN=ann -keyout ann.key -out ann.crt");
    config_.tls.cert = directory_ + "/server.crt";
    config_.tls.key = directory_ + "/server.key";
  }
  ~TlsTest() override {
    if (server_) server_->stop();
    std::filesystem::remove_all(directory_);
  }
  void run(const std::string& arguments) {
    const std::string command =
        "cd " + directory_ + " && openssl " + arguments + " >/dev/null 2>&1";
    ASSERT_EQ(std::system(command.c_str()), 0) << command;
  }
  static std::shared_ptr<SSL_CTX> context() {
    return {SSL_CTX_new(TLS_client_method()), SSL_CTX_free};
  }

  std::string directory_;
};

TEST_F(TlsTest, EncryptedSessionWithLargeReplies) {
  start();
  const auto tls = context();
  TestClient client(port_);
  ASSERT_TRUE(client.start_tls(tls.get()));
  client.log_in();
  EXPECT_EQ(client.query("select 'hello'"), "TDCZ");
  // More than one record, and more than one read.
  EXPECT_EQ(client.query("select 'big 3000'").size(), 3003U);
  const std::string literal(1'000'000, 'q');
  EXPECT_EQ(client.query("select '" + literal + "'"), "TDCZ");
  EXPECT_TRUE(server_->clients().at(0).tls);
}

TEST_F(TlsTest, PreferStillTakesPlaintext) {
  start();
  TestClient client(port_);
  client.log_in();
  EXPECT_EQ(client.query("select 'a'"), "TDCZ");
}

TEST_F(TlsTest, RequireRefusesPlaintextWithAWord) {
  config_.tls.mode = Config::TlsMode::kRequire;
  start();
  TestClient client(port_);
  EXPECT_EQ(client.log_in(), "E.");
  EXPECT_EQ(client.error().sqlstate, "28000");
}

TEST_F(TlsTest, GarbageInsteadOfAHandshakeAndSilenceAfterIt) {
  config_.pool.client_login_timeout = 300ms;
  start();
  std::string request;
  wire::encode_ssl_request(request);
  TestClient garbage(port_), silent(port_);
  garbage.send(request);
  EXPECT_EQ(garbage.read_byte(), 'S');
  garbage.send("GET / HTTP/1.1\r\n\r\n");
  while (!garbage.at_end()) {
  }
  silent.send(request);
  EXPECT_EQ(silent.read_byte(), 'S');
  EXPECT_TRUE(silent.at_end());
}

TEST_F(TlsTest, CertificateAuthentication) {
  config_.tls.mode = Config::TlsMode::kVerifyFull;
  config_.tls.ca = directory_ + "/ann.crt";
  config_.auth.method = Config::AuthMethod::kCert;
  start();
  const auto tls = context();
  SSL_CTX_use_certificate_file(tls.get(), (directory_ + "/ann.crt").c_str(), SSL_FILETYPE_PEM);
  SSL_CTX_use_PrivateKey_file(tls.get(), (directory_ + "/ann.key").c_str(), SSL_FILETYPE_PEM);
  TestClient ann(port_);
  ASSERT_TRUE(ann.start_tls(tls.get()));
  EXPECT_EQ(ann.log_in("ann").back(), 'Z');
  TestClient bob(port_);
  ASSERT_TRUE(bob.start_tls(tls.get()));
  EXPECT_EQ(bob.log_in("bob"), "E.");
  EXPECT_EQ(bob.error().sqlstate, "28000");
  const auto anonymous = context();
  TestClient nobody(port_);
  static_cast<void>(nobody.start_tls(anonymous.get()));  // TLS 1.3 refuses after the handshake
  EXPECT_NE(nobody.log_in("ann").back(), 'Z');
}

TEST_F(TlsTest, ATlsClientVanishesInMidQuery) {
  config_.proxy.workers = 1;
  config_.pool.size = 1;
  start();
  const auto tls = context();
  TestClient client(port_);
  ASSERT_TRUE(client.start_tls(tls.get()));
  client.log_in();
  std::string bytes;
  wire::Query{"select 'sleep'"}.encode(bytes);
  client.send(bytes);
  ASSERT_TRUE(eventually([&] { return shard_.sleeping() == 1; }));
  client.reset();
  EXPECT_TRUE(eventually([&] { return leased() == 0 && server_->open_clients() == 0; }));
}

TEST_F(TlsTest, UnusableCertificatesAreRefusedAtStart) {
  config_.tls.key = directory_ + "/ann.key";
  EXPECT_THROW(start(), std::runtime_error);
  config_.tls.key = directory_ + "/missing.key";
  EXPECT_THROW(start(), std::runtime_error);
}

}  // namespace
}  // namespace collegedb::net
