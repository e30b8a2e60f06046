// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>
#include <numeric>
#include <random>
#include <string>

#include "io/blend.hpp"
#include "tests/io/megatron_blend.hpp"
#include "tests/io/support.hpp"

using namespace espalier;
using namespace espalier::test;

namespace {

std::string sets_of(const Blend& blend, Index samples) {
  std::string sets;
  for (Index sample = 0; sample < samples; ++sample)
    sets += static_cast<char>('a' + blend.at(sample).set);
  return sets;
}

// The rule from the first sample on. The product is kept from being fused with the difference.
std::vector<std::size_t> by_the_rule(std::vector<double> weights, Index samples) {
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<double> drawn(weights.size(), 0.0);
  std::vector<std::size_t> sets;
  for (Index sample = 0; sample < samples; ++sample) {
    std::size_t furthest = 0;
    double most = -std::numeric_limits<double>::infinity();
    for (std::size_t set = 0; set < weights.size(); ++set) {
      volatile double share = weights[set] / sum * static_cast<double>(std::max<Index>(sample, 1));
      if (share - drawn[set] > most && weights[set] > 0) {
        most = share - drawn[set];
        furthest = set;
      }
    }
    drawn[furthest] += 1;
    sets.push_back(furthest);
  }
  return sets;
}

}  // namespace

TEST(Blend, draws_what_megatron_draws) {
  const std::vector<std::pair<std::vector<double>, std::string>> wanted = {
      {{0.7, 0.3}, megatron_blend_0},
      {{0.55, 0.45}, megatron_blend_1},
      {{0.1, 0.2, 0.7}, megatron_blend_2},
      {{0.333, 0.333, 0.333}, megatron_blend_3},
      {{0.123, 0.456, 0.421}, megatron_blend_4},
      {std::vector<double>(20, 0.05), megatron_blend_5}};
  for (const auto& [weights, sets] : wanted)
    EXPECT_EQ(sets_of(Blend(weights), static_cast<Index>(sets.size())), sets);
}

TEST(Blend, follows_its_rule_wherever_it_is_asked) {
  std::mt19937 random(7);
  for (const std::vector<double>& weights : {std::vector<double>{0.7, 0.3},
                                             {0.55, 0.45},
                                             {0, 0.25, 0, 0.75},
                                             {0.123, 0.456, 0.421},
                                             {0.000123, 0.999877},
                                             {1.0}}) {
    const Index samples = 20'000;
    const std::vector<std::size_t> wanted = by_the_rule(weights, samples);
    const Blend blend(weights);
    for (int i = 0; i < 200; ++i) {
      const auto sample = static_cast<Index>(random() % samples);
      const Blend::Draw draw = blend.at(sample);
      ASSERT_EQ(draw.set, wanted[static_cast<std::size_t>(sample)]) << sample;
      ASSERT_EQ(draw.number, std::count(wanted.begin(), wanted.begin() + sample, draw.set)) << sample;
    }
  }
}

TEST(Blend, every_draw_of_a_set_comes_once_also_behind_what_doubles_count) {
  const Blend blend({3.0, 1.0, 7.0});
  EXPECT_EQ(blend.cycle(), 11);
  for (const Index begin : {Index{0}, Index{100'000'000}, (Index{1} << 30) - 40, (Index{1} << 40) + 5}) {
    std::vector<Index> next = blend.drawn_before(begin);
    EXPECT_EQ(std::accumulate(next.begin(), next.end(), Index{0}), begin);
    for (Index sample = begin; sample < begin + 100; ++sample) {
      const Blend::Draw draw = blend.at(sample);
      ASSERT_EQ(draw.number, next[draw.set]++) << sample;
    }
    for (std::size_t set = 0; set < 3; ++set)
      EXPECT_NEAR(static_cast<double>(next[set]), blend.weights()[set] * static_cast<double>(begin + 100), 1);
  }
}

TEST(Blend, weights_without_a_small_denominator_are_rounded_to_millionths) {
  const Blend blend({1.0, std::acos(-1.0), 2.718281828});
  EXPECT_EQ(blend.cycle(), 1'000'000);
  EXPECT_DOUBLE_EQ(std::accumulate(blend.weights().begin(), blend.weights().end(), 0.0), 1);
  EXPECT_NEAR(blend.weights()[0], 1 / (1 + std::acos(-1.0) + 2.718281828), 1e-6);
  const std::vector<Index> drawn = blend.drawn_before(3'000'000);
  for (std::size_t set = 0; set < 3; ++set)
    EXPECT_EQ(drawn[set], std::llround(3e6 * blend.weights()[set]));
  expect_error(ExitCode::usage, {"data.train[1]", "a millionth at least"}, [] {
    Blend({1.0, std::acos(-1.0) * 1e-8});
  });
}
