// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>

#include "core/float16.hpp"

using espalier::float16;

namespace {

float value_of(std::uint16_t bits) {
  float16 half;
  half.bits = bits;
  return static_cast<float>(half);
}

// What the format says: sign, 5 bits of exponent, 10 of fraction.
double by_definition(std::uint16_t bits) {
  const int exponent = bits >> 10 & 31;
  const double fraction = (bits & 1023) / 1024.0;
  const double magnitude = exponent == 0    ? std::ldexp(fraction, -14)
                           : exponent == 31 ? (fraction == 0 ? HUGE_VAL : std::nan(""))
                                            : std::ldexp(1 + fraction, exponent - 15);
  return std::copysign(magnitude, (bits & 0x8000) != 0 ? -1.0 : 1.0);
}

TEST(Float16, every_value_is_that_of_the_format_and_survives_the_way_through_float) {
  for (std::uint32_t bits = 0; bits < 0x10000u; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const double wanted = by_definition(half);
    if (std::isnan(wanted)) {
      ASSERT_TRUE(std::isnan(value_of(half)) && std::isnan(float16::widened(half))) << bits;
      ASSERT_TRUE(std::isnan(value_of(float16(value_of(half)).bits))) << bits;
    } else {
      ASSERT_EQ(static_cast<double>(value_of(half)), wanted) << bits;
      ASSERT_EQ(static_cast<double>(float16::widened(half)), wanted) << bits;
      ASSERT_EQ(float16(value_of(half)).bits, half);
    }
  }
}

TEST(Float16, rounds_to_nearest_even_with_and_without_instructions) {
  for (std::uint32_t bits = 0; bits < 0x7c00u; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const double low = by_definition(half);
    const double high = bits + 1 == 0x7c00u ? 65536.0 : by_definition(static_cast<std::uint16_t>(bits + 1));
    const auto middle = static_cast<float>((low + high) / 2);
    const std::uint16_t even = (bits & 1u) == 0 ? half : static_cast<std::uint16_t>(bits + 1);
    for (const float sign : {1.0f, -1.0f}) {
      const std::uint16_t mark = sign < 0 ? 0x8000u : 0u;
      const auto check = [&](float value, std::uint32_t wanted) {
        ASSERT_EQ(float16(sign * value).bits, wanted | mark) << std::hexfloat << value;
        ASSERT_EQ(float16::rounded(sign * value), wanted | mark) << std::hexfloat << value;
      };
      check(middle, even);
      check(std::nextafterf(middle, 0.0f), bits);
      check(std::nextafterf(middle, 1e9f), bits + 1);
    }
  }
}

TEST(Float16, what_is_too_large_is_infinite_and_nan_stays) {
  for (const float large : {65520.0f, 1e6f, 3e38f, HUGE_VALF}) {
    EXPECT_EQ(float16(large).bits, 0x7c00u);
    EXPECT_EQ(float16::rounded(-large), 0xfc00u);
  }
  EXPECT_TRUE(std::isnan(float16::widened(float16::rounded(std::nanf("")))));
  EXPECT_EQ(float16(1e-9f).bits, 0u) << "what is too small is zero: the reason for loss scaling";
}

}  // namespace
