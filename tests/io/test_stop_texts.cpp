// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>

#include "core/random.hpp"
#include "io/text/stream_decoder.hpp"

using namespace espalier;

namespace {

TEST(StopTexts, WithoutOneNothingIsHeldBack) {
  StopTexts stop({});
  EXPECT_EQ(stop.write("any"), "any");
  EXPECT_FALSE(stop.found());
  EXPECT_EQ(stop.finish(), "");
}

TEST(StopTexts, HoldsBackWhatMayBeTheBeginOfOne) {
  StopTexts stop({"END"});
  EXPECT_EQ(stop.write("to the E"), "to the ");
  EXPECT_EQ(stop.write("N"), "");
  EXPECT_EQ(stop.write("VY"), "ENVY");
  EXPECT_EQ(stop.write(" EEN"), " E");
  EXPECT_FALSE(stop.found());
  EXPECT_EQ(stop.write("D or not"), "");
  EXPECT_TRUE(stop.found());
  EXPECT_EQ(stop.write("more"), "");
  EXPECT_EQ(stop.finish(), "");
}

TEST(StopTexts, TheFirstThatIsCompleteCounts) {
  const auto before = [](const std::string& text) { return StopTexts({"long one", "b", "a b", "a bc"}).write(text); };
  EXPECT_EQ(before("the a bc"), "the ") << "two end at the b: the longer one counts";
  EXPECT_EQ(before("a long one"), "a ");
  EXPECT_EQ(before("a long bone"), "a long ") << "one that is not complete does not count";
}

TEST(StopTexts, WhatIsHeldBackAtTheEndIsText) {
  StopTexts stop({"\n\n"});
  EXPECT_EQ(stop.write("a line\n"), "a line");
  EXPECT_EQ(stop.finish(), "\n");
}

// Bytes before the text that is complete first.
std::size_t text_before(const std::string& whole, const std::vector<std::string>& texts) {
  for (std::size_t end = 0; end <= whole.size(); ++end) {
    std::size_t begin = std::string::npos;
    for (const std::string& text : texts)
      if (whole.substr(0, end).ends_with(text))
        begin = std::min(begin, end - text.size());
    if (begin != std::string::npos)
      return begin;
  }
  return whole.size();
}

// In whatever pieces it comes, the text is that before the occurrence that ends first.
TEST(StopTexts, PiecesDoNotMatter) {
  const RandomStream random(1, "stop_texts");
  std::uint64_t draw = 0;
  const auto below = [&](int n) { return static_cast<int>(random.uniform(draw++) * n); };
  const auto text_of = [&](int size) {
    std::string text;
    for (int i = 0; i < size; ++i)
      text += static_cast<char>('a' + below(2));
    return text;
  };
  for (int trial = 0; trial < 2000; ++trial) {
    const std::vector<std::string> texts = {text_of(3 + below(4)), text_of(2 + below(6))};
    const std::string whole = text_of(below(24));
    const std::size_t wanted = text_before(whole, texts);
    StopTexts stop(texts);
    std::string got;
    for (std::size_t begin = 0; begin < whole.size();) {
      const auto size = static_cast<std::size_t>(1 + below(4));
      got += stop.write(std::string_view(whole).substr(begin, size));
      begin += size;
    }
    got += stop.finish();
    EXPECT_EQ(got, whole.substr(0, wanted)) << whole << " with " << texts[0] << ", " << texts[1];
    EXPECT_EQ(stop.found(), wanted < whole.size());
  }
}

}  // namespace
