// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "core/ops/rmsnorm.hpp"
#include "tests/support/gradient_check.hpp"
#include "tests/support/reference_ops.hpp"

using namespace espalier;
using namespace espalier::test;

namespace {

constexpr double rmsnorm_eps = 0.1;  // so large that finite differences of a single channel are smooth

// Rows of `groups` groups; in the middle of rows with `beside` more columns on either side.
struct RmsnormSizes {
  Index rows, groups, channels, beside = 0;
  Index columns() const { return groups * channels; }
};

struct RmsnormCase {
  Values x, weight, dy, dstream;
  RmsnormCase(const RmsnormSizes& s)
      : x(random_values("x", s.rows * s.columns(), 3)),
        weight(random_values("weight", s.channels)),
        dy(random_values("dy", s.rows * s.columns())),
        dstream(random_values("dx", s.rows * s.columns())) {}
};

// A window of wider rows, the rest of which is NaN.
template <class T>
struct ColumnWindow {
  Tensor<T, 2> whole, columns;

  ColumnWindow(const Values& values, const RmsnormSizes& s)
      : whole(undefined<T>(s.rows, s.columns() + 2 * s.beside)),
        columns(Kokkos::subview(whole, Kokkos::ALL,
                                std::pair<Index, Index>(s.beside, s.beside + static_cast<Index>(s.columns())))) {
    Kokkos::deep_copy(columns, on_device<T>(values, s.rows, s.columns()));
  }
  Values host() const {
    const Tensor<T, 2> copy("espalier::other::test", columns.extent(0), columns.extent(1));
    Kokkos::deep_copy(copy, columns);
    EXPECT_EQ(std::ranges::count_if(on_host(whole), [](double value) { return std::isnan(value); }),
              static_cast<std::ptrdiff_t>(whole.size() - columns.size()))
        << "written beside the window";
    return on_host(copy);
  }
};

Values zeros_like(const RmsnormSizes& s) { return Values(static_cast<std::size_t>(s.rows * s.columns()), 0.0); }

Values without(Values a, const Values& b) {
  for (std::size_t i = 0; i < a.size(); ++i)
    a[i] -= b[i];
  return a;
}

struct RmsnormResult {
  Values y, dx, dx_alone, dweight;
};

// With and without what passes along the residual stream, in place and not, by rows and by partial sums.
template <class T, class R = T>
RmsnormResult run_rmsnorm(const RmsnormCase& c, const RmsnormSizes& s) {
  const ExecSpace exec;
  const ColumnWindow<R> x(c.x, s), dstream(c.dstream, s), dx(zeros_like(s), s), alone(zeros_like(s), s);
  const ColumnWindow<T> dy(c.dy, s), y(zeros_like(s), s);
  const auto weight = on_device<T>(c.weight, s.channels);
  const auto rstd = undefined<State<T>>(s.rows * s.groups);
  rmsnorm_forward<T, R>(exec, y.columns, rstd, x.columns, weight, rmsnorm_eps);
  rmsnorm_backward_input<T, R>(exec, dx.columns, dstream.columns, dy.columns, x.columns, rstd, weight);
  rmsnorm_backward_input<T, R>(exec, alone.columns, {}, dy.columns, x.columns, rstd, weight);
  const auto dweight = on_device<State<T>>(Values(c.weight.size(), 2.0), s.channels);
  rmsnorm_backward_weight<T, R>(exec, dweight, dy.columns, x.columns, rstd, 1);
  const auto assigned = undefined<State<T>>(s.channels);
  const auto expect_sums_without_start = [&] {
    EXPECT_TRUE(
        allclose(on_host(assigned), without(on_host(dweight), Values(c.weight.size(), 2.0)), tolerance<State<T>>));
  };
  rmsnorm_backward_weight<T, R>(exec, assigned, dy.columns, x.columns, rstd, 0);
  expect_sums_without_start();
  const RmsnormResult result{y.host(), dx.host(), alone.host(), on_host(dweight)};

  for (const Index partial_rows : {Index{1}, std::min<Index>(3, s.rows), s.rows}) {
    if (s.groups > 1 || s.beside > 0 || rmsnorm_partial_rows(s.rows, s.channels) == 0)
      continue;
    SCOPED_TRACE(fmt::format("{} rows of partial sums", partial_rows));
    const ColumnWindow<R> again(c.dstream, s);
    const auto partial = undefined<State<T>>(partial_rows, s.channels);
    rmsnorm_backward_input<T, R>(exec, again.columns, again.columns, dy.columns, x.columns, rstd, weight, partial);
    const auto unread = undefined<T>(s.rows, s.channels);
    rmsnorm_backward_weight<T, R>(exec, assigned, unread, x.columns, rstd, 0, partial);
    EXPECT_TRUE(allclose(again.host(), result.dx, tolerance<R>, {s.rows, s.columns()}));
    expect_sums_without_start();
  }
  rmsnorm_backward_input<T, R>(exec, dstream.columns, dstream.columns, dy.columns, x.columns, rstd, weight);
  EXPECT_EQ(fingerprint(dstream.whole), fingerprint(dx.whole)) << "in place of dstream";
  if constexpr (std::is_same_v<T, R>) {
    rmsnorm_backward_input<T, R>(exec, dy.columns, {}, dy.columns, x.columns, rstd, weight);
    EXPECT_EQ(fingerprint(dy.whole), fingerprint(alone.whole)) << "in place of dy";
  }
  return result;
}

// As the norm of the residual stream, and as that of the heads of Q.
std::vector<RmsnormSizes> sizes_of(const OpShape& s) {
  return {
      {s.rows(), 1, s.channels()}, {s.rows(), s.heads, s.head_size, s.head_size}, {s.rows(), s.heads, s.head_size, 3}};
}

template <class T, class R>
void compare_with_fp64(const OpShape& shape) {
  SCOPED_TRACE(fmt::format("{} {} {}", to_text(shape), to_string(scalar_type_of<T>()), to_string(scalar_type_of<R>())));
  for (const RmsnormSizes& s : sizes_of(shape)) {
    RmsnormCase c(s);
    for (Values* const values : {&c.x, &c.weight, &c.dy, &c.dstream})
      *values = rounded<T>(*values);
    const RmsnormResult actual = run_rmsnorm<T, R>(c, s), wanted = run_rmsnorm<double>(c, s);
    EXPECT_TRUE(
        allclose(actual.y, reference::rmsnorm(c.x, c.weight, rmsnorm_eps), tolerance<T>, {s.rows, s.columns()}));
    EXPECT_TRUE(allclose(actual.dx, wanted.dx, tolerance<R>, {s.rows, s.columns()}));
    EXPECT_TRUE(allclose(actual.dx_alone, wanted.dx_alone, tolerance<R>, {s.rows, s.columns()}));
    // Sums of products in the state type: zeros_like is rounded to 16 bits.
    EXPECT_TRUE(allclose(actual.dweight, wanted.dweight, 1e-5));
  }
}

TEST(Rmsnorm, all_types_are_as_plain_loops_and_fp64) {
  for (const OpShape& s : op_shapes()) {
    compare_with_fp64<float, float>(s);
    compare_with_fp64<double, double>(s);
    compare_with_fp64<bfloat16, bfloat16>(s);
    compare_with_fp64<bfloat16, float>(s);
    compare_with_fp64<float16, float16>(s);
    compare_with_fp64<float16, float>(s);
  }
}

TEST(Rmsnorm, gradients_are_those_of_finite_differences) {
  for (const OpShape& shape : op_shapes())
    for (const RmsnormSizes& s : sizes_of(shape)) {
      SCOPED_TRACE(fmt::format("{} {} {}", s.rows, s.groups, s.channels));
      const RmsnormCase c(s);
      const RmsnormResult g = run_rmsnorm<double>(c, s);
      const auto of_x = [&](const Values& x) { return dot(c.dy, reference::rmsnorm(x, c.weight, rmsnorm_eps)); };
      EXPECT_TRUE(gradient_check(of_x, c.x, g.dx_alone, 24, 1e-7, {s.rows, s.columns()}));
      EXPECT_TRUE(allclose(without(g.dx, c.dstream), g.dx_alone, 1e-12));
      EXPECT_TRUE(gradient_check([&](const Values& w) { return dot(c.dy, reference::rmsnorm(c.x, w, rmsnorm_eps)); },
                                 c.weight, without(g.dweight, Values(c.weight.size(), 2.0))));
    }
}

TEST(Rmsnorm, rows_of_more_than_a_warp_are_summed_as_a_whole) {
  const RmsnormSizes s{7, 1, 384};
  const RmsnormCase c(s);
  const RmsnormResult actual = run_rmsnorm<float>(c, s), wanted = run_rmsnorm<double>(c, s);
  EXPECT_TRUE(allclose(actual.dx, wanted.dx, 1e-5, {7, 384}));
  EXPECT_TRUE(allclose(actual.dweight, wanted.dweight, 1e-5));
}

TEST(Rmsnorm, rows_of_zeros_stay_zeros) {
  const Index channels = 24;
  const auto zeros = on_device<float>(Values(24, 0.0), Index{1}, channels);
  const auto weight = on_device<float>(Values(24, 2.0), channels);
  const auto y = undefined<float>(Index{1}, channels), dx = undefined<float>(Index{1}, channels);
  const auto rstd = undefined<float>(Index{1});
  rmsnorm_forward<float>(ExecSpace(), y, rstd, zeros, weight, rmsnorm_eps);
  rmsnorm_backward_input<float>(ExecSpace(), dx, {}, on_device<float>(Values(24, 1.0), Index{1}, channels), zeros, rstd,
                                weight);
  EXPECT_EQ(on_host(y), Values(24, 0.0));
  EXPECT_TRUE(allclose(on_host(dx), Values(24, 2 / std::sqrt(rmsnorm_eps)), 1e-6));
}

}  // namespace
