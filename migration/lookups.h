// Secondary names of keys (collegedb.lookups): "email:a@b" means one key of its group. They say
// where one row is, for whoever asks by name; statements are not routed by them. Background threads
// only.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "migration/control_session.h"

namespace collegedb::migration {

// Longest name in bytes: what an index takes, with room for the group's name.
inline constexpr std::size_t kLongestLookup = 1024;

struct LookupChange {
  std::int64_t changed = 0;        // names that the key has got or lost
  std::vector<std::string> names;  // that it has now, sorted
};

// `names` is the text of a text[]. Adding a name twice, or removing one that the key does not have,
// changes nothing. Throws SqlFailure: 22004 a NULL among the names, 22023 an empty one, 22001 one
// that is too long, 23505 a name of another key, which DETAIL names; nothing has changed then.
// REQUIRES: no transaction is open in the session.
LookupChange add_lookups(ControlSession& journal, const std::string& scope,
                         const std::string& group, const std::string& key,
                         const std::string& names);
LookupChange remove_lookups(ControlSession& journal, const std::string& scope,
                            const std::string& group, const std::string& key,
                            const std::string& names);

// Names of a key, sorted. Throws SqlFailure.
[[nodiscard]] std::vector<std::string> lookups_of(ControlSession& journal, const std::string& scope,
                                                  const std::string& group, const std::string& key);

// The key that has this name. Throws SqlFailure.
[[nodiscard]] std::optional<std::string> key_with_lookup(ControlSession& journal,
                                                         const std::string& scope,
                                                         const std::string& group,
                                                         const std::string& name);

}  // namespace collegedb::migration
