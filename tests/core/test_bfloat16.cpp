// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "core/bfloat16.hpp"

using espalier::bfloat16;

namespace {

// Round to nearest even by arithmetic: the two neighbours of 16 bits, the nearer one, on a tie the even one.
std::uint16_t rounded_bits(float value) {
  const auto word = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t below = word & 0xffff0000u;  // towards zero
  const std::uint32_t above = below + 0x10000u;    // away from zero; infinity after the largest
  const auto distance_to = [&](std::uint32_t neighbour) {
    const bool infinite = (neighbour & 0x7fffffffu) == 0x7f800000u;
    const double as_double =
        infinite ? std::copysign(0x1p128, value) : static_cast<double>(std::bit_cast<float>(neighbour));
    return std::abs(static_cast<double>(value) - as_double);
  };
  const double to_below = distance_to(below);
  const double to_above = distance_to(above);
  const bool up = to_above < to_below || (to_above == to_below && (below >> 16 & 1u) != 0);
  return static_cast<std::uint16_t>((up ? above : below) >> 16);
}

TEST(Bfloat16, every_value_survives_the_way_through_float) {
  for (std::uint32_t bits = 0; bits < 0x10000u; ++bits) {
    bfloat16 value;
    value.bits = static_cast<std::uint16_t>(bits);
    const float as_float = static_cast<float>(value);
    if (std::isnan(as_float))
      EXPECT_TRUE(std::isnan(static_cast<float>(bfloat16(as_float)))) << bits;
    else
      ASSERT_EQ(bfloat16(as_float).bits, bits);
  }
}

TEST(Bfloat16, rounds_to_nearest_even) {
  // All upper halves with the lower halves that decide, and a walk over the others.
  for (std::uint32_t upper = 0; upper < 0x10000u; ++upper) {
    if ((upper & 0x7f80u) == 0x7f80u)
      continue;  // infinities and NaN
    for (const std::uint32_t lower : {0u, 1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu, (upper * 40503u) & 0xffffu}) {
      const float value = std::bit_cast<float>(upper << 16 | lower);
      ASSERT_EQ(bfloat16(value).bits, rounded_bits(value)) << std::hexfloat << value;
    }
  }
}

TEST(Bfloat16, infinities_and_nan_stay_what_they_are) {
  EXPECT_EQ(bfloat16(INFINITY).bits, 0x7f80);
  EXPECT_EQ(bfloat16(-INFINITY).bits, 0xff80);
  EXPECT_EQ(bfloat16(3.4e38F).bits, 0x7f80) << "above the largest value lies infinity";
  for (const std::uint32_t word : {0x7f800001u, 0x7fc00000u, 0x7fffffffu, 0xff800001u, 0xffffffffu})
    EXPECT_TRUE(std::isnan(static_cast<float>(bfloat16(std::bit_cast<float>(word))))) << std::hex << word;
}

}  // namespace
