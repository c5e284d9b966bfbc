#include "proxy/config_reader.h"

#include <algorithm>

#include "proxy/config_values.h"

namespace collegedb {
namespace {

int line_of_node(const toml::node& node) {
  return static_cast<int>(node.source().begin.line);
}

std::string joined(std::span<const std::string_view> words) {
  std::string result;
  for (const auto word : words) {
    if (!result.empty()) result += ", ";
    result += word;
  }
  return result;
}

}  // namespace

int ConfigSection::line_of(std::string_view key) const {
  if (!table_) return line_;
  const auto found = table_->find(key);
  if (found == table_->end()) return line_;
  return static_cast<int>(found->first.source().begin.line);
}

std::string ConfigSection::name_of(std::string_view key) const {
  return path_.empty() ? std::string(key) : path_ + "." + std::string(key);
}

void ConfigSection::fault(std::string_view key, std::string_view text) {
  faults_.push_back({line_of(key), name_of(key) + ": " + std::string(text)});
}

const toml::node* ConfigSection::take(std::string_view key) {
  known_.push_back(key);
  return table_ ? table_->get(key) : nullptr;
}

bool ConfigSection::is_text(std::string_view key) const {
  return table_ && table_->get(key) && table_->get(key)->is_string();
}

void ConfigSection::text(std::string_view key, std::string& out) {
  const auto* node = take(key);
  if (!node) return;
  const auto* value = node->as_string();
  if (!value) return fault(key, "must be a string");
  if (value->get().find('\0') != std::string::npos) return fault(key, "holds a zero byte");
  out = value->get();
}

void ConfigSection::text_not_empty(std::string_view key, std::string& out) {
  text(key, out);
  if (is_text(key) && out.empty()) fault(key, "must not be empty");
}

void ConfigSection::required_text(std::string_view key, std::string& out) {
  text_not_empty(key, out);
  if (!has(key)) fault(key, "is missing");
}

void ConfigSection::texts(std::string_view key, std::vector<std::string>& out) {
  const auto* node = take(key);
  if (!node) return;
  const auto* array = node->as_array();
  if (!array) return fault(key, "must be a list of strings");
  std::vector<std::string> values;
  for (const auto& element : *array) {
    const auto* value = element.as_string();
    if (!value || value->get().empty()) {
      faults_.push_back({line_of_node(element), name_of(key) + ": every element must be a "
                                                               "string that is not empty"});
      return;
    }
    values.push_back(value->get());
  }
  out = std::move(values);
}

void ConfigSection::flag(std::string_view key, bool& out) {
  const auto* node = take(key);
  if (!node) return;
  const auto* value = node->as_boolean();
  if (!value) return fault(key, "must be true or false");
  out = value->get();
}

void ConfigSection::number(std::string_view key, std::int64_t& out, std::int64_t low,
                           std::int64_t high) {
  const auto* node = take(key);
  if (!node) return;
  const auto* value = node->as_integer();
  if (!value || value->get() < low || value->get() > high) {
    return fault(
        key, "must be a whole number from " + std::to_string(low) + " to " + std::to_string(high));
  }
  out = value->get();
}

void ConfigSection::number(std::string_view key, unsigned& out, unsigned low, unsigned high) {
  std::int64_t wide = out;
  number(key, wide, std::int64_t{low}, std::int64_t{high});
  out = static_cast<unsigned>(wide);
}

void ConfigSection::duration(std::string_view key, std::chrono::milliseconds& out,
                             std::chrono::milliseconds low) {
  const auto* node = take(key);
  if (!node) return;
  const auto* text = node->as_string();
  std::optional<std::chrono::milliseconds> value;
  if (text) value = parse_duration(text->get());
  if (node->is_integer() && node->as_integer()->get() == 0) value = std::chrono::milliseconds(0);
  if (!value) return fault(key, R"(must be a duration such as "250ms", "10s", "5min", "1h", "7d")");
  if (*value < low) {
    return fault(key, "must be at least " + std::to_string(low.count()) + "ms");
  }
  out = *value;
}

void ConfigSection::size(std::string_view key, std::uint64_t& out, bool rate) {
  const auto* node = take(key);
  if (!node) return;
  const auto* text = node->as_string();
  if (text && text->get().empty() && !rate) return;  // "" = the default, no limit
  const auto value = text ? parse_size(text->get(), rate) : std::nullopt;
  if (!value) {
    return fault(key, rate ? R"(must be a rate such as "50MB/s")"
                           : R"(must be a size such as "500GB" or "64MiB")");
  }
  out = *value;
}

void ConfigSection::fault_choice(std::string_view key, std::string_view chosen,
                                 std::span<const std::string_view> choices) {
  std::string text = "\"" + std::string(chosen) + "\" is not one of " + joined(choices);
  if (const auto guess = nearest(chosen, choices); !guess.empty()) {
    text += "; did you mean \"" + std::string(guess) + "\"?";
  }
  fault(key, text);
}

ConfigSection ConfigSection::section(std::string_view key) {
  const auto* node = take(key);
  const auto* table = node ? node->as_table() : nullptr;
  if (node && !table) fault(key, "must be a table: [" + name_of(key) + "]");
  return {table, name_of(key), line_of(key), faults_};
}

std::vector<ConfigSection> ConfigSection::sections(std::string_view key) {
  std::vector<ConfigSection> result;
  const auto* node = take(key);
  if (!node) return result;
  const auto* array = node->as_array();
  if (!array || !array->is_array_of_tables()) {
    if (!array || !array->empty()) fault(key, "must be tables: [[" + name_of(key) + "]]");
    return result;
  }
  for (std::size_t i = 0; i < array->size(); ++i) {
    const auto* table = array->get(i)->as_table();
    result.emplace_back(table, name_of(key) + "[" + std::to_string(i) + "]", line_of_node(*table),
                        faults_);
  }
  return result;
}

void ConfigSection::finish() {
  if (!table_) return;
  for (const auto& [key, node] : *table_) {
    const std::string_view name = key.str();
    if (std::find(known_.begin(), known_.end(), name) != known_.end()) continue;
    std::string text = "unknown key";
    if (const auto guess = nearest(name, known_); !guess.empty()) {
      text += "; did you mean \"" + std::string(guess) + "\"?";
    }
    faults_.push_back({static_cast<int>(key.source().begin.line), name_of(name) + ": " + text});
  }
}

}  // namespace collegedb
