// The few Asio types of this folder, under one name each. Executors are concrete (no type erasure)
// and every awaited operation returns its error code as a value (`tup`).
#pragma once

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/basic_stream_socket.hpp>
#include <boost/asio/basic_waitable_timer.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>

namespace collegedb::net {

namespace asio = boost::asio;
using IoError = boost::system::error_code;
using Executor = asio::io_context::executor_type;
using Clock = std::chrono::steady_clock;
using TimePoint = Clock::time_point;
using Milliseconds = std::chrono::milliseconds;

template <class T>
using Task = asio::awaitable<T, Executor>;

// Completion token: `auto [ec, n] = co_await socket.async_read_some(buffer, tup);`
inline constexpr auto tup = asio::as_tuple(asio::use_awaitable_t<Executor>{});

// TCP and unix sockets are one type.
using Socket = asio::basic_stream_socket<asio::generic::stream_protocol, Executor>;
using Endpoint = asio::generic::stream_protocol::endpoint;
using Timer = asio::basic_waitable_timer<Clock, asio::wait_traits<Clock>, Executor>;

}  // namespace collegedb::net
