// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <string>

#include "io/tokens/blend.hpp"
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

struct MegatronBlend {
  std::vector<double> weights;
  std::string sets;
};

const std::vector<MegatronBlend> megatron_blends = {{{0.7, 0.3}, megatron_blend_0},
                                                    {{0.55, 0.45}, megatron_blend_1},
                                                    {{0.1, 0.2, 0.7}, megatron_blend_2},
                                                    {{0.333, 0.333, 0.333}, megatron_blend_3},
                                                    {{0.123, 0.456, 0.421}, megatron_blend_4},
                                                    {std::vector<double>(20, 0.05), megatron_blend_5},
                                                    {{0, 0.25, 0, 0.75}, megatron_blend_6},
                                                    {{0.0123, 0.9877}, megatron_blend_7},
                                                    {{1.0}, megatron_blend_8}};

}  // namespace

TEST(Blend, draws_what_megatron_draws) {
  for (const auto& [weights, sets] : megatron_blends)
    EXPECT_EQ(sets_of(Blend(weights), static_cast<Index>(sets.size())), sets);
}

TEST(Blend, draws_the_same_wherever_it_is_asked) {
  std::mt19937 random(7);
  for (const auto& [weights, sets] : megatron_blends) {
    const Blend blend(weights);
    for (int i = 0; i < 200; ++i) {
      const std::size_t sample = random() % sets.size();
      const Blend::Draw draw = blend.at(static_cast<Index>(sample));
      ASSERT_EQ('a' + draw.set, static_cast<std::size_t>(sets[sample])) << sample;
      ASSERT_EQ(draw.index_in_set,
                std::count(sets.begin(), sets.begin() + static_cast<std::ptrdiff_t>(sample), sets[sample]))
          << sample;
    }
  }
}

TEST(Blend, every_draw_of_a_set_comes_once_also_behind_what_doubles_count) {
  const Blend blend({3.0, 1.0, 7.0});
  EXPECT_EQ(blend.drawn_before(11), (std::vector<Index>{3, 1, 7}));
  for (const Index begin : {Index{0}, Index{100'000'000}, (Index{1} << 30) - 40, (Index{1} << 40) + 5}) {
    std::vector<Index> next = blend.drawn_before(begin);
    EXPECT_EQ(std::accumulate(next.begin(), next.end(), Index{0}), begin);
    for (Index sample = begin; sample < begin + 100; ++sample) {
      const Blend::Draw draw = blend.at(sample);
      ASSERT_EQ(draw.index_in_set, next[draw.set]++) << sample;
    }
    for (std::size_t set = 0; set < 3; ++set)
      EXPECT_NEAR(static_cast<double>(next[set]), blend.weights()[set] * static_cast<double>(begin + 100), 1);
  }
}

TEST(Blend, weights_without_a_small_denominator_are_rounded_to_millionths) {
  const Blend blend({1.0, std::acos(-1.0), 2.718281828});
  for (const double weight : blend.weights())
    EXPECT_DOUBLE_EQ(weight, std::round(1e6 * weight) / 1e6);
  EXPECT_DOUBLE_EQ(std::accumulate(blend.weights().begin(), blend.weights().end(), 0.0), 1);
  EXPECT_NEAR(blend.weights()[0], 1 / (1 + std::acos(-1.0) + 2.718281828), 1e-6);
  const std::vector<Index> drawn = blend.drawn_before(3'000'000);
  for (std::size_t set = 0; set < 3; ++set)
    EXPECT_EQ(drawn[set], std::llround(3e6 * blend.weights()[set]));
  expect_error(ExitCode::usage, {"data.train[1]", "at least a millionth"}, [] {
    Blend({1.0, std::acos(-1.0) * 1e-8});
  });
  // so small that the first alone seems to be all of them
  expect_error(ExitCode::usage, {"data.train[1]", "1e-16 of all", "at least a millionth"}, [] { Blend({1.0, 1e-16}); });
}
