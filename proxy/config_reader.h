// Reads TOML tables into fields, gathering every fault with its line instead of stopping at the
// first. A key is known once it has been asked for; finish() refuses the others.
#pragma once

#include <toml++/toml.h>

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "proxy/config.h"

namespace collegedb {

class ConfigSection {
 public:
  // `table` may be null: every key then keeps its default. `path` is what messages say ("pool");
  // empty for the top level. `line` is the line of the header. `faults` outlives the section.
  ConfigSection(const toml::table* table, std::string path, int line,
                std::vector<ConfigFault>& faults)
      : table_(table), path_(std::move(path)), line_(line), faults_(faults) {}

  [[nodiscard]] bool has(std::string_view key) const { return table_ && table_->contains(key); }
  // Line of the key, else of the section.
  [[nodiscard]] int line_of(std::string_view key) const;
  [[nodiscard]] std::string name_of(std::string_view key) const;
  void fault(std::string_view key, std::string_view text);

  // Each keeps `out` when the key is absent, and reports a fault when its value does not fit.
  void text(std::string_view key, std::string& out);
  void text_not_empty(std::string_view key, std::string& out);
  void required_text(std::string_view key, std::string& out);  // a fault when absent, too
  void texts(std::string_view key, std::vector<std::string>& out);
  void flag(std::string_view key, bool& out);
  void number(std::string_view key, unsigned& out, unsigned low, unsigned high);
  void number(std::string_view key, std::int64_t& out, std::int64_t low, std::int64_t high);
  void duration(std::string_view key, std::chrono::milliseconds& out,
                std::chrono::milliseconds low = std::chrono::milliseconds(0));
  void size(std::string_view key, std::uint64_t& out, bool rate = false);

  template <class T>
  struct Choice {
    std::string_view name;
    T value;
  };
  template <class T>
  void choice(std::string_view key, T& out, std::initializer_list<Choice<T>> choices) {
    std::string chosen;
    text(key, chosen);
    if (chosen.empty()) {
      if (is_text(key)) fault_choice(key, chosen, names(choices));
      return;
    }
    for (const auto& choice : choices) {
      if (choice.name == chosen) {
        out = choice.value;
        return;
      }
    }
    fault_choice(key, chosen, names(choices));
  }

  // The value itself, marked as known; null when absent.
  const toml::node* take(std::string_view key);
  // A sub-table, or an empty section with a fault when the key is something else.
  ConfigSection section(std::string_view key);
  // An array of tables, each as a section named "key[i]".
  std::vector<ConfigSection> sections(std::string_view key);

  // Refuses the keys nobody asked for.
  void finish();

 private:
  template <class T>
  static std::vector<std::string_view> names(std::initializer_list<Choice<T>> choices) {
    std::vector<std::string_view> result;
    for (const auto& choice : choices) result.push_back(choice.name);
    return result;
  }
  [[nodiscard]] bool is_text(std::string_view key) const;
  void fault_choice(std::string_view key, std::string_view chosen,
                    std::span<const std::string_view> choices);

  const toml::table* table_;
  std::string path_;
  int line_;
  std::vector<ConfigFault>& faults_;
  std::vector<std::string_view> known_;  // keys are literals of the caller
};

}  // namespace collegedb
