// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// What is computed again is what was computed before: the same bits from less memory.
#include <algorithm>

#include "models/head.hpp"
#include "models/presets.hpp"
#include "tests/support/tiny_decoder.hpp"

using namespace espalier;
using namespace espalier::test;

namespace recompute_tests {
namespace {

constexpr Index batch = 2, length = 5, rows = batch * length;

using Bits = std::pair<double, std::uint64_t>;  // of the loss and of all gradients

// Three micro-batches in flight, backward fused or split, with forwards and weight parts in between.
template <class P>
Bits train(Recompute mode, bool split, const ModelConfig& config) {
  TinyDecoder<P> tiny(batch, length, 3, config, mode);
  Decoder<P>& model = *tiny.model;
  const ExecSpace& exec = tiny.exec;
  if (split)
    model.plan_activations(batch, length,
                           {.chunks = {{.slots = 3, .gradients = 2, .split = true}}, .slots_together = 3});
  tiny.reset();
  const std::vector<Tokens> tokens = {tiny_tokens(rows, tiny.config, "first"), tiny_tokens(rows, tiny.config, "second"),
                                      tiny_tokens(rows, tiny.config, "third")};
  const auto forward = [&](int m) {
    model.forward(exec, m, tokens[static_cast<std::size_t>(m)].batch(m * batch), 0.05);
  };
  const auto input = [&](int m, int set) { model.backward_input(exec, {m, 0, set}); };
  const auto weight = [&](int m, int set) { model.backward_weight(exec, {m, 0, set}); };
  if (split) {
    forward(0), forward(1), input(0, 0), forward(2), input(1, 1), weight(0, 0), input(2, 0), weight(1, 1), weight(2, 0);
  } else {
    forward(0), forward(1), model.backward(exec, 0), forward(2), model.backward(exec, 1), model.backward(exec, 2);
  }
  return {tiny.loss(), fingerprint(tiny.parameters.flat_gradients())};
}

template <class P>
void expect_same_bits() {
  for (const auto& [name, config] : tiny_models())
    for (const bool split : {false, true}) {
      const Bits wanted = train<P>(Recompute::none, split, config);
      EXPECT_GT(wanted.first, 0);
      for (const Recompute mode : {Recompute::selective, Recompute::full})
        EXPECT_EQ(train<P>(mode, split, config), wanted) << name << ", " << to_string(mode) << (split ? ", split" : "");
    }
}

TEST(Recompute, gives_the_bits_of_what_is_kept) {
  expect_same_bits<Fp32>();
  expect_same_bits<Fp64>();
}

TEST(Recompute, evaluates_and_generates_alike) {
  const Tokens tokens = tiny_tokens(rows);
  std::vector<double> losses;
  std::vector<Values> logits;
  for (const Recompute mode : all_recompute_modes()) {
    TinyDecoder<Fp32> tiny(batch, length, 1, tiny_config(), mode);
    tiny.model->evaluate(tiny.exec, 0, tokens.batch(), 0.1);
    losses.push_back(tiny.loss());
    tiny.model->plan_activations(1, length, 1);
    tiny.model->evaluate(tiny.exec, {1, 2, 3});
    const Matrix<float> last = tiny.model->evaluated_logits(tiny.exec, 2);
    EXPECT_EQ(last.rows, 1);
    logits.push_back(on_host(Tensor<float, 1>(last.data, last.cols)));
  }
  EXPECT_EQ(losses, std::vector<double>(3, losses.front()));
  EXPECT_EQ(logits, std::vector<Values>(3, logits.front()));
}

// Of each token and layer, in elements: docs/memory.md.
TEST(Recompute, slots_hold_what_the_formula_says) {
  const ModelConfig shape = model_preset("gpt2-124m");
  const Index C = shape.hidden_size, F = shape.ffn_hidden_size, NH = shape.num_heads;
  const std::map<Recompute, Index> wanted = {
      {Recompute::none, 8 * C + 2 * F + 4 + NH}, {Recompute::selective, 6 * C + F + 4 + NH}, {Recompute::full, C}};
  for (const auto& [mode, elements] : wanted) {
    const auto slot_bytes = [&, &recompute = mode](Index layers) {
      ParameterStore<float> store;  // declared, not allocated
      const Decoder<Fp32> model(store, shape, one_chunk(layers, recompute), TensorParallel<float>());
      return model.measure_activations(4, 256, {}).slots;
    };
    EXPECT_EQ(slot_bytes(12) - slot_bytes(11), 4 * 256 * elements * 4) << to_string(mode);
  }
}

// A vocabulary so large that the rows of a micro-batch are taken in two chunks.
constexpr Index large_length = 50;
ModelConfig large_vocabulary() { return {logits_here.max_at_once / 64, large_length, 1, 8, 2, 20}; }

/// Pieces that the rows of a micro-batch are taken in.
Index logit_chunks(Index tokens, Index vocab_size, int tensor_size = 1) {
  const Index rows = logit_rows(tokens, vocab_size, tensor_size, logits_here.max_at_once);
  return (tokens + rows - 1) / rows;
}

TEST(LogitChunks, rows_are_equal_shares_of_the_micro_batch) {
  const Index vocabulary = large_vocabulary().vocab_size;
  EXPECT_EQ(logit_chunks(64, vocabulary), 1);
  EXPECT_EQ(logit_chunks(65, vocabulary), 2);
  EXPECT_EQ(logit_rows(65, vocabulary, 1, logits_here.max_at_once), 33);
  EXPECT_EQ(logit_chunks(65, vocabulary, 2), 1) << "each of two ranks has half of the columns";
  EXPECT_EQ(logit_chunks(65, 100 * vocabulary), 2) << "64 rows at least";
  EXPECT_EQ(logit_rows(7, 11, 1, logits_here.max_at_once), 7);
}

TEST(LogitChunks, give_the_loss_and_gradients_of_the_whole) {
  const ModelConfig shape = large_vocabulary();
  Tokens tokens = tiny_tokens(2 * large_length, shape);
  tokens.targets[3] = tokens.targets[70] = -1;
  TinyDecoder<Fp64> chunked(2, large_length, 1, shape);
  ASSERT_EQ(logit_chunks(2 * large_length, shape.vocab_size), 2);
  ASSERT_EQ(logit_chunks(large_length, shape.vocab_size), 1);
  chunked.model->forward(chunked.exec, 0, tokens.batch(), 1.0 / 98);
  chunked.model->backward(chunked.exec, 0);
  const double wanted = reference::decoder_loss(chunked.weights(), shape, tokens, 2, large_length) / 98;
  EXPECT_NEAR(chunked.loss(), wanted, 1e-13 * wanted);
  TinyDecoder<Fp64> whole(1, large_length, 1, shape);
  for (Index b = 0; b < 2; ++b) {
    whole.model->forward(whole.exec, 0, tokens.from(b * large_length), 1.0 / 98);
    whole.model->backward(whole.exec, 0);
  }
  EXPECT_NEAR(chunked.loss(), whole.loss(), 1e-13 * wanted);
  EXPECT_TRUE(allclose(chunked.gradients(), whole.gradients(), 1e-11));
  chunked.reset();
  chunked.model->evaluate(chunked.exec, 0, tokens.batch(), 1.0 / 98);
  EXPECT_NEAR(chunked.loss(), wanted, 1e-13 * wanted) << "evaluate";
}

}  // namespace

}  // namespace recompute_tests
