// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "models/cost.hpp"
#include "models/presets.hpp"
#include "tests/support/tiny_decoder.hpp"

using namespace espalier;
using namespace espalier::test;

namespace {

TEST(Cost, counts_the_parameters_that_the_model_declares) {
  for (const std::string& name : trainable_preset_names()) {
    ParameterStore<float> store;  // declared, not allocated
    const Decoder<Fp32> model(store, model_preset(name));
    EXPECT_EQ(num_parameters(model_preset(name)), store.num_parameters()) << name;
  }
  ParameterStore<float> store;
  const Decoder<Fp32> model(store, tiny_config());
  EXPECT_EQ(num_parameters(tiny_config()), store.num_parameters());
}

TEST(Cost, gpt2_has_its_published_size) {
  EXPECT_EQ(num_parameters(model_preset("gpt2-124m")), 124439808);
  EXPECT_EQ(num_parameters(model_preset("gpt2-355m")), 354823168);
  EXPECT_EQ(num_parameters(model_preset("gpt2-774m")), 774030080);
  EXPECT_EQ(num_parameters(model_preset("gpt2-1558m")), 1557611200);
}

// 2 per multiply and add of every product, written out.
TEST(Cost, counts_the_operations_of_the_products) {
  const ModelConfig c = tiny_config();
  const double length = 5;
  double forward = 0;
  for (int layer = 0; layer < c.num_layers; ++layer)
    forward += 2 * 8 * 24 + 2 * 8 * 8 + 2 * 8 * 20 + 2 * 20 * 8 + 2 * (2 * 8 * (length + 1) / 2);
  forward += 2 * 8 * 11;
  EXPECT_DOUBLE_EQ(forward_flops_per_token(c, 5), forward);
  EXPECT_DOUBLE_EQ(training_flops_per_token(c, 5), 3 * forward);
}

// The operations of a step are all of its products; recomputation adds a forward without the product that makes the
// block's output, 2 * 20 * 8 here.
TEST(Cost, operations_of_a_step_add_up) {
  const ModelConfig c = tiny_config();
  const double block = 2 * 8 * 24 + 2 * 8 * 8 + 2 * 8 * 20 + 2 * 20 * 8 + 2 * (2 * 8 * (5 + 1) / 2);
  for (const Recompute mode : all_recompute_modes()) {
    const ChunkLayers all = one_chunk(c.num_layers, mode).front();
    const auto flops = [&](OperationKind kind) { return operation_flops(c, all, kind, 5); };
    const double again = mode == Recompute::full ? 2 * (block - 2 * 20 * 8) : 0;
    EXPECT_DOUBLE_EQ(flops(OperationKind::forward) + flops(OperationKind::backward),
                     training_flops_per_token(c, 5) + again)
        << to_string(mode);
    EXPECT_DOUBLE_EQ(flops(OperationKind::backward_input) + flops(OperationKind::backward_weight),
                     flops(OperationKind::backward));
    const LayerCosts costs = layer_flops(c, 5, mode);
    EXPECT_DOUBLE_EQ(2 * costs.block + costs.head, training_flops_per_token(c, 5) + again);
  }
}

TEST(Cost, activations_are_measured_as_they_are_allocated) {
  for (const int slots : {1, 3}) {
    ParameterStore<double> store;
    Decoder<Fp64> model(store, tiny_config());
    const auto bytes = model.measure_activations(2, 5, {.chunks = {{.slots = slots}}, .slots_together = slots});
    const MemoryByCategory before = MemoryLedger::instance().current();
    model.plan_activations(2, 5, slots);
    const MemoryByCategory after = MemoryLedger::instance().current();
    constexpr double headers = 1024;
    EXPECT_NEAR(static_cast<double>(after[Category::activations] - before[Category::activations]),
                static_cast<double>(bytes.slots), headers);
    EXPECT_NEAR(static_cast<double>(after[Category::workspace] - before[Category::workspace]),
                static_cast<double>(bytes.workspace), headers);
    EXPECT_EQ(after.total() - before.total(), after[Category::activations] - before[Category::activations] +
                                                  after[Category::workspace] - before[Category::workspace]);
  }
}

TEST(ModelConfig, tells_all_broken_rules_at_once) {
  EXPECT_TRUE(problems(tiny_config()).empty());
  for (const std::string& name : trainable_preset_names())
    EXPECT_TRUE(problems(model_preset(name)).empty()) << name;
  const std::vector<std::string> found = problems({0, -1, 2, 10, 4, 0});
  ASSERT_EQ(found.size(), 4u);
  EXPECT_EQ(found[0], "vocab_size is 0, wanted at least 1");
  EXPECT_EQ(found[1], "max_sequence_length is -1, wanted at least 1");
  EXPECT_EQ(found[2], "ffn_hidden_size is 0, wanted at least 1");
  EXPECT_EQ(found[3], "hidden_size 10 is not divisible by num_heads 4; the nearest that are: 8 and 12");
}

TEST(ModelConfig, never_proposes_a_hidden_size_of_zero) {
  const std::vector<std::string> found = problems({11, 8, 2, 3, 4, 20});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].find("0 and 4"), std::string::npos) << found[0];
  EXPECT_NE(found[0].find("4"), std::string::npos) << found[0];
}

TEST(ModelConfig, unknown_preset_names_those_known) {
  try {
    model_preset("gpt3");
    FAIL() << "gpt3 is accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    for (const std::string& name : trainable_preset_names())
      EXPECT_NE(std::string(error.what()).find(name), std::string::npos) << name;
  }
}

}  // namespace
