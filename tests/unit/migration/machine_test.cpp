#include "migration/machine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

namespace collegedb::migration {
namespace {

constexpr Limits kLimits{.attempts = 3};

// The commands from `at` until the end, when each answers with what `answer` says.
template <class F>
std::vector<std::string> run(Position at, F answer, Position* last = nullptr) {
  std::vector<std::string> out;
  while (at.command != Command::kStop && out.size() < 200) {
    out.emplace_back(name_of(at.command));
    at = step(at, answer(at), kLimits);
  }
  if (last != nullptr) *last = at;
  return out;
}

using Names = std::vector<std::string>;

TEST(Machine, HealthyMoveRunsEachCommandOnceInOrder) {
  Position last;
  const Names names =
      run(start(State::kClaim), [](const Position&) { return Event::kDone; }, &last);
  EXPECT_EQ(names, (Names{"journal_prepared",
                          "preflight",
                          "snapshot",
                          "journal_copied",
                          "copy",
                          "journal_verified",
                          "verify",
                          "journal_cutover",
                          "fence",
                          "compare",
                          "retire_rows",
                          "prepare_destination",
                          "prepare_source",
                          "journal_committed",
                          "commit_destination",
                          "commit_source",
                          "clear_incoming",
                          "publish",
                          "retire",
                          "forget_tokens"}));
  EXPECT_EQ(last.outcome, Outcome::kRetired);
  EXPECT_EQ(last.state, State::kRetired);
}

TEST(Machine, ChangedRowsAreCopiedAgainUnderTheFenceWithoutASecondFence) {
  int compared = 0;
  const Names names = run(start(State::kClaim), [&](const Position& at) {
    if (at.command == Command::kCompare && compared++ == 0) return Event::kChanged;
    return Event::kDone;
  });
  EXPECT_EQ(Names(names.begin() + 9, names.begin() + 17),
            (Names{"compare", "journal_prepared", "journal_copied", "copy", "journal_verified",
                   "verify", "journal_cutover", "retire_rows"}));
  EXPECT_EQ(std::count(names.begin(), names.end(), "fence"), 1);
}

TEST(Machine, MissesBackOffThenGiveUpWithTheJournalResetBeforeAnythingIsUndone) {
  Position last;
  const Names names = run(
      start(State::kClaim),
      [](const Position& at) {
        return at.command == Command::kFence ? Event::kMissed : Event::kDone;
      },
      &last);
  EXPECT_EQ(last.outcome, Outcome::kAborted);
  EXPECT_EQ(std::count(names.begin(), names.end(), "fence"), 3);
  EXPECT_EQ(std::count(names.begin(), names.end(), "back_off"), 2);
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (names[i] == "rollback") {
      EXPECT_EQ(names[i - 1], "journal_reset");
    }
  }
  EXPECT_EQ(Names(names.end() - 4, names.end()),
            (Names{"fence", "journal_reset", "rollback", "journal_aborted"}));
}

// Every command with every event, from every position that a move, a recovery or a failure reaches.
std::vector<Position> reachable() {
  std::vector<Position> seen;
  std::vector<Position> todo = {start(State::kClaim), start(State::kPrepared)};
  for (std::size_t s = 0; s < kStates; ++s) todo.push_back(take_over(static_cast<State>(s)));
  while (!todo.empty()) {
    const Position at = todo.back();
    todo.pop_back();
    if (std::find(seen.begin(), seen.end(), at) != seen.end()) continue;
    seen.push_back(at);
    for (std::size_t e = 0; e < kEvents; ++e) {
      todo.push_back(step(at, static_cast<Event>(e), kLimits));
    }
  }
  return seen;
}

TEST(Machine, EveryReachableStepIsLegal) {
  const std::vector<Position> positions = reachable();
  std::set<Command> commands;
  for (const Position& at : positions) {
    commands.insert(at.command);
    for (std::size_t e = 0; e < kEvents; ++e) {
      const Event event = static_cast<Event>(e);
      const Position next = step(at, event, kLimits);
      SCOPED_TRACE(std::string(name_of(at.state)) + "/" + std::string(name_of(at.command)) + " " +
                   std::string(name_of(event)));
      EXPECT_TRUE(next.state == at.state || is_legal(at.state, next.state));
      EXPECT_EQ(next.command == Command::kStop, next.outcome != Outcome::kRunning);
      EXPECT_LE(next.misses, kLimits.attempts);
    }
  }
  EXPECT_EQ(commands.size(), kCommands);
}

TEST(Machine, NothingIsRolledBackAfterTheDecision) {
  for (const Position& at : reachable()) {
    if (!is_decided(at.state)) continue;
    EXPECT_NE(at.command, Command::kRollback) << name_of(at.state);
    EXPECT_NE(at.command, Command::kJournalReset) << name_of(at.state);
    EXPECT_NE(at.command, Command::kRollbackHalves) << name_of(at.state);
    EXPECT_NE(at.command, Command::kJournalAborted) << name_of(at.state);
  }
}

TEST(Machine, NothingIsCommittedBeforeTheDecision) {
  for (const Position& at : reachable()) {
    if (is_decided(at.state)) continue;
    for (const Command command : {Command::kCommitDestination, Command::kCommitSource,
                                  Command::kClearIncoming, Command::kPublish, Command::kRetire}) {
      EXPECT_NE(at.command, command) << name_of(at.state);
    }
  }
}

TEST(Machine, ALostAnswerOrARaisedTokenStopsAtOnceEverywhere) {
  for (const Position& at : reachable()) {
    if (at.command == Command::kStop) continue;
    EXPECT_EQ(step(at, Event::kLost, kLimits).outcome, Outcome::kLost);
    EXPECT_EQ(step(at, Event::kFenced, kLimits).outcome, Outcome::kFenced);
  }
}

TEST(Machine, NoWayGoesOnForEver) {
  // Whatever single event a command keeps answering with, the rest being done.
  for (std::size_t c = 0; c < kCommands; ++c) {
    for (std::size_t e = 0; e < kEvents; ++e) {
      for (const Position& from : {start(State::kClaim), take_over(State::kCutoverPending)}) {
        const Names names = run(from, [&](const Position& at) {
          if (at.command == static_cast<Command>(c)) return static_cast<Event>(e);
          return at.command == Command::kInspect ? Event::kRestart : Event::kDone;
        });
        EXPECT_LT(names.size(), 200U)
            << name_of(static_cast<Command>(c)) << " " << name_of(static_cast<Event>(e));
      }
    }
  }
}

TEST(Machine, StateNamesAreThoseOfTheJournal) {
  for (std::size_t s = 0; s < kStates; ++s) {
    const State state = static_cast<State>(s);
    EXPECT_EQ(state_from(name_of(state)), state);
  }
  EXPECT_EQ(name_of(State::kCutoverPending), "cutover_pending");
  EXPECT_EQ(state_from("nonsense"), std::nullopt);
}

// ---- Decision table ---------------------------------------------------------------------------

// Every combination of evidence: 9 states x 2^7 x 3 x 3.
template <class F>
void for_all_evidence(F check) {
  for (unsigned bits = 0; bits < 128; ++bits) {
    for (std::size_t s = 0; s < kStates; ++s) {
      for (unsigned rows = 0; rows < 9; ++rows) {
        const auto is = [&](unsigned bit) { return (bits >> bit & 1U) != 0; };
        check(Evidence{.state = static_cast<State>(s),
                       .cancel_requested = is(0),
                       .had_rows = is(1),
                       .destination_prepared = is(2),
                       .source_prepared = is(3),
                       .marker = is(4),
                       .tombstone = is(5),
                       .archive = is(6),
                       .source_rows = static_cast<Found>(rows % 3),
                       .destination_rows = static_cast<Found>(rows / 3)});
      }
    }
  }
}

TEST(RecoveryTable, AnswersEveryCombinationByARule) {
  for_all_evidence([](const Evidence& e) { EXPECT_FALSE(decide(e).rule.empty()); });
}

TEST(RecoveryTable, NeverUndoesWhatIsDecidedOrVisible) {
  for_all_evidence([](const Evidence& e) {
    const Event event = decide(e).event;
    if (event != Event::kRestart && event != Event::kAbort) return;
    EXPECT_FALSE(is_decided(e.state));
    EXPECT_FALSE(e.marker) << "the destination is committed";
    EXPECT_FALSE(e.tombstone) << "the source is committed";
  });
}

TEST(RecoveryTable, FinishesOnlyWhatBothSidesCanFinish) {
  for_all_evidence([](const Evidence& e) {
    if (decide(e).event != Event::kFinish || e.state == State::kPublished) return;
    EXPECT_TRUE(e.source_prepared || e.tombstone);
    EXPECT_TRUE(e.destination_prepared || e.marker || e.tombstone);
    // Undecided and nothing committed: both halves, at the cutover, and nobody asked to stop.
    if (!is_decided(e.state) && !e.marker && !e.tombstone) {
      EXPECT_TRUE(e.destination_prepared && e.source_prepared);
      EXPECT_EQ(e.state, State::kCutoverPending);
      EXPECT_FALSE(e.cancel_requested);
    }
  });
}

TEST(RecoveryTable, OneHalfAloneIsNeverCommitted) {
  for_all_evidence([](const Evidence& e) {
    if (e.state != State::kCutoverPending || e.marker || e.tombstone) return;
    if (e.destination_prepared == e.source_prepared) return;
    EXPECT_EQ(decide(e).event, e.cancel_requested ? Event::kAbort : Event::kRestart);
  });
}

TEST(RecoveryTable, DropsACopyOnlyByProofAndOnlyWhenItUndoes) {
  for_all_evidence([](const Evidence& e) {
    const Decision decision = decide(e);
    if (!decision.drop_copy) return;
    EXPECT_EQ(e.destination_rows, Found::kEqual);
    EXPECT_TRUE(e.had_rows);
    EXPECT_TRUE(decision.event == Event::kRestart || decision.event == Event::kAbort);
  });
}

struct Case {
  const char* what;
  Evidence evidence;
  Event event;
  bool drop_copy = false;
};

TEST(RecoveryTable, IsTheOneOfTheProtocol) {
  using enum State;
  const Case cases[] = {
      {"prepared", {.state = kPrepared}, Event::kRestart},
      {"copied, cancelled", {.state = kCopied, .cancel_requested = true}, Event::kAbort},
      {"verified with halves",
       {.state = kVerified, .destination_prepared = true, .source_prepared = true},
       Event::kRestart},
      {"both prepared",
       {.state = kCutoverPending, .destination_prepared = true, .source_prepared = true},
       Event::kFinish},
      {"source unchanged", {.state = kCutoverPending}, Event::kRestart},
      {"source changed",
       {.state = kCutoverPending,
        .source_rows = Found::kDifferent,
        .destination_rows = Found::kEqual},
       Event::kAbort,
       true},
      {"gone, archived",
       {.state = kCutoverPending,
        .tombstone = true,
        .archive = true,
        .source_rows = Found::kNone,
        .destination_rows = Found::kEqual},
       Event::kFinish},
      {"gone, archived, destination still prepared",
       {.state = kCutoverPending,
        .destination_prepared = true,
        .tombstone = true,
        .archive = true,
        .source_rows = Found::kNone},
       Event::kFinish},
      {"gone, archived, destination empty",
       {.state = kCutoverPending, .tombstone = true, .archive = true, .source_rows = Found::kNone},
       Event::kUnclear},
      {"gone, no archive",
       {.state = kCutoverPending, .source_rows = Found::kNone, .destination_rows = Found::kEqual},
       Event::kAbort,
       true},
      {"decision lost after the destination committed",
       {.state = kCutoverPending,
        .source_prepared = true,
        .marker = true,
        .destination_rows = Found::kEqual},
       Event::kFinish},
      {"decision lost, even back at prepared",
       {.state = kPrepared, .source_prepared = true, .marker = true},
       Event::kFinish},
      {"committed, destination half prepared",
       {.state = kCommitted, .destination_prepared = true, .source_prepared = true},
       Event::kFinish},
      {"committed, nothing there", {.state = kCommitted}, Event::kUnclear},
      {"published", {.state = kPublished}, Event::kFinish},
      {"retired", {.state = kRetired}, Event::kNothing},
      {"aborted", {.state = kAborted}, Event::kNothing},
      {"a key without rows, source committed",
       {.state = kCutoverPending,
        .had_rows = false,
        .destination_prepared = true,
        .tombstone = true},
       Event::kFinish},
  };
  for (const Case& c : cases) {
    const Decision decision = decide(c.evidence);
    EXPECT_EQ(decision.event, c.event) << c.what << ": " << decision.rule;
    EXPECT_EQ(decision.drop_copy, c.drop_copy) << c.what;
  }
}

TEST(RecoveryTable, EveryRuleDecidesSomething) {
  std::set<std::string_view> used;
  for_all_evidence([&](const Evidence& e) { used.insert(decide(e).rule); });
  for (const Rule& rule : recovery_rules()) EXPECT_TRUE(used.contains(rule.name)) << rule.name;
}

}  // namespace
}  // namespace collegedb::migration
