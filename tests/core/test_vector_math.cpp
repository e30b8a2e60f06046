// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <bit>
#include <cmath>

#include "core/vector_math.hpp"
#include "tests/support/allclose.hpp"

using namespace espalier;
using namespace espalier::test;

namespace {

Values vector_exp_of(const Values& x) {
  const auto count = static_cast<Index>(x.size());
  const auto in = on_device<float>(x, count);
  const auto out = undefined<float>(count);
  Kokkos::parallel_for(
      "espalier::tests::vector_exp", row_policy(ExecSpace(), 1), KOKKOS_LAMBDA(const TeamMember& team) {
        row_for(team, count, [&](const Index i) { out(i) = vector_exp(in(i)); });
      });
  return on_host(out);
}

double ulps(double actual, double exact) {
  const float nearest = static_cast<float>(exact);
  return std::abs(actual - exact) / static_cast<double>(std::nextafter(nearest, INFINITY) - nearest);
}

TEST(VectorMath, exp_is_within_2_ulp_over_its_whole_range) {
  // Every 617th of all floats between +-1e-10 and the ends of the range, both signs.
  for (const float end : {-87.0F, 88.0F}) {
    Values x;
    const auto sign = std::bit_cast<std::uint32_t>(end) & 0x80000000u;
    for (auto bits = std::bit_cast<std::uint32_t>(1e-10F); bits <= std::bit_cast<std::uint32_t>(std::abs(end));
         bits += 617)
      x.push_back(static_cast<double>(std::bit_cast<float>(bits | sign)));
    x.push_back(static_cast<double>(end));
    const Values actual = vector_exp_of(x);
    double worst = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double off = ulps(actual[i], std::exp(x[i]));
      worst = std::max(worst, off);
      ASSERT_LE(off, 2) << "exp(" << x[i] << ") = " << actual[i];
    }
    RecordProperty(end < 0 ? "worst_ulp_negative" : "worst_ulp_positive", std::to_string(worst));
  }
}

TEST(VectorMath, exp_saturates_and_keeps_nan) {
  const Values actual =
      vector_exp_of({0, -0.0, -1000, -HUGE_VAL, 1000, HUGE_VAL, std::nan(""), -std::nan(""), -87, 88});
  EXPECT_EQ(actual[0], 1);
  EXPECT_EQ(actual[1], 1);
  EXPECT_EQ(actual[2], actual[8]);
  EXPECT_EQ(actual[3], actual[8]);
  EXPECT_EQ(actual[4], actual[9]);
  EXPECT_EQ(actual[5], actual[9]);
  EXPECT_TRUE(std::isfinite(actual[9]));
  EXPECT_TRUE(std::isnan(actual[6]));
  EXPECT_TRUE(std::isnan(actual[7]));
}

TEST(VectorMath, exp_never_falls_where_x_rises) {
  Values x;
  for (int i = 0; i < 400000; ++i)
    x.push_back(-88 + i * 177.0 / 400000);
  const Values actual = vector_exp_of(x);
  for (std::size_t i = 1; i < x.size(); ++i)
    ASSERT_GE(actual[i], actual[i - 1] * (1 - 3e-7)) << "at x = " << x[i];
}

// Sums and maxima of rows of any length, and those made by more than one lane.
TEST(VectorMath, row_sum_and_row_max_see_every_element) {
  for (const Index length : {0, 1, 31, 32, 33, 64, 100, 1000}) {
    const Values x = random_values("x", length + 1);
    const auto in = on_device<double>(x, length + 1);
    const auto out = undefined<double>(Index{2});
    Kokkos::parallel_for(
        "espalier::tests::rows", row_policy(ExecSpace(), 1), KOKKOS_LAMBDA(const TeamMember& team) {
          const double sum = row_sum<double>(team, length, [=](const Index i) { return in(i); });
          const double largest = row_max<double>(team, length, [=](const Index i) { return in(i); });
          Kokkos::single(Kokkos::PerTeam(team), [&]() {
            out(0) = sum;
            out(1) = largest;
          });
        });
    double sum = 0;
    double largest = -Kokkos::reduction_identity<double>::min();
    for (std::size_t i = 0; i < static_cast<std::size_t>(length); ++i) {
      sum += x[i];
      largest = std::max(largest, x[i]);
    }
    const Values actual = on_host(out);
    EXPECT_NEAR(actual[0], sum, 1e-12);
    EXPECT_EQ(actual[1], largest) << "length " << length;
  }
}

TEST(VectorMath, more_rows_than_kokkos_counts_teams_are_refused) {
  EXPECT_NO_THROW(row_policy(ExecSpace(), 0));
  EXPECT_THROW(row_policy(ExecSpace(), Index{1} << 31), std::logic_error);
}

}  // namespace
