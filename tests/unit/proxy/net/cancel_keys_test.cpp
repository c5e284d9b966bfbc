#include "proxy/net/cancel_keys.h"

#include <gtest/gtest.h>

#include <set>
#include <thread>
#include <vector>

namespace collegedb::net {
namespace {

TEST(CancelKeys, OnlyTheExactPairFinds) {
  CancelKeys keys;
  const CancelKeys::Key key = keys.add(3);
  EXPECT_EQ(key.secret.size(), 4U);
  EXPECT_GT(key.pid, 0);
  EXPECT_EQ(keys.find(key.pid, key.secret), 3U);
  std::string wrong = key.secret;
  wrong[3] = static_cast<char>(wrong[3] ^ 1);
  EXPECT_FALSE(keys.find(key.pid, wrong));
  EXPECT_FALSE(keys.find(key.pid, key.secret.substr(0, 3)));
  EXPECT_FALSE(keys.find(key.pid, key.secret + "x"));
  EXPECT_FALSE(keys.find(key.pid, ""));
  EXPECT_FALSE(keys.find(key.pid ^ 1, key.secret));
  keys.remove(key.pid);
  EXPECT_FALSE(keys.find(key.pid, key.secret));
  EXPECT_EQ(keys.size(), 0U);
}

TEST(CancelKeys, UniqueOverThreads) {
  CancelKeys keys;
  std::vector<std::thread> threads;
  for (std::size_t worker = 0; worker < 4; ++worker) {
    threads.emplace_back([&keys, worker] {
      for (int i = 0; i < 500; ++i) {
        const CancelKeys::Key key = keys.add(worker);
        ASSERT_EQ(keys.find(key.pid, key.secret), worker);
        if (i % 2 == 0) keys.remove(key.pid);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(keys.size(), 1000U);
}

}  // namespace
}  // namespace collegedb::net
