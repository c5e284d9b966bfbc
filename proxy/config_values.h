// Spellings of single values in the configuration file. Pure functions.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace collegedb {

// "250ms", "10s", "5min" or "5m", "1h", "7d", "0". nullopt for anything else, or past 100 years.
[[nodiscard]] std::optional<std::chrono::milliseconds> parse_duration(std::string_view text);

// "50MB", "50MB/s", "16KiB", "1024", "0": kB, MB, GB, TB are powers of 1000, KiB.. of 1024.
// `rate` allows and ignores a trailing "/s".
[[nodiscard]] std::optional<std::uint64_t> parse_size(std::string_view text, bool rate);

struct ListenAddress {
  std::string host;        // empty for a unix socket
  std::string directory;   // of the unix socket; the file is .s.PGSQL.<port>
  std::uint16_t port = 0;  // TCP: 0 = any free port
};
inline constexpr std::uint16_t kDefaultPort = 6432;

// "host:port", "[v6]:port", "/dir" (port 0) or "/dir:port".
[[nodiscard]] std::optional<ListenAddress> parse_listen(std::string_view text);

// proxy.listen as addresses: a unix socket without a port gets that of the first TCP address, else
// kDefaultPort. REQUIRES addresses that parse; others are left out.
[[nodiscard]] std::vector<ListenAddress> listen_addresses(std::span<const std::string> texts);

// The candidate a typing mistake away from `word`; empty when none is near.
[[nodiscard]] std::string_view nearest(std::string_view word,
                                       std::span<const std::string_view> candidates);

}  // namespace collegedb
