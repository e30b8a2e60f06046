// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <thread>

#include "io/text/bpe.hpp"

namespace espalier::test {
namespace {

// Tokens of one to some letters of "abcd", and merges of random pairs of them.
struct RandomBpe {
  std::vector<std::string> texts;
  std::vector<Bpe::Pair> merges;

  explicit RandomBpe(std::mt19937_64& random, int num_merges) {
    for (const char c : std::string("abcd"))
      texts.emplace_back(1, c);
    while (std::ssize(merges) < num_merges) {
      const auto left = static_cast<TokenId>(random() % texts.size());
      const auto right = static_cast<TokenId>(random() % texts.size());
      const std::string text = texts[static_cast<std::size_t>(left)] + texts[static_cast<std::size_t>(right)];
      if (std::ranges::find(texts, text) == texts.end())
        texts.push_back(text);
      if (std::ranges::find(merges, Bpe::Pair(left, right)) == merges.end())
        merges.emplace_back(left, right);
    }
  }

  Vocabulary vocabulary() const {
    Vocabulary vocabulary;
    for (std::size_t i = 0; i < texts.size(); ++i)
      vocabulary.add(texts[i], static_cast<TokenId>(i));
    return vocabulary;
  }

  TokenId id(const std::string& text) const {
    return static_cast<TokenId>(std::ranges::find(texts, text) - texts.begin());
  }

  // The definition: the first merge that is possible, at its leftmost place, again and again.
  std::vector<TokenId> plain(const std::string& word) const {
    std::vector<TokenId> tokens;
    for (const char c : word)
      tokens.push_back(id(std::string(1, c)));
    for (bool merged = true; merged;) {
      merged = false;
      for (std::size_t m = 0; m < merges.size() && !merged; ++m)
        for (std::size_t i = 0; i + 1 < tokens.size() && !merged; ++i)
          if (Bpe::Pair(tokens[i], tokens[i + 1]) == merges[m]) {
            tokens[i] = id(texts[static_cast<std::size_t>(tokens[i])] + texts[static_cast<std::size_t>(tokens[i + 1])]);
            tokens.erase(tokens.begin() + static_cast<std::ptrdiff_t>(i) + 1);
            merged = true;
          }
    }
    return tokens;
  }
};

std::string random_word(std::mt19937_64& random, std::size_t longest) {
  std::string word(1 + random() % longest, 'a');
  for (char& c : word)
    c = static_cast<char>('a' + random() % 4);
  return word;
}

std::vector<TokenId> fast(const Bpe& bpe, const std::string& word) {
  std::vector<TokenId> tokens;
  bpe.encode_word(word, tokens);
  return tokens;
}

}  // namespace

TEST(Bpe, fast_merges_are_those_of_the_definition) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 20; ++round) {
    const RandomBpe reference(random, 1 + static_cast<int>(random() % 60));
    for (const bool bytes : {false, true}) {
      const Bpe bpe(reference.vocabulary(), reference.merges, {.bytes = bytes});
      for (int i = 0; i < 200; ++i) {  // short words are scanned, long ones have a heap
        const std::string word = random_word(random, i % 4 == 0 ? 150 : 12);
        ASSERT_EQ(fast(bpe, word), reference.plain(word)) << word;
        ASSERT_EQ(fast(bpe, word), reference.plain(word)) << word << ", from the cache";
      }
    }
  }
}

// With ranks, the lowest token that two neighbours make is made, whichever pair it is made of.
TEST(Bpe, ranks_merge_every_pair_that_is_a_token) {
  std::mt19937_64 random(2);
  const RandomBpe reference(random, 60);
  Vocabulary vocabulary;
  std::vector<std::string> texts;
  for (int byte = 0; byte < 256; ++byte)
    texts.emplace_back(1, static_cast<char>(byte));
  for (const std::string& text : reference.texts)
    if (text.size() > 1)
      texts.push_back(text);
  for (std::size_t i = 0; i < texts.size(); ++i)
    vocabulary.add(texts[i], static_cast<TokenId>(i));
  const Bpe bpe = Bpe::of_ranks(std::move(vocabulary), false);
  for (int i = 0; i < 500; ++i) {
    const std::string word = random_word(random, i % 4 == 0 ? 150 : 12);
    std::vector<std::string> parts;
    for (const char c : word)
      parts.emplace_back(1, c);
    while (true) {
      std::size_t best = parts.size();
      std::ptrdiff_t best_rank = std::ssize(texts);
      for (std::size_t k = 0; k + 1 < parts.size(); ++k)
        if (const auto rank = std::ranges::find(texts, parts[k] + parts[k + 1]) - texts.begin(); rank < best_rank) {
          best = k;
          best_rank = rank;
        }
      if (best == parts.size())
        break;
      parts[best] += parts[best + 1];
      parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    }
    std::vector<TokenId> plain;
    for (const std::string& part : parts)
      plain.push_back(static_cast<TokenId>(std::ranges::find(texts, part) - texts.begin()));
    ASSERT_EQ(fast(bpe, word), plain) << word;
  }
}

TEST(Bpe, what_has_no_token_falls_back_to_bytes_or_is_unknown) {
  const auto vocabulary = [] {
    Vocabulary tokens;
    TokenId id = 0;
    for (const char* const text : {"a", "<unk>", "<0xC3>", "<0xA4>"})
      tokens.add(text, id++);
    return tokens;
  };
  using Tokens = std::vector<TokenId>;
  const std::string word = "a\u00E4a\u00F6\u00F6a";
  EXPECT_EQ(fast(Bpe(vocabulary(), {}, {}), word), (Tokens{0, 0, 0}));
  EXPECT_EQ(fast(Bpe(vocabulary(), {}, {.unknown = 1}), word), (Tokens{0, 1, 0, 1, 1, 0}));
  EXPECT_EQ(fast(Bpe(vocabulary(), {}, {.unknown = 1, .fuse_unknown = true}), word), (Tokens{0, 1, 0, 1, 0}));
  EXPECT_EQ(fast(Bpe(vocabulary(), {}, {.byte_fallback = true, .unknown = 1}), word), (Tokens{0, 2, 3, 0, 1, 1, 0}));
}

TEST(Bpe, a_word_that_is_a_token_need_not_be_merged) {
  Vocabulary tokens;
  tokens.add("a", 0);
  tokens.add("b", 1);
  tokens.add("ab", 2);
  Vocabulary again;
  again.add("a", 0);
  again.add("b", 1);
  again.add("ab", 2);
  EXPECT_EQ(fast(Bpe(std::move(tokens), {}, {}), "ab"), (std::vector<TokenId>{0, 1}));
  EXPECT_EQ(fast(Bpe(std::move(again), {}, {.ignore_merges = true}), "ab"), (std::vector<TokenId>{2}));
}

TEST(Bpe, several_threads_may_use_one) {
  std::mt19937_64 random(3);
  const RandomBpe reference(random, 60);
  const Bpe bpe(reference.vocabulary(), reference.merges, {});
  std::vector<std::string> words;
  std::vector<std::vector<TokenId>> expected;
  for (int i = 0; i < 300; ++i) {
    words.push_back(random_word(random, 30));
    expected.push_back(reference.plain(words.back()));
  }
  std::vector<int> wrong(4);
  {
    std::vector<std::jthread> threads;
    for (std::size_t t = 0; t < wrong.size(); ++t)
      threads.emplace_back([&, t] {
        for (int round = 0; round < 20; ++round)
          for (std::size_t i = 0; i < words.size(); ++i)
            wrong[t] += fast(bpe, words[i]) == expected[i] ? 0 : 1;
      });
  }
  EXPECT_EQ(wrong, std::vector<int>(4));
}

}  // namespace espalier::test
