// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/peak_rate.hpp"

#include "core/ops/matmul_library.hpp"
#include "parallel/device.hpp"
#include "planning/cluster.hpp"

namespace espalier {
namespace {

std::optional<Accelerator> device_of(const RunConfig& config) {
  if (!config.run.cluster.empty())
    return cluster_from(config.run.cluster).device;
  const std::optional<std::string> preset = accelerator_named(device_name());
  return preset ? std::optional(accelerator_preset(*preset)) : std::nullopt;
}

}  // namespace

std::optional<double> peak_rate(const RunConfig& config, const Communicator& world) {
  Precision precision = config.layout.precision;
  const std::optional<Accelerator> device = device_of(config);
  if (!is_priced(precision) || !device ||
      device->moves_messages != exec_is_host)  // run.cluster may be of another machine
    return std::nullopt;
  if (matmul_library() == MatmulLibrary::cublaslt_tf32)
    precision = Precision::tf32;
  const MatrixRate& rate = device->rate(precision);
  if (rate.is_measured || rate.peak_flops <= 0)
    return std::nullopt;
  return rate.peak_flops * world.size() / world.context().ranks_per_device;
}

}  // namespace espalier
