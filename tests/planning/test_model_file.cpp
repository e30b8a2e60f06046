// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.hpp"
#include "models/presets.hpp"
#include "training/config/run_config.hpp"
#include "training/pretrained/model_file.hpp"

using namespace espalier;
using testing::HasSubstr;

namespace {

std::string refusal_of(const std::string& text) {
  try {
    parse_planned_model(text, "dir/m.toml");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    return error.what();
  }
  return "no error";
}

TEST(ModelFile, a_model_is_all_it_needs) {
  const PlannedModel planned = parse_planned_model("[model]\npreset = \"gpt2-124m\"\n", "m.toml");
  EXPECT_EQ(planned.model, model_preset("gpt2-124m"));
  EXPECT_EQ(planned.global_batch, 0) << "the command line gives it";
  EXPECT_EQ(planned.sequence_length, 1024);
  EXPECT_TRUE(planned.notes.empty());
}

TEST(ModelFile, batch_and_sequence_come_with_it) {
  const PlannedModel planned = parse_planned_model(
      "[model]\npreset = \"gpt3-175b\"\n[batch]\nglobal_batch_size = 48\nmicro_batch_size = 5\nsequence_length = 512\n",
      "m.toml");
  EXPECT_EQ(planned.name, "gpt3-175b");
  EXPECT_EQ(planned.global_batch, 48);
  EXPECT_EQ(planned.sequence_length, 512);
}

// Keys and sections that this reader has never heard of would be refused: it must know all that train knows.
TEST(ModelFile, takes_every_config_of_train) {
  RunConfig config;
  config.model.preset = "gpt2-355m";
  config.model.shape = model_preset("gpt2-355m");
  config.layout.global_batch = 32;
  const PlannedModel planned = parse_planned_model(to_toml(config), "config.toml");
  EXPECT_EQ(planned.model, model_preset("gpt2-355m")) << "all keys are given, none differs";
  EXPECT_EQ(planned.global_batch, 32);
  EXPECT_TRUE(planned.notes.empty());
}

// It decides whether cuDNN's workspace is planned for.
TEST(ModelFile, tells_whether_attention_is_our_own) {
  const std::string model = "[model]\npreset = \"gpt2-124m\"\n";
  EXPECT_TRUE(parse_planned_model(model, "m.toml").settings.cudnn_attention);
  EXPECT_TRUE(parse_planned_model(model + "[run]\nattention = \"cudnn\"\n", "m.toml").settings.cudnn_attention);
  EXPECT_FALSE(
      parse_planned_model(model + "[run]\nsteps = 5\nattention = \"own\"\n", "m.toml").settings.cudnn_attention);
  const PlannedModel planned = parse_planned_model(
      model +
          "[precision]\ncompute = \"fp16\"\nresidual = \"state\"\ngradient_reduction = \"compute\"\n"
          "[data]\ndocuments = \"separate\"\n[checkpoint]\nasync = true\n",
      "m.toml");
  EXPECT_EQ(planned.precision, "fp16");
  EXPECT_TRUE(planned.settings.fp32_residual && planned.settings.rounds_gradients &&
              planned.settings.separate_documents && planned.settings.copies_state);
  const TrainSettings usual = parse_planned_model(model, "m.toml").settings;
  EXPECT_FALSE(usual.fp32_residual || usual.rounds_gradients || usual.separate_documents || usual.copies_state);
}

TEST(ModelFile, what_the_layout_decides_is_not_judged) {
  EXPECT_EQ(refusal_of("[model]\npreset = \"gpt2-124m\"\n[parallel]\ntensor = 7\npipeline = 0\n[batch]\n"
                       "global_batch_size = 7\nmicro_batch_size = 2\n"),
            "no error");
}

// The shape of Llama 3 8B, key by key.
TEST(ModelFile, describes_models_of_every_family) {
  const std::string text =
      "[model]\nnum_layers = 32\nhidden_size = 4096\nnum_heads = 32\nnum_kv_heads = 8\nffn_hidden_size = 14336\n"
      "vocab_size = 128256\nnorm = \"rmsnorm\"\nactivation = \"swiglu\"\nposition = \"rotary\"\n"
      "tied_embeddings = false\nbias = false\nmax_sequence_length = 8192\n[rotary]\ntheta = 500000\n";
  const PlannedModel planned = parse_planned_model(text, "dir/own.toml");
  EXPECT_EQ(planned.model, model_preset("llama3-8b"));
  EXPECT_EQ(planned.name, "own.toml");
  EXPECT_EQ(planned.sequence_length, 8192);
  EXPECT_TRUE(planned.notes.empty());
  const PlannedModel wider = parse_planned_model("[model]\npreset = \"llama3-8b\"\nnum_layers = 40\n", "m.toml");
  EXPECT_EQ(wider.model.kv_heads(), 8);
  EXPECT_EQ(wider.sequence_length, 0) << "rotary positions tell none";
}

// A config of train has every key; none may be lost on the way.
TEST(ModelFile, takes_the_tiny_models_as_train_writes_them) {
  for (const char* const name : {"llama-tiny", "mistral-tiny", "qwen2-tiny", "qwen3-tiny"}) {
    RunConfig config;
    config.model.shape = model_preset(name);
    EXPECT_EQ(parse_planned_model(to_toml(config), "config.toml").model, model_preset(name)) << name;
  }
}

TEST(ModelFile, heads_without_groups_have_keys_of_their_own) {
  EXPECT_EQ(parse_planned_model("[model]\npreset = \"gpt2-124m\"\nnum_heads = 6\n", "m.toml").model.kv_heads(), 6);
}

TEST(ModelFile, says_what_it_takes_from_the_default_preset) {
  const PlannedModel planned = parse_planned_model("[model]\nnum_layers = 6\n", "dir/m.toml");
  ASSERT_EQ(planned.notes.size(), 1u);
  EXPECT_EQ(planned.notes.front(),
            "m.toml: [model] has no preset, so the missing keys are those of byte-1m: vocab_size 256, "
            "max_sequence_length 256, hidden_size 128, num_heads 4, ffn_hidden_size 512; it has activation gelu, norm "
            "layernorm, position learned, tied_embeddings true, bias true");
}

TEST(ModelFile, refuses_models_that_cannot_be) {
  for (const auto& [text, wanted] :
       {std::pair("[model]\nnum_layers = 0\n", "dir/m.toml:2:14: model.num_layers: got 0, wanted 1 to 16384"),
        {"[model]\nnum_layers = 1.5\n", "got 1.5 (a number with a fraction), wanted an integer"},
        {"[model]\nhidden_size = 100\nnum_heads = 7\n",
         "model.hidden_size: 100 is not divisible by num_heads 7; the nearest that are: 98 and 105"},
        {"[model]\nnum_kv_heads = 3\n", "num_kv_heads 3"},
        {"[model]\npreset = \"gpt2\"\n", "did you mean \"gpt2-124m\"?"},
        {"[model]\nlayers = 4\n", "model.layers: unknown key"},
        {"[mdel]\npreset = \"gpt2-124m\"\n", "did you mean \"model\"?"},
        {"[model]\nnorm = \"batchnorm\"\n", "wanted one of \"layernorm\", \"rmsnorm\""},
        {"[model]\nattention_dropout = 1\n", "model.attention_dropout: got 1, wanted at least 0 and less than 1"},
        {"[rotary]\nscaling = \"longrope\"\n", "wanted one of \"default\", \"linear\", \"dynamic\""},
        {"[model]\npreset = \"qwen3-0.6b\"\n[rotary]\nscaling = \"yarn\"\nfactor = 4\n",
         "rotary.original_length: is 0"},
        {"[batch]\nsequence_length = 512\n", "512 is longer than the model's max_sequence_length 256"},
        {"[batch]\nglobal_batch_size = 0\n", "batch.global_batch_size: got 0, wanted 1 to"},
        {"[device]\nmemory = \"80 GiB\"\n", "[device]: unknown section"},
        {"model = 4\n", "is not in any [section]"}})
    EXPECT_THAT(refusal_of(text), HasSubstr(wanted));
}

}  // namespace
