// Precompiled for every library: standard and header-only containers, nothing that does I/O.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <boost/system/result.hpp>
#include <boost/unordered/unordered_flat_map.hpp>
