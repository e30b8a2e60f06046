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
    EXPECT_TRUE(broken_rules(model_preset(name)).empty())
        << name << ": " << broken_rules(model_preset(name)).front().sentence();
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

// From the published config.json of each: what the number of parameters does not show.
TEST(Presets, positions_and_norms_are_the_published_ones) {
  struct Published {
    const char* name;
    double theta, norm_eps;
    Index max_sequence_length;
    double factor;  // of Llama 3's scaling; 1: none
    Index window, head_size;
    bool tied;
  };
  for (const Published& wanted : std::vector<Published>{{"smollm2-135m", 1e5, 1e-5, 8192, 1, 0, 64, true},
                                                        {"smollm2-360m", 1e5, 1e-5, 8192, 1, 0, 64, true},
                                                        {"llama2-7b", 1e4, 1e-5, 4096, 1, 0, 128, false},
                                                        {"llama3-8b", 5e5, 1e-5, 8192, 1, 0, 128, false},
                                                        {"llama-3.1-8b", 5e5, 1e-5, 131072, 8, 0, 128, false},
                                                        {"llama-3.1-70b", 5e5, 1e-5, 131072, 8, 0, 128, false},
                                                        {"llama-3.2-1b", 5e5, 1e-5, 131072, 32, 0, 64, true},
                                                        {"llama-3.2-3b", 5e5, 1e-5, 131072, 32, 0, 128, true},
                                                        {"mistral-7b", 1e4, 1e-5, 32768, 1, 4096, 128, false},
                                                        {"qwen2.5-0.5b", 1e6, 1e-6, 32768, 1, 0, 64, true},
                                                        {"qwen2.5-1.5b", 1e6, 1e-6, 131072, 1, 0, 128, true},
                                                        {"qwen2.5-3b", 1e6, 1e-6, 32768, 1, 0, 128, true},
                                                        {"qwen2.5-7b", 1e6, 1e-6, 131072, 1, 0, 128, false},
                                                        {"qwen3-0.6b", 1e6, 1e-6, 40960, 1, 0, 128, true},
                                                        {"qwen3-1.7b", 1e6, 1e-6, 40960, 1, 0, 128, true},
                                                        {"qwen3-4b", 1e6, 1e-6, 40960, 1, 0, 128, true},
                                                        {"qwen3-8b", 1e6, 1e-6, 40960, 1, 0, 128, false}}) {
    SCOPED_TRACE(wanted.name);
    const ModelConfig model = model_preset(wanted.name);
    EXPECT_EQ(model.rotary.theta, wanted.theta);
    EXPECT_EQ(model.norm_eps, wanted.norm_eps);
    EXPECT_EQ(model.max_sequence_length, wanted.max_sequence_length);
    EXPECT_EQ(model.rotary.scaling == RotaryScaling::llama3 ? model.rotary.factor : 1, wanted.factor);
    EXPECT_EQ(model.window, wanted.window);
    EXPECT_EQ(model.head_size(), wanted.head_size);
    EXPECT_EQ(model.tied_embeddings, wanted.tied);
  }
}

}  // namespace
}  // namespace espalier::test
