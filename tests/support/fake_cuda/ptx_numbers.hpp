// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace fake_cuda {

inline std::uint32_t bits_of(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}
inline float float_of(std::uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

/// The upper half of an fp32, rounded to nearest, ties to even.
struct BFloat {
  std::uint16_t bits = 0;
  BFloat() = default;
  explicit BFloat(float value) {
    const std::uint32_t all = bits_of(value);
    bits = static_cast<std::uint16_t>(std::isnan(value) ? 0x7fffU : (all + 0x7fffU + (all >> 16 & 1)) >> 16);
  }
  operator float() const { return float_of(static_cast<std::uint32_t>(bits) << 16); }
};

/// IEEE's binary16: 10 bits behind the point, exponents from -14 to 15, and below multiples of 2^-24.
struct Half {
  std::uint16_t bits = 0;
  Half() = default;
  explicit Half(float value) {
    const std::uint32_t sign = bits_of(value) >> 16 & 0x8000U;
    const float magnitude = std::fabs(value);
    std::uint32_t rounded = 0;
    if (std::isnan(value)) {
      rounded = 0x7fff;
    } else if (magnitude >= 65520.0F) {  // the middle between the largest number and the one that would be next
      rounded = 0x7c00;
    } else if (magnitude > 0) {
      int exponent;
      std::frexp(magnitude, &exponent);  // magnitude < 2^exponent
      const int unit = std::max(exponent - 11, -24);
      const auto units = static_cast<std::uint32_t>(std::nearbyint(std::ldexp(magnitude, -unit)));
      rounded = units + (static_cast<std::uint32_t>(unit + 24) << 10);  // 1024 units carry into the exponent
    }
    bits = static_cast<std::uint16_t>(sign | rounded);
  }
  operator float() const {
    const int exponent = bits >> 10 & 31, fraction = bits & 1023;
    const float magnitude = exponent == 31  ? (fraction == 0 ? INFINITY : NAN)
                            : exponent == 0 ? std::ldexp(static_cast<float>(fraction), -24)
                                            : std::ldexp(static_cast<float>(1024 + fraction), exponent - 25);
    return (bits & 0x8000) != 0 ? -magnitude : magnitude;
  }
};

template <class T>
constexpr bool is_short = std::is_same_v<T, Half> || std::is_same_v<T, BFloat>;

}  // namespace fake_cuda
