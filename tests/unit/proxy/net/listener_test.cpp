#include "proxy/net/listener.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <boost/asio/post.hpp>
#include <filesystem>
#include <stdexcept>

#include "fake_server.h"
#include "test_client.h"

namespace collegedb::net {
namespace {

using testing::TestClient;
using namespace std::chrono_literals;

class ListenerTest : public ::testing::Test {
 protected:
  ListenerTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "cdbXXXXXX").string();
    directory_ = ::mkdtemp(pattern.data());
  }
  ~ListenerTest() override { std::filesystem::remove_all(directory_); }

  void run() {
    listener_.start();
    thread_ = std::thread([this] { io_.run(); });
  }
  void stop() {
    asio::post(io_, [this] { listener_.stop(); });
    thread_.join();
  }

  std::string directory_;
  asio::io_context io_{1};
  std::atomic<int> accepted_ = 0;
  std::atomic<int> local_ = 0;
  Listener listener_{io_.get_executor(), [this](Accepted one) {
                       ++accepted_;
                       if (one.local) ++local_;
                     }};
  std::thread thread_;
};

TEST_F(ListenerTest, TcpWithPortZeroAndUnixDirectory) {
  listener_.bind({"127.0.0.1:0", directory_});
  ASSERT_EQ(listener_.ports().size(), 1U);
  EXPECT_NE(listener_.ports()[0], 0);
  const std::string path = directory_ + "/.s.PGSQL." + std::to_string(listener_.ports()[0]);
  struct stat status{};
  ASSERT_EQ(::stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0777U);
  run();
  TestClient tcp(listener_.ports()[0]);
  TestClient local(path);
  EXPECT_TRUE(testing::eventually([&] { return accepted_ == 2 && local_ == 1; }));
  stop();
  EXPECT_NE(::stat(path.c_str(), &status), 0) << "the socket file is removed";
}

TEST_F(ListenerTest, AStaleSocketFileIsReplacedALiveOneIsNot) {
  listener_.bind({directory_});
  asio::io_context other_io;
  Listener other(other_io.get_executor(), [](Accepted) {});
  EXPECT_THROW(other.bind({directory_}), std::runtime_error);
  // Left behind by a crash: the file exists, nobody listens.
  const std::string crashed = directory_ + "/crashed";
  std::filesystem::create_directory(crashed);
  const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  const std::string path = crashed + "/.s.PGSQL.6432";
  std::copy(path.begin(), path.end(), name.sun_path);
  ASSERT_EQ(::bind(fd, reinterpret_cast<sockaddr*>(&name), sizeof name), 0);
  ::close(fd);
  EXPECT_NO_THROW(other.bind({crashed}));
}

TEST_F(ListenerTest, BadAddressesAreNamed) {
  listener_.bind({"127.0.0.1:0"});
  const std::string taken = "127.0.0.1:" + std::to_string(listener_.ports()[0]);
  for (const std::string& address : {taken, std::string("nonsense"), std::string("/nosuchdir/x"),
                                     std::string("127.0.0.1:notaport")}) {
    asio::io_context other_io;
    Listener other(other_io.get_executor(), [](Accepted) {});
    try {
      other.bind({address});
      ADD_FAILURE() << address;
    } catch (const std::runtime_error& error) {
      EXPECT_NE(std::string(error.what()).find(address), std::string::npos);
    }
  }
}

TEST_F(ListenerTest, GoesOnAfterDescriptorsRanOut) {
  listener_.bind({"127.0.0.1:0"});
  run();
  // The client's socket exists before the limit falls; only accept() is refused.
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const int probe = ::socket(AF_INET, SOCK_STREAM, 0);
  rlimit tight = before;
  tight.rlim_cur = static_cast<rlim_t>(probe) + 1;
  std::vector<int> filler;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &tight), 0);
  for (int fd = ::dup(probe); fd >= 0; fd = ::dup(probe)) filler.push_back(fd);
  sockaddr_in name{};
  name.sin_family = AF_INET;
  name.sin_port = htons(listener_.ports()[0]);
  name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::connect(probe, reinterpret_cast<sockaddr*>(&name), sizeof name), 0);
  std::this_thread::sleep_for(150ms);
  EXPECT_EQ(accepted_, 0);
  for (const int fd : filler) ::close(fd);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_TRUE(testing::eventually([&] { return accepted_ == 1; }));
  ::close(probe);
  stop();
}

}  // namespace
}  // namespace collegedb::net
