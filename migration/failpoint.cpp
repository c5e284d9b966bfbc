#include "migration/failpoint.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>

#include "migration/machine.h"
#include "migration/shard.h"

namespace collegedb::migration {
namespace {

#ifdef COLLEGEDB_FAILPOINTS
constexpr bool kAllowed = true;
#else
constexpr bool kAllowed = false;
#endif

constexpr std::array<std::pair<std::string_view, Failpoints::Action>, 6> kActions = {{
    {"crash", Failpoints::Action::kCrash},
    {"error", Failpoints::Action::kError},
    {"miss", Failpoints::Action::kMiss},
    {"sleep", Failpoints::Action::kSleep},
    {"wait", Failpoints::Action::kWait},
    {"drop-reply", Failpoints::Action::kDropReply},
}};

[[noreturn]] void refuse(std::string_view entry, std::string_view why) {
  throw std::runtime_error("COLLEGEDB_FAILPOINTS: \"" + std::string(entry) +
                           "\": " + std::string(why));
}

int number(std::string_view digits, std::string_view entry) {
  int out = 0;
  const auto [end, failed] = std::from_chars(digits.data(), digits.data() + digits.size(), out);
  if (failed != std::errc{} || end != digits.data() + digits.size()) refuse(entry, "not a number");
  return out;
}

void parse(std::string_view entry, Failpoints& out) {
  const auto equals = entry.find('=');
  if (equals == std::string_view::npos) refuse(entry, "name=action expected");
  std::string_view action = entry.substr(equals + 1);
  Failpoints::Armed armed;
  if (const auto star = action.rfind('*'); star != std::string_view::npos) {
    armed.count = number(action.substr(star + 1), entry);
    action = action.substr(0, star);
  }
  if (const auto colon = action.find(':'); colon != std::string_view::npos) {
    armed.argument = action.substr(colon + 1);
    action = action.substr(0, colon);
  }
  const auto found = std::find_if(kActions.begin(), kActions.end(),
                                  [&](const auto& known) { return known.first == action; });
  if (found == kActions.end()) refuse(entry, "unknown action");
  armed.action = found->second;
  if (armed.action == Failpoints::Action::kSleep) number(armed.argument, entry);
  out.arm(entry.substr(0, equals), std::move(armed));
}

bool has_effect(Command command) {
  return command != Command::kStop && command != Command::kBackOff;
}

std::vector<std::string> make_points() {
  std::vector<std::string> out;
  for (std::size_t i = 0; i < kCommands; ++i) {
    const auto command = static_cast<Command>(i);
    if (!has_effect(command)) continue;
    out.push_back(std::string(name_of(command)) + ".before");
    out.push_back(std::string(name_of(command)) + ".after");
  }
  for (const std::string_view name :
       {point::kClaimBefore, point::kClaimAfter, point::kCopyMiddle, point::kFenceMiddle,
        point::kRollbackMiddle, point::kRollbackHalvesMiddle, point::kRaiseTokensMiddle,
        point::kForgetTokensMiddle, point::kLeaseBefore, point::kLeaseAfter, point::kReleaseBefore,
        point::kReleaseAfter}) {
    out.emplace_back(name);
  }
  return out;
}

}  // namespace

const std::vector<std::string>& all_points() {
  static const std::vector<std::string> points = make_points();
  return points;
}

std::shared_ptr<Failpoints> Failpoints::from_environment() {
  auto out = std::make_shared<Failpoints>();
  const char* text = std::getenv("COLLEGEDB_FAILPOINTS");
  std::string_view rest = text != nullptr ? text : "";
  while (!rest.empty()) {
    const auto comma = std::min(rest.find(','), rest.size());
    if (comma > 0) parse(rest.substr(0, comma), *out);
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  return out;
}

void Failpoints::arm(std::string_view name, Armed armed) {
  if (!kAllowed) refuse(name, "this build has no fail points (COLLEGEDB_TESTS is off)");
  const auto& points = all_points();
  if (std::find(points.begin(), points.end(), name) == points.end()) refuse(name, "unknown point");
  const std::lock_guard lock(mutex_);
  armed_[std::string(name)] = std::move(armed);
}

void Failpoints::disarm() {
  const std::lock_guard lock(mutex_);
  armed_.clear();
}

void Failpoints::hit(std::string_view name) {
  std::optional<Armed> now;
  {
    const std::lock_guard lock(mutex_);
    ++visits_[std::string(name)];
    const auto found = armed_.find(name);
    if (found == armed_.end() || found->second.count == 0) return;
    if (found->second.count > 0) --found->second.count;
    now = found->second;
  }
  act(name, *now);
}

void Failpoints::act(std::string_view name, const Armed& armed) const {
  const std::string where = "fail point " + std::string(name);
  switch (armed.action) {
    case Action::kCrash:
      ::_exit(137);
    case Action::kError:
      throw StepFailure(Event::kRefused, make_error(ErrorCode::kMoveRefused, where));
    case Action::kMiss:
      throw StepFailure(Event::kMissed, make_error(ErrorCode::kMoveRefused, where));
    case Action::kSleep:
      std::this_thread::sleep_for(std::chrono::milliseconds(std::atoi(armed.argument.c_str())));
      return;
    case Action::kWait:
      std::ofstream(armed.argument + ".here").put('\n');
      while (!std::filesystem::exists(armed.argument)) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
      return;
    case Action::kDropReply:
      throw StepFailure(Event::kLost, make_error(ErrorCode::kShardUnavailable, where));
  }
}

std::map<std::string, int, std::less<>> Failpoints::visits() const {
  const std::lock_guard lock(mutex_);
  return visits_;
}

}  // namespace collegedb::migration
