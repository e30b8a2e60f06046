// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// The residual stream in fp32 beside 16-bit weights and activations.
#include "tests/support/tiny_decoder.hpp"

using namespace espalier;
using namespace espalier::test;

namespace residual_tests {
namespace {

constexpr Index batch = 2, length = 8, rows = batch * length;

struct Result {
  double loss;
  Values gradients;
};

template <class P>
Result train(Recompute recompute = Recompute::none) {
  ModelConfig deep = tiny_config();
  deep.num_layers = 32;
  deep.hidden_size = 32;
  deep.ffn_hidden_size = 64;
  TinyDecoder<P> tiny(batch, length, 1, deep, recompute);
  const Tokens tokens = tiny_tokens(rows, deep);
  tiny.model->forward(tiny.exec, 0, tokens.batch(), 1.0 / rows);
  tiny.model->backward(tiny.exec, 0);
  return {tiny.loss(), tiny.gradients()};
}

// Weights are those of the 16-bit type in both runs, up to their rounding: what differs is the stream.
TEST(Residual, Fp32LosesLess) {
  const Result wanted = train<Fp64>();
  const Result narrow = train<Bf16>();
  const Result wide = train<Bf16WithFp32Residual>();
  EXPECT_NEAR(wide.loss, wanted.loss, 0.02 * wanted.loss);
  EXPECT_LT(relative_error(wide.gradients, wanted.gradients), 0.05);
  EXPECT_LT(relative_error(wide.gradients, wanted.gradients), 0.9 * relative_error(narrow.gradients, wanted.gradients));
}

// cuBLASLt applies GELU before its argument is rounded, and `selective` after.
TEST(Residual, IsComputedAgainBitForBit) {
  const Result wanted = train<Fp16WithFp32Residual>();
  for (const Recompute mode : {Recompute::selective, Recompute::full}) {
    const Result again = train<Fp16WithFp32Residual>(mode);
    const bool is_rounded = !std::is_same_v<MemSpace, Kokkos::HostSpace> && mode == Recompute::selective;
    EXPECT_EQ(again.loss, wanted.loss) << to_string(mode);
    EXPECT_LE(relative_error(again.gradients, wanted.gradients), is_rounded ? tolerance<float16> : 0.0)
        << to_string(mode);
  }
}

// R C elements for x, and h and y of each layer in a slot: two bytes more each.
template <class P>
Index slot_bytes(const ModelConfig& shape) {
  ParameterStore<bfloat16> store;
  return Decoder<P>(store, shape).measure_activations(32, 8, {}).slots;
}

TEST(Residual, CostsTwoBytesAnElement) {
  const ModelConfig shape = tiny_config();
  EXPECT_EQ(slot_bytes<Bf16WithFp32Residual>(shape) - slot_bytes<Bf16>(shape),
            (1 + 2 * shape.num_layers) * 32 * 8 * shape.hidden_size * 2);
}

}  // namespace

}  // namespace residual_tests
