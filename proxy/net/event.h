// Something one coroutine waits for and anything on its thread may announce. set() never resumes
// the waiter inline: it posts. The owner keeps the io_context running while somebody waits.
#pragma once

#include <boost/asio/async_result.hpp>
#include <boost/asio/post.hpp>
#include <memory>
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
    asio::post(executor_, [waiter = std::move(waiter_)] { waiter->resume(); });
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
        [this](auto handler) {
          waiter_ = std::make_unique<Holder<decltype(handler)>>(std::move(handler));
        },
        token);
  }

  // Not any_completion_handler: Boost 1.81's recurses without end when it is moved into another.
  struct Waiter {
    virtual ~Waiter() = default;
    virtual void resume() = 0;
  };
  template <class Handler>
  struct Holder final : Waiter {
    explicit Holder(Handler suspended) : handler(std::move(suspended)) {}
    void resume() override { std::move(handler)(); }
    Handler handler;
  };

  Executor executor_;
  std::unique_ptr<Waiter> waiter_;
  bool set_ = false;
};

}  // namespace collegedb::net
