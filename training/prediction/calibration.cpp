// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/prediction/calibration.hpp"

#include <algorithm>
#include <cmath>

#include "core/error.hpp"
#include "core/median.hpp"
#include "planning/collective_time.hpp"
#include "planning/layer_time.hpp"

namespace espalier {
namespace {

// Weights of the squared errors: a model is mostly blocks.
constexpr double block_weight = 1;
constexpr double head_weight = 0.3;
constexpr double embedding_weight = 0.01;

struct Knob {
  double* value;
  double least;
  double most;
};

std::vector<Knob> knobs(Accelerator& device, Precision precision, bool device_known) {
  MatrixRate& rate = device.rate(precision);
  std::vector<Knob> all{{&rate.matmul_efficiency, 0.01, 1},
                        {&rate.half_depth, 0.1, 4096},
                        {&rate.fill_waves, 0.001, 100},
                        {&rate.attention_efficiency, 0.001, 1}};
  if (!device_known) {
    all.push_back({&device.memory_efficiency, 0.01, 1});
    all.push_back({&device.kernel_seconds, 1e-8, 1e-3});
  }
  return all;
}

double squared_log(double predicted, double measured) {
  return measured > 0 && predicted > 0 ? std::pow(std::log(predicted / measured), 2) : 0;
}

double misfit(const Accelerator& device, Precision precision, const std::vector<LayerSample>& samples) {
  double sum = 0;
  for (const LayerSample& sample : samples) {
    const LayerSample predicted = predicted_sample(device, precision, sample);
    sum += block_weight * squared_log(predicted.block, sample.block) +
           head_weight * squared_log(predicted.head, sample.head) +
           embedding_weight * squared_log(predicted.embedding, sample.embedding);
  }
  return sum;
}

// Clocks that jitter leave it finite.
double bus_bandwidth(const TimedAllReduce& measured, int devices) {
  return passed_share(Collective::all_reduce, devices) * measured.bytes /
         std::max(least_latency, measured.large_seconds - measured.small_seconds);
}

}  // namespace

LayerSample predicted_sample(const Accelerator& device, Precision precision, const LayerSample& sample) {
  Cluster cluster;
  cluster.device = device;
  const Layout layout{.micro_batch = sample.micro_batch, .global_batch = sample.micro_batch, .precision = precision};
  const Implementation implementation = espalier_implementation(device.moves_messages);
  LayerSample predicted = sample;
  predicted.block = block_time(sample.model, cluster, layout, implementation, sample.sequence_length).seconds();
  predicted.head = head_time(sample.model, cluster, layout, implementation, sample.sequence_length).seconds();
  predicted.embedding = embedding_time(sample.model, cluster, layout, implementation, sample.sequence_length).seconds();
  return predicted;
}

Calibration calibrate(const Accelerator& start, Precision precision, const std::vector<LayerSample>& samples,
                      bool device_known) {
  if (samples.empty() || !start.has(precision))
    throw Error(ExitCode::usage, {.what = "nothing to calibrate with",
                                  .got = std::to_string(samples.size()) + " samples",
                                  .wanted = std::string("samples, and the peak of ") + to_string(precision),
                                  .todo = "measure layers first (espalier bench machine), in a precision that the "
                                          "device has"});
  Accelerator best = start;
  for (const Knob& knob : knobs(best, precision, device_known))
    *knob.value = std::clamp(*knob.value, knob.least, knob.most);
  double least = misfit(best, precision, samples);
  constexpr double first_step = 0.5;  // of the logarithm
  constexpr double last_step = 1e-3;
  for (double step = first_step; step > last_step;) {
    bool better = false;
    for (std::size_t i = 0; i < knobs(best, precision, device_known).size(); ++i)
      for (const double direction : {step, -step}) {
        Accelerator tried = best;
        const Knob knob = knobs(tried, precision, device_known).at(i);
        *knob.value = std::clamp(*knob.value * std::exp(direction), knob.least, knob.most);
        const double value = misfit(tried, precision, samples);
        if (value < least) {
          least = value;
          best = tried;
          better = true;
        }
      }
    if (!better)
      step /= 2;
  }
  Calibration result{.device = best};
  std::vector<double> errors;
  for (const LayerSample& sample : samples)
    if (sample.block > 0)
      errors.push_back(std::abs(predicted_sample(best, precision, sample).block / sample.block - 1));
  result.median_error = median_of(errors);
  result.worst_error = errors.empty() ? 0 : *std::ranges::max_element(errors);
  return result;
}

LinkTier node_link(const Cluster& cluster, const TimedAllReduce& measured) {
  const int devices = cluster.devices_per_node;
  return {.bandwidth = bus_bandwidth(measured, devices),
          .latency = measured.small_seconds / latency_steps(Collective::all_reduce, devices, 1).inside};
}

LinkTier network_link(const Cluster& cluster, const TimedAllReduce& measured) {
  const LatencySteps steps =
      latency_steps(Collective::all_reduce, cluster.devices_per_node, static_cast<int>(cluster.num_nodes));
  return {.bandwidth = bus_bandwidth(measured, cluster.num_devices()) / cluster.devices_per_node,
          .latency =
              std::max(least_latency, (measured.small_seconds - steps.inside * cluster.node.latency) / steps.between)};
}

}  // namespace espalier
