#include "proxy/net/node.h"

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <utility>

namespace collegedb::net {
namespace {

using enum NodeState;
using enum NodeEvent;

// The legal transitions; every other pair must be refused.
const std::map<std::pair<NodeState, NodeEvent>, NodeState> kLegal = {
    {{kConnecting, kConnected}, kIdle},   {{kConnecting, kConnectFailed}, kClosed},
    {{kIdle, kLease}, kLeased},           {{kIdle, kClose}, kClosed},
    {{kLeased, kRelease}, kIdle},         {{kLeased, kReleaseHeld}, kReserved},
    {{kLeased, kCancelSettled}, kLeased}, {{kLeased, kClose}, kClosed},
    {{kReserved, kCancelSettled}, kIdle}, {{kReserved, kClose}, kClosed},
};

TEST(Node, EveryPairOfStateAndEvent) {
  for (const auto state : {kConnecting, kIdle, kLeased, kReserved, kClosed}) {
    for (const auto event :
         {kConnected, kConnectFailed, kLease, kRelease, kReleaseHeld, kCancelSettled, kClose}) {
      const auto found = kLegal.find({state, event});
      const auto next = next_state(state, event);
      EXPECT_EQ(next.has_value(), found != kLegal.end())
          << name_of(state) << " " << static_cast<int>(event);
      if (next && found != kLegal.end()) {
        EXPECT_EQ(*next, found->second);
      }
    }
  }
}

TEST(Node, AReservedConnectionIsNobodys) {
  EXPECT_FALSE(next_state(kReserved, kLease));
  EXPECT_FALSE(next_state(kReserved, kRelease));
}

}  // namespace
}  // namespace collegedb::net
