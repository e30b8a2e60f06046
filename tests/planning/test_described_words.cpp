// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/published/described_words.hpp"

namespace espalier {
namespace {

TEST(DescribedWords, APhraseIsWordsInARow) {
  const DescribedWords said("NVIDIA-NeMo/Megatron-Bridge | torch.compiled, Flash-Attention 3");
  EXPECT_TRUE(said.says({"megatron bridge"}));
  EXPECT_TRUE(said.says({"nothing", "flash attention 3"})) << "at the end, and any of them";
  EXPECT_TRUE(said.says({"compil"})) << "the last word may go on";
  EXPECT_FALSE(said.says({"compil "})) << "unless it ends in a space";
  EXPECT_FALSE(said.says({"bridge megatron"}));
  EXPECT_FALSE(said.says({"emo"})) << "no word begins so";
  EXPECT_FALSE(said.says({"flash attention 3 more"}));
  EXPECT_FALSE(DescribedWords("").says({"a"}));
}

TEST(DescribedWords, WhatIsDeniedIsNotSaid) {
  for (const char* const text : {"no torch.compile", "without torch compile", "w/o torch.compile", "not torch compile",
                                 "torch compile off", "torch_compile=false", "torch.compile disabled"}) {
    EXPECT_FALSE(DescribedWords(text).says({"torch compile"})) << text;
    EXPECT_TRUE(DescribedWords(text).denies({"torch compile"})) << text;
  }
  const DescribedWords both("no compile in the first run; the second with compile");
  EXPECT_TRUE(both.says({"compile"}));
  EXPECT_TRUE(both.denies({"compile"}));
  EXPECT_FALSE(DescribedWords("no recompute, compile").denies({"compile"})) << "only the word before denies";
}

TEST(DescribedWords, TagsAreQuotedLetterByLetter) {
  const DescribedWords said("mp_mode=PURE, no-scatter-gather, arXiv 2401.10241");
  EXPECT_TRUE(said.quotes("mp_mode=PURE"));
  EXPECT_TRUE(said.quotes("2401.10241"));
  EXPECT_TRUE(said.quotes("no-scatter-gather"));
  EXPECT_FALSE(said.quotes("mp_mode=pure"));
}

}  // namespace
}  // namespace espalier
