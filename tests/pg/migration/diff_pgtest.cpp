// collegedb_diff: the hash tree finds exactly the rows that differ, in tables of shards and between
// a key and its archive.
#include <gmock/gmock.h>

#include "migration/diff.h"
#include "migration/registry.h"
#include "tests/pg/migration/evidence_fixture.h"

namespace collegedb::pgtest {
namespace {

using migration::DiffRow;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::StartsWith;

class DiffTest : public EvidenceTest {
 protected:
  void open_reference(std::string_view table, std::string_view rows) {
    open();
    tell_all(table);
    tell_all(rows);
    const auto done = migration::reference_table(config, {.table = "countries"});
    ASSERT_TRUE(done) << done.error().message;
  }
  std::vector<DiffRow> differences(bool name_rows = true) {
    auto out = migration::diff_reference(options(), "public", "countries", name_rows);
    if (!out) {
      ADD_FAILURE() << out.error().message;
      return {};
    }
    return *std::move(out);
  }
  std::vector<DiffRow> of_key(const std::string& key) {
    auto out = migration::diff_key(options(), std::string(kGroup), key, true);
    if (!out) {
      ADD_FAILURE() << out.error().message;
      return {};
    }
    return *std::move(out);
  }
  static std::int64_t total(const std::vector<DiffRow>& rows) {
    std::int64_t out = 0;
    for (const DiffRow& row : rows) out += row.rows_differing;
    return out;
  }
};

constexpr std::string_view kCountries =
    "CREATE TABLE countries (code text PRIMARY KEY, name text, n numeric, b bytea)";
constexpr std::string_view kManyCountries =
    "INSERT INTO countries SELECT 'c' || g, 'name ' || g, g, decode(to_hex(g + 4096), 'hex')"
    " FROM generate_series(1, 5000) g";

TEST_F(DiffTest, EqualTablesHaveNoRow) {
  open_reference(kCountries, kManyCountries);
  EXPECT_THAT(differences(), IsEmpty());
  tell_all("DELETE FROM countries");
  EXPECT_THAT(differences(), IsEmpty());
}

TEST_F(DiffTest, NamesTheRowsThatDifferAndTheShards) {
  open_reference(kCountries, kManyCountries);
  tell(1, "UPDATE countries SET name = 'other' WHERE code = 'c17'");
  tell(2,
       "DELETE FROM countries WHERE code = 'c99';"
       "INSERT INTO countries VALUES ('new', NULL, NULL, NULL)");
  const auto found = differences();
  ASSERT_THAT(found, SizeIs(3));
  EXPECT_THAT(found[0].path, StartsWith("public.countries/"));
  EXPECT_THAT(found[0].path, HasSubstr("[\"c17\"]"));
  EXPECT_EQ(found[0].shard_a, name(0));
  EXPECT_EQ(found[0].shard_b, name(1));
  EXPECT_EQ(found[0].rows_differing, 1);
  EXPECT_THAT(found[1].path + found[2].path, HasSubstr("[\"c99\"]"));
  EXPECT_THAT(found[1].path + found[2].path, HasSubstr("[\"new\"]"));
  EXPECT_EQ(found[1].shard_b, name(2));
  for (const DiffRow& row : differences(false)) {
    EXPECT_EQ(row.path.find('['), std::string::npos) << row.path;
  }
}

TEST_F(DiffTest, TellsNullFromEmptyAndScalesOfNumbers) {
  open_reference(kCountries, "INSERT INTO countries VALUES ('a', '', 1.0, '\\x00')");
  tell(1, "UPDATE countries SET name = NULL");
  EXPECT_EQ(total(differences()), 1);
  tell(1, "UPDATE countries SET name = '', n = 1.00");
  EXPECT_EQ(total(differences()), 1);
  tell(1, "UPDATE countries SET n = 1.0, b = '\\x0000'");
  EXPECT_EQ(total(differences()), 1);
  tell(1, "UPDATE countries SET b = '\\x00'");
  EXPECT_THAT(differences(), IsEmpty());
}

TEST_F(DiffTest, CountsExactlyHoweverMuchDiffers) {
  open_reference(kCountries, kManyCountries);
  tell(1,
       "UPDATE countries SET n = n + 1 WHERE code < 'c3'; DELETE FROM countries WHERE code > 'c8'");
  const std::string expected =
      ask(0, "SELECT count(*) FROM countries WHERE code < 'c3' OR code > 'c8'");
  const auto found = differences();
  EXPECT_EQ(std::to_string(total(found)), expected);
  EXPECT_THAT(found, SizeIs(testing::Le(migration::kMaxDiffRanges)));
  EXPECT_GT(found.size(), 200U) << "ranges of 256";
}

TEST_F(DiffTest, WithoutAPrimaryKeyRowsAreTheirOwnIdentity) {
  open_reference("CREATE TABLE countries (code text, n int)",
                 "INSERT INTO countries VALUES ('a', 1), ('a', 1), ('a', 1), ('b', NULL)");
  tell(1,
       "DELETE FROM countries WHERE ctid IN (SELECT ctid FROM countries WHERE code = 'a' LIMIT 2)");
  EXPECT_EQ(total(differences()), 2);
  tell(1, "INSERT INTO countries VALUES ('a', 1), ('a', 2)");
  EXPECT_EQ(total(differences()), 2) << "one is missing, one too many";
}

// User-defined types have other OIDs on every shard.
TEST_F(DiffTest, ComparesTypesByTheirText) {
  open();
  tell(1, "CREATE TYPE filler AS ENUM ('x')");
  tell_all(
      "CREATE TYPE mood AS ENUM ('sad', 'ok');"
      "CREATE TABLE countries (code text PRIMARY KEY, m mood, ms mood[], j json)");
  tell_all("INSERT INTO countries VALUES ('a', 'ok', '{sad,ok}', '{\"a\": 1}')");
  ASSERT_TRUE(migration::reference_table(config, {.table = "countries"}));
  EXPECT_THAT(differences(), IsEmpty());
  tell(2, "UPDATE countries SET ms = '{ok,sad}'");
  EXPECT_EQ(total(differences()), 1);
}

TEST_F(DiffTest, OtherColumnsAreAnError) {
  open_reference(kCountries, "INSERT INTO countries VALUES ('a')");
  tell(1, "ALTER TABLE countries ALTER n TYPE text");
  const auto refused = migration::diff_reference(options(), "public", "countries", true);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().sqlstate, "55000");
  tell(1, "DROP TABLE countries");
  EXPECT_EQ(migration::diff_reference(options(), "public", "countries", true).error().sqlstate,
            "42P01");
}

// A statement over all shards is prepared on each, then committed on one after another.
TEST_F(DiffTest, AWriteThatIsCommittedShardByShardIsSeenOnAllOrNone) {
  open_reference(kCountries, kManyCountries);
  std::atomic<bool> stopping{false};
  std::atomic<int> writes{0};
  std::thread writer([&] {
    std::vector<std::unique_ptr<migration::ControlSession>> sessions;
    for (std::size_t i = 0; i < 3; ++i) sessions.push_back(session(i));
    for (int n = 0; !stopping; ++n) {
      for (const auto& each : sessions) {
        each->script("BEGIN; UPDATE countries SET n = " + std::to_string(n) +
                     " WHERE code = 'c1'; PREPARE TRANSACTION 'w'");
      }
      for (const auto& each : sessions) each->script("COMMIT PREPARED 'w'");
      ++writes;
    }
  });
  for (int i = 0; i < 10; ++i) EXPECT_THAT(differences(), IsEmpty());
  stopping = true;
  writer.join();
  EXPECT_GT(writes, 3);
}

TEST_F(DiffTest, AKeyAgainstItsArchiveShowsWhatWasWrittenSince) {
  open();
  const std::size_t home = add_key("1");
  const std::size_t to = other_than(home);
  EXPECT_EQ(migration::diff_key(options(), std::string(kGroup), "1", true).error().sqlstate,
            "55000");
  moved("1", to);
  EXPECT_THAT(of_key("1"), IsEmpty());
  tell(to,
       "UPDATE users SET n = 3; DELETE FROM orders WHERE no = 1;"
       "INSERT INTO orders VALUES (1, 9, 9, 'nine')");
  const auto found = of_key("1");
  EXPECT_EQ(total(found), 3);
  std::string paths;
  for (const DiffRow& row : found) {
    paths += row.path + "\n";
    EXPECT_EQ(row.shard_a, name(to));
    EXPECT_EQ(row.shard_b, name(home));
  }
  EXPECT_THAT(paths, HasSubstr("public.users/"));
  EXPECT_THAT(paths, HasSubstr("[\"1\", \"9\"]"));
  moved("1", home);
  EXPECT_THAT(of_key("1"), IsEmpty()) << "against the newest archive";
  remove_rows(home, "1");
  EXPECT_EQ(total(of_key("1")), 4);
}

}  // namespace
}  // namespace collegedb::pgtest
