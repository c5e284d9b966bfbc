// Something one coroutine waits for and anything on its thread may announce. set() never resumes
// the waiter inline: it posts. The owner keeps the io_context running while somebody waits.
#pragma once

#include <boost/asio/any_completion_handler.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/post.hpp>
#include <utility>

#include "proxy/net/asio.h"

namespace collegedb::net {

class Event {
 public:
  explicit Event(Executor executor) : executor_(executor) {}
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  void set() {
    set_ = true;
    if (!waiter_) return;
    // In a lambda: posting the erased handler itself wraps it in itself without end (Boost 1.81).
    asio::post(executor_, [waiter = std::exchange(waiter_, nullptr)]() mutable {
      std::move(waiter)();
    });
  }

  // Returns once set() has been called since the last return; consumes it.
  Task<void> wait() {
    while (!set_) co_await suspend();
    set_ = false;
  }

 private:
  Task<void> suspend() {
    const asio::use_awaitable_t<Executor> token{};
    return asio::async_initiate<const asio::use_awaitable_t<Executor>, void()>(
        [this](auto handler) { waiter_ = std::move(handler); }, token);
  }

  Executor executor_;
  asio::any_completion_handler<void()> waiter_;
  bool set_ = false;
};

}  // namespace collegedb::net
