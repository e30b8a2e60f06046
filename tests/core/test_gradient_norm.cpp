// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "core/ops/gradient_norm.hpp"
#include "tests/support/allclose.hpp"

using namespace espalier;
using namespace espalier::test;

namespace {

using Range = SquaredNorm::Range;

template <class T>
Values sums_of(const Values& values, const std::vector<Range>& ranges) {
  const SquaredNorm norm(ExecSpace(), ranges);
  norm.compute<T>(ExecSpace(), on_device<T>(values, static_cast<Index>(values.size())));
  return on_host(norm.sums());
}

TEST(Norm, squares_are_summed_range_by_range) {
  const Values values = random_values("values", 200000);
  // Short ranges, gaps, an empty one, one of several pieces of 32768, one exactly a piece long.
  const std::vector<Range> ranges = {{0, 1}, {5, 7}, {100, 0}, {128, 32768}, {40000, 100003}, {199999, 1}};
  Values wanted;
  for (const Range& range : ranges) {
    double sum = 0;
    for (Index i = range.offset; i < range.offset + range.size; ++i)
      sum += values[static_cast<std::size_t>(i)] * values[static_cast<std::size_t>(i)];
    wanted.push_back(sum);
  }
  EXPECT_TRUE(allclose(sums_of<double>(values, ranges), wanted, 1e-13));
  EXPECT_TRUE(allclose(sums_of<float>(values, ranges), wanted, 1e-6));
}

TEST(Norm, a_range_gives_the_same_bits_wherever_it_lies) {
  const Values part = random_values("part", 70000);
  Values shifted(123, 9.0);
  shifted.insert(shifted.end(), part.begin(), part.end());
  EXPECT_EQ(sums_of<float>(part, {{0, 70000}})[0], sums_of<float>(shifted, {{0, 50}, {123, 70000}})[1]);
}

TEST(Norm, fp32_does_not_overflow_in_the_square) {
  EXPECT_TRUE(allclose(sums_of<float>(Values(10, 1e30), {{0, 10}}), {1e61}, 1e-6));
}

TEST(Norm, is_computed_again_from_new_values) {
  const SquaredNorm norm(ExecSpace(), {{0, 4}});
  const auto values = on_device<double>(Values{1, 2, 3, 4}, 4);
  norm.compute<double>(ExecSpace(), values);
  norm.compute<double>(ExecSpace(), values);
  EXPECT_EQ(on_host(norm.sums())[0], 30);
}

struct Clip {
  double norm, factor;
};
Clip clip(const Values& sums, double max_norm) {
  const Tensor<double, 0> norm("espalier::other::norm");
  const Tensor<double, 0> factor("espalier::other::factor");
  clip_factor(ExecSpace(), norm, factor, on_device<double>(sums, static_cast<Index>(sums.size())), max_norm);
  return {on_host(norm)[0], on_host(factor)[0]};
}

TEST(Norm, clip_factor_scales_down_only) {
  EXPECT_EQ(clip({9, 16}, 1).norm, 5);
  EXPECT_DOUBLE_EQ(clip({9, 16}, 1).factor, 0.2);
  EXPECT_EQ(clip({9, 16}, 10).factor, 1);
  EXPECT_EQ(clip({9, 16}, 0).factor, 1) << "0 switches clipping off";
  EXPECT_EQ(clip({0, 0}, 1).factor, 1);
}

// The factor of 2 after a look at loss and norm.
double held(double loss, double norm, const UpdateLimits& limits) {
  const Tensor<double, 0> factor("espalier::other::factor");
  Kokkos::deep_copy(factor, 2.0);
  const auto values = on_device<double>(Values{loss, norm}, 2);
  hold_update(ExecSpace(), factor, Tensor<double, 0>(values.data()), Tensor<double, 0>(values.data() + 1), limits);
  return on_host(factor)[0];
}

TEST(Norm, an_update_is_held_above_its_limits_and_where_a_value_is_not_finite) {
  const UpdateLimits limits{.loss = 3, .gradient_norm = 5};
  EXPECT_EQ(held(3, 5, limits), 2);
  EXPECT_EQ(held(-1e300, 0, limits), 2);
  EXPECT_EQ(held(std::nextafter(3, 4), 5, limits), 0);
  EXPECT_EQ(held(3, std::nextafter(5, 6), limits), 0);
  EXPECT_EQ(held(1e300, 1e300, {}), 2);
  for (const double wrong : {std::nan(""), HUGE_VAL, -HUGE_VAL}) {
    EXPECT_EQ(held(wrong, 1, {}), 0) << wrong;
    EXPECT_EQ(held(1, wrong, {}), 0) << wrong;
  }
}

TEST(Norm, what_is_not_finite_shows_in_the_norm) {
  EXPECT_TRUE(std::isnan(clip({1, std::nan("")}, 1).norm));
  EXPECT_TRUE(std::isinf(clip({1, HUGE_VAL}, 1).norm));
}

}  // namespace
