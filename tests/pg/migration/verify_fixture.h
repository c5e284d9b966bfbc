// What verify finds and repairs, on real servers.
#pragma once

#include <string>
#include <string_view>

#include "migration/verify_repair.h"
#include "tests/pg/migration/evidence_fixture.h"

namespace collegedb::pgtest {

class VerifyTest : public EvidenceTest {
 protected:
  // A repaired system: one repaired finding, then nothing more to be found.
  void expect_repaired(std::string_view what) {
    const VerifyResult done = verified(true);
    EXPECT_TRUE(done.clean());
    ASSERT_THAT(done.repaired, ::testing::SizeIs(1));
    EXPECT_EQ(done.repaired.front().what, what);
    expect_clean();
    expect_quiet();
  }
  // Repair leaves it, and says why.
  void expect_left(FindingKind kind, std::string_view why) {
    VerifyResult done = verified(true);
    EXPECT_FALSE(done.clean());
    EXPECT_THAT(done.repaired, ::testing::SizeIs(0));
    EXPECT_THAT(only(done, kind).reason, ::testing::HasSubstr(why));
    expect_quiet();
  }
  // A mover in a child process that dies at the point.
  void die_at(const std::string& point, const std::string& key, std::size_t to) {
    const auto ready = child_options();
    ASSERT_EQ(
        in_child([&] {
          migration::Runner runner(ready);
          ready.failpoints->arm(point,
                                {.action = migration::Failpoints::Action::kCrash, .argument = {}});
          (void)runner.reassign({.group = std::string(kGroup), .key = key, .shard = name(to)});
        }),
        137);
    await([&] { return !migration::open_journal(options())->orphaned_operations().empty(); },
          "the lock of the dead mover");
  }
};

}  // namespace collegedb::pgtest
