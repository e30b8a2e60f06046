// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

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

// In lanes and in order, and the largest.
Values sums_and_maximum(const Tensor<double, 1>& in, Index length) {
  const auto out = undefined<double>(Index{3});
  Kokkos::parallel_for(
      "espalier::tests::rows", row_policy(ExecSpace(), 1), KOKKOS_LAMBDA(const TeamMember& team) {
        const double sum = row_sum<double>(team, length, [=](const Index i) { return in(i); });
        const double ordered = sum_in_order<double>(team, length, [=](const Index i) { return in(i); });
        const double largest = row_max<double>(team, length, [=](const Index i) { return in(i); });
        Kokkos::single(Kokkos::PerTeam(team), [&]() {
          out(0) = sum;
          out(1) = ordered;
          out(2) = largest;
        });
      });
  return on_host(out);
}

// a - b of `length` elements from `offset` in an array that is NaN elsewhere, and their sum.
std::pair<Values, double> map_and_sum(const Tensor<bfloat16, 1>& a, const Tensor<double, 1>& b, Index offset,
                                      Index length) {
  const auto out = undefined<double>(static_cast<Index>(a.extent(0)));
  const auto total = undefined<double>(Index{1});
  Kokkos::parallel_for(
      "espalier::tests::map", row_policy(ExecSpace(), 1), KOKKOS_LAMBDA(const TeamMember& team) {
        const bfloat16* const first = a.data() + offset;
        const double* const second = b.data() + offset;
        const auto difference = [](const bfloat16 x, const double y) { return static_cast<double>(x) - y; };
        map_row(team, length, out.data() + offset, difference, first, second);
        const double sum = sum_of_row<double>(team, length, difference, first, second);
        Kokkos::single(Kokkos::PerTeam(team), [&]() { total(0) = sum; });
      });
  return {on_host(out), on_host(total)[0]};
}

struct RowResults {
  Values sums, largest, visits;
};

RowResults results_of_rows(const Tensor<bfloat16, 2>& in) {
  const Index rows = in.extent(0), length = in.extent(1);
  const auto sums = undefined<double>(rows), largest = undefined<double>(rows);
  const auto visits = on_device<double>(Values(static_cast<std::size_t>(rows), 0.0), rows);
  for_rows(
      ExecSpace(), "espalier::tests::for_rows", rows, KOKKOS_LAMBDA(const Index n, const TeamThread& thread) {
        const auto widen = [](const bfloat16 value) { return static_cast<double>(value); };
        const double sum = sum_of_row<double>(thread, length, widen, &in(n, 0));
        const double most = max_of_row<double>(thread, length, &in(n, 0));
        Kokkos::single(Kokkos::PerThread(thread.team), [&]() {
          sums(n) = sum;
          largest(n) = most;
          visits(n) += 1;
        });
      });
  return {on_host(sums), on_host(largest), on_host(visits)};
}

double ulps(double actual, double exact) {
  const float nearest = static_cast<float>(exact);
  return std::abs(actual - exact) / static_cast<double>(std::nextafter(nearest, INFINITY) - nearest);
}

TEST(VectorMath, exp_is_within_2_ulp_over_its_whole_range) {
  // Every 617th of all floats between +-1e-10 and the ends of the range, both signs.
  for (const float end : {-64.0F, 64.0F}) {
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

TEST(VectorMath, exp_at_the_ends_of_its_range) {
  const Values actual =
      vector_exp_of({0, -0.0, -1000, -HUGE_VAL, 1000, HUGE_VAL, std::nan(""), -std::nan(""), -64, 64});
  EXPECT_EQ(actual[0], 1);
  EXPECT_EQ(actual[1], 1);
  EXPECT_EQ(actual[2], exec_is_host ? actual[8] : 0);
  EXPECT_EQ(actual[3], exec_is_host ? actual[8] : 0);
  EXPECT_EQ(actual[4], exec_is_host ? actual[9] : HUGE_VAL);
  EXPECT_EQ(actual[5], exec_is_host ? actual[9] : HUGE_VAL);
  EXPECT_TRUE(std::isfinite(actual[9]));
  EXPECT_TRUE(std::isnan(actual[6]));
  EXPECT_TRUE(std::isnan(actual[7]));
}

TEST(VectorMath, exp_never_falls_where_x_rises) {
  Values x;
  for (int i = 0; i < 400000; ++i)
    x.push_back(-65 + i * 130.0 / 400000);
  const Values actual = vector_exp_of(x);
  for (std::size_t i = 1; i < x.size(); ++i)
    ASSERT_GE(actual[i], actual[i - 1] * (1 - 3e-7)) << "at x = " << x[i];
}

// Sums and maxima of rows of any length, and those made by more than one lane.
TEST(VectorMath, row_sum_and_row_max_see_every_element) {
  for (const Index length : {0, 1, 31, 32, 33, 64, 100, 1000}) {
    const Values x = random_values("x", length + 1);
    const auto in = on_device<double>(x, length + 1);
    double sum = 0;
    double largest = lowest<double>;
    for (std::size_t i = 0; i < static_cast<std::size_t>(length); ++i) {
      sum += x[i];
      largest = std::max(largest, x[i]);
    }
    const Values actual = sums_and_maximum(in, length);
    EXPECT_NEAR(actual[0], sum, 1e-12);
    EXPECT_NEAR(actual[1], sum, 1e-12);
    EXPECT_EQ(actual[2], largest) << "length " << length;
  }
}

// Rows that GPUs take in packs of 8, with and without a rest, and rows that begin between two packs.
TEST(VectorMath, map_row_and_sum_of_row_see_every_element) {
  for (const Index length : {0, 1, 7, 8, 9, 1024, 1031})
    for (const Index offset : {0, 1, 8}) {
      const Values a = rounded<bfloat16>(random_values("a", length + 8)), b = random_values("b", length + 8);
      const auto [mapped, sum] =
          map_and_sum(on_device<bfloat16>(a, length + 8), on_device<double>(b, length + 8), offset, length);
      double wanted = 0;
      for (Index i = 0; i < length; ++i) {
        const auto at = static_cast<std::size_t>(offset + i);
        ASSERT_EQ(mapped[at], a[at] - b[at]) << "length " << length << ", offset " << offset << ", element " << i;
        wanted += a[at] - b[at];
      }
      EXPECT_NEAR(sum, wanted, 1e-12);
      for (std::size_t i = 0; i < mapped.size(); ++i)
        EXPECT_EQ(std::isnan(mapped[i]),
                  i < static_cast<std::size_t>(offset) || i >= static_cast<std::size_t>(offset + length));
    }
}

// Odd numbers of rows, one a thread of a team.
TEST(VectorMath, for_rows_gives_each_row_to_one_thread) {
  for (const Index rows : {0, 1, 3, 4, 5, 129})
    for (const Index length : {1, 7, 8, 33, 100}) {
      const Values x = rounded<bfloat16>(random_values("x", rows * length));
      const RowResults actual = results_of_rows(on_device<bfloat16>(x, rows, length));
      EXPECT_EQ(actual.visits, Values(static_cast<std::size_t>(rows), 1.0));
      for (std::size_t n = 0; n < actual.sums.size(); ++n) {
        const auto begin = x.begin() + static_cast<Index>(n) * length, end = begin + length;
        EXPECT_NEAR(actual.sums[n], std::accumulate(begin, end, 0.0), 1e-12);
        EXPECT_EQ(actual.largest[n], *std::max_element(begin, end)) << length;
      }
    }
}

TEST(VectorMath, more_rows_than_kokkos_counts_teams_are_refused) {
  EXPECT_NO_THROW(row_policy(ExecSpace(), 0));
  EXPECT_THROW(row_policy(ExecSpace(), Index{1} << 31), std::logic_error);
}

}  // namespace
