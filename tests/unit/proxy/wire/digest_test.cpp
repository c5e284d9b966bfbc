#include "proxy/wire/digest.h"

#include <gtest/gtest.h>

#include "tests/support/exact_buffer.h"

namespace collegedb::wire::detail {
namespace {

using namespace std::string_literals;

std::string hex(std::string_view bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const char c : bytes) {
    text.push_back(kDigits[static_cast<unsigned char>(c) >> 4]);
    text.push_back(kDigits[static_cast<unsigned char>(c) & 15]);
  }
  return text;
}

TEST(Digest, Sha256) {  // FIPS 180-4, "abc"
  EXPECT_EQ(hex(sha256("abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hex(sha256("")), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

TEST(Digest, HmacSha256) {  // RFC 4231, test case 2
  EXPECT_EQ(hex(hmac_sha256("Jefe", "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(hex(hmac_sha256({}, {})),
            "b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad");
}

TEST(Digest, Pbkdf2) {  // RFC 7914, section 11, first 32 bytes
  EXPECT_EQ(hex(pbkdf2_sha256("passwd", "salt", 1)),
            "55ac046e56e3089fec1691c22544b605f94185216dde0465e68b9d57c20dacbc");
}

TEST(Digest, Pbkdf2TakesNothing) {
  EXPECT_EQ(pbkdf2_sha256({}, {}, 1), hmac_sha256("", "\0\0\0\1"s));
}

TEST(Digest, Md5) {  // RFC 1321
  EXPECT_EQ(md5_hex("abc"), "900150983cd24fb0d6963f7d28e17f72");
}

TEST(Base64, RoundTrip) {  // RFC 4648, section 10
  const std::pair<std::string, std::string> cases[] = {{"", ""},
                                                       {"f", "Zg=="},
                                                       {"fo", "Zm8="},
                                                       {"foo", "Zm9v"},
                                                       {"foob", "Zm9vYg=="},
                                                       {"fooba", "Zm9vYmE="},
                                                       {"foobar", "Zm9vYmFy"},
                                                       {"\xff\xfe\xfd", "//79"}};
  for (const auto& [bytes, text] : cases) {
    EXPECT_EQ(base64_encode(bytes), text);
    EXPECT_EQ(base64_decode(text), bytes);
  }
}

TEST(Base64, EveryByte) {
  std::string bytes;
  for (int i = 0; i < 256; ++i) bytes.push_back(static_cast<char>(i));
  for (std::size_t size = 0; size <= bytes.size(); ++size) {
    const std::string part = bytes.substr(0, size);
    EXPECT_EQ(base64_decode(base64_encode(part)), part);
  }
}

TEST(Base64, RefusesWhatEncodeNeverGives) {
  for (const auto* text : {"Z", "Zg", "Zg=", "Zg===", "====", "=g==", "Z===", "Zm=v",
                           "Zh==", "Zm9=", "Zm9v\n", "Zm 9v", "Zm9_", "Zm9v====", "Zg==Zg=="}) {
    const test::ExactBuffer buffer(text);
    EXPECT_EQ(base64_decode(buffer.view()), std::nullopt) << text;
  }
}

TEST(Digest, ExclusiveOr) {
  EXPECT_EQ(exclusive_or("\x0f\xf0"s, "\xff\xff"s), "\xf0\x0f"s);
}

}  // namespace
}  // namespace collegedb::wire::detail
