// Moves, and states that only a fault could have left, for the tests of verify, purge, restore,
// diff.
#pragma once

#include <string>

#include "migration/purge.h"
#include "migration/restore.h"
#include "migration/verify.h"
#include "tests/pg/migration/move_fixture.h"

namespace collegedb::pgtest {

using migration::FindingKind;
using migration::VerifyFinding;
using migration::VerifyResult;

class EvidenceTest : public MoveTest {
 protected:
  // A verification that must come to an end.
  VerifyResult verified(bool repair = false) {
    Result<VerifyResult> out = migration::verify(options(), repair);
    if (!out) {
      ADD_FAILURE() << out.error().message;
      return {};
    }
    return *std::move(out);
  }
  void expect_clean() {
    const VerifyResult result = verified();
    for (std::size_t i = 0; i < migration::kFindingKinds; ++i) {
      EXPECT_EQ(migration::json_of(result.remaining[i].first), "[]")
          << name_of(static_cast<FindingKind>(i));
    }
    EXPECT_TRUE(result.clean());
  }
  // The only finding of all kinds.
  VerifyFinding only(VerifyResult& result, FindingKind kind) {
    for (std::size_t i = 0; i < migration::kFindingKinds; ++i) {
      const auto each = static_cast<FindingKind>(i);
      EXPECT_EQ(result[each].count, each == kind ? 1 : 0)
          << name_of(each) << ": " << migration::json_of(result[each].first);
    }
    return result[kind].first.empty() ? VerifyFinding{} : result[kind].first.front();
  }

  // Moves the key and returns the operation.
  std::string moved(const std::string& key, std::size_t to) {
    const auto done = reassign(key, name(to));
    if (!done || !done->op) {
      ADD_FAILURE() << (done ? "nothing moved" : done.error().message);
      return {};
    }
    return *done->op;
  }
  // Rows of the key that come past everything: as a bypassing superuser, or a restored backup.
  void plant_rows(std::size_t shard, const std::string& key, int orders = 3,
                  const std::string& n = "0") {
    tell(shard,
         "SET session_replication_role = replica; SET collegedb.guarded = 'on';"
         "INSERT INTO users (id, name, n) VALUES (" +
             key + ", 'user " + key + "', " + n +
             ");"
             "INSERT INTO orders SELECT " +
             key + ", g, g * 1.10, 'note ' || g FROM generate_series(1, " + std::to_string(orders) +
             ") g;"
             "RESET session_replication_role; RESET collegedb.guarded");
  }
  void remove_rows(std::size_t shard, const std::string& key) {
    tell(shard, "DELETE FROM users WHERE id = " + key);
  }
  std::string archived(std::size_t shard, const std::string& op) {
    return ask(shard, "SELECT count(*) FROM collegedb.archive WHERE op = '" + op + "'");
  }
  std::string tombstone(std::size_t shard, const std::string& key) {
    return ask(shard, "SELECT moved_to FROM collegedb.retired WHERE key = '" + key + "'");
  }
  // As if the decision had been lost: the journal says aborted, nothing is published.
  void abort_in_journal(const std::string& op) {
    tell(0, "UPDATE collegedb.moves SET state = 'aborted', error = 'planted' WHERE op = '" + op +
                "'; DELETE FROM collegedb.exceptions");
  }

  migration::PurgeResult purged(const migration::PurgeRequest& request = {}) {
    auto out = migration::purge_retired(options(), request);
    if (!out) {
      ADD_FAILURE() << out.error().message;
      return {};
    }
    return *std::move(out);
  }
  void let_retention_pass(const std::string& op = {}) {
    tell(0, "UPDATE collegedb.moves SET retire_after = '0'" +
                (op.empty() ? "" : " WHERE op = '" + op + "'"));
  }
};

}  // namespace collegedb::pgtest
