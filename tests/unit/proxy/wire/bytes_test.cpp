#include "proxy/wire/bytes.h"

#include <gtest/gtest.h>

#include "tests/support/exact_buffer.h"
#include "tests/support/wire_bytes.h"

namespace collegedb::wire {
namespace {

using test::ExactBuffer;
using namespace std::string_literals;

TEST(Reader, ReadsBigEndian) {
  const ExactBuffer buffer("\x01\x02\x03\xff\xfe\x80\x00\x00\x00\xff\xff\xff\xff"s);
  Reader reader(buffer.view());
  EXPECT_EQ(reader.u8(), 1);
  EXPECT_EQ(reader.u16(), 0x0203);
  EXPECT_EQ(reader.i16(), -2);
  EXPECT_EQ(reader.i32(), -2147483647 - 1);
  EXPECT_EQ(reader.u32(), 0xffffffffu);
  EXPECT_TRUE(reader.at_end());
}

TEST(Reader, OneFailedReadMakesItBadForGood) {
  const ExactBuffer buffer("abc"s);
  Reader reader(buffer.view());
  EXPECT_EQ(reader.u32(), 0u);
  EXPECT_EQ(reader.fault(), Reader::Fault::kTooShort);
  EXPECT_EQ(reader.u8(), 0);
  EXPECT_EQ(reader.cstring(), "");
  EXPECT_EQ(reader.remaining(), 0u);
  EXPECT_FALSE(reader.at_end());
  EXPECT_EQ(reader.fault(), Reader::Fault::kTooShort) << "the first fault is kept";
}

struct ReadCase {
  const char* name;
  std::string bytes;
  std::function<void(Reader&)> read;
  Reader::Fault fault;
};

TEST(Reader, Faults) {
  const ReadCase cases[] = {
      {"u8 of nothing", "", [](Reader& r) { r.u8(); }, Reader::Fault::kNoByte},
      {"u16 of 1", "a", [](Reader& r) { r.u16(); }, Reader::Fault::kTooShort},
      {"u32 of 3", "abc", [](Reader& r) { r.u32(); }, Reader::Fault::kTooShort},
      {"string of nothing", "", [](Reader& r) { r.cstring(); }, Reader::Fault::kUnterminatedString},
      {"string without NUL", "ab", [](Reader& r) { r.cstring(); },
       Reader::Fault::kUnterminatedString},
      {"more bytes than there are", "ab", [](Reader& r) { r.bytes(3); }, Reader::Fault::kTooShort},
      {"negative bytes", "ab", [](Reader& r) { r.bytes(-1); }, Reader::Fault::kTooShort},
      {"most negative bytes", "ab", [](Reader& r) { r.bytes(INT64_MIN); },
       Reader::Fault::kTooShort},
      {"most bytes", "ab", [](Reader& r) { r.bytes(INT64_MAX); }, Reader::Fault::kTooShort},
      {"nullable -2", test::i32(-2), [](Reader& r) { r.nullable(); }, Reader::Fault::kTooShort},
      {"nullable past the end", test::i32(1), [](Reader& r) { r.nullable(); },
       Reader::Fault::kTooShort},
      {"all bytes", "ab", [](Reader& r) { r.bytes(2); }, Reader::Fault::kNone},
      {"no bytes", "", [](Reader& r) { r.bytes(0); }, Reader::Fault::kNone},
      {"NULL", test::i32(-1), [](Reader& r) { EXPECT_FALSE(r.nullable()); }, Reader::Fault::kNone},
      {"empty value", test::i32(0), [](Reader& r) { EXPECT_EQ(r.nullable(), ""); },
       Reader::Fault::kNone},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.name);
    const ExactBuffer buffer(c.bytes);
    Reader reader(buffer.view());
    c.read(reader);
    EXPECT_EQ(reader.fault(), c.fault);
    EXPECT_EQ(reader.at_end(), c.fault == Reader::Fault::kNone);
  }
}

TEST(Reader, CstringEndsAtItsNul) {
  const ExactBuffer buffer("ab\0\0c"s);
  Reader reader(buffer.view());
  EXPECT_EQ(reader.cstring(), "ab");
  EXPECT_EQ(reader.cstring(), "");
  EXPECT_EQ(reader.rest(), "c");
}

TEST(Writer, WritesBigEndianAndPatchesTheLength) {
  std::string out = "before";
  Writer writer(out);
  writer.begin('x');
  writer.u8(1);
  writer.u16(0x0203);
  writer.i16(-2);
  writer.i32(-1);
  writer.u32(0x04050607);
  writer.cstring("ab");
  writer.bytes("cd"s);
  writer.finish();
  EXPECT_EQ(out, "beforex"s + test::i32(4 + 18) +
                     "\x01\x02\x03\xff\xfe\xff\xff\xff\xff\x04\x05\x06\x07"
                     "ab\0cd"s);
}

TEST(Writer, MessagesFollowEachOther) {
  std::string out;
  Writer writer(out);
  writer.begin('a');
  writer.finish();
  writer.begin_untagged();
  writer.u8(9);
  writer.finish();
  EXPECT_EQ(out, "a" + test::i32(4) + test::i32(5) + "\x09");
}

TEST(Writer, AStringEndsAtItsFirstNul) {
  std::string out;
  Writer(out).cstring("ab\0Cevil"s);
  EXPECT_EQ(out, "ab\0"s);
}

TEST(Writer, ACountThatWouldWrapIsRefused) {
  std::string out;
  Writer writer(out);
  writer.count(65535);
  EXPECT_EQ(out, "\xff\xff"s);
  EXPECT_THROW(writer.count(65536), std::length_error);
}

}  // namespace
}  // namespace collegedb::wire
