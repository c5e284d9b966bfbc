// PostgreSQL's hashtextextended for collation "C", and what placement builds on it.
// Source: src/common/hashfn.c of PostgreSQL (Bob Jenkins' lookup3, hash_bytes_extended).
// Golden vectors: tests/unit/routing/hash_test.cpp; agreement with servers: tests/pg.
#pragma once

#include <cstdint>
#include <string_view>

namespace collegedb::routing {

[[nodiscard]] std::uint64_t hash_bytes_extended(std::string_view bytes,
                                                std::uint64_t seed) noexcept;

// Gate bucket of a key, 0 .. kGateBuckets-1. SQL form, used by collegedb.bucket():
//   (hashtextextended(grp || E'\x01' || key COLLATE "C", 0) & 2047)::int
inline constexpr std::int32_t kGateBuckets = 2048;
[[nodiscard]] std::int32_t gate_bucket(std::string_view group, std::string_view key);

// Weight of a key on a shard for hrw: hashtextextended(shard || E'\x01' || key, 0) as a signed
// int8 compared as SQL compares it (highest wins, ties by the smaller name).
[[nodiscard]] std::int64_t hrw_score(std::string_view shard, std::string_view key);

// CollegeDB's hash for the `modulo` algorithm (int32 over UTF-16 units).
[[nodiscard]] std::int32_t college_hash(std::string_view utf8) noexcept;

}  // namespace collegedb::routing
