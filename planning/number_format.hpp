// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>

#include "planning/accelerator.hpp"

namespace espalier {

/// A floating-point format: numbers (1 + s / 2^significand_bits) 2^e, and below the smallest of them multiples of the
/// least one.
struct NumberFormat {
  const char* name;
  int significand_bits;  ///< as stored: without the leading 1
  int exponent_bits;
  double largest;

  /// Below it numbers lose digits.
  double smallest_normal() const { return std::ldexp(1.0, 2 - (1 << (exponent_bits - 1))); }
  /// Below half of it they are 0.
  double least() const { return std::ldexp(smallest_normal(), -significand_bits); }
  /// Share of a number below which what is added to it is always rounded away: half of the spacing of numbers over the
  /// largest number that has it.
  double lost_update() const { return std::ldexp(1.0, -significand_bits - 2); }
};

inline constexpr NumberFormat fp32_format{"fp32", 23, 8, 0x1.fffffep127};
inline constexpr NumberFormat tf32_format{"tf32", 10, 8, 0x1.ffcp127};
inline constexpr NumberFormat fp16_format{"fp16", 10, 5, 65504};
inline constexpr NumberFormat bf16_format{"bf16", 7, 8, 0x1.fep127};
/// Both of fp8 [Micikevicius et al. 2022, Table 1]: for weights and activations, and for gradients.
inline constexpr NumberFormat e4m3_format{"fp8 (e4m3)", 3, 4, 448};
inline constexpr NumberFormat e5m2_format{"fp8 (e5m2)", 2, 5, 57344};

/// Of what is kept between operations: that of the precision, and bf16 where products cast to fp8.
constexpr const NumberFormat& kept_format(Precision precision) {
  switch (precision) {
    case Precision::fp32:
    case Precision::tf32: return fp32_format;
    case Precision::fp16: return fp16_format;
    case Precision::bf16:
    case Precision::fp8:
    case Precision::fp64: break;
  }
  return bf16_format;
}

}  // namespace espalier
