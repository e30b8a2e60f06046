// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/prediction/measure_layers.hpp"

#include <chrono>

#include "core/kokkos_compat.hpp"
#include "io/input_limits.hpp"
#include "io/records/run_paths.hpp"
#include "models/cost.hpp"
#include "models/decoder.hpp"
#include "models/part_layers.hpp"
#include "parallel/collectives/collectives.hpp"
#include "training/config/with_compute_type.hpp"
#include "training/prediction/predict_memory.hpp"

namespace espalier {
namespace {

using Clock = std::chrono::steady_clock;

bool measurement_fits(const RunConfig& config) {
  if (config.run.device_memory == 0)
    return true;
  RunConfig one = config;
  one.layout = Layout{.micro_batch = config.layout.micro_batch,
                      .global_batch = config.layout.micro_batch,
                      .precision = config.layout.precision};
  one.model.shape.num_layers = 1;
  return predict_memory(one, make_run_layout(one, 1)).front().total() <
         static_cast<std::size_t>(config.run.device_memory);
}

template <class P>
LayerCosts measure(const RunConfig& config, Recompute recompute) {
  ModelConfig shape = config.model.shape;
  shape.num_layers = 1;
  const ExecSpace exec;
  ParameterStore<Compute<P>> parameters;
  Decoder<P> model(parameters, shape, one_chunk(1, recompute), TensorParallel<Compute<P>>());
  parameters.allocate();
  parameters.initialize(exec, 1);
  model.plan_activations(config.layout.micro_batch, config.sequence_length, 1);
  const auto rows = static_cast<std::size_t>(config.layout.micro_batch * config.sequence_length);
  std::vector<TokenId> tokens(rows);
  for (std::size_t i = 0; i < rows; ++i)
    tokens[i] = static_cast<TokenId>(static_cast<Index>(i * 7919) % shape.vocab_size);
  const TokenBatch batch{tokens.data(), tokens.data()};

  // The best of a few passes, position by position: embedding, block, head.
  std::array<double, 3> best{};
  constexpr int passes = 3;
  for (int pass = 0; pass < passes; ++pass) {
    std::array<double, 3> seconds{};
    Clock::time_point last = Clock::now();
    const auto lap = [&](int position) {
      if (position == half_done)
        return;  // the whole goes to the position that follows
      compat::fence(exec, "espalier::measure_layer_costs: a layer's time is its own");
      const Clock::time_point now = Clock::now();
      seconds[static_cast<std::size_t>(position)] += std::chrono::duration<double>(now - last).count();
      last = now;
    };
    model.forward(exec, 0, batch, 1.0 / static_cast<double>(rows), lap);
    lap(2);  // the loss, and the products of the head
    model.backward(exec, 0, lap);
    for (std::size_t i = 0; i < best.size(); ++i)
      best[i] = pass == 0 ? seconds[i] : std::min(best[i], seconds[i]);
  }
  return {.embedding = best[0], .block = best[1], .head = best[2]};
}

LayerCosts layer_costs(const RunConfig& config, Recompute recompute) {
  if (config.emulates_operations())
    return {};  // an emulated operation takes what it is told to, however many layers it has: as even as can be
  if (!measurement_fits(config))
    return layer_flops(config.model.shape, config.sequence_length, recompute);
  return measure_layer_costs(config, recompute);
}

}  // namespace

LayerCosts measure_layer_costs(const RunConfig& config, Recompute recompute) {
  return with_precision(config, [&]<class P>() { return measure<P>(config, recompute); });
}

std::vector<Index> stored_layers(const RunConfig& config) {
  const Path path = Path(config.run.directory) / RunFile::config;
  try {
    const RunConfig stored =
        parse_run_config(read_file(path, ExitCode::data, LargestFile::config), path.string(),
                         {"parallel.data=1", "parallel.tensor=1"}, config.layout.pipeline, Libraries::known);
    if (stored.layout.pipeline == config.layout.pipeline &&
        stored.layout.virtual_stages == config.layout.virtual_stages &&
        stored.layout.assignment == config.layout.assignment &&
        stored.model.shape.num_layers == config.model.shape.num_layers)
      return stored.layout.layers;
  } catch (const Error&) {  // none, or of another shape: nothing to keep
  }
  return {};
}

void resolve_layers_per_stage(RunConfig& config, const Communicator& world) {
  if (config.layout.pipeline == 1 || config.layout.assignment == Assignment::round_robin ||
      !config.layout.layers.empty())
    return;
  const auto parts = static_cast<std::size_t>(config.layout.num_parts());
  std::vector<Index> layers;
  if (world.rank() == 0) {
    layers = stored_layers(config);
    if (layers.size() != parts)
      layers = layers_by_cost(config.model.shape.num_layers, config.layout,
                              [&](Recompute recompute) { return layer_costs(config, recompute); });
  }
  layers.resize(parts);
  broadcast(world, std::span<Index>(layers), 0);
  config.layout.layers = layers;
}

}  // namespace espalier
