// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "core/random.hpp"

#include "core/error.hpp"

namespace espalier {
namespace {

// FNV-1a over the name, then a 64-bit finaliser (splitmix64) so that close seeds give unrelated keys.
std::uint64_t hash_name(std::uint64_t seed, std::string_view name) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : name)
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  std::uint64_t x = hash ^ (seed * 0x9E3779B97F4A7C15u);
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

}  // namespace

RandomStream::RandomStream(std::uint64_t seed, std::string_view name) : key_(hash_name(seed, name)) {}

Index permuted_index(std::uint64_t seed, Index epoch, Index index, Index size) {
  ESPALIER_ASSERT(index >= 0 && index < size,
                  "there is no index " + std::to_string(index) + " in a range of " + std::to_string(size));
  int half_bits = 1;
  while ((Index{1} << (2 * half_bits)) < size)
    ++half_bits;
  const std::uint64_t mask = (std::uint64_t{1} << half_bits) - 1;
  const RandomStream key(seed + static_cast<std::uint64_t>(epoch) * 0x9E3779B97F4A7C15u, "data_order");
  auto x = static_cast<std::uint64_t>(index);
  do {  // at most four times on average, as the domain is less than four times the size
    std::uint64_t left = x >> half_bits;
    std::uint64_t right = x & mask;
    for (std::uint64_t round = 0; round < 6; ++round) {
      const std::uint64_t mixed = left ^ (key.bits((round << 56) | right) & mask);
      left = right;
      right = mixed;
    }
    x = (left << half_bits) | right;
  } while (x >= static_cast<std::uint64_t>(size));
  return static_cast<Index>(x);
}

}  // namespace espalier
