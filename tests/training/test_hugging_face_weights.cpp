// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// Weights of Hugging Face that are refused, and those that are accepted although their names differ.
#include <gtest/gtest.h>

#include <fstream>
#include <limits>

#include "tests/training/hugging_face_models.hpp"

namespace espalier::test {
namespace {

TransformersReference gpt2() { return transformers_references().at("gpt2"); }

TEST(HuggingFaceWeights, NumbersThatAreNotFiniteAreRefusedBothWays) {
  const TemporaryDirectory directory;
  const Path model = directory / "model";
  write_model(model, gpt2(), ScalarType::fp32);
  import_hugging_face(HuggingFaceWeights(model), model, directory / "import");
  std::fstream file(model / safetensors_name, std::ios::in | std::ios::out | std::ios::binary);
  const auto set_last = [&](float number) {  // of the last tensor
    file.seekp(-4, std::ios::end);
    file.write(reinterpret_cast<const char*>(&number), 4);
    file.flush();
  };
  set_last(std::numeric_limits<float>::infinity());
  expect_error(ExitCode::data, {"not finite", "transformer.wte.weight"},
               [&] { import_hugging_face(HuggingFaceWeights(model), model, directory / "infinite"); });
  set_last(1e6F);  // more than fp16 has
  const Path large = import_hugging_face(HuggingFaceWeights(model), model, directory / "large");
  const CheckpointReader reader(large);
  std::filesystem::create_directories(directory / "export");
  expect_error(ExitCode::checkpoint, {"not finite", "as fp16"}, [&] {
    export_hugging_face(reader, plan_export(reader, ScalarType::fp16), directory / "export", Index{1} << 30);
  });
}

TEST(HuggingFaceWeights, AnotherShapeIsRefused) {
  const TemporaryDirectory directory;
  const Path model = directory / "model";
  write_model(model, gpt2(), ScalarType::fp32);
  write_bytes(model / "config.json", with_config(gpt2(), "\"n_inner\": 80", "\"n_inner\": 96").config);
  expect_error(ExitCode::data, {"mlp.c_fc", "(32, 80)", "(32, 96)"}, [&] { HuggingFaceWeights{model}; });
}

// What config.json does not describe would be left out of what is computed.
TEST(HuggingFaceWeights, ATensorTooManyOrTooFewIsRefused) {
  const TemporaryDirectory directory;
  const Path model = directory / "model";
  write_model(model, gpt2(), ScalarType::fp32, {.others = {{"transformer.h.0.attn.q_norm.weight", {8}}}});
  expect_error(ExitCode::data, {"transformer.h.0.attn.q_norm.weight (8)", "GPT2LMHeadModel"},
               [&] { HuggingFaceWeights{model}; });
  write_model(directory / "fewer", gpt2(), ScalarType::fp32);
  write_bytes(directory / "fewer/config.json", with_config(gpt2(), "\"n_layer\": 2", "\"n_layer\": 3").config);
  expect_error(ExitCode::data, {"lack a tensor", "transformer.h.2."}, [&] { HuggingFaceWeights{directory / "fewer"}; });
  write_bytes(directory / "fewer/config.json", with_config(gpt2(), "\"n_layer\": 2", "\"n_layer\": 16384").config);
  expect_error(ExitCode::data, {"tensors in all", "16384 layers"}, [&] { HuggingFaceWeights{directory / "fewer"}; });
}

TEST(HuggingFaceWeights, BuffersOfOlderVersionsAreLeft) {
  const TemporaryDirectory directory;
  const Path model = directory / "model";
  write_model(model, gpt2(), ScalarType::fp32,
              {.others = {{"transformer.h.0.attn.bias", {1, 1, 16, 16}}, {"transformer.h.0.attn.masked_bias", {1}}}});
  EXPECT_EQ(HuggingFaceWeights(model).parameters().size(), 36U);
}

TEST(HuggingFaceWeights, ATiedHeadMayBeThereOnlyIfItIsTheTokenEmbedding) {
  const TemporaryDirectory directory;
  const Path same = directory / "same", other = directory / "other", smaller = directory / "smaller";
  write_model(same, gpt2(), ScalarType::fp32,
              {.others = {{"lm_head.weight", {61, 32}}}, .copies_of = "transformer.wte.weight"});
  HuggingFaceWeights(same).require_tied_head();
  import_hugging_face(HuggingFaceWeights(same), same, directory / "import");
  write_model(other, gpt2(), ScalarType::fp32, {.others = {{"lm_head.weight", {61, 32}}}});
  expect_error(ExitCode::data, {"lm_head.weight", "transformer.wte.weight", "row 0", "tie_word_embeddings"},
               [&] { import_hugging_face(HuggingFaceWeights(other), other, directory / "import2"); });
  EXPECT_FALSE(std::filesystem::exists(directory / "import2"));
  write_model(smaller, gpt2(), ScalarType::fp32, {.others = {{"lm_head.weight", {60, 32}}}});
  expect_error(ExitCode::data, {"lm_head.weight (60, 32)"}, [&] { HuggingFaceWeights(smaller).require_tied_head(); });
}

}  // namespace
}  // namespace espalier::test
