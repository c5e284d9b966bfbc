// Which key an operator means who may also call it by a lookup name (migration/lookups.h). Blocks.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "proxy/admin/handlers.h"
#include "routing/snapshot.h"

namespace collegedb::admin {

enum class WithoutJournal {
  kRefuse,
  kAsKey,  // when it does not answer, names are not known and `text` is read as a key
};

// `text` is a key, read as key_meant() reads it, if such a key exists: it has rows on a member
// shard or an entry in the directory. Else it is the key that has this lookup name; without such a
// name it is a key again, of which nothing is there yet (22P02 when it cannot be one). A shard that
// would have to be asked and does not answer: its error, nothing is guessed.
[[nodiscard]] Result<routing::GroupKey> key_called(
    Services& services, const routing::Snapshot& snapshot, const std::string& text,
    const std::optional<std::string>& table, const std::vector<std::string>& search_path,
    WithoutJournal without = WithoutJournal::kRefuse);

}  // namespace collegedb::admin
