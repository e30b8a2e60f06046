// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "core/random.hpp"
#include "models/sampler.hpp"

using namespace espalier;
using testing::ElementsAre;

namespace sampler_tests {
namespace {

using Logits = std::vector<double>;
using Text = std::vector<TokenId>;

std::vector<TokenId> tokens_of(const std::vector<Candidate>& kept) {
  std::vector<TokenId> tokens;
  for (const Candidate& candidate : kept)
    tokens.push_back(candidate.token);
  return tokens;
}

std::vector<TokenId> kept_tokens(const Logits& logits, const SamplingConfig& config, const Text& text = {}) {
  return tokens_of(candidates(logits, text, config));
}

// The logits of these probabilities.
Logits logs_of(std::vector<double> probabilities) {
  for (double& value : probabilities)
    value = std::log(value);
  return probabilities;
}

// Probabilities by token, in the plain form: each rule a loop over the whole vocabulary, with a new softmax behind it.
std::vector<double> plain_softmax(const Logits& logits) {
  std::vector<double> result;
  double sum = 0;
  for (const double logit : logits)
    sum += std::exp(logit);
  for (const double logit : logits)
    result.push_back(std::exp(logit) / sum);
  return result;
}

std::vector<double> plain_probabilities(Logits logits, const Text& text, const SamplingConfig& config) {
  const auto size = static_cast<TokenId>(logits.size());
  const auto at = [](TokenId token) { return static_cast<std::size_t>(token); };
  const double no_chance = -HUGE_VAL;
  for (TokenId token = 0; token < size; ++token)
    if (std::ranges::find(text, token) != text.end())
      logits[at(token)] *= logits[at(token)] < 0 ? config.repetition_penalty : 1 / config.repetition_penalty;
  for (double& logit : logits)
    logit /= config.temperature;
  // How many tokens come before this one?
  const auto rank = [&](TokenId token) {
    Index before = 0;
    for (TokenId other = 0; other < size; ++other)
      before += logits[at(other)] > logits[at(token)] || (logits[at(other)] == logits[at(token)] && other < token);
    return before;
  };
  Logits left = logits;
  for (TokenId token = 0; token < size; ++token)
    if (config.top_k > 0 && rank(token) >= config.top_k)
      left[at(token)] = no_chance;
  const std::vector<double> probabilities = plain_softmax(left);
  Logits nucleus = left;
  for (TokenId token = 0; token < size; ++token) {
    double before = 0;  // probability of all that come before this one
    for (TokenId other = 0; other < size; ++other)
      before += rank(other) < rank(token) ? probabilities[at(other)] : 0;
    if (rank(token) > 0 && before >= config.top_p)
      nucleus[at(token)] = no_chance;
  }
  return plain_softmax(nucleus);
}

TEST(Sampler, CandidatesAreThoseOfPlainLoops) {
  const RandomStream random(3, "sampler");
  std::uint64_t draw = 0;
  const auto uniform = [&] { return random.uniform(draw++); };
  for (int trial = 0; trial < 400; ++trial) {
    Logits logits;
    Text text;
    const int size = 1 + static_cast<int>(uniform() * 20);
    for (int i = 0; i < size; ++i) {
      logits.push_back(trial % 2 == 0 ? 8 * uniform() - 4 : std::floor(4 * uniform()) - 2);  // odd ones have ties
      text.push_back(static_cast<TokenId>(uniform() * 30));                                  // some beyond the logits
    }
    const SamplingConfig config{.repetition_penalty = trial % 3 == 0 ? 1 : 0.5 + 2 * uniform(),
                                .temperature = 0.1 + 2 * uniform(),
                                .top_k = static_cast<Index>(uniform() * 25),
                                .top_p = trial % 5 == 0 ? 1 : uniform()};
    const std::vector<double> wanted = plain_probabilities(logits, text, config);
    std::vector<double> got(logits.size(), 0.0);
    double sum = 0;
    for (const Candidate& candidate : candidates(logits, text, config)) {
      got[static_cast<std::size_t>(candidate.token)] = candidate.probability;
      sum += candidate.probability;
    }
    EXPECT_NEAR(sum, 1, 1e-12);
    for (std::size_t i = 0; i < wanted.size(); ++i)
      EXPECT_NEAR(got[i], wanted[i], 1e-12) << "trial " << trial << ", token " << i << " of " << wanted.size();
  }
}

// All sorted, then cut, and all exponentials in that order.
std::vector<Candidate> sorted_candidates(const Logits& logits, const SamplingConfig& config) {
  std::vector<Candidate> kept;
  for (const double logit : logits)
    kept.push_back({static_cast<TokenId>(kept.size()), logit});
  std::ranges::stable_sort(kept, std::ranges::greater(), &Candidate::probability);
  if (config.top_k > 0)
    kept.resize(static_cast<std::size_t>(config.top_k));
  const double largest = kept.front().probability;
  double total = 0, reached = 0;
  for (Candidate& candidate : kept)
    total += candidate.probability = std::exp((candidate.probability - largest) / config.temperature);
  std::size_t count = 0;
  while (count < kept.size() && (count == 0 || reached < config.top_p * total))
    reached += kept[count++].probability;
  kept.resize(count);
  for (Candidate& candidate : kept)
    candidate.probability /= reached;
  return kept;
}

TEST(Sampler, DrawsFromALargeVocabularyAsIfAllOfItWereSorted) {
  const RandomStream random(5, "sampler.vocabulary");
  Logits logits;
  for (std::uint64_t i = 0; i < 20'000; ++i)
    logits.push_back(std::floor(1000 * random.normal(i)) / 300);  // with ties
  std::uint64_t draw = 0;
  for (const SamplingConfig& config : {SamplingConfig{}, SamplingConfig{.top_k = 40}, SamplingConfig{.top_p = 0.9},
                                       SamplingConfig{.temperature = 0.5, .top_k = 1000, .top_p = 0.7}}) {
    const std::vector<Candidate> wanted = sorted_candidates(logits, config);
    if (config.top_p < 1 || config.top_k > 0) {  // else all tokens
      EXPECT_EQ(tokens_of(candidates(logits, {}, config)), tokens_of(wanted));
    }
    for (int i = 0; i < 25; ++i) {
      const double u = random.uniform(draw++);
      EXPECT_EQ(sample(candidates(logits, {}, config, u), u), sample(wanted, u)) << u;
    }
  }
  EXPECT_LT(candidates(logits, {}, {}, 0.01).size(), 1000U) << "no more than are needed";
}

TEST(Sampler, TemperatureDividesTheLogits) {
  // Weights e^(0/2) and e^(-ln 4 / 2) = 1/2.
  const std::vector<Candidate> kept = candidates({0, -std::log(4.0)}, {}, {.temperature = 2});
  ASSERT_EQ(kept.size(), 2U);
  EXPECT_NEAR(kept[0].probability, 2.0 / 3, 1e-15);
  EXPECT_NEAR(kept[1].probability, 1.0 / 3, 1e-15);
}

TEST(Sampler, TemperatureZeroIsGreedyAndTakesTheSmallerIdOfEqualOnes) {
  const SamplingConfig greedy{.temperature = 0};
  EXPECT_THAT(kept_tokens({1, 3, 2, 3}, greedy), ElementsAre(1));
  EXPECT_THAT(kept_tokens({-5, -5}, greedy), ElementsAre(0));
  EXPECT_THAT(kept_tokens({1, 3, 2}, {.temperature = 0, .top_k = 2, .top_p = 0.1}), ElementsAre(1));
  EXPECT_EQ(candidates({1, 3}, {}, greedy)[0].probability, 1);
}

TEST(Sampler, TemperatureThatIsTinyStillHasProbabilities) {
  EXPECT_THAT(kept_tokens({1, 3, 3}, {.temperature = 1e-320, .top_p = 0.9}), ElementsAre(1, 2));
  for (const double u : {0.001, 0.499})
    EXPECT_EQ(sample(candidates({1, 3, 3}, {}, {.temperature = 1e-320}), u), 1);
  EXPECT_EQ(sample(candidates({1, 3, 3}, {}, {.temperature = 1e-320}), 0.999), 2);
}

TEST(Sampler, TopKTakesTheMostLikelyAndOfEqualOnesTheSmallerIds) {
  const Logits logits = {2, 5, 2, 2, 4};
  EXPECT_THAT(kept_tokens(logits, {.top_k = 1}), ElementsAre(1));
  EXPECT_THAT(kept_tokens(logits, {.top_k = 3}), ElementsAre(1, 4, 0));
  EXPECT_THAT(kept_tokens(logits, {.top_k = 4}), ElementsAre(1, 4, 0, 2));
  for (const Index all : {Index{0}, Index{5}, Index{6}, Index{1} << 50})
    EXPECT_THAT(kept_tokens(logits, {.top_k = all}), ElementsAre(1, 4, 0, 2, 3)) << all;
}

TEST(Sampler, TopPTakesAsFewAsReachIt) {
  const Logits logits = logs_of({0.1, 0.5, 0.15, 0.25});
  const auto kept = [&](double p) { return kept_tokens(logits, {.top_p = p}); };
  EXPECT_THAT(kept(0), ElementsAre(1)) << "one at least";
  EXPECT_THAT(kept(0.49), ElementsAre(1));
  EXPECT_THAT(kept(0.51), ElementsAre(1, 3));
  EXPECT_THAT(kept(0.74), ElementsAre(1, 3));
  EXPECT_THAT(kept(0.76), ElementsAre(1, 3, 2));
  EXPECT_THAT(kept(0.91), ElementsAre(1, 3, 2, 0));
  EXPECT_THAT(kept(1), ElementsAre(1, 3, 2, 0));
  const std::vector<Candidate> two = candidates(logits, {}, {.top_p = 0.6});
  EXPECT_NEAR(two[0].probability, 2.0 / 3, 1e-15) << "what is left adds up to 1";
}

TEST(Sampler, TopPThatIsReachedExactlyTakesNoMore) {
  const Logits equal = {0, 0, 0, 0};
  EXPECT_THAT(kept_tokens(equal, {.top_p = 0.5}), ElementsAre(0, 1));
  EXPECT_THAT(kept_tokens(equal, {.top_p = 0.5000001}), ElementsAre(0, 1, 2));
}

TEST(Sampler, TopPOfOneLeavesOutNothingHoweverUnlikely) {
  EXPECT_THAT(kept_tokens({0, -200, 0}, {.top_p = 1}), ElementsAre(0, 2, 1));  // 1e-87 would vanish in a sum
}

TEST(Sampler, TopPIsOfWhatTopKLeaves) {
  const Logits logits = logs_of({0.4, 0.3, 0.2, 0.1});
  EXPECT_THAT(kept_tokens(logits, {.top_k = 2, .top_p = 0.5}), ElementsAre(0)) << "0.4 of 0.7";
  EXPECT_THAT(kept_tokens(logits, {.top_k = 0, .top_p = 0.5}), ElementsAre(0, 1));
}

TEST(Sampler, RepetitionPenaltyDividesPositiveAndMultipliesNegativeLogits) {
  Logits logits = {3, -3, 0, 2, -2};
  penalize_repetition(logits, Text{0, 1, 2, 0, 0}, 1.5);
  EXPECT_THAT(logits, ElementsAre(2, -4.5, 0, 2, -2)) << "each once, and only those of the text";
  penalize_repetition(logits, Text{3, 4, 17, -1}, 0.5);
  EXPECT_THAT(logits, ElementsAre(2, -4.5, 0, 4, -1)) << "below 1 they become more likely";
  penalize_repetition(logits, Text{0, 1, 2, 3, 4}, 1);
  EXPECT_THAT(logits, ElementsAre(2, -4.5, 0, 4, -1));
}

TEST(Sampler, RepetitionPenaltyComesFirst) {
  EXPECT_THAT(kept_tokens({3, 2.5}, {.repetition_penalty = 1.3, .temperature = 0}, {0}), ElementsAre(1));
  EXPECT_THAT(kept_tokens({3, 2.5, 1}, {.repetition_penalty = 4, .top_k = 2}, {0}), ElementsAre(1, 2));
}

TEST(Sampler, DrawsByTheCumulatedProbabilities) {
  const std::vector<Candidate> kept = candidates(logs_of({0.125, 0.5, 0.375}), {}, {});
  EXPECT_EQ(sample(kept, 1e-9), 1);
  EXPECT_EQ(sample(kept, 0.499), 1);
  EXPECT_EQ(sample(kept, 0.501), 2);
  EXPECT_EQ(sample(kept, 0.874), 2);
  EXPECT_EQ(sample(kept, 0.876), 0);
  EXPECT_EQ(sample(kept, 1 - 1e-16), 0);
  EXPECT_EQ(sample({{7, 0.5}, {8, 0.5 - 1e-9}, {9, 0.0}}, 1 - 1e-12), 8) << "never what has no probability";
}

TEST(Sampler, DrawsAsOftenAsTheProbabilitiesSay) {
  const RandomStream random(1, "sampler.frequencies");
  const std::vector<Candidate> kept = candidates(logs_of({0.1, 0.6, 0.3}), {}, {.top_p = 0.85});  // 2/3 and 1/3
  std::map<TokenId, int> count;
  constexpr int draws = 30000;
  for (std::uint64_t i = 0; i < draws; ++i)
    ++count[sample(kept, random.uniform(i))];
  EXPECT_EQ(count.size(), 2U);
  EXPECT_NEAR(static_cast<double>(count[1]) / draws, 2.0 / 3, 0.01);
}

}  // namespace

}  // namespace sampler_tests
