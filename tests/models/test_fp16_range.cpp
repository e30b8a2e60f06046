// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// Why fp16 needs a loss scale, and sums in fp32: what happens without (Micikevicius et al., 2018, sections 3.1 to 3.3).
#include <fmt/format.h>

#include "core/ops/matmul.hpp"
#include "tests/support/tiny_decoder.hpp"

using namespace espalier;
using namespace espalier::test;

namespace fp16_range_tests {
namespace {

constexpr Index batch = 4, length = 8, rows = batch * length;
constexpr double token_weight = 1.0 / (1 << 22);  // of a step of four million tokens

// Gradients of the blocks, unscaled again.
template <class P>
Values block_gradients(double loss_scale) {
  TinyDecoder<P> tiny(batch, length, 1);
  const Tokens tokens = tiny_tokens(rows);
  tiny.model->forward(tiny.exec, 0, tokens.batch(), {token_weight, loss_scale * token_weight});
  tiny.model->backward(tiny.exec, 0);
  Values all;
  for (const Parameter& parameter : tiny.parameters.parameters())
    if (parameter.spec.name.starts_with("h."))
      for (const double value : tiny.gradient(parameter.spec.name))
        all.push_back(value / loss_scale);
  return all;
}

double share_of_zeros(const Values& values) {
  return static_cast<double>(std::count(values.begin(), values.end(), 0.0)) / static_cast<double>(values.size());
}

TEST(Fp16Range, SmallGradientsVanishWithoutALossScale) {
  const Values wanted = block_gradients<Fp32>(1);
  const Values lost = block_gradients<Fp16>(1);
  const Values kept = block_gradients<Fp16>(65536);
  const Values bf16 = block_gradients<Bf16>(1);
  std::printf("zero gradients: fp32 %.3f, fp16 %.3f, fp16 with a loss scale of 2^16 %.3f, bf16 %.3f\n",
              share_of_zeros(wanted), share_of_zeros(lost), share_of_zeros(kept), share_of_zeros(bf16));
  std::printf("error of the gradient: fp16 %.3f, with the loss scale %.4f, bf16 %.4f\n", relative_error(lost, wanted),
              relative_error(kept, wanted), relative_error(bf16, wanted));
  EXPECT_LT(share_of_zeros(wanted), 0.01);
  EXPECT_GT(share_of_zeros(lost), 0.15);
  EXPECT_LT(share_of_zeros(kept), 0.01);
  EXPECT_LT(share_of_zeros(bf16), 0.01);
  EXPECT_GT(relative_error(lost, wanted), 0.3);
  EXPECT_LT(relative_error(kept, wanted), 0.01);
  EXPECT_LT(relative_error(bf16, wanted), 0.05);
}

// dW += dy^T x over many micro-batches. A sum in fp16 stands still when it is 2^11 times its summands.
TEST(Fp16Range, SumsInFp16DriftAndOursDoNot) {
  constexpr Index outputs = 3, inputs = 5, micro_batches = 256, tokens = 64;
  const Tensor<float, 2> gradient = on_device<float>(Values(outputs * inputs), outputs, inputs);
  Values wanted(outputs * inputs), in_fp16(outputs * inputs);
  for (Index m = 0; m < micro_batches; ++m) {
    Values dy = random_values(fmt::format("dy{}", m), tokens * outputs, 0.5);
    Values x = random_values(fmt::format("x{}", m), tokens * inputs, 0.5);
    for (Values* const values : {&dy, &x})
      for (double& value : *values)
        value = static_cast<double>(static_cast<float>(float16(static_cast<float>(value + 0.5))));
    matmul<float16, float>(ExecSpace(), gradient, Transpose::yes, on_device<float16>(dy, tokens, outputs),
                           Transpose::no, on_device<float16>(x, tokens, inputs), 1.0f, 1.0f);
    Kokkos::fence();
    for (Index o = 0; o < outputs; ++o)
      for (Index i = 0; i < inputs; ++i)
        for (Index n = 0; n < tokens; ++n) {
          const double product =
              dy[static_cast<std::size_t>(n * outputs + o)] * x[static_cast<std::size_t>(n * inputs + i)];
          const auto at = static_cast<std::size_t>(o * inputs + i);
          wanted[at] += product;
          in_fp16[at] = static_cast<double>(static_cast<float>(float16(static_cast<float>(in_fp16[at] + product))));
        }
  }
  const double ours = relative_error(on_host(gradient), wanted);
  const double drifted = relative_error(in_fp16, wanted);
  std::printf("error of a sum of %d products: in fp16 %.3f, in fp32 %.1e\n", static_cast<int>(micro_batches * tokens),
              drifted, ours);
  EXPECT_LT(ours, 1e-5);
  EXPECT_GT(drifted, 0.2);
}

}  // namespace

}  // namespace fp16_range_tests
