// Life of one server connection as a pure switch: which state follows which event. The pool has one
// function that changes the state; it asks here and treats std::nullopt as a broken invariant.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace collegedb::net {

enum class NodeState : std::uint8_t {
  kConnecting,  // counts against the cap, carries nothing
  kIdle,        // in the pool, clean
  kLeased,      // belongs to one client
  kReserved,    // given back while a CancelRequest for it is still on its way: nobody's
  kClosed,      // on its way out of the pool
};

enum class NodeEvent : std::uint8_t {
  kConnected,
  kConnectFailed,
  kLease,
  kRelease,        // clean, no cancel on its way
  kReleaseHeld,    // clean, cancel on its way
  kCancelSettled,  // the cancel connection saw EOF
  kClose,          // expired, lost, discarded, or the pool shuts down
};

[[nodiscard]] std::optional<NodeState> next_state(NodeState state, NodeEvent event) noexcept;
[[nodiscard]] std::string_view name_of(NodeState state) noexcept;

}  // namespace collegedb::net
