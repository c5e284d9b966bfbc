#include "proxy/net/node.h"

namespace collegedb::net {

std::optional<NodeState> next_state(NodeState state, NodeEvent event) noexcept {
  if (state == NodeState::kClosed) return std::nullopt;
  switch (event) {
    case NodeEvent::kConnected:
      if (state == NodeState::kConnecting) return NodeState::kIdle;
      break;
    case NodeEvent::kConnectFailed:
      if (state == NodeState::kConnecting) return NodeState::kClosed;
      break;
    case NodeEvent::kLease:
      if (state == NodeState::kIdle) return NodeState::kLeased;
      break;
    case NodeEvent::kRelease:
      if (state == NodeState::kLeased) return NodeState::kIdle;
      break;
    case NodeEvent::kReleaseHeld:
      if (state == NodeState::kLeased) return NodeState::kReserved;
      break;
    case NodeEvent::kCancelSettled:
      // While leased the cancel was the client's own business; the lease goes on.
      if (state == NodeState::kReserved) return NodeState::kIdle;
      if (state == NodeState::kLeased) return NodeState::kLeased;
      break;
    case NodeEvent::kClose:
      if (state != NodeState::kConnecting) return NodeState::kClosed;
      break;
  }
  return std::nullopt;
}

std::string_view name_of(NodeState state) noexcept {
  switch (state) {
    case NodeState::kConnecting:
      return "connecting";
    case NodeState::kIdle:
      return "idle";
    case NodeState::kLeased:
      return "leased";
    case NodeState::kReserved:
      return "reserved";
    case NodeState::kClosed:
      return "closed";
  }
  return "closed";
}

}  // namespace collegedb::net
