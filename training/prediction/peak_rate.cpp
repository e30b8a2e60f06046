// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/prediction/peak_rate.hpp"

#include "core/ops/matmul_library.hpp"
#include "parallel/device/device.hpp"
#include "training/prediction/predict_time.hpp"

namespace espalier {
namespace {

// By its own name, which a config cannot give it wrongly; by run.cluster where that name is not known. "NVIDIA H200 MIG
// 1g.18gb" has the name of the whole GPU and some of its processors; a cluster file describes the part itself.
struct Found {
  Accelerator device;
  double share = 1;  // of the device
};

std::optional<Found> device_of(const RunConfig& config) {
  if (const std::optional<std::string> preset = accelerator_named(device_name())) {
    const Accelerator whole = accelerator_preset(*preset);
    const bool is_part = device_name().find(" MIG ") != std::string::npos && device_processors() > 0;
    return Found{whole, is_part ? static_cast<double>(device_processors()) / whole.processors : 1};
  }
  return config.run.cluster.empty() ? std::nullopt : std::optional(Found{cluster_of(config).device});
}

}  // namespace

std::optional<double> peak_rate(const RunConfig& config, const Communicator& world) {
  if (config.emulates_operations())
    return std::nullopt;
  Precision precision = config.layout.precision;
  const std::optional<Found> found = device_of(config);
  if (!is_priced(precision) || !found ||
      found->device.moves_messages != exec_is_host)  // run.cluster may be of another machine
    return std::nullopt;
  if (matmul_library() == MatmulLibrary::cublaslt_tf32)
    precision = Precision::tf32;
  const MatrixRate& rate = found->device.rate(precision);
  if (rate.is_measured || rate.peak_flops <= 0)
    return std::nullopt;
  return rate.peak_flops * found->share * world.size() / world.context().ranks_per_device;
}

}  // namespace espalier
