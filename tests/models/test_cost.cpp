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
    EXPECT_EQ(num_parameters(model_preset(name)), num_declared(store)) << name;
  }
  ParameterStore<float> store;
  const Decoder<Fp32> model(store, tiny_config());
  EXPECT_EQ(num_parameters(tiny_config()), num_declared(store));
}

TEST(Cost, gpt2_has_its_published_size) {
  EXPECT_EQ(num_parameters(model_preset("gpt2-124m")), 124439808);
  EXPECT_EQ(num_parameters(model_preset("gpt2-355m")), 354823168);
  EXPECT_EQ(num_parameters(model_preset("gpt2-774m")), 774030080);
  EXPECT_EQ(num_parameters(model_preset("gpt2-1558m")), 1557611200);
}

// 2 per multiply and add of every matmul, written out.
TEST(Cost, counts_the_operations_of_the_matmuls) {
  const ModelConfig c = tiny_config();
  const double length = 5;
  double forward = 0;
  for (int layer = 0; layer < c.num_layers; ++layer)
    forward += 2 * 8 * 24 + 2 * 8 * 8 + 2 * 8 * 20 + 2 * 20 * 8 + 2 * (2 * 8 * (length + 1) / 2);
  forward += 2 * 8 * 11;
  EXPECT_DOUBLE_EQ(forward_flops_per_token(c, 5), forward);
  EXPECT_DOUBLE_EQ(training_flops_per_token(c, 5), 3 * forward);
}

// The operations of a step are all of its matmuls; recomputation adds a forward without the matmul that makes the
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

// What each kernel reads and writes, counted by hand in arrays of bf16: a norm 2, a sum 3 and, backward, a norm 4 with
// the gradient that passes it by, 2 for its weights, and 2 where something was dropped.
TEST(Cost, layers_list_what_their_kernels_move) {
  const auto block = [](const ModelConfig& model, int tensor, bool sequence_parallel) {
    return block_work(make_block_shape(model, tensor, sequence_parallel, 1, 512), ScalarType::bf16);
  };
  const double of_row = 2 * 512;  // bytes of a column of all rows
  {
    const LayerWork work = block(model_preset("llama3-8b"), 2, true);
    const double stream = of_row / 2 * 4096, qk = of_row * 2560, ffn = of_row * 7168;
    EXPECT_EQ(work.forward.elementwise_bytes, 10 * stream + 2 * qk + 3 * ffn);
    EXPECT_EQ(work.recompute.elementwise_bytes, 7 * stream + 2 * qk + 3 * ffn);
    EXPECT_EQ(work.recompute_for_weight.elementwise_bytes, 4 * stream + 3 * ffn);
    EXPECT_EQ(work.backward_input.elementwise_bytes, 8 * stream + 2 * qk + 5 * ffn);
    EXPECT_EQ(work.backward_weight.elementwise_bytes, 4 * stream);
  }
  {
    ModelConfig model = model_preset("gpt2-124m");
    const double stream = of_row * 768;
    EXPECT_EQ(block(model, 1, false).forward.elementwise_bytes, (10 + 2 * 4) * stream);
    EXPECT_EQ(block(model, 1, false).backward_input.elementwise_bytes, (8 + 3 * 4) * stream);
    EXPECT_EQ(block(model, 1, false).backward_weight.elementwise_bytes, (4 + 3 + 1 + 4 + 1) * stream) << "and biases";
    model.residual_dropout = 0.1;
    EXPECT_EQ(block(model, 1, false).forward.elementwise_bytes, (10 + 2 * 4) * stream) << "within the sum";
    EXPECT_EQ(block(model, 1, false).backward_input.elementwise_bytes, (8 + 3 * 4 + 2 * 2) * stream);
    model.qk_norm = true;
    const double qk = 2 * stream;
    EXPECT_EQ(block(model, 1, false).forward.elementwise_bytes, (10 + 2 * 4) * stream + 4 * qk);
  }
}

TEST(Cost, tables_list_what_their_kernels_move) {
  ModelConfig model = model_preset("gpt2-124m");
  const double stream = 2 * 512 * 768.0;
  for (const int tensor : {1, 2}) {
    const BlockShape shape = make_block_shape(model, tensor, false, 1, 512);
    const LayerWork head = head_work(model, shape, ScalarType::bf16);
    const double logits = 2 * 512 * static_cast<double>(shape.vocabulary);
    EXPECT_EQ(head.forward.elementwise_bytes, 2 * stream + (tensor == 1 ? 3 : 4) * logits);
    EXPECT_EQ(head.backward_input.elementwise_bytes, 5 * stream) << "with zeros for what passes the norm by";
    EXPECT_EQ(head.backward_weight.elementwise_bytes, 2 * stream);
    const LayerWork embedding = embedding_work(shape, ScalarType::bf16);
    EXPECT_EQ(embedding.forward.elementwise_bytes, 4 * stream) << "from the table, and with positions";
    EXPECT_EQ(embedding.backward_weight.elementwise_bytes, (1 + 2 * 2) * stream / tensor + stream);
  }
  model.embedding_dropout = 0.1;
  model.positions = Positions::rotary;
  const LayerWork embedding = embedding_work(make_block_shape(model, 1, false, 1, 512), ScalarType::bf16);
  EXPECT_EQ(embedding.forward.elementwise_bytes, (2 + 2) * stream);
  EXPECT_EQ(embedding.backward_weight.elementwise_bytes, (1 + 2 * 2 + 2) * stream);
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
  EXPECT_TRUE(broken_rules(tiny_config()).empty());
  for (const std::string& name : trainable_preset_names())
    EXPECT_TRUE(broken_rules(model_preset(name)).empty()) << name;
  const std::vector<BrokenRule> found = broken_rules({0, -1, 2, 10, 4, 0});
  ASSERT_EQ(found.size(), 4u);
  EXPECT_EQ(found[0].sentence(), "vocab_size is 0, wanted at least 1");
  EXPECT_EQ(found[1].sentence(), "max_sequence_length is -1, wanted at least 1");
  EXPECT_EQ(found[2].sentence(), "ffn_hidden_size is 0, wanted at least 1");
  EXPECT_EQ(found[3].sentence(), "hidden_size 10 is not divisible by num_heads 4; the nearest that are: 8 and 12");
}

TEST(ModelConfig, never_proposes_a_hidden_size_of_zero) {
  const std::vector<BrokenRule> found = broken_rules({11, 8, 2, 3, 4, 20});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].message.find("0 and 4"), std::string::npos) << found[0].message;
  EXPECT_NE(found[0].message.find("4"), std::string::npos) << found[0].message;
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
