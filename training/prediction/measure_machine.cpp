// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/prediction/measure_machine.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/kokkos_compat.hpp"
#include "core/median.hpp"
#include "core/ops/elementwise.hpp"
#include "core/ops/matmul_library.hpp"
#include "core/stopwatch.hpp"
#include "models/layout_section.hpp"
#include "parallel/collectives/collectives.hpp"
#include "parallel/device/device.hpp"
#include "parallel/mesh/host_ranks.hpp"
#include "planning/collective_time.hpp"
#include "training/config/with_compute_type.hpp"
#include "training/prediction/calibration.hpp"
#include "training/prediction/gemm_rate.hpp"
#include "training/prediction/measure_layers.hpp"
#include "training/prediction/require_memory.hpp"

namespace espalier {
namespace {

struct Shape {
  Index channels;
  Index heads;
  Index sequence_length;
  Index micro_batch;
  Index vocab_size;
};

// Small enough to be quick, wide enough to tell the knobs apart: few and many rows, short and long sequences (attention
// against products), small and large heads (the loss).
constexpr std::array<Shape, 7> shapes{{{128, 4, 64, 8, 256},
                                       {256, 8, 128, 8, 512},
                                       {256, 4, 1024, 1, 512},
                                       {512, 8, 256, 4, 4096},
                                       {512, 8, 1024, 1, 512},
                                       {768, 12, 256, 4, 16384},
                                       {1024, 16, 256, 2, 2048}}};

// A step takes what the machine usually gives, which is less than the best on a machine that others use, too.
constexpr int rounds = 5;

// Seconds of one call: the slowest rank's, the median of the rounds.
template <class F>
double seconds_of(const Communicator& world, const F& call) {
  constexpr double round_seconds = 0.05;
  call();  // warms up
  std::vector<double> slowest;
  for (int round = 0; round < rounds; ++round) {
    barrier(world);
    const Stopwatch first;
    call();
    const double once = all_reduce(world, first.seconds(), ReduceOp::max);
    const int calls = std::clamp(static_cast<int>(round_seconds / once), 1, 10000);
    barrier(world);
    const Stopwatch again;
    for (int i = 0; i < calls; ++i)
      call();
    const double mine = again.seconds() / calls;
    slowest.push_back(all_reduce(world, mine, ReduceOp::max));
  }
  return median_of(slowest);
}

double measure_memory_bandwidth(const Communicator& world) {
  const ExecSpace exec;
  const Tensor<float, 2> a("espalier::workspace::triad_a", triad_rows, triad_width);
  const Tensor<float, 2> b("espalier::workspace::triad_b", triad_rows, triad_width);
  const Tensor<float, 2> c("espalier::workspace::triad_c", triad_rows, triad_width);
  const double seconds = seconds_of(world, [&] {
    triad(exec, a, b, c, 0.5F);
    compat::fence(exec, "espalier::measure_machine: the triad is done when the clock stops");
  });
  return 3.0 * sizeof(float) * static_cast<double>(triad_rows * triad_width) / seconds;
}

TimedAllReduce time_all_reduce(const Communicator& ranks) {
  constexpr Index large = 1 << 22;
  const ExecSpace exec;
  ranks.open_device_link();
  const Tensor<float, 1> data("espalier::communication::measured", large);
  const auto seconds = [&](Index count) {
    const auto part = Kokkos::subview(data, Kokkos::make_pair(Index{0}, count));
    return seconds_of(ranks, [&] {
      all_reduce(exec, ranks, part);
      compat::fence(exec, "espalier::measure_machine: the sum is there when the clock stops");
    });
  };
  return {.small_seconds = seconds(1),
          .large_seconds = seconds(large),
          .bytes = sizeof(float) * static_cast<double>(large)};
}

RunConfig config_of(const Shape& shape, Precision compute) {
  return parse_run_config(
      "", "espalier bench machine",
      {fmt::format("model.vocab_size={}", shape.vocab_size),
       fmt::format("model.max_sequence_length={}", shape.sequence_length), "model.num_layers=1",
       fmt::format("model.hidden_size={}", shape.channels), fmt::format("model.num_heads={}", shape.heads),
       fmt::format("model.ffn_hidden_size={}", 4 * shape.channels),
       fmt::format("batch.micro_batch_size={}", shape.micro_batch),
       fmt::format("batch.global_batch_size={}", shape.micro_batch), "run.steps=1", "data.train=[\"none\"]",
       fmt::format("precision.compute={}", to_string(compute))},
      1);
}

// All ranks at once: the median of the rounds, of the ranks the slowest.
LayerSample measure_sample(const Communicator& world, const Shape& shape, Precision compute) {
  const RunConfig config = config_of(shape, compute);
  std::array<std::vector<double>, 3> slowest;
  for (int round = 0; round < rounds; ++round) {
    barrier(world);
    const LayerCosts costs = measure_layer_costs(config, Recompute::none);
    std::array<double, 3> seconds{costs.embedding, costs.block, costs.head};
    all_reduce(world, std::span<double>(seconds), ReduceOp::max);
    for (std::size_t i = 0; i < seconds.size(); ++i)
      slowest[i].push_back(seconds[i]);
  }
  return {.model = config.model.shape,
          .micro_batch = shape.micro_batch,
          .sequence_length = shape.sequence_length,
          .embedding = median_of(slowest[0]),
          .block = median_of(slowest[1]),
          .head = median_of(slowest[2])};
}

Precision precision_named(const std::string& compute) {
  const std::optional<Precision> precision = parse_priced_precision(compute);
  if (!precision)
    throw Error(ExitCode::usage, {.what = "the planner does not know this precision",
                                  .got = compute,
                                  .wanted = fmt::format("one of {}", fmt::join(measurable_precisions(), ", ")),
                                  .todo = "espalier bench machine --precision bf16"});
  return *precision;
}

Calibration measure_precision(const Communicator& world, const Accelerator& start, Precision precision,
                              bool device_known) {
  RunConfig config;
  config.layout.precision = precision;
  agree_on_libraries(config, world);
  Accelerator device = start;
  device.rate(precision) = {
      .peak_flops = measure_gemm_rate(compute_type_of(precision), world, exec_is_host ? 2048 : 8192) / world.size(),
      .matmul_efficiency = 0.9,
      .half_depth = 16,
      .fill_waves = 0.1,
      .attention_efficiency = 0.3,
      .is_measured = true,
      .maker_peak = peak_rate(config, world).value_or(0) / world.size()};  // of a GPU that is known by its name
  std::vector<LayerSample> samples;
  for (const Shape& shape : shapes)
    samples.push_back(measure_sample(world, shape, precision));
  release_matmul_workspace();
  release_attention_workspace();
  return calibrate(device, precision, samples, device_known);
}

}  // namespace

std::vector<std::string> measurable_precisions() {
  std::vector<std::string> names;
  for (const Precision precision : compute_types)
    if (is_priced(precision))
      names.emplace_back(to_string(precision));
  return names;
}

Cluster measure_machine(const Communicator& world, const std::vector<std::string>& precisions,
                        std::vector<MachineFit>& fits, const std::function<void(const std::string&)>& note) {
  const auto say = [&](const std::string& text) {
    if (world.rank() == 0)
      note(text);
  };
  const Communicator host = host_ranks(world);
  Cluster cluster;
  cluster.name = "this machine";
  cluster.devices_per_node = all_reduce(world, host.size(), ReduceOp::max);
  cluster.num_nodes = (world.size() + cluster.devices_per_node - 1) / cluster.devices_per_node;
  Accelerator& device = cluster.device;
  device.name = "measured";
  device.memory_bytes = static_cast<Index>(memory_of_a_rank(world));
  device.processors =
      exec_is_host ? ExecSpace().concurrency() : std::max(1, device_processors() / world.context().ranks_per_device);
  device.moves_messages = exec_is_host;  // MPI copies on the cores that compute
  device.kernel_seconds = 5e-6;
  device.memory_efficiency = 0.7;
  say("memory bandwidth");
  device.memory_bandwidth = measure_memory_bandwidth(world);
  // Several precisions share memory_efficiency and kernel_seconds: those of the first.
  device.error_share = 0.03;
  for (const std::string& compute : precisions) {
    say(fmt::format("layers in {}", compute));
    const bool device_known = !fits.empty();
    const Precision precision = precision_named(compute);
    const Calibration found = measure_precision(world, device, precision, device_known);
    device = found.device;
    fits.push_back({precision, found.median_error, found.worst_error});
    device.error_share = std::clamp(found.worst_error, device.error_share, 0.5);  // of the worst of them
  }
  if (host.size() > 1) {
    say(fmt::format("links between {} ranks of a host", host.size()));
    cluster.node = node_link(cluster, time_all_reduce(host));
  }
  if (cluster.num_nodes > 1) {
    say(fmt::format("links between {} hosts", cluster.num_nodes));
    cluster.network = network_link(cluster, time_all_reduce(world));
  }
  return cluster;
}

}  // namespace espalier
