// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "core/ops/gradient_norm.hpp"
#include "core/optim/adamw.hpp"
#include "core/optim/learning_rate.hpp"
#include "tests/models/pytorch_losses.hpp"
#include "tests/support/tiny_decoder.hpp"

using namespace espalier;
using namespace espalier::test;

// Ten steps of AdamW on a tiny model against the constants of pytorch_reference.py, which says what is computed: the
// weights and tokens here are its closed forms. The batch goes through in two micro-batches.
namespace matches_pytorch_tests {
namespace {

constexpr Index batch = 4, length = 16, steps = 10;
constexpr ModelConfig config{61, 16, 2, 32, 4, 128};

std::uint32_t hash32(std::uint32_t stream, std::uint32_t index) {
  std::uint32_t x = index * 2654435761u + stream * 2246822519u + 374761393u;
  x = (x ^ (x >> 15)) * 2246822519u;
  x = (x ^ (x >> 13)) * 3266489917u;
  return x ^ (x >> 16);
}

template <class P>
void set_weights(TinyDecoder<P>& tiny) {
  std::map<std::string, std::vector<std::string>> tensors;  // of PyTorch, in the order of the alphabet; and theirs here
  for (const char* const part : {"query", "key", "value"})
    for (const auto& [name, values] : tiny.weights())
      if (const std::size_t at = name.find(part); at != std::string::npos)
        tensors[std::string(name).replace(at, std::string_view(part).size(), "qkv")].push_back(name);
  for (const auto& [name, values] : tiny.weights())
    if (std::ranges::none_of(tensors, [&](const auto& joined) { return std::ranges::count(joined.second, name) > 0; }))
      tensors[name] = {name};
  std::uint32_t stream = 0;
  for (const auto& [joined, names] : tensors) {
    std::uint32_t i = 0;
    for (const std::string& name : names) {
      Values values = tiny.weight(name);
      for (double& value : values)
        value = (static_cast<double>(hash32(stream, i++) >> 16) - 32768) / 262144 + tiny.find(name).spec.init_mean;
      tiny.set(name, values);
    }
    ++stream;
  }
}

Tokens tokens_of(Index step) {
  Tokens tokens;
  for (Index b = 0; b < batch; ++b)
    for (Index t = 0; t < length; ++t) {
      const auto token = [&](Index at) {
        return static_cast<TokenId>(
            hash32(static_cast<std::uint32_t>(1000 + step % 2), static_cast<std::uint32_t>(b * (length + 1) + at)) %
            61);
      };
      tokens.inputs.push_back(token(t));
      tokens.targets.push_back(b == step % batch && t == step ? -100 : token(t + 1));
    }
  return tokens;
}

struct Curve {
  Values losses, norms;
};

template <class P>
Curve train() {
  TinyDecoder<P> tiny(batch / 2, length, 2, config);
  set_weights(tiny);
  const AdamW<Compute<P>> optimizer(tiny.parameters, {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1});
  const LearningRate rate{.peak = 1e-2, .minimum = 1e-3, .warmup_steps = 3, .decay_steps = steps};
  const SquaredNorm squares(ExecSpace(), {{0, tiny.parameters.flat_size()}});
  const Tensor<double, 0> norm("espalier::workspace::norm");
  const Tensor<double, 0> clip("espalier::workspace::clip");
  Curve curve;
  for (Index step = 0; step < steps; ++step) {
    const Tokens tokens = tokens_of(step);
    const double scale = 1.0 / (batch * length - 1);
    tiny.reset();
    tiny.model->forward(tiny.exec, 0, tokens.from(0), scale);
    tiny.model->forward(tiny.exec, 1, tokens.from(batch / 2 * length), scale);
    tiny.model->backward(tiny.exec, 0);
    tiny.model->backward(tiny.exec, 1);
    squares.compute<State<Compute<P>>>(tiny.exec, tiny.parameters.flat_gradients());
    clip_factor(tiny.exec, norm, clip, squares.sums(), 1.0);
    optimizer.step(tiny.exec, rate.at(step), clip, step + 1);
    curve.losses.push_back(tiny.loss());
    curve.norms.push_back(on_host(norm)[0]);
  }
  return curve;
}

Values of(const double (&constants)[steps]) { return {std::begin(constants), std::end(constants)}; }

TEST(MatchesPytorch, ten_adamw_steps_in_fp32) {
  const Curve curve = train<Fp32>();
  EXPECT_TRUE(allclose(curve.losses, of(pytorch::losses_fp32), 2e-6));
  EXPECT_TRUE(allclose(curve.norms, of(pytorch::norms_fp32), 2e-5));
}

TEST(MatchesPytorch, ten_adamw_steps_in_fp64) {
  const Curve curve = train<Fp64>();
  EXPECT_TRUE(allclose(curve.losses, of(pytorch::losses_fp64), 1e-11));
  EXPECT_TRUE(allclose(curve.norms, of(pytorch::norms_fp64), 1e-11));
}

}  // namespace

}  // namespace matches_pytorch_tests
