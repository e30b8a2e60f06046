// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <string_view>

#include "core/types.hpp"

namespace espalier {

/// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011): a pure function from a
/// 64-bit key and a 128-bit counter to four words. No state, so a value does not depend on the rank that asks.
struct PhiloxBlock {
  std::uint32_t word[4];
};

KOKKOS_INLINE_FUNCTION PhiloxBlock philox(std::uint64_t key, std::uint64_t low, std::uint64_t high = 0) {
  std::uint32_t x0 = static_cast<std::uint32_t>(low), x1 = static_cast<std::uint32_t>(low >> 32);
  std::uint32_t x2 = static_cast<std::uint32_t>(high), x3 = static_cast<std::uint32_t>(high >> 32);
  std::uint32_t k0 = static_cast<std::uint32_t>(key), k1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = std::uint64_t{0xD2511F53u} * x0;
    const std::uint64_t product1 = std::uint64_t{0xCD9E8D57u} * x2;
    const std::uint32_t y0 = static_cast<std::uint32_t>(product1 >> 32) ^ x1 ^ k0;
    const std::uint32_t y2 = static_cast<std::uint32_t>(product0 >> 32) ^ x3 ^ k1;
    x1 = static_cast<std::uint32_t>(product1);
    x3 = static_cast<std::uint32_t>(product0);
    x0 = y0;
    x2 = y2;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {{x0, x1, x2, x3}};
}

/// Random numbers named by (seed, name): element `index` is the same on any rank and in any order.
class RandomStream {
 public:
  RandomStream(std::uint64_t seed, std::string_view name);

  std::uint64_t key() const { return key_; }

  /// 64 random bits.
  KOKKOS_INLINE_FUNCTION std::uint64_t bits(std::uint64_t index) const {
    const PhiloxBlock block = philox(key_, index);
    return (std::uint64_t{block.word[1]} << 32) | block.word[0];
  }

  /// Uniform in the open interval (0, 1).
  KOKKOS_INLINE_FUNCTION double uniform(std::uint64_t index) const {
    return (static_cast<double>(bits(index) >> 11) + 0.5) * 0x1p-53;
  }

  /// Standard normal, by Box and Muller's transformation of two uniforms of one block.
  KOKKOS_INLINE_FUNCTION double normal(std::uint64_t index) const {
    const PhiloxBlock block = philox(key_, index);
    const double u = (static_cast<double>(block.word[0]) + 0.5) * 0x1p-32;
    const double v = (static_cast<double>(block.word[1]) + 0.5) * 0x1p-32;
    return std::sqrt(-2.0 * std::log(u)) * std::cos(6.283185307179586 * v);
  }

 private:
  std::uint64_t key_;
};

/// A permutation of [0, size) as a pure function: the position `index` of pass `epoch` over a data set. A Feistel
/// network over the next even power of two, walked until the value lies inside (Black and Rogaway, 2002).
Index permuted_index(std::uint64_t seed, Index epoch, Index index, Index size);

}  // namespace espalier
