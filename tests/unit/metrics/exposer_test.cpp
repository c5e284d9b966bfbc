#include "metrics/exposer.h"

#include <gmock/gmock.h>

#include <boost/asio.hpp>

#include "metrics/collector.h"

namespace collegedb::metrics {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// Sends `request` and reads until the server closes or the wanted bytes are there.
std::string talk(std::uint16_t port, const std::string& request) {
  asio::io_context context;
  tcp::socket socket(context);
  socket.connect({asio::ip::address_v4::loopback(), port});
  asio::write(socket, asio::buffer(request));
  std::string reply;
  boost::system::error_code error;
  asio::read(socket, asio::dynamic_buffer(reply), error);
  return reply;
}

std::string get(std::uint16_t port, const std::string& path) {
  return talk(port, "GET " + path + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
}

class ExposerTest : public ::testing::Test {
 protected:
  Registry registry_{{"east"}, 1};
  std::string reason_;
  Exposer exposer_{"127.0.0.1", 0, std::make_shared<Collector>(registry_),
                   [this] { return reason_; }};
};

TEST_F(ExposerTest, ServesMetrics) {
  registry_.worker(0).shards[0].queries[QueryKind::kSelect][Protocol::kSimple].add(2);
  registry_.process().move_time[MovePhase::kCopy].observe_seconds(0.002);
  const auto reply = get(exposer_.port(), "/metrics");
  EXPECT_THAT(reply, StartsWith("HTTP/1.1 200 OK"));
  EXPECT_THAT(reply, HasSubstr("# TYPE collegedb_queries_total counter"));
  EXPECT_THAT(
      reply,
      HasSubstr(R"(collegedb_queries_total{shard="east",kind="select",protocol="simple"} 2)"));
  EXPECT_THAT(reply, HasSubstr(R"(collegedb_move_seconds_bucket{phase="copy",le="0.001"} 0)"));
  EXPECT_THAT(reply, HasSubstr(R"(collegedb_move_seconds_bucket{phase="copy",le="+Inf"} 1)"));
  EXPECT_THAT(reply, HasSubstr(R"(collegedb_move_seconds_count{phase="copy"} 1)"));
}

TEST_F(ExposerTest, SaysWhyItIsNotReady) {
  EXPECT_THAT(get(exposer_.port(), "/readyz"), StartsWith("HTTP/1.1 200 OK"));
}

TEST_F(ExposerTest, HealthDoesNotDependOnReadiness) {
  EXPECT_THAT(get(exposer_.port(), "/healthz"), StartsWith("HTTP/1.1 200 OK"));
}

TEST(ExposerReadinessTest, IsUnavailableWithTheReason) {
  Registry registry({"east"}, 1);
  Exposer exposer("127.0.0.1", 0, std::make_shared<Collector>(registry),
                  [] { return std::string("no snapshot"); });
  const auto reply = get(exposer.port(), "/readyz?x=1");
  EXPECT_THAT(reply, StartsWith("HTTP/1.1 503"));
  EXPECT_THAT(reply, HasSubstr("not ready: no snapshot"));
  EXPECT_THAT(get(exposer.port(), "/healthz"), StartsWith("HTTP/1.1 200 OK"));
}

TEST_F(ExposerTest, RefusesOtherPathsAndMethods) {
  EXPECT_THAT(get(exposer_.port(), "/"), StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(talk(exposer_.port(), "DELETE /metrics HTTP/1.1\r\nConnection: close\r\n\r\n"),
              StartsWith("HTTP/1.1 405"));
}

TEST_F(ExposerTest, KeepsAConnectionForTheNextRequest) {
  const auto reply =
      talk(exposer_.port(),
           "GET /healthz HTTP/1.1\r\n\r\nGET /readyz HTTP/1.1\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(reply, HasSubstr("ok\n"));
  EXPECT_THAT(reply, HasSubstr("ready\n"));
}

TEST_F(ExposerTest, ClosesOnGarbageAndOversizedHeaders) {
  EXPECT_EQ(talk(exposer_.port(), "\x16\x03\x01 nonsense\r\n\r\n"), "");
  EXPECT_EQ(
      talk(exposer_.port(), "GET / HTTP/1.1\r\nX: " + std::string(32 * 1024, 'x') + "\r\n\r\n"),
      "");
}

TEST_F(ExposerTest, StopsWhileAConnectionIsOpen) {
  asio::io_context context;
  tcp::socket socket(context);
  socket.connect({asio::ip::address_v4::loopback(), exposer_.port()});
  // The fixture's destructor must return although this client says nothing.
}

TEST_F(ExposerTest, NamesAnAddressInUse) {
  try {
    Exposer second("127.0.0.1", exposer_.port(), std::make_shared<Collector>(registry_),
                   [] { return std::string(); });
    FAIL() << "two servers on one port";
  } catch (const std::runtime_error& error) {
    EXPECT_THAT(error.what(), HasSubstr("metrics.listen 127.0.0.1:"));
  }
}

}  // namespace
}  // namespace collegedb::metrics
