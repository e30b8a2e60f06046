// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <limits>

#include "core/ops/finite.hpp"
#include "tests/support/allclose.hpp"

using namespace espalier;
using namespace espalier::test;

namespace {

template <class S>
Index first_in(const Values& values) {
  return first_not_finite<S>(ExecSpace(), on_device<S>(values, static_cast<Index>(values.size())));
}

TEST(Finite, the_first_value_that_is_none_is_found) {
  const Values good = random_values("values", 70001);
  EXPECT_EQ(first_in<float>(good), 70001);
  EXPECT_EQ(first_in<double>(good), 70001);
  EXPECT_EQ(first_in<float>(Values{}), 0);
  for (const double bad : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(),
                           -std::numeric_limits<double>::infinity()})
    for (const std::size_t at : {std::size_t{0}, std::size_t{12345}, std::size_t{70000}}) {
      Values values = good;
      values[at] = values[70000] = bad;
      EXPECT_EQ(first_in<float>(values), static_cast<Index>(at));
      EXPECT_EQ(first_in<double>(values), static_cast<Index>(at));
    }
}

template <class S>
Index first_unsound_in(const Values& m, const Values& v) {
  const auto size = static_cast<Index>(m.size());
  return first_unsound_moment<S>(ExecSpace(), on_device<S>(m, size), on_device<S>(v, size));
}

TEST(Finite, moments_that_no_gradients_leave_are_found) {
  Values m = random_values("m", 70001);
  Values v = m;
  for (double& square : v)
    square *= square;
  v[7] = 0;
  m[7] = 1e-20;  // a gradient whose square is below the smallest number
  EXPECT_EQ(first_unsound_in<float>(m, v), 70001);
  EXPECT_EQ(first_unsound_in<double>(m, v), 70001);
  for (const std::size_t at : {std::size_t{0}, std::size_t{69999}}) {
    Values negative = v;
    negative[at] = -1e-30;
    EXPECT_EQ(first_unsound_in<float>(m, negative), static_cast<Index>(at));
    for (const double bad : {1e30, -1e30}) {
      Values large = m;
      large[at] = bad;
      EXPECT_EQ(first_unsound_in<float>(large, v), static_cast<Index>(at));
      EXPECT_EQ(first_unsound_in<double>(large, v), static_cast<Index>(at));
    }
  }
}

TEST(Finite, the_largest_numbers_are_finite) {
  const double largest = std::numeric_limits<float>::max();
  EXPECT_EQ(first_in<float>(Values{largest, -largest, 1e-45}), 3);
  EXPECT_EQ(first_in<double>(Values{1e308, -1e308}), 2);
}

}  // namespace
