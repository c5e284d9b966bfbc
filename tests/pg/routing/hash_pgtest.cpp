// Hash, gate bucket and owner agree with the server's SQL for any key.
#include "routing/hash.h"

#include <random>

#include "routing/route.h"
#include "server_fixture.h"

namespace collegedb::routing {
namespace {

using HashOnServer = pgtest::ServerTest;

constexpr std::size_t kKeys = 100000;
constexpr std::size_t kBatch = 10000;

// Lengths 0..60 and some long ones, with characters of one to four bytes.
std::vector<std::string> random_keys(std::size_t count, std::mt19937_64& random) {
  const std::vector<std::string> kAlphabet = {"a",        "Z",
                                              "0",        "9",
                                              "-",        " ",
                                              "\"",       "\\",
                                              "\xc3\xbc", "\xe2\x82\xac",
                                              "\n",       ",",
                                              "\x01",     "\xf0\x9f\x98\x80"};
  std::vector<std::string> keys;
  while (keys.size() < count) {
    std::size_t length = random() % 61;
    if (keys.size() % 1000 == 0) length = 1000;
    std::string key;
    for (std::size_t i = 0; i < length; ++i) key += kAlphabet[random() % kAlphabet.size()];
    keys.push_back(std::move(key));
  }
  return keys;
}

std::string array_text(const std::vector<std::string>& values) {
  std::string out = "{";
  for (const std::string& value : values) {
    if (out.size() > 1) out += ',';
    out += '"';
    for (const char c : value) {
      if (c == '"' || c == '\\') out += '\\';
      out += c;
    }
    out += '"';
  }
  return out + "}";
}

TEST_F(HashOnServer, AgreesOnRandomKeys) {
  std::mt19937_64 random(20261130);
  Snapshot snapshot;
  snapshot.shards = {{"db-east"}, {"db-west"}, {"db-north"}};
  Epoch epoch;
  epoch.shards = {0, 1, 2};
  for (std::size_t done = 0; done < kKeys; done += kBatch) {
    const std::vector<std::string> keys = random_keys(kBatch, random);
    const auto seed = static_cast<std::int64_t>(done == 0 ? 0 : random());
    const auto answer =
        run("SELECT hashtextextended(k COLLATE \"C\", $2), collegedb.bucket('public.users', k),"
            " collegedb.hrw_score('db-west', k),"
            " collegedb.owner(ARRAY['db-east', 'db-west', 'db-north'], k)"
            " FROM unnest($1::text[]) WITH ORDINALITY AS u (k, i) ORDER BY i",
            {{array_text(keys), false, 1009}, {std::to_string(seed), false, 20}});
    ASSERT_TRUE(answer.ok) << answer.error;
    ASSERT_EQ(answer.rows.size(), keys.size());
    for (std::size_t i = 0; i < keys.size(); ++i) {
      const auto& row = answer.rows[i];
      const auto hash =
          static_cast<std::int64_t>(hash_bytes_extended(keys[i], static_cast<std::uint64_t>(seed)));
      ASSERT_EQ(std::to_string(hash), row[0]) << keys[i];
      ASSERT_EQ(std::to_string(gate_bucket("public.users", keys[i])), row[1]) << keys[i];
      ASSERT_EQ(std::to_string(hrw_score("db-west", keys[i])), row[2]) << keys[i];
      ASSERT_EQ(snapshot.shards[computed_owner(snapshot, epoch, keys[i])].name, row[3]) << keys[i];
    }
  }
}

}  // namespace
}  // namespace collegedb::routing
