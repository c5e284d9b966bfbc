#include "proxy/wire/startup_options.h"

#include <algorithm>

namespace collegedb::wire::detail {
namespace {

bool is_space(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r');
}

// Words end at white space; a backslash takes the next character as it is.
std::vector<std::string> split_words(std::string_view text) {
  std::vector<std::string> words;
  std::size_t at = 0;
  while (true) {
    while (at < text.size() && is_space(text[at])) ++at;
    if (at == text.size()) return words;
    std::string& word = words.emplace_back();
    for (; at < text.size() && !is_space(text[at]); ++at) {
      if (text[at] == '\\' && ++at == text.size()) break;
      word.push_back(text[at]);
    }
  }
}

SqlError syntax_error(std::string_view before, std::string_view word, std::string_view after) {
  std::string text(before);
  text.append(word).append(after);
  return make_fatal("42601", text);
}

SqlError invalid_argument(std::string_view word) {
  return syntax_error("invalid command-line argument for server process: ", word, "");
}

// name=value, where a dash in the name stands for an underscore.
Result<std::pair<std::string, std::string>> parse_setting(std::string_view text,
                                                          std::string_view option) {
  const std::size_t equals = text.find('=');
  if (equals == std::string_view::npos) return syntax_error(option, text, " requires a value");
  std::string name(text.substr(0, equals));
  if (name.empty()) return make_fatal("42704", "unrecognized configuration parameter \"\"");
  std::replace(name.begin(), name.end(), '-', '_');
  return std::pair(std::move(name), std::string(text.substr(equals + 1)));
}

}  // namespace

Result<void> parse_startup_options(std::string_view options,
                                   std::vector<std::pair<std::string, std::string>>& parameters) {
  const std::vector<std::string> words = split_words(options);
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string_view word = words[i];
    if (word == "--" && i + 1 == words.size()) break;  // "no more options"
    std::string_view option;
    std::string_view setting;
    if (word.starts_with("--") && word.size() > 2) {
      option = "--";
      setting = word.substr(2);
    } else if (word.starts_with("-c") && word.size() > 2) {
      option = "-c ";
      setting = word.substr(2);
    } else if (word == "-c" && i + 1 < words.size()) {
      option = "-c ";
      setting = words[++i];
    } else {
      return invalid_argument(word);
    }
    auto parsed = parse_setting(setting, option);
    if (!parsed) return parsed.error();
    parameters.push_back(std::move(*parsed));
  }
  return {};
}

}  // namespace collegedb::wire::detail
