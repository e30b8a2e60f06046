// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// A program that trains with Espalier and is no `espalier train`: its own data, its own loop, any number of ranks.
//   mpiexec -n 2 build/embedded
#include <cstdio>

#include "core/ops/gradient_norm.hpp"
#include "core/optim/adamw.hpp"
#include "core/optim/learning_rate.hpp"
#include "models/decoder.hpp"
#include "parallel/collectives/collectives.hpp"
#include "parallel/launch/runtime.hpp"
#include "parallel/reduction/gradient_reducer.hpp"

using namespace espalier;  // NOLINT(google-build-using-namespace): the example is one file

// A text that a small model can learn by heart: each token follows from the one before.
void make_batch(int step, int rank, std::vector<TokenId>& inputs, std::vector<TokenId>& targets) {
  TokenId token = (step * 7 + rank * 3) % 31;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    inputs[i] = token;
    token = targets[i] = (token * 3 + 1) % 31;
  }
}

int main(int argc, char** argv) {
  return run_job(argc, argv, [](Runtime& runtime) {
    const Communicator& world = runtime.world();
    const ExecSpace exec;
    constexpr Index batch = 4, length = 16;  // B, T of each rank

    ModelConfig config{.vocab_size = 31,
                       .max_sequence_length = length,
                       .num_layers = 2,
                       .hidden_size = 32,
                       .num_heads = 2,
                       .ffn_hidden_size = 128};
    ParameterStore<float> parameters;
    Decoder<Fp32> model(parameters, config);
    parameters.allocate();
    parameters.initialize(exec, 1);
    model.plan_activations(batch, length, 1);

    AdamW<float> optimizer(parameters, {});
    GradientReducer<float> reducer(exec, ReductionCommunicators::all(world), parameters.flat_gradients(),
                                   parameters.segments(), parameters.parameters());
    const LearningRate rate{.peak = 1e-2, .minimum = 1e-3, .warmup_steps = 5, .decay_steps = 50};
    const SquaredNorm squared_norm(exec, {{0, parameters.flat_size()}});
    const Tensor<double, 0> norm("espalier::other::norm"), clip("espalier::other::clip");

    std::vector<TokenId> inputs(batch * length), targets(batch * length);
    const double scale = 1.0 / static_cast<double>(batch * length * world.size());  // 1 / tokens of the whole step
    for (int step = 0; step < 50; ++step) {
      make_batch(step, world.rank(), inputs, targets);
      model.begin_gradients(exec);
      Kokkos::deep_copy(model.loss(), 0.0);
      reducer.begin_step();
      model.forward(exec, 0, {inputs.data(), targets.data()}, scale);
      model.backward(exec, 0);
      reducer.wait();
      squared_norm.compute<float>(exec, parameters.flat_gradients());
      clip_factor(exec, norm, clip, squared_norm.sums(), 1.0);
      optimizer.step(exec, rate.at(step), clip, step + 1);
      double loss = 0;
      Kokkos::deep_copy(loss, model.loss());
      loss = all_reduce(world, loss);
      if (world.rank() == 0 && (step + 1) % 10 == 0)
        std::printf("step %d  loss %.4f\n", step + 1, loss);
    }
    return 0;
  });
}
