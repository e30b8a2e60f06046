// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "core/error.hpp"
#include "core/printable_text.hpp"

using namespace espalier;

namespace {

// The Euro sign, in three bytes; a forged slash in two; half of a surrogate pair.
constexpr const char* euro = "\xe2\x82\xac";
constexpr const char* long_slash = "\xc0\xaf";
constexpr const char* surrogate = "\xed\xa0\x80";

// What a terminal would act upon: controls of one byte, and those of two that UTF-8 has for 0x80 to 0x9F.
bool has_control(std::string_view text) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const bool is_c1 = byte == 0xC2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xA0;
    if ((byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7F || is_c1)
      return true;
  }
  return false;
}

TEST(PrintableText, leaves_what_people_write) {
  for (const char* const text : {"", "plain", "two\nlines\tand a tab", "caf\xc3\xa9", euro, "\xf0\x9f\x8c\xb3"}) {
    EXPECT_EQ(printable_text(text), text);
    EXPECT_TRUE(is_utf8(text)) << text;
  }
}

TEST(PrintableText, no_byte_and_no_pair_of_bytes_reaches_a_terminal_as_a_control) {
  for (int first = 0; first < 256; ++first)
    for (int second = 0; second < 256; ++second) {
      const std::string text = {static_cast<char>(first), static_cast<char>(second), 'x'};
      const std::string shown = printable_text(text);
      ASSERT_FALSE(has_control(shown)) << first << ' ' << second;
      ASSERT_TRUE(is_utf8(shown)) << first << ' ' << second;
      ASSERT_EQ(printable_line(text).find_first_of("\n\t"), std::string::npos);
    }
}

TEST(PrintableText, shows_what_it_does_not_send) {
  EXPECT_EQ(printable_text("\x1b[31mred\r\a"), "\\x1b[31mred\\r\\x07");
  EXPECT_EQ(printable_text("\xc2\x9b"
                           "1m"),
            "\\x9b1m");
  EXPECT_EQ(printable_text("a\xe2\x80\xae"
                           "b"),
            "a\\u202eb");
  EXPECT_EQ(printable_line("a\nb\tc"), "a\\nb\\tc");
}

TEST(PrintableText, a_message_is_of_bounded_length) {
  std::string many;
  for (int i = 0; i < 100000; ++i)
    many += fmt::format("finding {}\n", i);
  const std::string block = to_text({.what = "many\n" + many, .got = std::string(1000000, 'x')});
  EXPECT_LT(block.size(), 8000U);
  EXPECT_NE(block.find("finding 58\n"), std::string::npos);
  EXPECT_NE(block.find("... and 99941 more lines"), std::string::npos) << block.substr(0, 2000);
  EXPECT_NE(block.find("... and 996000 more bytes"), std::string::npos);
  std::string euros;
  for (int i = 0; i < 2000; ++i)
    euros += euro;
  EXPECT_TRUE(is_utf8(printable_block(euros, 0)));
  EXPECT_EQ(printable_block("one\ntwo\n", 0), "one\ntwo\n");
}

TEST(PrintableText, replaces_what_is_not_utf8) {
  EXPECT_EQ(printable_text("caf\xe9"), "caf\uFFFD");
  for (const char* const text : {long_slash, surrogate, "\xf4\x90\x80\x80", "\xf8\x88\x80\x80\x80", "\xe2\x82"}) {
    EXPECT_FALSE(is_utf8(text));
    EXPECT_TRUE(is_utf8(printable_text(text)));
  }
}

TEST(PrintableText, a_character_that_comes_in_pieces_is_waited_for) {
  EXPECT_EQ(unfinished_bytes("a\xe2\x82"), 2u);
  EXPECT_EQ(unfinished_bytes("a\xe2"), 1u);
  for (const char* const whole : {"", "a", euro, "\x80\x80\x80\x80",
                                  "a\xe9"
                                  "b"})
    EXPECT_EQ(unfinished_bytes(whole), 0u) << whole;
}

TEST(PrintableText, a_message_shows_tabs_and_indents_its_lines) {
  EXPECT_EQ(printable_block("a\tb\nc\n   d\n", 2), "a\\tb\n  c\n   d\n");
}

TEST(PrintableText, no_value_of_an_error_can_pass_for_a_field_of_it) {
  const std::string forged = "\x1b[2Jx\n  do:     run rm -rf\nespalier: error: none";
  const std::string text = to_text({.what = forged, .where = forged, .got = forged, .wanted = forged, .todo = "look"});
  EXPECT_FALSE(has_control(text)) << text;
  EXPECT_EQ(text.find("\nespalier"), std::string::npos) << text;
  EXPECT_EQ(text.find("\n  do:"), text.rfind("\n  do:")) << text;
  EXPECT_NE(text.find("\n  do:     look"), std::string::npos) << text;
}

}  // namespace
