// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// Documents that are packed into rows train as if each had a row of its own.
#include "tests/support/documents.hpp"
#include "tests/support/tiny_decoder.hpp"

using namespace espalier;
using namespace espalier::test;

namespace documents_tests {
namespace {

constexpr Index batch = 3, length = 8, rows = batch * length;
const std::vector<Index> lengths = {3, 1, 4, 2, 5, 1, 9};

struct Packed {
  Tokens tokens;
  std::vector<int> positions = document_positions(batch, length, lengths);

  explicit Packed(const ModelConfig& config, const std::string& name = "packed")
      : tokens(tiny_tokens(rows, config, name)) {
    for (const IndexRange& document : document_ranges(positions))
      tokens.targets[static_cast<std::size_t>(document.end - 1)] = -1;  // the next document's first token
  }
  TokenBatch batch_of_all(Index first_sample = 0) const {
    TokenBatch all = tokens.batch(first_sample);
    all.positions = positions.data();
    return all;
  }
};

ActivationMemory separate(int slots = 1) {
  return {.chunks = {{.slots = slots, .gradients = 1, .split = false}},
          .slots_together = slots,
          .separate_documents = true};
}

TEST(Documents, have_the_loss_and_gradients_of_rows_of_their_own) {
  for (const auto& [name, dropping] : tiny_models()) {
    SCOPED_TRACE(name);
    const ModelConfig config = without_dropout(dropping);
    const Packed packed(config);
    constexpr double weight = 1.0 / 17;
    TinyDecoder<Fp64> together(batch, length, 1, config);
    together.model->plan_activations(batch, length, separate());
    together.reset();
    together.model->forward(together.exec, 0, packed.batch_of_all(), weight);
    together.model->backward(together.exec, 0);
    double loss = 0;
    Values gradients(together.gradients().size(), 0);
    for (const IndexRange& document : document_ranges(packed.positions)) {
      TinyDecoder<Fp64> alone(1, document.size(), 1, config);
      alone.model->forward(alone.exec, 0, packed.tokens.from(document.begin), weight);
      alone.model->backward(alone.exec, 0);
      loss += alone.loss();
      const Values own = alone.gradients();
      for (std::size_t i = 0; i < own.size(); ++i)
        gradients[i] += own[i];
    }
    EXPECT_NEAR(together.loss(), loss, 1e-13 * loss);
    EXPECT_TRUE(allclose(together.gradients(), gradients, 1e-12));
    const double trained = together.loss();
    together.reset();
    together.model->evaluate(together.exec, 0, packed.batch_of_all(), weight);
    EXPECT_NEAR(together.loss(), trained, 1e-13 * trained) << "evaluate";
  }
}

// Each micro-batch has documents of its own; dropout and recomputation read the same positions again.
TEST(Documents, are_recomputed_alike) {
  for (const auto& [name, config] : tiny_models()) {
    const auto train = [&, &config = config](Recompute mode) {
      TinyDecoder<Fp32> tiny(batch, length, 1, config, mode);
      tiny.model->plan_activations(batch, length, separate(2));
      tiny.reset();
      Packed first(config), second(config, "second");
      second.positions = document_positions(batch, length, {6, 2});
      tiny.model->forward(tiny.exec, 0, first.batch_of_all(), 0.05);
      tiny.model->forward(tiny.exec, 1, second.batch_of_all(batch), 0.05);
      tiny.model->backward(tiny.exec, 0);
      tiny.model->backward(tiny.exec, 1);
      return std::pair(tiny.loss(), fingerprint(tiny.parameters.flat_gradients()));
    };
    const auto wanted = train(Recompute::none);
    for (const Recompute mode : {Recompute::selective, Recompute::full})
      EXPECT_EQ(train(mode), wanted) << name << ", " << to_string(mode);
  }
}

TEST(Documents, that_all_begin_rows_are_joined_ones) {
  for (const auto& [name, config] : tiny_models()) {
    const Tokens tokens = tiny_tokens(rows, config);
    const std::vector<int> positions = document_positions(batch, length, {length});
    TinyDecoder<Fp32> joined(batch, length, 1, config), tiny(batch, length, 1, config);
    tiny.model->plan_activations(batch, length, separate());
    tiny.reset();
    joined.model->forward(joined.exec, 0, tokens.batch(), 0.1);
    joined.model->backward(joined.exec, 0);
    TokenBatch all = tokens.batch();
    all.positions = positions.data();
    tiny.model->forward(tiny.exec, 0, all, 0.1);
    tiny.model->backward(tiny.exec, 0);
    EXPECT_EQ(tiny.loss(), joined.loss()) << name;
    EXPECT_EQ(fingerprint(tiny.parameters.flat_gradients()), fingerprint(joined.parameters.flat_gradients())) << name;
  }
}

TEST(Documents, take_a_number_more_of_a_token) {
  TinyDecoder<Fp32> tiny(batch, length, 1);
  const auto slots = [&](bool separate_documents) {
    return tiny.model->measure_activations(batch, length, {.separate_documents = separate_documents}).slots;
  };
  EXPECT_GE(slots(true) - slots(false), rows * static_cast<Index>(sizeof(int)));
  EXPECT_LT(slots(true) - slots(false), rows * static_cast<Index>(sizeof(int)) + 256) << "but for its alignment";
}

TEST(Documents, of_wrong_positions_are_refused) {
  TinyDecoder<Fp32> tiny(batch, length, 1);
  Packed packed(tiny.config);
  EXPECT_ANY_THROW(tiny.model->forward(tiny.exec, 0, packed.batch_of_all(), 1)) << "planned for joined ones";
  tiny.model->plan_activations(batch, length, separate());
  EXPECT_ANY_THROW(tiny.model->forward(tiny.exec, 0, packed.tokens.batch(), 1)) << "none are given";
  packed.positions[length] = 3;
  EXPECT_ANY_THROW(tiny.model->forward(tiny.exec, 0, packed.batch_of_all(), 1)) << "a row begins at 0";
}

}  // namespace

}  // namespace documents_tests
