// The attribute list that every SCRAM message is. Pure, borrows from the message.
//
//   attributes = attribute { "," attribute }
//   attribute  = letter "=" value          the value holds no comma
#pragma once

#include <algorithm>
#include <optional>
#include <string_view>

namespace collegedb::wire::detail {

class ScramAttributes {
 public:
  explicit ScramAttributes(std::string_view message) noexcept : message_(message) {}

  // The value of the next attribute when it is `name`, which is then consumed.
  std::optional<std::string_view> expect(char name) noexcept {
    const std::string_view next = peek();
    if (!is_attribute(next) || next.front() != name) return std::nullopt;
    at_ += next.size();
    ended_ = at_ == message_.size();
    if (!ended_) ++at_;  // the comma: something must follow
    return next.substr(2);
  }

  // Consumes attributes before the next one named `name`. Gives the message before that one,
  // without the comma between; nullopt when there is none.
  std::optional<std::string_view> skip_to(char name) noexcept {
    while (!ended_) {
      const std::string_view next = peek();
      if (!is_attribute(next)) return std::nullopt;
      if (next.front() == name) return message_.substr(0, at_ == 0 ? 0 : at_ - 1);
      expect(next.front());
    }
    return std::nullopt;
  }

  // Consumes the rest, which must be optional extensions: "m" is mandatory and nobody's.
  bool skip_extensions() noexcept {
    while (!ended_) {
      const std::string_view next = peek();
      if (!is_attribute(next) || next.front() == 'm' || !expect(next.front())) return false;
    }
    return true;
  }

  [[nodiscard]] bool at_end() const noexcept { return ended_; }

 private:
  static bool is_attribute(std::string_view text) noexcept {
    return text.size() >= 2 && text[1] == '=' &&
           ((text[0] >= 'a' && text[0] <= 'z') || (text[0] >= 'A' && text[0] <= 'Z'));
  }
  [[nodiscard]] std::string_view peek() const noexcept {
    if (ended_) return {};
    const std::string_view rest = message_.substr(at_);
    return rest.substr(0, rest.find(','));
  }

  std::string_view message_;
  std::size_t at_ = 0;
  bool ended_ = false;
};

// Printable ASCII but the comma, and not nothing.
[[nodiscard]] inline bool is_nonce(std::string_view text) noexcept {
  return !text.empty() && std::all_of(text.begin(), text.end(),
                                      [](char c) { return c >= 0x21 && c <= 0x7e && c != ','; });
}

}  // namespace collegedb::wire::detail
