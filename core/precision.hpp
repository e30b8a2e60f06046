// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

namespace espalier {

/// What matmuls are computed in.
enum class Precision { fp32, tf32, fp16, bf16, fp8, fp64 };
inline constexpr std::size_t num_precisions = 6;

inline const std::vector<Precision>& all_precisions() {
  static const std::vector<Precision> precisions{Precision::fp32, Precision::tf32, Precision::fp16,
                                                 Precision::bf16, Precision::fp8,  Precision::fp64};
  return precisions;
}

constexpr const char* to_string(Precision precision) {
  switch (precision) {
    case Precision::fp32: return "fp32";
    case Precision::tf32: return "tf32";
    case Precision::fp16: return "fp16";
    case Precision::bf16: return "bf16";
    case Precision::fp8: return "fp8";
    case Precision::fp64: return "fp64";
  }
  return "unknown";
}

/// Whether its numbers have 16 bits, as they are stored.
constexpr bool is_16_bits(Precision precision) { return precision == Precision::fp16 || precision == Precision::bf16; }

inline std::optional<Precision> parse_precision(std::string_view name) {
  for (const Precision precision : all_precisions())
    if (name == to_string(precision))
      return precision;
  return std::nullopt;
}

}  // namespace espalier
