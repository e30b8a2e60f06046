// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "models/cost.hpp"
#include "models/presets.hpp"
#include "tests/models/transformers_sizes.hpp"

namespace espalier::test {
namespace {

TEST(Presets, have_as_many_parameters_as_in_transformers) {
  for (const TransformersSize& size : transformers_sizes)
    EXPECT_EQ(num_parameters(model_preset(size.preset)), size.parameters) << size.preset;
}

TEST(Presets, can_be_built) {
  for (const std::string& name : model_preset_names())
    EXPECT_TRUE(problems(model_preset(name)).empty()) << name << ": " << problems(model_preset(name)).front();
}

// Each tiny model shows what is peculiar to its family.
TEST(Presets, tiny_models_are_of_their_family) {
  for (const char* const name : {"llama-tiny", "mistral-tiny", "qwen2-tiny", "qwen3-tiny"}) {
    const ModelConfig model = model_preset(name);
    EXPECT_EQ(model.vocab_size, 256) << name;
    EXPECT_EQ(model.num_heads, 2 * model.kv_heads()) << name;
    EXPECT_EQ(model.norm, Norm::rmsnorm) << name;
    EXPECT_TRUE(model.gated()) << name;
  }
  EXPECT_EQ(model_preset("llama-tiny").rotary.scaling, RotaryScaling::llama3);
  EXPECT_GT(model_preset("mistral-tiny").window, 0);
  EXPECT_TRUE(model_preset("qwen2-tiny").qkv_bias);
  EXPECT_GT(model_preset("qwen2-tiny").full_layers, 0);
  EXPECT_TRUE(model_preset("qwen3-tiny").qk_norm);
  EXPECT_NE(model_preset("qwen3-tiny").q_size(), model_preset("qwen3-tiny").hidden_size);
}

TEST(Presets, two_names_of_a_model_are_one_model) {
  EXPECT_EQ(model_preset("llama3-1b"), model_preset("llama-3.2-1b"));
  EXPECT_EQ(model_preset("llama3-3b"), model_preset("llama-3.2-3b"));
  EXPECT_NE(model_preset("llama3-8b"), model_preset("llama-3.1-8b")) << "3.1 reads longer sequences";
}

}  // namespace
}  // namespace espalier::test
