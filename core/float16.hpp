// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Kokkos_Core.hpp>
#include <cstdint>
#include <cstring>
#ifdef __CUDACC__
#include <cuda_fp16.h>
#endif
#if defined(__F16C__) && !defined(__CUDA_ARCH__)
#include <immintrin.h>
#endif

namespace espalier {

/// Storage type of 16 bits: IEEE 754 binary16, 5 bits of exponent and 10 of fraction, rounded to nearest even; what is
/// too large becomes infinite. Arithmetic is done in float.
struct float16 {
  std::uint16_t bits = 0;

  float16() = default;
  KOKKOS_INLINE_FUNCTION explicit float16(float value) {
#if defined(__CUDA_ARCH__)
    bits = __half_as_ushort(__float2half_rn(value));
#elif defined(__F16C__)
    bits = static_cast<std::uint16_t>(_cvtss_sh(value, _MM_FROUND_TO_NEAREST_INT));
#else
    bits = rounded(value);
#endif
  }
  KOKKOS_INLINE_FUNCTION operator float() const {
#if defined(__CUDA_ARCH__)
    return __half2float(__ushort_as_half(bits));
#elif defined(__F16C__)
    return _cvtsh_ss(bits);
#else
    return widened(bits);
#endif
  }

  /// The conversions in plain integer arithmetic, for CPUs without instructions for them.
  KOKKOS_INLINE_FUNCTION static std::uint16_t rounded(float value) {
    std::uint32_t word;
    std::memcpy(&word, &value, sizeof(word));
    const auto sign = static_cast<std::uint16_t>((word >> 16) & 0x8000u);
    const std::uint32_t magnitude = word & 0x7fffffffu;
    if (magnitude > 0x7f800000u)  // a NaN stays one, quiet
      return static_cast<std::uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
    if (magnitude >= 0x477ff000u)  // 65520 and more: infinite
      return static_cast<std::uint16_t>(sign | 0x7c00u);
    if (magnitude < 0x38800000u) {  // below 2^-14: subnormal; adding 0.5 rounds to multiples of 2^-24
      float shifted;
      std::memcpy(&shifted, &magnitude, sizeof(shifted));
      shifted += 0.5f;
      std::uint32_t sum;
      std::memcpy(&sum, &shifted, sizeof(sum));
      return static_cast<std::uint16_t>(sign | (sum - 0x3f000000u));
    }
    const std::uint32_t even = (magnitude >> 13) & 1u;
    return static_cast<std::uint16_t>(sign | ((magnitude - 0x38000000u + 0xfffu + even) >> 13));
  }
  KOKKOS_INLINE_FUNCTION static float widened(std::uint16_t half) {
    const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000u) << 16;
    const std::uint32_t magnitude = half & 0x7fffu;
    std::uint32_t word;
    float value;
    if (magnitude >= 0x7c00u) {  // infinite, or a NaN, which becomes quiet
      word = 0x7f800000u | ((magnitude & 0x3ffu) << 13) | (magnitude > 0x7c00u ? 0x400000u : 0u);
    } else if (magnitude < 0x400u) {  // subnormal: a multiple of 2^-24
      value = static_cast<float>(magnitude) * 5.9604644775390625e-8f;
      std::memcpy(&word, &value, sizeof(word));
    } else {
      word = (magnitude << 13) + 0x38000000u;
    }
    word |= sign;
    std::memcpy(&value, &word, sizeof(value));
    return value;
  }
};
static_assert(sizeof(float16) == 2, "espalier::float16 must be 16 bits wide on every backend");

}  // namespace espalier
