// Byte tables of the start-up packets: for the unit tests, and as seeds of the fuzzer.
#pragma once

#include <vector>

#include "tests/support/wire_bytes.h"

namespace collegedb::test {

struct StartupCase {
  std::string name;
  std::string bytes;
  // What must come out: the SQLSTATE of a BadPacket, or one of the words below.
  std::string outcome;
};

inline constexpr std::string_view kNeedsMore = "more";
inline constexpr std::string_view kStartup = "startup";
inline constexpr std::string_view kSsl = "ssl";
inline constexpr std::string_view kGss = "gss";
inline constexpr std::string_view kCancel = "cancel";
inline constexpr std::string_view kSilent = "silent";

inline std::string startup(std::string_view pairs, std::int64_t protocol = 196608) {
  return untyped(i32(protocol) + std::string(pairs));
}
inline std::string with_options(std::string_view options) {
  return startup(z("user") + z("u") + z("options") + z(options) + i8(0));
}

inline std::vector<StartupCase> startup_cases() {
  const auto word = [](std::string_view text) { return std::string(text); };
  const std::string user = z("user") + z("u");
  return {
      {"nothing", "", word(kNeedsMore)},
      {"half a length", std::string("\0\0", 2), word(kNeedsMore)},
      {"length alone", i32(8), word(kNeedsMore)},
      {"length 0", i32(0), word(kSilent)},
      {"length 4", i32(4), word(kSilent)},
      {"length 7", i32(7), word(kSilent)},
      {"length negative", i32(-1), word(kSilent)},
      {"length INT_MIN", i32(-2147483648LL), word(kSilent)},
      {"length INT_MAX", i32(0x7fffffff), word(kSilent)},
      {"length 10004", i32(10'004), word(kNeedsMore)},
      {"length 10005", i32(10'005), word(kSilent)},
      {"HTTP", "GET / HTTP/1.1\r\n\r\n", word(kSilent)},
      {"TLS ClientHello", std::string("\x16\x03\x01\x02\x00\x01", 6), word(kSilent)},

      {"SSLRequest", untyped(i32(80877103)), word(kSsl)},
      {"GSSENCRequest", untyped(i32(80877104)), word(kGss)},
      {"CancelRequest", untyped(i32(80877102) + i32(7) + "key4"), word(kCancel)},
      {"CancelRequest, short key", untyped(i32(80877102) + i32(7) + "key"), word(kSilent)},
      {"CancelRequest, long key", untyped(i32(80877102) + i32(7) + "key45"), word(kSilent)},
      {"CancelRequest, no pid", untyped(i32(80877102)), word(kSilent)},

      {"user alone", startup(user + i8(0)), word(kStartup)},
      {"user and database", startup(user + z("database") + z("d") + i8(0)), word(kStartup)},
      {"empty value", startup(user + z("application_name") + z("") + i8(0)), word(kStartup)},
      {"protocol 3.1", startup(user + i8(0), 196609), word(kStartup)},
      {"protocol 3.2", startup(user + i8(0), 196610), word(kStartup)},
      {"protocol 3.9999", startup(user + i8(0), 196608 + 9999), word(kStartup)},
      {"protocol extensions",
       startup(user + z("_pq_.foo") + z("1") + z("_pq_.bar") + z("") + i8(0)), word(kStartup)},
      {"protocol 2.0", startup(user + i8(0), 2 << 16), "0A000"},
      {"protocol 1.0", startup(user + i8(0), 1 << 16), "0A000"},
      {"protocol 4.0", startup(user + i8(0), 4 << 16), "0A000"},
      {"unknown request code", untyped(i32(80877105)), "0A000"},
      {"code -1", untyped(i32(-1)), "0A000"},

      {"no terminator", startup(user), "08P01"},
      {"no pairs and no terminator", startup(""), "08P01"},
      {"name without value", startup(user + z("x")), "08P01"},
      {"name without NUL", startup(user + "x"), "08P01"},
      {"value without NUL", startup(user + z("x") + "y"), "08P01"},
      {"bytes after the terminator", startup(user + i8(0) + "x"), "08P01"},
      {"no user", startup(i8(0)), "28000"},
      {"empty user", startup(z("user") + z("") + i8(0)), "28000"},

      {"options, -c", with_options("-c a=1 -c  b=2"), word(kStartup)},
      {"options, escapes", with_options("-ca=x\\ y\\\\z --some-name=2"), word(kStartup)},
      {"options, empty", with_options(""), word(kStartup)},
      {"options, end of options", with_options("-c a=1 --"), word(kStartup)},
      {"options, unknown switch", with_options("-x"), "42601"},
      {"options, -c without setting", with_options("-c"), "42601"},
      {"options, no value", with_options("-c a"), "42601"},
      {"options, no value with dashes", with_options("--a"), "42601"},
      {"options, word", with_options("a=1"), "42601"},
      {"options, more after the end", with_options("-- -c a=1"), "42601"},
      {"options, no name", with_options("-c =1"), "42704"},
      {"options, user", with_options("-c user=postgres"), "42704"},
      {"options, Database", with_options("--Database=other"), "42704"},
      {"options, replication", with_options("-c replication=1"), "42704"},
      {"options, extension", with_options("-c _pq_.foo=1"), "42704"},
      {"User as a GUC", startup(user + z("User") + z("postgres") + i8(0)), "42704"},

      {"replication", startup(user + z("replication") + z("TRUE") + i8(0)), word(kStartup)},
      {"replication, database", startup(user + z("replication") + z("database") + i8(0)),
       word(kStartup)},
      {"replication, zz", startup(user + z("replication") + z("zz") + i8(0)), "22023"},
      {"replication, empty", startup(user + z("replication") + z("") + i8(0)), "22023"},
      {"replication, o", startup(user + z("replication") + z("o") + i8(0)), "22023"},
  };
}

}  // namespace collegedb::test
