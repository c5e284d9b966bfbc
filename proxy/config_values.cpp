#include "proxy/config_values.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <vector>

namespace collegedb {
namespace {

struct Unit {
  std::string_view name;
  std::uint64_t factor;
};

constexpr Unit kTimeUnits[] = {{"ms", 1},       {"s", 1000},      {"m", 60'000},
                               {"min", 60'000}, {"h", 3'600'000}, {"d", 86'400'000}};
constexpr Unit kSizeUnits[] = {{"", 1},
                               {"B", 1},
                               {"kB", 1'000},
                               {"KB", 1'000},
                               {"MB", 1'000'000},
                               {"GB", 1'000'000'000},
                               {"TB", 1'000'000'000'000},
                               {"KiB", 1ULL << 10},
                               {"MiB", 1ULL << 20},
                               {"GiB", 1ULL << 30},
                               {"TiB", 1ULL << 40}};
constexpr std::uint64_t kLongestMs = 100ULL * 366 * 86'400'000;

// Digits, optional spaces, one of `units`; nullopt on anything else and on overflow.
std::optional<std::uint64_t> parse_quantity(std::string_view text, std::span<const Unit> units) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{}) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  while (text.starts_with(' ')) text.remove_prefix(1);
  for (const Unit& unit : units) {
    if (unit.name != text) continue;
    if (number > std::numeric_limits<std::uint64_t>::max() / unit.factor) return std::nullopt;
    return number * unit.factor;
  }
  return std::nullopt;
}

std::optional<std::uint16_t> parse_port(std::string_view text) {
  std::uint16_t port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return port;
}

// Insertions, deletions, changes and swaps of neighbours that turn `a` into `b`.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<std::size_t>> d(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) d[i][0] = i;
  for (std::size_t j = 0; j <= b.size(); ++j) d[0][j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t change = d[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, change});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
      }
    }
  }
  return d[a.size()][b.size()];
}

}  // namespace

std::optional<std::chrono::milliseconds> parse_duration(std::string_view text) {
  if (text == "0") return std::chrono::milliseconds(0);
  const auto ms = parse_quantity(text, kTimeUnits);
  if (!ms || *ms > kLongestMs) return std::nullopt;
  return std::chrono::milliseconds(*ms);
}

std::optional<std::uint64_t> parse_size(std::string_view text, bool rate) {
  if (rate && text.ends_with("/s")) text.remove_suffix(2);
  return parse_quantity(text, kSizeUnits);
}

std::optional<ListenAddress> parse_listen(std::string_view text) {
  const auto colon = text.rfind(':');
  if (text.starts_with('/')) {
    if (colon == std::string_view::npos) {
      return ListenAddress{.host = {}, .directory = std::string(text), .port = 0};
    }
    const auto port = parse_port(text.substr(colon + 1));
    if (!port || *port == 0) return std::nullopt;
    return ListenAddress{
        .host = {}, .directory = std::string(text.substr(0, colon)), .port = *port};
  }
  if (colon == std::string_view::npos || colon == 0) return std::nullopt;
  auto host = text.substr(0, colon);
  const auto port = parse_port(text.substr(colon + 1));
  if (!port) return std::nullopt;
  if (host.starts_with('[')) {
    if (!host.ends_with(']') || host.size() < 3) return std::nullopt;
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    return std::nullopt;  // an IPv6 address needs brackets
  }
  return ListenAddress{.host = std::string(host), .directory = {}, .port = *port};
}

std::vector<ListenAddress> listen_addresses(std::span<const std::string> texts) {
  std::vector<ListenAddress> result;
  std::uint16_t shared_port = 0;
  for (const auto& text : texts) {
    const auto address = parse_listen(text);
    if (!address) continue;
    if (shared_port == 0 && address->directory.empty()) shared_port = address->port;
    result.push_back(*address);
  }
  for (auto& address : result) {
    if (address.directory.empty() || address.port != 0) continue;
    address.port = shared_port != 0 ? shared_port : kDefaultPort;
  }
  return result;
}

std::string_view nearest(std::string_view word, std::span<const std::string_view> candidates) {
  std::string_view best;
  std::size_t best_distance = std::max<std::size_t>(1, word.size() / 3) + 1;
  for (const auto candidate : candidates) {
    const auto distance = edit_distance(word, candidate);
    if (distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

}  // namespace collegedb
