// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <utility>

#include "core/ops/rotary_frequencies.hpp"

using namespace espalier;

namespace {

// The formulas of transformers 5.24 (modeling_rope_utils.py) in fp64; there they are computed in fp32.
void expect_pairs(const RotaryConfig& config, const std::vector<std::pair<std::size_t, double>>& wanted,
                  Index sequence_length = 0) {
  const RotaryFrequencies result = rotary_frequencies(config, sequence_length);
  ASSERT_EQ(result.of_pairs.size(), static_cast<std::size_t>(config.size / 2));
  for (const auto& [pair, frequency] : wanted)
    EXPECT_NEAR(result.of_pairs[pair] / frequency, 1, 1e-13) << "pair " << pair;
}

TEST(RotaryFrequencies, without_scaling_are_powers_of_theta) {
  expect_pairs({.size = 64}, {{0, 1}, {1, 0.7498942093324559}, {16, 0.01}, {31, 0.0001333521432163324}});
  expect_pairs({.size = 6, .theta = 1e6}, {{0, 1}, {1, 0.01}, {2, 0.0001}});
  EXPECT_EQ(rotary_frequencies({.size = 2}).of_pairs, std::vector<double>{1});
  EXPECT_EQ(rotary_frequencies({.size = 64}).attention_factor, 1);
}

TEST(RotaryFrequencies, linear_divides_all) {
  expect_pairs({.size = 64, .scaling = RotaryScaling::linear, .factor = 4},
               {{0, 0.25}, {1, 0.18747355233311397}, {16, 0.0025}, {31, 3.33380358040831e-05}});
}

TEST(RotaryFrequencies, dynamic_raises_theta_for_long_sequences) {
  const RotaryConfig config{.size = 64, .scaling = RotaryScaling::dynamic, .factor = 2, .original_length = 2048};
  expect_pairs(config, {{0, 1}, {1, 0.7042693252165533}, {16, 0.003662860395123453}, {31, 1.905030617376177e-05}},
               8192);
  expect_pairs(config, {{0, 1}, {1, 0.7498942093324559}, {16, 0.01}, {31, 0.0001333521432163324}}, 100);
}

TEST(RotaryFrequencies, yarn_divides_slow_pairs) {
  RotaryConfig config{
      .size = 128, .theta = 1e6, .scaling = RotaryScaling::yarn, .factor = 4, .original_length = 32768};  // Qwen
  expect_pairs(config, {{0, 1},
                        {22, 0.008659643233600653},
                        {24, 0.005375321490790102},
                        {30, 0.0010643609812470017},
                        {35, 0.0002462584069089387},
                        {40, 4.445698525097307e-05},
                        {63, 3.102344401879299e-07}});
  EXPECT_NEAR(rotary_frequencies(config).attention_factor, 1.138629436111989, 1e-14);
  config.attention_factor = 0.5;
  EXPECT_EQ(rotary_frequencies(config).attention_factor, 0.5);
  expect_pairs({.size = 64, .scaling = RotaryScaling::yarn, .factor = 8, .original_length = 4096, .truncate = false},
               {{0, 1},
                {10, 0.056234132519034905},
                {12, 0.02811208084703974},
                {20, 0.0009728577591530727},
                {26, 7.029266564879364e-05},
                {31, 1.666901790204155e-05}});
}

// Not the defaults: ends of the ramp beyond the pairs, and a ramp of no length.
TEST(RotaryFrequencies, bounds_are_those_of_the_config) {
  expect_pairs({.size = 64, .scaling = RotaryScaling::yarn, .factor = 4, .original_length = 128, .beta_slow = 2},
               {{0, 1},
                {1, 0.6874030252214178},
                {5, 0.1383301328302632},
                {8, 0.03333333333333334},
                {9, 0.018747355233311395},
                {31, 3.33380358040831e-05}});
  expect_pairs({.size = 16, .scaling = RotaryScaling::yarn, .factor = 4, .original_length = 6},
               {{0, 1}, {1, 0.31622776601683794 / 4}, {2, 0.1 / 4}});
  expect_pairs({.size = 32,
                .scaling = RotaryScaling::llama3,
                .factor = 4,
                .original_length = 256,
                .low_frequency_factor = 2,
                .high_frequency_factor = 8},
               {{2, 0.31622776601683794},
                {3, 0.16105347873435852},
                {4, 0.050929581789406514},
                {5, 0.016105347873435854},
                {6, 0.007905694150420948}});
}

TEST(RotaryFrequencies, yarn_takes_mscale_where_both_are_given) {
  RotaryConfig config{.size = 64, .scaling = RotaryScaling::yarn, .factor = 40, .original_length = 4096};
  config.mscale = 0.707;
  EXPECT_NEAR(rotary_frequencies(config).attention_factor, 0.1 * std::log(40.0) + 1, 1e-14);
  config.mscale_all_dim = 1;
  EXPECT_NEAR(rotary_frequencies(config).attention_factor, 0.9210423553163399, 1e-14);
  config.factor = 1;
  EXPECT_EQ(rotary_frequencies(config).attention_factor, 1);
}

TEST(RotaryFrequencies, llama3_divides_slow_pairs) {
  expect_pairs(
      {.size = 128, .theta = 5e5, .scaling = RotaryScaling::llama3, .factor = 8, .original_length = 8192},  // 3.1
      {{0, 1},
       {28, 0.0032114459947525913},
       {29, 0.002166570763503359},
       {32, 0.0005248461609929547},
       {35, 9.556212353964683e-05},
       {36, 7.78465527393245e-05},
       {63, 3.068925988914511e-07}});
  expect_pairs(
      {.size = 64, .theta = 5e5, .scaling = RotaryScaling::llama3, .factor = 32, .original_length = 8192},  // 3.2
      {{0, 1},
       {14, 0.0032114459947525913},
       {15, 0.001290547928209264},
       {16, 0.00042955679655936815},
       {17, 9.70828780262767e-05},
       {18, 1.9461638184831125e-05},
       {31, 9.418306725434909e-08}});
}

TEST(RotaryFrequencies, kinds_have_the_words_of_hugging_face) {
  std::string words;
  for (const RotaryScaling scaling : all_rotary_scalings)
    words += std::string(to_string(scaling)) + " ";
  EXPECT_EQ(words, "default linear dynamic yarn llama3 ");
}

TEST(RotaryFrequencies, sizes_that_are_no_pairs_are_a_defect) {
  EXPECT_THROW(rotary_frequencies({.size = 5}), std::logic_error);
  EXPECT_THROW(rotary_frequencies({.size = 0}), std::logic_error);
  EXPECT_THROW(rotary_frequencies({.size = 2, .scaling = RotaryScaling::dynamic, .original_length = 1}),
               std::logic_error);
  EXPECT_THROW(rotary_frequencies({.size = 4, .scaling = RotaryScaling::llama3}), std::logic_error);
}

}  // namespace
