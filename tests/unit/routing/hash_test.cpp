#include "routing/hash.h"

#include <gtest/gtest.h>

#include <string>

namespace collegedb::routing {
namespace {

// What PostgreSQL 15 answers to hashtextextended(text COLLATE "C", seed).
struct Vector {
  std::string text;
  std::uint64_t seed;
  std::int64_t expected;
};

std::string repeat(std::string_view part, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += part;
  return out;
}

TEST(Hash, GoldenVectorsOfTheServer) {
  const Vector kVectors[] = {
      {"", 0, -6939563903564495251},
      {"a", 0, 3591986179850072241},
      {"user-1", 42, -3032704067003550454},
      {repeat("x", 11), 0, 1400674333645317569},
      {repeat("x", 12), 0, -2459440608274261628},
      {repeat("x", 13), 0, 4585758890028022275},
      {"Gr\xc3\xbc\xc3\x9f"
       "e",
       0, 8534170718931255642},
      {repeat("0123456789", 30), 7, -3468762817964326498},
      {"user-123", INT64_MAX, -8432615852890246868},
      {"user-123", static_cast<std::uint64_t>(-1), -3387325344401797977},
  };
  for (const Vector& v : kVectors) {
    EXPECT_EQ(static_cast<std::int64_t>(hash_bytes_extended(v.text, v.seed)), v.expected) << v.text;
  }
}

TEST(Hash, EveryTailLengthReadsOnlyItsBytes) {
  // Exact-size heap buffers: a read past the end is seen by AddressSanitizer.
  for (std::size_t size = 0; size < 40; ++size) {
    const std::unique_ptr<char[]> bytes(new char[size]);
    std::fill_n(bytes.get(), size, 'q');
    EXPECT_EQ(hash_bytes_extended({bytes.get(), size}, 1),
              hash_bytes_extended(std::string(size, 'q'), 1));
  }
}

TEST(Hash, GateBucketOfTheServer) {
  EXPECT_EQ(gate_bucket("public.users", "user-1"), 1901);
  EXPECT_EQ(gate_bucket("public.users", "42"), 1288);
  EXPECT_EQ(gate_bucket("public.orders", ""), 1665);
}

TEST(Hash, HrwScoreOfTheServer) {
  EXPECT_EQ(hrw_score("db-east", "user-1"), -1642715592912105022);
  EXPECT_EQ(hrw_score("db-west", "user-1"), 7495193880337212582);
  EXPECT_EQ(hrw_score("db-west", std::string(400, 'k')), 2963783568373349578);
}

TEST(Hash, CollegeHashVectors) {
  EXPECT_EQ(college_hash(""), 0);
  EXPECT_EQ(college_hash("user-1"), -836031825);
  EXPECT_EQ(college_hash("user-123"), -267697872);
  EXPECT_EQ(college_hash("polygenelubricants"), INT32_MIN);
}

TEST(Hash, CollegeHashCountsUtf16Units) {
  EXPECT_EQ(college_hash("\xc3\xa9"), 0xe9);
  EXPECT_EQ(college_hash("\xe2\x82\xac"), 0x20ac);
  // U+1F600 is the surrogate pair D83D DE00.
  EXPECT_EQ(college_hash("\xf0\x9f\x98\x80"), 0xd83d * 31 + 0xde00);
}

TEST(Hash, CollegeHashReadsBrokenUtf8AsReplacementCharacters) {
  const std::int32_t replacement = 0xfffd;
  EXPECT_EQ(college_hash("\x80"), replacement);
  EXPECT_EQ(college_hash("\xc3"), replacement);                         // cut short
  EXPECT_EQ(college_hash("\xc0\x80"), replacement * 31 + replacement);  // overlong
  EXPECT_EQ(college_hash("\xed\xa0\x80"),
            (replacement * 31 + replacement) * 31 + replacement);  // a lone surrogate
}

}  // namespace
}  // namespace collegedb::routing
