#include "proxy/logging.h"

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <string>
#include <string_view>

namespace collegedb {
namespace {

void append_json_string(std::string_view text, std::string& out) {
  constexpr std::string_view kHex = "0123456789abcdef";
  out += '"';
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20) {
      out += "\\u00";
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    } else {
      out += c;
    }
  }
  out += '"';
}

// {"time":"...","level":"info","message":"..."}
class JsonFormatter : public spdlog::formatter {
 public:
  void format(const spdlog::details::log_msg& message, spdlog::memory_buf_t& out) override {
    spdlog::memory_buf_t time;
    time_.format(message, time);
    std::string text = R"({"time":)";
    append_json_string({time.data(), time.size()}, text);
    text += R"(,"level":)";
    append_json_string(spdlog::level::to_string_view(message.level).data(), text);
    text += R"(,"message":)";
    append_json_string({message.payload.data(), message.payload.size()}, text);
    text += "}\n";
    out.append(text.data(), text.data() + text.size());
  }
  [[nodiscard]] std::unique_ptr<spdlog::formatter> clone() const override {
    return std::make_unique<JsonFormatter>();
  }

 private:
  spdlog::pattern_formatter time_{"%Y-%m-%dT%H:%M:%S.%e%z", spdlog::pattern_time_type::utc, ""};
};

void install(const Config::Proxy& config, spdlog::sink_ptr sink) {
  auto logger = std::make_shared<spdlog::logger>("collegedb", std::move(sink));
  if (config.log_format == "json") {
    logger->set_formatter(std::make_unique<JsonFormatter>());
  } else {
    logger->set_pattern("%Y-%m-%d %H:%M:%S.%e %^%l%$ %v");
  }
  logger->flush_on(spdlog::level::info);
  spdlog::set_default_logger(std::move(logger));
  set_log_level(config.log_level);
}

}  // namespace

void set_up_logging(const Config::Proxy& config) {
  install(config, std::make_shared<spdlog::sinks::stderr_sink_mt>());
}

void set_up_logging_to_file(const Config::Proxy& config, const std::string& path) {
  install(config, std::make_shared<spdlog::sinks::basic_file_sink_mt>(path, true));
}

void set_log_level(const std::string& level) {
  spdlog::set_level(spdlog::level::from_str(level));
}

}  // namespace collegedb
