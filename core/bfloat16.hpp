// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Kokkos_Core.hpp>
#include <cstdint>
#include <cstring>
#ifdef __CUDACC__
#include <cuda_bf16.h>
#endif

namespace espalier {

/// Storage type of 16 bits: the upper half of an fp32, rounded to nearest even. Arithmetic is done in float.
/// Kokkos' own half types are 32 bits wide on hosts, which would void the point of 16-bit storage.
struct bfloat16 {
  std::uint16_t bits = 0;

  bfloat16() = default;
  KOKKOS_INLINE_FUNCTION explicit bfloat16(float value) {
#if defined(__CUDA_ARCH__)
    bits = __bfloat16_as_ushort(__float2bfloat16_rn(value));
#else
    std::uint32_t word;
    std::memcpy(&word, &value, sizeof(word));
    const bool is_nan = (word & 0x7fffffffu) > 0x7f800000u;
    const std::uint32_t rounded = word + 0x7fffu + ((word >> 16) & 1u);
    bits = static_cast<std::uint16_t>(is_nan ? (word >> 16) | 0x40u : rounded >> 16);  // a NaN stays one, quiet
#endif
  }
  KOKKOS_INLINE_FUNCTION operator float() const {
    const std::uint32_t word = static_cast<std::uint32_t>(bits) << 16;
    float value;
    std::memcpy(&value, &word, sizeof(value));
    return value;
  }
};
static_assert(sizeof(bfloat16) == 2, "espalier::bfloat16 must be 16 bits wide on every backend");

}  // namespace espalier
