// Starts a detached coroutine whose failure is not silent.
#pragma once

#include <spdlog/spdlog.h>

#include <boost/asio/co_spawn.hpp>
#include <exception>
#include <string_view>
#include <utility>

#include "proxy/net/asio.h"

namespace collegedb::net {

// `what`: static text. Runs `task` up to its first suspension before it returns.
inline void spawn(Executor executor, std::string_view what, Task<void> task) {
  asio::co_spawn(executor, std::move(task), [what](std::exception_ptr failure) {
    if (!failure) return;
    try {
      std::rethrow_exception(failure);
    } catch (const std::exception& error) {
      spdlog::error("{} ended by an exception: {}", what, error.what());
    } catch (...) {
      spdlog::error("{} ended by an unknown exception", what);
    }
  });
}

}  // namespace collegedb::net
