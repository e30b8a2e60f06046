// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/error.hpp"
#include "models/cost.hpp"
#include "models/layout_rules.hpp"
#include "models/presets.hpp"

using namespace espalier;
using testing::HasSubstr;

namespace {

// Narayanan et al. 2021, eq. 2, for the models of its Table 1.
TEST(ModelConfig, gpt_parameters_follow_the_published_formula) {
  for (const char* name : {"gpt-76b", "gpt-145b", "gpt3-175b", "gpt-310b", "gpt-530b", "gpt-1t"}) {
    const ModelConfig model = model_preset(name);
    const auto l = static_cast<double>(model.num_layers);
    const auto h = static_cast<double>(model.hidden_size);
    const auto v = static_cast<double>(model.vocab_size);
    const auto s = static_cast<double>(model.max_sequence_length);
    const double formula = 12 * l * h * h * (1 + 13 / (12 * h) + (v + s) / (12 * l * h));
    EXPECT_NEAR(static_cast<double>(num_parameters(model)) / formula, 1, 1e-6) << name;
  }
}

// As published: Touvron et al. 2023, Dubey et al. 2024 (model cards), Le Scao et al. 2022.
TEST(ModelConfig, llama_and_bloom_have_their_published_sizes) {
  EXPECT_EQ(num_parameters(model_preset("llama2-7b")), 6738415616);
  EXPECT_EQ(num_parameters(model_preset("llama3-8b")), 8030261248);
  EXPECT_EQ(num_parameters(model_preset("llama3-70b")), 70553706496);
  EXPECT_NEAR(static_cast<double>(num_parameters(model_preset("llama-3.1-405b"))), 405.85e9, 0.01e9);
  EXPECT_NEAR(static_cast<double>(num_parameters(model_preset("llama-3.2-1b"))), 1.2358e9, 0.0005e9);
  EXPECT_NEAR(static_cast<double>(num_parameters(model_preset("bloom-176b"))), 176.25e9, 0.05e9);
}

// Korthikanti et al. 2022, eq. 7: 72 B L s h^2 (1 + s / (6 h) + v / (12 h L)).
TEST(ModelConfig, model_flops_follow_the_published_formula) {
  const ModelConfig model = model_preset("gpt3-175b");
  const double h = 12288;
  const double formula = 72 * 96 * h * h * (1 + 2048 / (6 * h) + 51200 / (12 * h * 96));
  EXPECT_NEAR(model_flops_per_token(model, 2048) / formula, 1, 1e-9);
}

// Megatron Bridge counts attention with causality, 6 N + 6 L h s: 14451 tokens/s of Llama 3 8B at 8192 tokens are 744
// TFLOP/s there.
TEST(ModelConfig, gated_and_grouped_matrices_count_in_the_flops) {
  const double causal = model_flops_per_token(model_preset("llama3-8b"), 8192) - 6.0 * 32 * 4096 * 8192;
  EXPECT_NEAR(14451 * causal / 1e12, 744, 1);
  ModelConfig ungrouped = model_preset("llama3-8b");
  ungrouped.num_kv_heads = 0;
  EXPECT_EQ(matrix_parameters_per_layer(ungrouped) - matrix_parameters_per_layer(model_preset("llama3-8b")),
            2 * 4096 * (4096 - 1024));
}

TEST(ModelConfig, descriptions_of_one_model_are_equal) {
  for (const std::string& name : model_preset_names()) {
    const ModelConfig model = model_preset(name);
    ModelConfig numbers = model;
    numbers.num_kv_heads = model.kv_heads();
    numbers.head_dim = model.head_size();
    EXPECT_EQ(in_one_spelling(numbers), model) << name;
    EXPECT_EQ(in_one_spelling(model), model) << name;
  }
  const ModelConfig other{.num_heads = 12, .num_kv_heads = 6, .head_dim = 32};
  EXPECT_EQ(in_one_spelling(other), other);
}

TEST(ModelConfig, says_what_cannot_be) {
  ModelConfig model = model_preset("gpt2-124m");
  EXPECT_TRUE(broken_rules(model).empty());
  model.num_heads = 7;
  ASSERT_EQ(broken_rules(model).size(), 1u);
  EXPECT_THAT(broken_rules(model)[0].sentence(), HasSubstr("768 is not divisible by num_heads 7"));
  model.num_layers = 0;
  EXPECT_THAT(broken_rules(model)[0].sentence(), HasSubstr("num_layers is 0"));
}

TEST(ModelConfig, tensor_degrees_share_heads_keys_and_channels) {
  EXPECT_EQ(tensor_degrees(model_preset("gpt2-124m")), (std::vector<Index>{1, 2, 3, 4, 6, 12}));
  EXPECT_EQ(tensor_degrees(model_preset("smollm2-135m")), (std::vector<Index>{1, 3}));  // 9 heads, 3 of keys
  EXPECT_EQ(tensor_degrees(model_preset("llama3-8b")), (std::vector<Index>{1, 2, 4, 8, 16, 32}));
  ModelConfig model = model_preset("gpt2-124m");
  model.ffn_hidden_size = 3070;
  model.vocab_size = 1;
  EXPECT_EQ(tensor_degrees(model), (std::vector<Index>{1}));
}

TEST(ModelConfig, what_train_lacks_is_named) {
  EXPECT_EQ(why_not_trainable(model_preset("gpt3-175b")), "");
  EXPECT_EQ(why_not_trainable(model_preset("llama3-8b")), "");
  const ModelConfig model = model_preset("bloom-176b");
  EXPECT_THAT(why_not_trainable(model), HasSubstr("ALiBi"));
  const std::vector<std::string>& trainable = trainable_preset_names();
  EXPECT_EQ(std::ranges::count(trainable, "gpt3-175b"), 1);
  EXPECT_EQ(std::ranges::count(trainable, "llama3-8b"), 1);
  EXPECT_EQ(std::ranges::count(trainable, "bloom-176b"), 0);
}

TEST(ModelConfig, says_what_rotary_positions_want) {
  ModelConfig model = model_preset("llama-tiny");
  EXPECT_TRUE(broken_rules(model).empty());
  model.rotary.size = 30;
  EXPECT_TRUE(broken_rules(model).empty()) << "a part of a head of 32 may be rotated";
  for (const Index size : {Index{31}, Index{34}}) {
    model.rotary.size = size;
    EXPECT_THAT(broken_rules(model).at(0).sentence(),
                HasSubstr("wanted an even number of channels to rotate, at most 32"));
  }
  model.rotary.size = 0;
  model.rotary.original_length = 0;
  EXPECT_THAT(broken_rules(model).at(0).sentence(), HasSubstr("rotary.original_length is 0"));
  model.rotary.original_length = 64;
  model.rotary.high_frequency_factor = 1;
  EXPECT_THAT(broken_rules(model).at(0).sentence(), HasSubstr("more than low_frequency_factor 1"));
  model.rotary.scaling = RotaryScaling::linear;
  model.rotary.factor = 0.5;
  EXPECT_THAT(broken_rules(model).at(0).sentence(), HasSubstr("rotary.factor is 0.5"));
}

TEST(ModelConfig, heads_may_have_a_size_of_their_own) {
  ModelConfig model = model_preset("qwen3-tiny");
  EXPECT_TRUE(broken_rules(model).empty());
  EXPECT_EQ(model.head_size(), 32);
  EXPECT_EQ(model.q_size(), 128);
  EXPECT_EQ(model.kv_size(), 64);
  model.hidden_size = 62;
  EXPECT_TRUE(broken_rules(model).empty()) << "nothing wants that the heads divide it";
  model = model_preset("qwen2-tiny");
  EXPECT_EQ(model.window_of(0), 0);
  EXPECT_EQ(model.window_of(1), 64);
}

}  // namespace
