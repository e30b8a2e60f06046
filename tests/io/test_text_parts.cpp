// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <chrono>

#include "io/text/byte_level_alphabet.hpp"
#include "io/text/normalizer.hpp"
#include "io/text/pre_tokenizer.hpp"
#include "io/text/utf8.hpp"
#include "tests/io/support.hpp"

namespace espalier::test {
namespace {

using Words = std::vector<std::string>;

Words words_of(const std::string& text, PreTokenizerStep step, bool is_begin = true) {
  PreTokenizer pre_tokenizer;
  pre_tokenizer.add(std::move(step));
  Words words;
  pre_tokenizer.for_each_word(text, is_begin, [&](std::string_view word) { words.emplace_back(word); });
  return words;
}

Words split(const std::string& text, const std::string& pattern, SplitBehavior behavior, bool invert = false) {
  return words_of(text, SplitStep{Regex(pattern, RegexDialect::oniguruma), behavior, invert});
}

std::string matches(const std::string& text, const std::string& pattern,
                    RegexDialect dialect = RegexDialect::oniguruma) {
  const Regex regex(pattern, dialect);
  std::string found;
  for (std::size_t at = 0; at < text.size();) {
    const Regex::Match match = regex.find(text, at);
    if (match.end > match.begin)
      found += text.substr(match.begin, match.end - match.begin) + "|";
    at = match.end;
  }
  return found;
}

}  // namespace

TEST(TextUtf8, broken_parts_are_replaced_as_rust_and_python_do) {
  EXPECT_EQ(replace_invalid_utf8("a\u00E4\u20AC\U0001F600"), "a\u00E4\u20AC\U0001F600");
  const std::string r(replacement_character);
  EXPECT_EQ(replace_invalid_utf8("\xFFz"), r + "z");
  EXPECT_EQ(replace_invalid_utf8("\xE2\x82z"), r + "z");               // begun, and not ended
  EXPECT_EQ(replace_invalid_utf8("\xF0\x9F\x98"), r);                  //
  EXPECT_EQ(replace_invalid_utf8("\xC0\x80"), r + r);                  // overlong
  EXPECT_EQ(replace_invalid_utf8("\xED\xA0\x80"), r + r + r);          // a surrogate
  EXPECT_EQ(replace_invalid_utf8("\xF4\x90\x80\x80"), r + r + r + r);  // beyond U+10FFFF
  EXPECT_EQ(replace_invalid_utf8("\x80\x80"), r + r);
  std::string all;
  for (std::uint32_t point = 0; point < 0x110000; ++point)
    if (point < 0xD800 || point > 0xDFFF)
      append_utf8(point, all);
  EXPECT_EQ(valid_utf8_bytes(all), all.size());
  std::uint32_t point = 0;
  for (std::string_view rest = all; !rest.empty(); rest.remove_prefix(character_bytes(rest)), ++point) {
    point = point == 0xD800 ? 0xE000 : point;
    ASSERT_EQ(code_point(rest), point);
  }
}

TEST(TextAlphabet, every_byte_is_a_character_and_back) {
  EXPECT_EQ(byte_level_alphabet()[' '], "\u0120");
  EXPECT_EQ(byte_level_alphabet()['\n'], "\u010A");
  EXPECT_EQ(byte_level_alphabet()['a'], "a");
  std::string characters;
  std::string bytes;
  for (int byte = 0; byte < 256; ++byte) {
    characters += byte_level_alphabet()[static_cast<std::size_t>(byte)];
    bytes += static_cast<char>(byte);
  }
  EXPECT_EQ(bytes_of_byte_level(characters), bytes);
  EXPECT_EQ(bytes_of_byte_level("a b"), std::nullopt);
  EXPECT_EQ(bytes_of_byte_level("\u4F60"), std::nullopt);
}

TEST(TextRegex, classes_are_those_of_unicode) {
  EXPECT_EQ(matches("a \u00A0\u3000\u180Eb", R"(\s)"), " |\u00A0|\u3000|");  // U+180E is no white space
  EXPECT_EQ(matches("a\u0301_\u0663!", R"(\w+)"), "a\u0301_\u0663|");
  EXPECT_EQ(matches("1\u0663\u2167\u00BD", R"(\d)"), "1|\u0663|");
  EXPECT_EQ(matches("1\u0663\u2167\u00BDx", R"(\p{N}{1,3})"), "1\u0663\u2167|\u00BD|");
  EXPECT_EQ(matches("\u4E00\u3005\u3042", R"(\p{Han}+)"), "\u4E00\u3005|");
  EXPECT_EQ(matches("x'S 'll", "(?i:'s|'ll)"), "'S|'ll|");
  EXPECT_EQ(matches("a\nb", "^.", RegexDialect::oniguruma), "a|b|");  // lines there, the text here
  EXPECT_EQ(matches("a\nb", "^.", RegexDialect::fancy_regex), "a|");
  EXPECT_EQ(matches("a.b", ".", RegexDialect::plain_text), ".|");
  EXPECT_EQ(matches("abc", "x*"), "");  // empty matches are passed over
  EXPECT_EQ(matches("\u00E9", R"([\u00e0-\u00ff])"), "\u00E9|");
}

TEST(TextRegex, a_pattern_that_would_take_for_ever_gives_up) {
  const std::string text(50, 'a');
  const auto begin = std::chrono::steady_clock::now();
  expect_error(ExitCode::data, {"takes too many steps", "limit"},
               [&] { matches(text + "!", "(?:a+)+$|(?:(a|aa)+)+z"); });
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
}

TEST(TextNormalizer, forms_case_and_replacements) {
  const auto apply = [](const auto& add, const std::string& text) {
    Normalizer normalizer;
    add(normalizer);
    return normalizer.apply(text);
  };
  const auto form = [&](Normalizer::Form which, const std::string& text, bool unicode_9 = false) {
    return apply([&](Normalizer& normalizer) { normalizer.add_form(which, unicode_9); }, text);
  };
  EXPECT_EQ(form(Normalizer::Form::nfc, "e\u0301\u1100\u1161\u11A8"), "\u00E9\uAC01");
  EXPECT_EQ(form(Normalizer::Form::nfd, "\u00E9"), "e\u0301");
  EXPECT_EQ(form(Normalizer::Form::nfkc, "\uFB01\u00B2"), "fi2");
  EXPECT_EQ(form(Normalizer::Form::nfkd, "\uFB01\u00E9"), "fie\u0301");
  // A mebibyte of marks, each two of which change places.
  std::string marks, below, above;
  while (marks.size() < (std::size_t{1} << 20)) {
    marks += "\u0301\u0323";
    below += "\u0323";
    above += "\u0301";
  }
  EXPECT_TRUE(form(Normalizer::Form::nfc, "e" + marks) == "\u1EB9" + below.substr(2) + above);
  EXPECT_TRUE(form(Normalizer::Form::nfkd, "e" + marks) == "e" + below + above);
  EXPECT_EQ(form(Normalizer::Form::nfc, std::string("a\0e\u0301", 5)), std::string("a\0\u00E9", 4));
  // a mark that came with Unicode 11 is in no order with others before that
  EXPECT_EQ(form(Normalizer::Form::nfc, "q\u0345\u08D3"), "q\u08D3\u0345");
  EXPECT_EQ(form(Normalizer::Form::nfc, "q\u0345\u08D3e\u0301", true), "q\u0345\u08D3\u00E9");
  EXPECT_EQ(apply([](Normalizer& n) { n.add_lower_case(); }, "\u00C4\u0130\u03A3\u1E9E"), "\u00E4i\u0307\u03C3\u00DF");
  EXPECT_EQ(apply([](Normalizer& n) { n.add_prepend("_"); }, ""), "");
  EXPECT_EQ(apply([](Normalizer& n) { n.add_prepend("_"); }, "a"), "_a");
  EXPECT_EQ(apply([](Normalizer& n) { n.add_strip(true, false); }, " \u3000a "), "a ");
  EXPECT_EQ(apply([](Normalizer& n) { n.add_strip(true, true); }, " \u3000 "), "");
  EXPECT_EQ(apply([](Normalizer& n) { n.add_replace(Regex(" ", RegexDialect::plain_text), "__"); }, "a  b"), "a____b");
}

TEST(TextPreTokenizer, matches_are_isolated_removed_or_merged) {
  const std::string text = "the-final--countdown";
  EXPECT_EQ(split(text, "-", SplitBehavior::removed), (Words{"the", "final", "countdown"}));
  EXPECT_EQ(split(text, "-", SplitBehavior::isolated), (Words{"the", "-", "final", "-", "-", "countdown"}));
  EXPECT_EQ(split(text, "-", SplitBehavior::merged_with_previous), (Words{"the-", "final-", "-", "countdown"}));
  EXPECT_EQ(split(text, "-", SplitBehavior::merged_with_next), (Words{"the", "-final", "-", "-countdown"}));
  EXPECT_EQ(split(text, "-", SplitBehavior::contiguous), (Words{"the", "-", "final", "--", "countdown"}));
  EXPECT_EQ(split(text, "[a-z]+", SplitBehavior::removed, true), (Words{"the", "final", "countdown"}));
  EXPECT_EQ(split("", "-", SplitBehavior::isolated), Words{});
}

TEST(TextPreTokenizer, spaces_become_marks) {
  using Prepend = MetaspaceStep::Prepend;
  const std::string m = "\u2581";
  EXPECT_EQ(words_of("a  b", MetaspaceStep{}), (Words{m + "a", m, m + "b"}));
  EXPECT_EQ(words_of(" a", MetaspaceStep{}), (Words{m + "a"}));
  EXPECT_EQ(words_of("a b", MetaspaceStep{.split = false}), (Words{m + "a" + m + "b"}));
  EXPECT_EQ(words_of("a b", MetaspaceStep{.prepend = Prepend::never}), (Words{"a", m + "b"}));
  EXPECT_EQ(words_of("a", MetaspaceStep{.prepend = Prepend::first}, true), (Words{m + "a"}));
  EXPECT_EQ(words_of("a", MetaspaceStep{.prepend = Prepend::first}, false), (Words{"a"}));
  EXPECT_EQ(words_of("a", PrefixSpaceStep{}), (Words{" a"}));
}

}  // namespace espalier::test
