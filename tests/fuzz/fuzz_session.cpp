// A client that says anything, servers that answer plausibly or not, leases that fail, links that
// are lost, deadlines, drains: whatever comes in whatever order, the session must neither crash nor
// hang, end each link exactly once and clean, keep the stream to the client well-formed, and send
// no keyed write without its guard. The checks are World's and ModelServer's.
#include <algorithm>
#include <string>

#include "tests/fuzz/fuzz_target.h"
#include "tests/support/session_world.h"

using namespace collegedb;
using namespace collegedb::session;
using namespace collegedb::session::testing;

namespace {

class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}
  [[nodiscard]] bool empty() const { return at_ >= size_; }
  std::uint8_t byte() { return empty() ? 0 : data_[at_++]; }
  std::string bytes(std::size_t most) {
    std::string out;
    for (std::size_t n = byte() % (most + 1); n > 0 && !empty(); --n) {
      out += static_cast<char>(byte());
    }
    return out;
  }
  template <std::size_t N>
  const char* pick(const char* const (&from)[N]) {
    return from[byte() % N];
  }

 private:
  const std::uint8_t* data_;
  std::size_t size_;
  std::size_t at_ = 0;
};

constexpr const char* kKeys[] = {"1", "2", "3", "4", "5", "6"};
constexpr const char* kNames[] = {"", "s", "t", "u"};
constexpr const char* kPortals[] = {"", "p", "q"};
// Prepared or sent as they are; # stands for a key (a parameter when prepared).
constexpr const char* kStatements[] = {
    "SELECT name FROM users WHERE id = #",
    "UPDATE users SET name = 'x' WHERE id = #",
    "DELETE FROM users WHERE id = #",
    "INSERT INTO users (id, name) VALUES (#, 'x')",
    "SELECT id, name FROM users WHERE id = # FOR UPDATE",
    "SELECT name FROM users",
    "SELECT count(*) FROM users",
    "SELECT name FROM countries",
    "SELECT now()",
    "SELECT 1",
    "SELECT v FROM notes",
    "BEGIN",
    "BEGIN READ ONLY",
    "COMMIT",
    "ROLLBACK",
    "COMMIT AND CHAIN",
    "SAVEPOINT a",
    "SAVEPOINT b",
    "ROLLBACK TO a",
    "RELEASE b",
    "SET search_path = 'public'",
    "SET application_name = 'x'",
    "SET application_name = 'y'",
    "SET LOCAL application_name = 'z'",
    "RESET application_name",
    "RESET ALL",
    "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ",
    "SHOW application_name",
    "DEALLOCATE s",
    "DEALLOCATE ALL",
    "DISCARD ALL",
    "COPY notes FROM STDIN",
    "COPY notes TO STDOUT",
    "SELECT * FROM collegedb_locate('1', 'users')",
    "SELECT collegedb_reassign('1', 'db-west')",
    "SELECT collegedb_nothing()",
    "CREATE TABLE n (i int)",
    "",
    "SELEC",
    "LISTEN x",
};

// One of kStatements, with any key.
bool is_ours(std::string_view sql) {
  for (const std::string_view each : kStatements) {
    const std::size_t at = each.find('#');
    if (at == std::string_view::npos
            ? sql == each
            : sql.starts_with(each.substr(0, at)) && sql.ends_with(each.substr(at + 1)) &&
                  sql.size() < each.size() + 3) {
      return true;
    }
  }
  return false;
}

std::string text(Input& input, bool parameter) {
  std::string sql = input.pick(kStatements);
  const std::size_t at = sql.find('#');
  if (at != std::string::npos) sql.replace(at, 1, parameter ? "$1" : input.pick(kKeys));
  return sql;
}

std::string query(Input& input) {
  std::string sql = text(input, false);
  for (unsigned more = input.byte() % 8; more > 5; --more) sql += "; " + text(input, false);
  std::string out;
  wire::Query{sql}.encode(out);
  return out;
}

std::string bind(Input& input) {
  wire::Bind message;
  const std::string statement = input.pick(kNames);
  const std::string portal = input.pick(kPortals);
  const std::string key = input.pick(kKeys);
  message.statement = statement;
  message.portal = portal;
  const unsigned shape = input.byte();
  if (shape % 4 != 3) message.parameters.emplace_back(key);
  if (shape % 16 > 13) message.result_formats = {1};
  std::string out;
  message.encode(out);
  return out;
}

// Texts that were changed on their way are kept in `spoilt`.
std::string message(Input& input, std::vector<std::string>& spoilt) {
  std::string out;
  switch (input.byte() % 16) {
    case 0:
    case 1:
    case 2:
      return query(input);
    case 3:
    case 4: {
      const std::string name = input.pick(kNames);
      wire::Parse{name, text(input, true), {}}.encode(out);
      return out;
    }
    case 5:
    case 6:
      return bind(input);
    case 7:
    case 8: {
      const std::string portal = input.pick(kPortals);
      wire::Execute{portal, input.byte() % 8 == 7 ? 1 : 0}.encode(out);
      return out;
    }
    case 9: {
      const bool statement = input.byte() % 2 == 0;
      const std::string name = statement ? input.pick(kNames) : input.pick(kPortals);
      wire::Describe{statement ? wire::Target::kStatement : wire::Target::kPortal, name}.encode(
          out);
      return out;
    }
    case 10: {
      const bool statement = input.byte() % 2 == 0;
      const std::string name = statement ? input.pick(kNames) : input.pick(kPortals);
      wire::CloseMessage{statement ? wire::Target::kStatement : wire::Target::kPortal, name}.encode(
          out);
      return out;
    }
    case 11:
    case 12:
      wire::encode_sync(out);
      return out;
    case 13:
      switch (input.byte() % 8) {
        case 0:
          wire::encode_flush(out);
          break;
        case 1:
        case 2:
          wire::encode_copy_data(out, "7\n");
          break;
        case 3:
        case 4:
          wire::encode_copy_done(out);
          break;
        case 5:
          wire::CopyFail{"no"}.encode(out);
          break;
        case 6:
          wire::encode_terminate(out);
          break;
        default:
          return std::string("F\0\0\0\x0e\0\0\0\x01\0\0\0\0\0\0", 15);
      }
      return out;
    case 14: {  // one transaction that is likely to go far
      const std::string key = input.pick(kKeys);
      wire::Parse{"", "UPDATE users SET name = 'x' WHERE id = $1", {}}.encode(out);
      wire::Bind bind_message;
      bind_message.parameters.emplace_back(key);
      bind_message.encode(out);
      wire::Execute{}.encode(out);
      wire::encode_sync(out);
      return out;
    }
    default: {  // a mutated message
      out = query(input);
      const std::string noise = input.bytes(12);
      const std::size_t at = 5 + (out.size() > 5 ? input.byte() % (out.size() - 5) : 0);
      for (std::size_t i = 0; i < noise.size() && at + i < out.size(); ++i) out[at + i] = noise[i];
      spoilt.push_back(out.substr(5));
      constexpr const char* kTags[] = {"Q", "P", "B", "E", "D", "C", "S", "H", "F"};
      out[0] = input.pick(kTags)[0];
      return out;
    }
  }
}

// Well-framed nonsense from a server.
std::string nonsense(Input& input) {
  constexpr const char kTags[] = "12DCTIEnNtsSZGHdcARV";
  std::string out(1, kTags[input.byte() % (sizeof kTags - 1)]);
  const std::string body = input.bytes(24);
  wire::Writer writer(out);
  writer.u32(static_cast<std::uint32_t>(body.size() + 4));
  return out + body;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size > 2048) return 0;
  Input input(data, size);
  ModelHooks hooks;
  hooks.require = [](bool holds, const char* what) {
    if (!holds) std::fprintf(stderr, "broken: %s\n", what);
    test::require(holds);
  };
  hooks.other_shard = "db-west";
  const unsigned mood = input.byte();
  if (mood % 4 != 0) {
    hooks.choose = [&input](unsigned options) {
      const unsigned value = input.byte();
      return value < 160 ? 0 : value % options;
    };
  }
  Identity identity{"alice", "app", false, {}};
  if (mood % 8 > 5) identity.parameters = {{"application_name", "base"}};
  std::vector<std::string> spoilt;
  hooks.spoilt = [&spoilt](std::string_view sql) {
    return !is_ours(sql) && std::any_of(spoilt.begin(), spoilt.end(), [&](const std::string& each) {
      return each.find(sql) != std::string::npos;
    });
  };
  World world(hooks, std::move(identity));
  using Blow = World::Blow;
  while (!input.empty() && !world.closed()) {
    world.say(message(input, spoilt));
    for (unsigned steps = input.byte() % 32; steps > 0 || input.empty(); --steps) {
      Blow blow = Blow::kNone;
      if (mood % 4 > 1) {
        const unsigned roll = input.byte();
        if (roll > 247) blow = static_cast<Blow>(roll - 247);
        if (roll == 247 && mood % 4 == 3) world.inject(nonsense(input));
      }
      if (!world.step(blow)) break;
    }
  }
  world.run();
  if (!world.closed()) {
    world.session->on_client_gone();
    world.run();
  }
  return 0;
}
