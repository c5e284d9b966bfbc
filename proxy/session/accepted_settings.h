// Values of settings that some server has accepted, and the form in which it reports them: they
// need not be tried again at every login and in every transaction. One per worker. Pure.
#pragma once

#include <boost/unordered/unordered_flat_map.hpp>
#include <string>
#include <string_view>

namespace collegedb::session {

class AcceptedSettings {
 public:
  // The value as servers report it (as it stands where they report none); nullptr: not known yet.
  // `name` is in lower case. The pointer is valid until the next call.
  [[nodiscard]] const std::string* find(std::string_view name, const std::string& value);
  void learn(std::string_view name, const std::string& value, std::string reported);

 private:
  boost::unordered_flat_map<std::string, std::string> known_;
};

}  // namespace collegedb::session
