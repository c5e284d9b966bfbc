// The main conversations, broken at every step: the server is lost or says FATAL, the lease or the
// control plane fails, a deadline passes, the proxy drains, the client goes. Every time the session
// recovers or ends, the pool stays whole (World checks), and what the client was told of a write is
// true.
#include <algorithm>
#include <stdexcept>

#include "tests/support/session_script.h"

namespace collegedb::session::testing {
namespace {

using Blow = World::Blow;

struct Case {
  const char* name;
  // Its messages, `key` living on one shard.
  std::string (*messages)(const std::string& key);
  std::size_t writes = 0;  // of it, when all goes well
};

std::string update(const std::string& key) {
  return query("UPDATE users SET name = 'x' WHERE id = " + key);
}
std::string extended(std::string_view sql, std::vector<std::string> values = {}) {
  return parse("", sql) + testing::bind("", std::move(values)) + describe(wire::Target::kPortal) +
         execute() + sync();
}
const char* const kUpdate = "UPDATE users SET name = 'x' WHERE id = $1";

const Case kCases[] = {
    {"simple read",
     [](const std::string& key) { return query("SELECT name FROM users WHERE id = " + key); }, 0},
    {"simple write", [](const std::string& key) { return update(key); }, 1},
    {"simple transaction",
     [](const std::string& key) { return query("BEGIN") + update(key) + query("COMMIT"); }, 1},
    {"savepoints",
     [](const std::string& key) {
       return query("BEGIN") + query("SAVEPOINT a") + update(key) + query("ROLLBACK TO a") +
              update(key) + query("COMMIT");
     },
     1},
    {"settings",
     [](const std::string& key) {
       return query("SET application_name = 'x'") + update(key) + query("RESET application_name") +
              query("SELECT now()");
     },
     1},
    {"several statements",
     [](const std::string& key) {
       return query("DELETE FROM users WHERE id = " + key +
                    "; UPDATE users SET name = 'x' WHERE id = " + key);
     },
     2},
    {"extended read",
     [](const std::string& key) { return extended("SELECT name FROM users WHERE id = $1", {key}); },
     0},
    {"extended write", [](const std::string& key) { return extended(kUpdate, {key}); }, 1},
    {"extended transaction",
     [](const std::string& key) {
       return extended("BEGIN") + extended(kUpdate, {key}) + extended("COMMIT");
     },
     1},
    {"prepared",
     [](const std::string& key) {
       return parse("s", kUpdate) + describe(wire::Target::kStatement, "s") + sync() +
              bind("s", {key}) + execute() + sync() + close_statement("s") + sync();
     },
     1},
    {"flushes",
     [](const std::string& key) {
       return parse("", kUpdate) + flush() + bind("", {key}) + flush() + execute() + flush() +
              sync();
     },
     1},
    {"pipeline",
     [](const std::string& key) {
       return parse("", kUpdate) + bind("", {key}) + execute() + parse("t", kUpdate) +
              bind("t", {key}) + execute() + sync() + extended(kUpdate, {key});
     },
     3},
    {"transaction in one pipeline",
     [](const std::string& key) {
       return parse("b", "BEGIN") + bind("b") + execute() + parse("", kUpdate) + bind("", {key}) +
              execute() + parse("c", "COMMIT") + bind("c") + execute() + bind("", {key}) +
              execute() + sync();
     },
     2},
    {"copy in",
     [](const std::string&) {
       return query("COPY notes FROM STDIN") + copy_data("7\n") + copy_data("8\n") + copy_done();
     },
     1},
    {"extended copy in",
     [](const std::string&) {
       return parse("", "COPY notes FROM STDIN") + bind("") + execute() + sync() +
              copy_data("7\n") + copy_done() + sync();
     },
     1},
    {"copy out", [](const std::string&) { return query("COPY notes TO STDOUT"); }, 0},
    {"scatter",
     [](const std::string&) {
       return query("SELECT name FROM users") + extended("SELECT count(*) FROM users");
     },
     0},
    {"admin",
     [](const std::string&) {
       return query("SELECT * FROM collegedb_locate('1', 'users')") +
              extended("SELECT * FROM collegedb_locate('1', 'users')");
     },
     0},
    {"broadcast", [](const std::string&) { return query("CREATE TABLE n (i int)"); }, 0},
};

ModelHooks strict() {
  ModelHooks hooks;
  hooks.other_shard = "db-west";
  hooks.require = [](bool holds, const char* what) {
    EXPECT_TRUE(holds) << what;
    if (!holds) throw std::logic_error(what);
  };
  return hooks;
}

// SQLSTATEs of the errors among `bytes`.
std::vector<std::string> errors(const std::string& bytes) {
  std::vector<std::string> out;
  for (const wire::Frame& frame : frames(bytes, wire::Direction::kBackend)) {
    if (frame.tag == 'E') out.push_back(wire::decode_error(frame.payload)->sqlstate);
  }
  return out;
}

std::size_t told(const std::string& bytes) {
  std::size_t writes = 0;
  for (const wire::Frame& frame : frames(bytes, wire::Direction::kBackend)) {
    if (frame.tag != 'C') continue;
    const auto tag = wire::CommandComplete::decode(frame.payload)->tag;
    writes += tag == "UPDATE 1" || tag == "DELETE 1" || tag == "COPY 1" ? 1 : 0;
  }
  return writes;
}

// After the blow the session must serve, or have ended.
void check_afterwards(World& world) {
  if (world.closed()) {
    EXPECT_EQ(world.links_held(), 0U);
    return;
  }
  const std::size_t before = world.heard().size();
  world.say(copy_done() + sync() + query("ROLLBACK") + query("SELECT 1"));
  world.run();
  if (world.closed()) return;
  EXPECT_TRUE(world.heard().substr(before).ends_with(complete("SELECT 1") + ready('I')))
      << letters(world.heard(), wire::Direction::kBackend);
  EXPECT_EQ(world.links_held(), 0U);
}

TEST(Break, every_conversation_goes_well_unbroken) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    World world(strict());
    world.say(c.messages(key_on(*world.context.snapshot, 1)));
    world.run();
    EXPECT_TRUE(errors(world.heard()).empty()) << letters(world.heard(), wire::Direction::kBackend);
    const std::size_t copies = c.name == std::string("copy out") ? 1 : 0;
    EXPECT_EQ(world.committed.size(), c.writes);
    EXPECT_GE(told(world.heard()), c.writes + copies);
    check_afterwards(world);
  }
}

void break_everywhere(Blow blow, void (*check)(const Case&, World&) = nullptr) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    bool more = true;
    for (std::size_t at = 0; more && at < 500; ++at) {
      SCOPED_TRACE("step " + std::to_string(at));
      World world(strict());
      world.say(c.messages(key_on(*world.context.snapshot, 1)));
      std::size_t step = 0;
      while (step < at && world.step()) ++step;
      more = step == at;
      if (!more) break;
      world.step(blow);
      world.run();
      if (check != nullptr) check(c, world);
      check_afterwards(world);
      if (::testing::Test::HasFailure()) return;
    }
  }
}

TEST(Break, a_server_lost) {
  break_everywhere(Blow::kLost, [](const Case& c, World& world) {
    // An error other than 08007 says that nothing of it was applied.
    const auto codes = errors(world.heard());
    const bool unknown = std::find(codes.begin(), codes.end(), "08007") != codes.end();
    const std::string name = c.name;
    if (name == "simple write" || name == "extended write" || name == "flushes") {
      EXPECT_EQ(codes.size(), world.committed.empty() ? 1U : codes.size());
      if (codes.empty()) EXPECT_EQ(world.committed.size(), 1U);
      if (!codes.empty() && !unknown) EXPECT_EQ(world.committed.size(), 0U);
    }
    EXPECT_LE(world.committed.size(), c.writes);
  });
}

TEST(Break, a_server_that_says_fatal) {
  break_everywhere(Blow::kFatal);
}
TEST(Break, a_lease_that_fails) {
  break_everywhere(Blow::kLeaseFails);
}
TEST(Break, a_client_that_goes) {
  break_everywhere(Blow::kClientGone, [](const Case&, World& world) {
    EXPECT_TRUE(world.closed());
    EXPECT_EQ(world.links_held(), 0U);
  });
}
TEST(Break, a_deadline_that_passes) {
  break_everywhere(Blow::kDeadline);
}
TEST(Break, a_control_plane_that_fails) {
  break_everywhere(Blow::kControlFails);
}

// The turn under way and its transaction are finished first; then 57P01.
TEST(Break, a_drain) {
  break_everywhere(Blow::kDrain, [](const Case& c, World& world) {
    if (!world.closed()) return;
    const auto codes = errors(world.heard());
    ASSERT_EQ(codes, std::vector<std::string>{"57P01"}) << c.name;
    EXPECT_EQ(told(world.heard()) >= world.committed.size(), true);
  });
}

// The guard's refusals, one at each place where it could refuse.
TEST(Break, a_guard_that_refuses_once) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    for (unsigned outcome = 1; outcome < 4; ++outcome) {
      for (int at = 0; at < 12; ++at) {
        SCOPED_TRACE("outcome " + std::to_string(outcome) + " at " + std::to_string(at));
        ModelHooks hooks = strict();
        int seen = 0;
        hooks.choose = [&](unsigned options) {
          const bool gate = options == 8 || options == 6;
          return gate && seen++ == at ? outcome : 0U;
        };
        World world(hooks);
        world.say(c.messages(key_on(*world.context.snapshot, 1)));
        world.run();
        check_afterwards(world);
        EXPECT_LE(world.committed.size(), c.writes);
        if (errors(world.heard()).empty()) EXPECT_EQ(world.committed.size(), c.writes);
        if (::testing::Test::HasFailure()) return;
      }
    }
  }
}

}  // namespace
}  // namespace collegedb::session::testing
