// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/precision.hpp"
#include "core/scalars.hpp"

namespace espalier {

/// The planner prices the first of all precisions: all but fp64.
inline constexpr std::size_t num_priced_precisions = 5;
constexpr bool is_priced(Precision precision) { return static_cast<std::size_t>(precision) < num_priced_precisions; }
std::optional<Precision> parse_priced_precision(std::string_view name);

/// What attention, head and loss are computed in where the products of the blocks are in `precision`: bf16 for fp8.
inline Precision attention_precision(Precision precision) {
  return precision == Precision::fp8 ? Precision::bf16 : precision;
}

/// Bytes of an element of the activations (fp8 computes on 16-bit activations that it casts).
int activation_bytes(Precision precision);

/// The matrix rate of a device in one precision: its peak, and the efficiency curve below it. One curve a device type
/// and precision, whatever runs on it.
struct MatrixRate {
  double peak_flops = 0;            ///< per second, dense; 0: the device has not this precision
  double matmul_efficiency = 0;     ///< of the peak, in a product so large that nothing is lost at its edges
  double half_depth = 0;            ///< inner dimension at which half of that is reached: share x k / (k + half_depth)
  double fill_waves = 0;            ///< waves of 128 x 128 tiles lost to filling and draining the processors
  double attention_efficiency = 0;  ///< of the peak, in a fused attention kernel with heads of 128
  double tuned_attention_efficiency = 0;  ///< the same of kernels written for this very device; 0: no better
  double attention_half_length =
      0;                     ///< sequence at which half of the attention share is reached: share x s / (s + this)
  bool is_measured = false;  ///< peak_flops is the measured GEMM rate, in place of the maker's peak
  double maker_peak = 0;     ///< that peak where peak_flops is measured; 0: unknown

  /// The maker's peak, which MFU refers to; 0: unknown.
  double peak() const { return is_measured ? maker_peak : peak_flops; }

  /// Share of the peak in a fused kernel over sequences so long.
  double attention(bool tuned, double length) const {
    const double share = tuned ? std::max(attention_efficiency, tuned_attention_efficiency) : attention_efficiency;
    return share * length / (length + attention_half_length);
  }
};

/// A device type: what it has, and what programs get out of it.
struct Accelerator {
  std::string name;
  Index memory_bytes = 0;
  double memory_bandwidth = 0;     ///< bytes per second
  double memory_efficiency = 0.8;  ///< of it, that elementwise kernels reach
  int processors = 1;              ///< streaming multiprocessors, compute units or cores: tiles that run at once
  double kernel_seconds = 0;       ///< of the host to start one kernel: what small operations cannot go below
  double step_seconds = 0;         ///< of a step, that belongs to no operation: data, clipping, logging
  double error_share = 0;  ///< of the calibration, either way; 0: not measured, published cases tell (interval.hpp)
  std::string unfitted;    ///< where nothing was fitted to runs on it: what its shares are taken from
  bool has_build = true;   ///< `train` can be built for it: CPUs and NVIDIA GPUs
  bool moves_messages = false;  ///< a CPU: the cores that compute also copy the messages, without overlap
  std::array<MatrixRate, num_precisions> rates;

  MatrixRate& rate(Precision precision) { return rates[static_cast<std::size_t>(precision)]; }
  const MatrixRate& rate(Precision precision) const { return rates[static_cast<std::size_t>(precision)]; }
  bool has(Precision precision) const { return rate(precision).peak_flops > 0; }
};

/// "Nothing was fitted to training runs on gh200: its efficiency is that of h100."; empty where something was.
std::string unfitted_text(const Accelerator& device);

/// Names of the precisions that is_priced(), "fp32" first.
std::vector<std::string> priced_precision_names();
/// Names of the precisions that the device has, "fp32" first.
std::vector<std::string> precision_names(const Accelerator& device);

/// Seconds of `batch` products (m x k) (k x n): the greater of arithmetic, by the efficiency curve, and traffic,
/// (m k + k n + m n) elements; the roofline of Williams et al. 2009.
double product_seconds(const Accelerator& device, Precision precision, double m, double n, double k, double batch = 1);

/// Seconds of an elementwise kernel that reads and writes `bytes`.
double traffic_seconds(const Accelerator& device, double bytes);

/// A device type by name ("a100-80"). @throws Error (usage) with the names known.
Accelerator accelerator_preset(const std::string& name);
std::vector<std::string> accelerator_preset_names();

/// The preset that a published name means ("A100-80GB-SXM", "NVIDIA H100 SXM"), if there is one.
std::optional<std::string> accelerator_named(std::string_view published);

}  // namespace espalier
