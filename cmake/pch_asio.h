// Precompiled for the folders that do I/O.
#pragma once
#include "pch_std.h"

#include <spdlog/spdlog.h>
#include <boost/asio.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/ssl.hpp>
