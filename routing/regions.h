// The regions that the strategy "location" knows, each as one point.
#pragma once

#include <algorithm>
#include <array>
#include <string_view>

namespace collegedb::routing {

struct Region {
  std::string_view name;
  double latitude;
  double longitude;
};

inline constexpr std::array<Region, 8> kRegions{{{"wnam", 37.7749, -122.4194},
                                                 {"enam", 40.7128, -74.0060},
                                                 {"weur", 51.5074, -0.1278},
                                                 {"eeur", 52.5200, 13.4050},
                                                 {"apac", 35.6762, 139.6503},
                                                 {"oc", -33.8688, 151.2093},
                                                 {"me", 25.2048, 55.2708},
                                                 {"af", -26.2041, 28.0473}}};

// nullptr: none is called so.
[[nodiscard]] constexpr const Region* find_region(std::string_view name) noexcept {
  const auto* const found = std::find_if(kRegions.begin(), kRegions.end(),
                                         [&](const Region& each) { return each.name == name; });
  return found != kRegions.end() ? found : nullptr;
}

}  // namespace collegedb::routing
