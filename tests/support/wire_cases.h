// Byte tables of the typed messages: for the unit tests, and as seeds of the fuzzers.
#pragma once

#include <vector>

#include "tests/support/wire_bytes.h"

namespace collegedb::test {

inline std::vector<MessageCase> frontend_cases() {
  const std::string short_data = "insufficient data left in message";
  const std::string no_string = "invalid string in message";
  const std::string format = "invalid message format";
  return {
      {"query", 'Q', z("select 1"), ""},
      {"query, empty text", 'Q', z(""), ""},
      {"query, not UTF-8", 'Q', z("select '\xff\xfe'"), ""},
      {"query, no body", 'Q', "", no_string},
      {"query, no NUL", 'Q', "select 1", no_string},
      {"query, text after the NUL", 'Q', z("select 1") + "drop table t", format},
      {"query, a second NUL", 'Q', z("select 1") + z(""), format},

      {"parse", 'P', z("s") + z("select $1") + i16(1) + i32(23), ""},
      {"parse, unnamed, no types", 'P', z("") + z("select 1") + i16(0), ""},
      {"parse, type unknown", 'P', z("") + z("select $1,$2") + i16(2) + i32(0) + i32(-1), ""},
      {"parse, no query", 'P', z("s"), no_string},
      {"parse, no count", 'P', z("s") + z("select 1"), short_data},
      {"parse, half a count", 'P', z("s") + z("select 1") + i8(0), short_data},
      {"parse, 3 types declared, 1 there", 'P', z("") + z("q") + i16(3) + i32(23), short_data},
      {"parse, trailing bytes", 'P', z("") + z("q") + i16(0) + "xx", format},
      {"parse, count that wrapped", 'P', z("") + z("q") + i16(0) + i32(23), format},

      {"bind, no parameters", 'B', z("") + z("") + i16(0) + i16(0) + i16(0), ""},
      {"bind, one format for all", 'B',
       z("p") + z("s") + i16(1) + i16(1) + i16(2) + sized("a") + sized("") + i16(1) + i16(1), ""},
      {"bind, format each, NULL", 'B',
       z("p") + z("s") + i16(2) + i16(0) + i16(1) + i16(2) + kNull + sized("bc") + i16(2) + i16(1) +
           i16(0),
       ""},
      {"bind, one format, no parameters", 'B', z("") + z("") + i16(1) + i16(1) + i16(0) + i16(0),
       ""},
      {"bind, NUL in a value", 'B',
       z("") + z("") + i16(0) + i16(1) + sized(std::string("a\0b", 3)) + i16(0), ""},
      {"bind, parameter past the end", 'B', z("") + z("") + i16(0) + i16(1) + i32(5) + "abc",
       short_data},
      {"bind, parameter of 2 GB", 'B', z("") + z("") + i16(0) + i16(1) + i32(0x7fffffff) + i16(0),
       short_data},
      {"bind, parameter length -2", 'B', z("") + z("") + i16(0) + i16(1) + i32(-2) + i16(0),
       short_data},
      {"bind, parameter length INT_MIN", 'B',
       z("") + z("") + i16(0) + i16(1) + i32(-2147483648LL) + i16(0), short_data},
      {"bind, 65535 parameters declared, none there", 'B', z("") + z("") + i16(0) + i16(-1),
       short_data},
      {"bind, 65535 formats declared, 1 there", 'B', z("") + z("") + i16(-1) + i16(0), short_data},
      {"bind, result formats missing", 'B', z("") + z("") + i16(0) + i16(0), short_data},
      {"bind, 3 formats for 2 parameters", 'B',
       z("") + z("") + i16(3) + i16(0) + i16(0) + i16(0) + i16(2) + kNull + kNull + i16(0),
       "bind message has 3 parameter formats but 2 parameters"},
      {"bind, trailing byte", 'B', z("") + z("") + i16(0) + i16(0) + i16(0) + "x", format},
      {"bind, no statement", 'B', z("p"), no_string},

      {"describe statement", 'D', "S" + z("s"), ""},
      {"describe portal", 'D', "P" + z(""), ""},
      {"describe, no body", 'D', "", "no data left in message"},
      {"describe, no name", 'D', "S", no_string},
      {"describe, subtype Z", 'D', "Z" + z("x"), "invalid DESCRIBE message subtype 90"},
      {"describe, subtype Z and trailing byte", 'D', "Z" + z("x") + "y", format},
      {"describe, trailing byte", 'D', "S" + z("x") + "y", format},

      {"close statement", 'C', "S" + z("s"), ""},
      {"close portal", 'C', "P" + z(""), ""},
      {"close, subtype Z", 'C', "Z" + z("x"), "invalid CLOSE message subtype 90"},
      {"close, subtype 255", 'C', i8(255) + z("x"), "invalid CLOSE message subtype 255"},

      {"execute", 'E', z("p") + i32(2), ""},
      {"execute, no limit", 'E', z("") + i32(0), ""},
      {"execute, limit -1", 'E', z("") + i32(-1), ""},
      {"execute, short limit", 'E', z("") + "ab", short_data},
      {"execute, trailing byte", 'E', z("") + i32(0) + "x", format},

      {"sync", 'S', "", ""},
      {"sync, trailing byte", 'S', "x", format},
      {"flush", 'H', "", ""},
      {"flush, trailing byte", 'H', "x", format},

      {"copy fail", 'f', z("boo"), ""},
      {"copy fail, no NUL", 'f', "boo", no_string},
      {"copy fail, trailing byte", 'f', z("boo") + "x", format},

      {"password", 'p', z("secret"), ""},
      {"password, empty", 'p', z(""), ""},
      {"password, no NUL", 'p', "secret", "invalid password packet size"},
      {"password, bytes after the NUL", 'p', z("a") + "b", "invalid password packet size"},
  };
}

inline std::vector<MessageCase> backend_cases() {
  const std::string short_data = "insufficient data left in message";
  const std::string no_string = "invalid string in message";
  const std::string format = "invalid message format";
  const std::string field = z("id") + i32(16384) + i16(1) + i32(23) + i16(4) + i32(-1) + i16(0);
  return {
      {"authentication ok", 'R', i32(0), ""},
      {"cleartext password", 'R', i32(3), ""},
      {"md5 password", 'R', i32(5) + "salt", ""},
      {"gss", 'R', i32(7), ""},
      {"gss continue", 'R', i32(8) + std::string("\0\1", 2), ""},
      {"sspi", 'R', i32(9), ""},
      {"sasl", 'R', i32(10) + z("SCRAM-SHA-256-PLUS") + z("SCRAM-SHA-256") + i8(0), ""},
      {"sasl, no mechanism", 'R', i32(10) + i8(0), ""},
      {"sasl continue", 'R', i32(11) + "r=abc,s=QSXC,i=4096", ""},
      {"sasl final", 'R', i32(12) + "v=abc", ""},
      {"authentication, no kind", 'R', i16(0), short_data},
      {"authentication ok, trailing byte", 'R', i32(0) + "x", format},
      {"md5 password, short salt", 'R', i32(5) + "sal", short_data},
      {"md5 password, long salt", 'R', i32(5) + "salty", format},
      {"sasl, no end of list", 'R', i32(10) + z("SCRAM-SHA-256"), no_string},
      {"sasl, bytes after the list", 'R', i32(10) + z("SCRAM-SHA-256") + i8(0) + "x", format},
      {"authentication, Kerberos V5", 'R', i32(2), "authentication method 2 not supported"},
      {"authentication, kind -1", 'R', i32(-1), "authentication method -1 not supported"},

      {"parameter status", 'S', z("client_encoding") + z("UTF8"), ""},
      {"parameter status, empty value", 'S', z("application_name") + z(""), ""},
      {"parameter status, no value", 'S', z("client_encoding"), no_string},
      {"parameter status, trailing byte", 'S', z("a") + z("b") + "c", format},

      {"key data, protocol 3.0", 'K', i32(4711) + "key4", ""},
      {"key data, 256 bytes", 'K', i32(4711) + std::string(256, 'k'), ""},
      {"key data, 257 bytes", 'K', i32(4711) + std::string(257, 'k'),
       "invalid cancel key length in message"},
      {"key data, 3 bytes", 'K', i32(4711) + "key", "invalid cancel key length in message"},
      {"key data, no pid", 'K', "abc", short_data},

      {"ready, idle", 'Z', "I", ""},
      {"ready, in a transaction", 'Z', "T", ""},
      {"ready, failed", 'Z', "E", ""},
      {"ready, other status", 'Z', "X", "invalid transaction status in message"},
      {"ready, no status", 'Z', "", "no data left in message"},
      {"ready, two", 'Z', "II", format},

      {"row description", 'T', i16(2) + field + field, ""},
      {"row description, no columns", 'T', i16(0), ""},
      {"row description, one column short", 'T', i16(2) + field, no_string},
      {"row description, cut in a column", 'T', i16(1) + z("id") + i32(16384), short_data},
      {"row description, 65535 columns declared", 'T', i16(-1), no_string},
      {"row description, trailing byte", 'T', i16(1) + field + "x", format},

      {"parameter description", 't', i16(2) + i32(23) + i32(25), ""},
      {"parameter description, none", 't', i16(0), ""},
      {"parameter description, short", 't', i16(2) + i32(23), short_data},
      {"parameter description, trailing byte", 't', i16(0) + "x", format},

      {"data row", 'D', i16(3) + sized("1") + kNull + sized(""), ""},
      {"data row, no columns", 'D', i16(0), ""},
      {"data row, value past the end", 'D', i16(1) + i32(3) + "ab", short_data},
      {"data row, length -2", 'D', i16(1) + i32(-2), short_data},
      {"data row, length 2 GB", 'D', i16(1) + i32(0x7fffffff) + "ab", short_data},
      {"data row, 65535 values declared", 'D', i16(-1), short_data},
      {"data row, trailing byte", 'D', i16(1) + kNull + "x", format},
      {"data row, no count", 'D', "", short_data},

      {"command complete", 'C', z("INSERT 0 1"), ""},
      {"command complete, no NUL", 'C', "INSERT 0 1", no_string},
      {"command complete, trailing byte", 'C', z("INSERT 0 1") + "x", format},

      {"notification", 'A', i32(7) + z("channel") + z("payload"), ""},
      {"notification, no payload", 'A', i32(7) + z("channel"), no_string},

      {"copy in", 'G', i8(0) + i16(2) + i16(0) + i16(0), ""},
      {"copy out, binary", 'H', i8(1) + i16(1) + i16(1), ""},
      {"copy both", 'W', i8(0) + i16(0), ""},
      {"copy in, format 2", 'G', i8(2) + i16(0), "invalid copy format in message"},
      {"copy in, short", 'G', i8(0) + i16(2) + i16(0), short_data},
      {"copy in, no body", 'G', "", "no data left in message"},

      {"error", 'E',
       "S" + z("ERROR") + "V" + z("ERROR") + "C" + z("42P01") + "M" + z("no table") + "D" +
           z("detail") + "H" + z("hint") + "P" + z("15") + "F" + z("parse.c") + i8(0),
       ""},
      {"notice", 'N',
       "S" + z("WARNING") + "V" + z("WARNING") + "C" + z("01000") + "M" + z("careful") + i8(0), ""},
      {"error, no terminator", 'E', "C" + z("42P01"), "no data left in message"},
      {"error, field without NUL", 'E', "Mabc", no_string},
      {"error, no body", 'E', "", "no data left in message"},
      {"error, bytes after the end", 'E', "M" + z("a") + i8(0) + "x", format},
  };
}

}  // namespace collegedb::test
