// Schema collegedb on the shards: installs and upgrades it, seeds the journal on first start, and
// looks over the shards before anything relies on them. Start-up and background threads only.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "migration/control_session.h"
#include "proxy/config.h"

namespace collegedb::migration {

// A function that only the proxy performs, as SQL text; made in schema public of every shard so
// that psql's \df lists it. Its body refuses with 0A000.
struct FunctionStub {
  std::string name;
  std::string arguments;  // "key text, shard text DEFAULT NULL"
  std::string result;     // "TABLE (op text)"
};

// Idempotent; any number of proxies may do it at once. Throws SqlFailure, among others when a
// schema is newer than this program or belongs to another shard or scope.
void install_schema(const Config& config, std::span<const FunctionStub> stubs);
// The part of one shard alone: schema collegedb, its identity, the stubs. Nothing is sown.
void install_schema_on(const Config& config, std::size_t index,
                       std::span<const FunctionStub> stubs);

// Ends the body of every stub.
inline constexpr std::string_view kStubMarker = "performed by the collegedb proxy";
// Drops the stubs of this shard. The next installation makes them again only when the row
// 'functions' of collegedb.schema_version is gone too.
void drop_stubs(ControlSession& session);

// For auto_init = false: the same checks, nothing is changed.
void check_schema(const Config& config);
// The same on one shard. `journal`: it is the journal shard.
void check_shard_schema(ControlSession& session, const std::string& scope, bool journal);
// 55000 when the database is a shard of another name or scope: one database is one shard of one
// scope, gates and tombstones are not shared. REQUIRES: collegedb.topology is there.
void check_identity(ControlSession& session, const std::string& scope);
// 55000 when the cluster was made with another routing.placement. Nothing before the scope is sown.
void check_placement(ControlSession& journal, const Config& config);

struct Finding {
  enum class Severity : std::uint8_t { kNote, kWarning, kError };
  Severity severity = Severity::kError;
  std::string shard;  // empty = the cluster as a whole
  std::string text;
  std::string hint;
};

// Everything `collegedb check` reports besides the file itself. Never throws: a shard that cannot
// be reached is a finding.
[[nodiscard]] std::vector<Finding> preflight(const Config& config);

}  // namespace collegedb::migration
